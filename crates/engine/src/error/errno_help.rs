//! The meaning, in words, of errors by which the kernel declines a mechanism.

/// Explains why the kernel declined `mechanism` with `errno`, given by name; `None` if unknown.
///
/// It also knows tee(2) and vmsplice(2), which this crate does not use.
///
/// ```
/// use underpass_engine::errno::errno_help;
/// assert_eq!(errno_help("copy_file_range", "EXDEV"), Some("two file systems"));
/// assert_eq!(errno_help("sendfile", "EIO"), None);
/// ```
#[must_use]
pub fn errno_help(mechanism: &str, errno: &str) -> Option<&'static str> {
    if errno == "0" {
        return Some(NOTHING);
    }
    let known = HELP.iter().find(|known| (known.0, known.1) == (mechanism, errno));
    known.map(|(.., meaning)| *meaning)
}

/// The tables of docs/mechanisms.md, and known errors of calls that the engine does not make.
const HELP: [(&str, &str, &str); 48] = [
    ("reflink", "EACCES", "a security module's answer"),
    ("reflink", "EAGAIN", "OpenZFS, for blocks that are not on the disk yet"),
    ("reflink", "EBADF", "the sink is opened with O_APPEND"),
    ("reflink", "EINVAL", "not aligned to blocks, beyond the end, or not a regular file"),
    ("reflink", "EISDIR", "an end is a directory"),
    ("reflink", "ENOSYS", "a seccomp filter"),
    ("reflink", "ENOTTY", "a file system without ioctl"),
    ("reflink", "EOPNOTSUPP", "a file system without shared blocks"),
    ("reflink", "EPERM", "an immutable sink, or a container's seccomp filter"),
    ("reflink", "ETXTBSY", "a swap file"),
    ("reflink", "EXDEV", "two file systems"),
    ("copy_file_range", "EACCES", "a security module's answer"),
    ("copy_file_range", "EAGAIN", "OpenZFS, for blocks that are not on the disk yet"),
    ("copy_file_range", "EBADF", "the sink is opened with O_APPEND"),
    ("copy_file_range", "EFBIG", "the range ends beyond the largest offset"),
    ("copy_file_range", "EINVAL", "an end that is not a regular file; sometimes OpenZFS"),
    (
        "copy_file_range",
        "EIO",
        "CIFS, for what it does not offer; at the first call for a segment only",
    ),
    ("copy_file_range", "ENOENT", "fuse-overlayfs and CIFS"),
    ("copy_file_range", "ENOSYS", "a kernel before 4.5, or a seccomp filter"),
    ("copy_file_range", "EOPNOTSUPP", "NFS and some FUSE file systems"),
    ("copy_file_range", "EOVERFLOW", "offset and length beyond what the file system can hold"),
    ("copy_file_range", "EPERM", "an immutable sink, or a container's seccomp filter"),
    ("copy_file_range", "ETXTBSY", "a swap file"),
    ("copy_file_range", "EXDEV", "two file systems"),
    ("sendfile", "EINVAL", "a source without pages, or a sink opened with O_APPEND"),
    ("sendfile", "ENOSYS", "a seccomp filter"),
    ("sendfile", "EOPNOTSUPP", "MPTCP and other sockets of old kernels"),
    ("sendfile", "EOVERFLOW", "the sink cannot hold such offsets"),
    ("sendfile", "EPERM", "a container's seccomp filter"),
    ("sendfile", "ESPIPE", "a source that has no offsets"),
    ("splice", "EINVAL", "an end that does not support splice, or a sink opened with O_APPEND"),
    ("splice", "EMFILE", "pipe2(2): the process has no descriptor left"),
    ("splice", "ENFILE", "pipe2(2): the system has no descriptor left"),
    ("splice", "ENOSYS", "a seccomp filter"),
    ("splice", "EOPNOTSUPP", "some sockets and FUSE file systems"),
    ("splice", "EPERM", "a container's seccomp filter"),
    ("splice", "ESPIPE", "an offset for an end that has none"),
    ("mmap", "EACCES", "the source is not a regular file, or a security module's answer"),
    ("mmap", "EAGAIN", "too much memory is locked"),
    ("mmap", "EINVAL", "offset or length that this source cannot map"),
    ("mmap", "ENODEV", "a file system that maps no files"),
    ("mmap", "ENOMEM", "RLIMIT_AS or max_map_count is reached"),
    ("mmap", "ENOSYS", "a seccomp filter"),
    ("mmap", "EOPNOTSUPP", "some FUSE file systems"),
    ("mmap", "EOVERFLOW", "offset and length beyond what can be mapped"),
    ("mmap", "EPERM", "a seal, or a container's seccomp filter"),
    ("tee", "EINVAL", "an end that is not a pipe, or one pipe twice"),
    ("vmsplice", "EBADF", "not a pipe"),
];

/// The text for a decline without an error.
const NOTHING: &str = "it reported the end of the file too early, as some network file systems do";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_has_the_same_meanings_of_errnos() {
        let mut section = "";
        let mut compared = 0;
        for line in include_str!("../../../../docs/mechanisms.md").lines() {
            section = line.strip_prefix("## ").unwrap_or(section);
            let cells: Vec<_> = line.split('|').map(str::trim).collect();
            let ["", errno, meaning, _, ""] = *cells else { continue };
            let Some(errno) = errno.strip_prefix("`E").and_then(|name| name.strip_suffix('`'))
            else {
                continue;
            };
            let is_mechanism = HELP.iter().any(|(name, ..)| *name == section);
            if is_mechanism {
                let help = errno_help(section, &format!("E{errno}"));
                assert_eq!(help, Some(&*meaning.replace('`', "")), "{section} E{errno}");
                compared += 1;
            }
        }
        assert_eq!(compared, 46, "rows of docs/mechanisms.md");
    }
}
