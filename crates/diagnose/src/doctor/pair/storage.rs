//! Facts that affect moving bytes: pipes, the page cache, direct I/O, unnamed files.

use std::fs::{self, File};
use std::io::IoSliceMut;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use underpass_engine::atomic_file::{AtomicFile, Existing};
use underpass_engine::{PipePool, errno};

use crate::probe;

use crate::doctor::ends::sample::TrialFile;
use crate::doctor::ends::target::TrialTarget;
use crate::doctor::finding::Finding;

/// Facts about pipes, the page cache and files.
#[derive(Clone, Debug)]
pub(crate) struct StorageInfo {
    /// The size of a pipe, and what `fs.pipe-max-size` allows.
    pub(crate) pipe: (Result<usize, Errno>, Option<usize>),
    /// Whether reading without waiting is possible.
    pub(crate) nowait: Result<(), Errno>,
    /// Whether the page cache can be queried.
    pub(crate) cachestat: Result<u64, Errno>,
    /// Whether the file can be read bypassing the page cache.
    pub(crate) direct: Result<(), Errno>,
    /// Whether an unnamed file can be created and named; `Ok(false)` if files have hidden names
    /// instead. `None` if no copy would be made.
    pub(crate) unnamed: Option<Result<bool, Errno>>,
    /// Whether /proc is mounted.
    pub(crate) has_proc: bool,
}

impl StorageInfo {
    /// Gathers all facts.
    pub(crate) fn gather(sample: &TrialFile, target: &TrialTarget) -> Self {
        let file = sample.file();
        let max = fs::read_to_string("/proc/sys/fs/pipe-max-size").ok();
        let mut byte = [0];
        let read = preadv2(file, &mut [IoSliceMut::new(&mut byte)], 0, ReadWriteFlags::NOWAIT);
        let folder = target.folder().filter(|_| target.is_copy());
        Self {
            pipe: (PipePool::capacity(), max.and_then(|max| max.trim().parse().ok())),
            nowait: match read {
                // EAGAIN also shows that the flag is supported.
                Ok(_) | Err(Errno::AGAIN) => Ok(()),
                Err(errno) => Err(errno),
            },
            cachestat: probe::cached(file, 0, crate::doctor::ends::sample::LEN),
            direct: read_direct(file),
            unnamed: folder.map(|folder| land(&folder)),
            has_proc: probe::has_proc(),
        }
    }
}

/// Reads a block bypassing the page cache.
fn read_direct(file: &File) -> Result<(), Errno> {
    let flags = OFlags::DIRECT.bits().cast_signed();
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let mut room = vec![0; 2 * BLOCK];
    // O_DIRECT needs memory aligned to a block.
    let skip = room.as_ptr().align_offset(BLOCK).min(BLOCK);
    let opened = File::options().read(true).custom_flags(flags).open(path);
    let read = opened.and_then(|file| file.read_at(&mut room[skip..skip + BLOCK], 0));
    read.map(drop).map_err(errno::of)
}

/// Creates a file as copies are created, gives it a name, and removes it.
fn land(folder: &Path) -> Result<bool, Errno> {
    let path = folder.join(format!(".underpass-doctor.{}", std::process::id()));
    let atomic = AtomicFile::create(&path, 0o600).map_err(errno::of)?;
    let is_unnamed = atomic.is_unnamed();
    atomic.commit(Existing::Keep).map_err(errno::of)?;
    fs::remove_file(&path).map_err(errno::of)?;
    Ok(is_unnamed)
}

/// Returns the findings for these facts.
pub(crate) fn findings(info: &StorageInfo) -> Vec<Finding> {
    let mut findings = vec![pipe(info), nowait(info), cachestat(info), direct(info)];
    findings.extend(info.unnamed.map(|landed| unnamed(landed, info.has_proc)));
    findings
}

fn pipe(info: &StorageInfo) -> Finding {
    let (granted, max) = info.pipe;
    let max = max.map(|max| format!(" (fs.pipe-max-size: {max})")).unwrap_or_default();
    match granted {
        Ok(bytes) if bytes >= FULL => Finding::best("pipe")
            .finding(format!("a pipe of {bytes} bytes was granted{max}"))
            .consequence("splice moves up to that much in each call"),
        Ok(bytes) => Finding::limited("pipe")
            .finding(format!("only a pipe of {bytes} bytes was granted{max}"))
            .consequence("splice needs more calls, as in uploads and recv")
            .remedy(
                "as root: sysctl fs.pipe-max-size=1048576; or this user has too many pipes \
                 (fs.pipe-user-pages-soft)",
            ),
        Err(errno) => Finding::limited("pipe")
            .finding(format!("no pipe can be created ({})", errno::name(errno)))
            .consequence("splice cannot be used: bytes from sockets cross user space")
            .remedy("let the system call filter (seccomp) allow pipe2(2)"),
    }
}

fn nowait(info: &StorageInfo) -> Finding {
    let refused =
        |errno| format!("reads without waiting are not supported ({})", errno::name(errno));
    match (info.nowait, info.cachestat) {
        (Ok(()), _) => Finding::best("rwf_nowait")
            .finding("reads without waiting are supported (RWF_NOWAIT)")
            .consequence("serve knows which reads would wait, and leaves them to a helper"),
        (Err(errno), Ok(_)) => Finding::unneeded("rwf_nowait")
            .finding(refused(errno))
            .consequence("cachestat gives the same information"),
        (Err(errno), Err(_)) => Finding::limited("rwf_nowait")
            .finding(refused(errno))
            .consequence("serve assumes that such files are in memory, and may wait for a disk")
            .remedy("tmpfs is in memory; otherwise keep files on ext4, XFS or btrfs"),
    }
}

fn cachestat(info: &StorageInfo) -> Finding {
    let refused = |errno| {
        format!("the kernel does not report which pages are cached ({})", errno::name(errno))
    };
    match (info.cachestat, info.nowait) {
        (Ok(bytes), _) => Finding::best("cachestat")
            .finding(format!(
                "the kernel reports which pages are cached: {bytes} bytes of the first 262144"
            ))
            .consequence("serve asks once for all pages of a step"),
        (Err(errno), Ok(())) => Finding::unneeded("cachestat")
            .finding(refused(errno))
            .consequence("reads that do not wait give the same information, page by page"),
        (Err(errno), Err(_)) => Finding::limited("cachestat")
            .finding(refused(errno))
            .consequence("it is unknown whether a file is in memory")
            .remedy("run Linux 6.5 or newer, and let filters allow cachestat(2); own the files"),
    }
}

fn direct(info: &StorageInfo) -> Finding {
    match info.direct {
        Ok(()) => Finding::best("o_direct")
            .finding("the file can be read past the page cache (O_DIRECT)")
            .consequence("cp --verify=direct reads what is on the disk"),
        Err(errno) => Finding::unneeded("o_direct")
            .finding(format!(
                "the file cannot be read past the page cache ({})",
                errno::name(errno)
            ))
            .consequence(
                "cp --verify=direct drops the file from the page cache and reads it again",
            ),
    }
}

fn unnamed(landed: Result<bool, Errno>, has_proc: bool) -> Finding {
    let name = "unnamed_file";
    match landed {
        Ok(true) => Finding::best(name)
            .finding("a file was created without a name and then given one (O_TMPFILE, linkat)")
            .consequence(
                "a copy appears only when it is complete; an interrupted one leaves nothing",
            ),
        Ok(false) => Finding::limited(name)
            .finding("unnamed files are not supported (O_TMPFILE)")
            .consequence(
                "a copy has a hidden name until it is complete; a killed one leaves a file behind",
            )
            .remedy("ext4, XFS, btrfs and tmpfs have files without names"),
        Err(errno) => Finding::closed(name)
            .finding(format!("a new file cannot be given its name ({})", errno::name(errno)))
            .consequence("copies fail at their end")
            .remedy(if has_proc {
                "let this user create, name and remove files there, and filters allow linkat(2)"
            } else {
                "mount /proc: a file without a name gets one through it"
            }),
    }
}

/// The alignment that O_DIRECT needs of addresses, offsets and lengths.
const BLOCK: usize = 4096;

/// The size that the engine requests.
const FULL: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::{count_closed, text};

    #[test]
    fn storage_findings_match_the_snapshots() {
        let whole = StorageInfo {
            pipe: (Ok(1 << 20), Some(1 << 20)),
            nowait: Ok(()),
            cachestat: Ok(262_144),
            direct: Ok(()),
            unnamed: Some(Ok(true)),
            has_proc: true,
        };
        let less = StorageInfo {
            pipe: (Ok(8192), None),
            nowait: Err(Errno::OPNOTSUPP),
            direct: Err(Errno::INVAL),
            unnamed: Some(Ok(false)),
            ..whole.clone()
        };
        let other = StorageInfo { nowait: Ok(()), cachestat: Err(Errno::PERM), ..less.clone() };
        let least = StorageInfo {
            pipe: (Err(Errno::PERM), None),
            cachestat: Err(Errno::NOSYS),
            unnamed: Some(Err(Errno::NOENT)),
            ..less.clone()
        };
        let mut rendered = String::new();
        for (info, closed) in [(whole, 0), (less, 0), (other, 0), (least, 1)] {
            let found = findings(&info);
            assert_eq!(count_closed(&found), closed, "{found:?}");
            rendered += &text(&found);
        }
        assert_eq!(rendered, include_str!("../snapshots/storage.txt"));
    }
}
