//! The header of one member of a tar: a ustar block, preceded by a PAX header for values that the
//! block cannot hold.
//!
//! The block alone holds names of 100 bytes, sizes below 8 GiB and whole seconds. Both GNU tar and
//! libarchive read and write PAX. Its values are UTF-8 unless `hdrcharset` says that they are
//! bytes, which libarchive needs to return such a name unchanged, and which GNU tar ignores with a
//! warning. So a name that is not UTF-8 stays in the block, which has no character set, if it
//! fits.

use tar::{EntryType, Header};

use crate::version::FileTime;

/// The size of a tar block in bytes: all of an archive is whole blocks (POSIX.1 pax, ustar).
pub const BLOCK: u64 = 512;

/// The kind of a member. A hard link is a file like any other; devices, pipes and sockets are not
/// included in an archive for download.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberType<'a> {
    /// A file; its length is that of its version.
    File,
    /// A folder.
    Folder,
    /// A symbolic link, with its target unchanged.
    Symlink(&'a [u8]),
}

/// The contents of a member's header.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemberFacts<'a> {
    /// The name in the archive; a folder's ends in a slash.
    pub(super) path: &'a [u8],
    pub(super) kind: MemberType<'a>,
    /// Only the permissions count.
    pub(super) mode: u32,
    /// The length of a file's contents.
    pub(super) size: u64,
    pub(super) modified: FileTime,
}

/// Returns the length of what [`write()`] writes, which is whole blocks.
pub(super) fn len(facts: &MemberFacts<'_>) -> u64 {
    match records(facts).len() as u64 {
        0 => BLOCK,
        len => BLOCK + len + padding(len) + BLOCK,
    }
}

/// Writes the header of a member.
pub(super) fn write(out: &mut Vec<u8>, facts: &MemberFacts<'_>) {
    let records = records(facts);
    if !records.is_empty() {
        // Seen only by programs that do not know PAX, which unpack it as a file.
        let name = b"PaxHeader";
        let header = block(name, b"", EntryType::XHeader, records.len() as u64, 0o644, 0);
        out.extend_from_slice(header.as_bytes());
        out.extend_from_slice(&records);
        out.resize(out.len() + padding(records.len() as u64) as usize, 0);
    }
    let (entry, target) = match facts.kind {
        MemberType::File => (EntryType::Regular, &b""[..]),
        MemberType::Folder => (EntryType::Directory, &b""[..]),
        MemberType::Symlink(target) => (EntryType::Symlink, target),
    };
    let modified = facts.modified.seconds.clamp(0, MAX_OCTAL as i64) as u64;
    let mode = facts.mode & PERMISSIONS;
    let header = block(facts.path, target, entry, facts.size, mode, modified);
    out.extend_from_slice(header.as_bytes());
}

/// Returns how many zeros follow `len` bytes to fill their last block.
#[must_use]
pub const fn padding(len: u64) -> u64 {
    len.wrapping_neg() % BLOCK
}

/// Permissions without set-user-ID and the like: unpacked as root, the files belong to root, and
/// a user's program would run as root.
const PERMISSIONS: u32 = 0o777;

/// The largest number that eleven octal digits hold: 8 GiB less one, or the year 2242.
const MAX_OCTAL: u64 = 0o777_7777_7777;

/// The length of the fields for the name and the link's target.
const NAME: usize = 100;

/// Returns the block of one entry that was modified at the second `modified` after 1970.
fn block(
    name: &[u8],
    target: &[u8],
    entry: EntryType,
    size: u64,
    mode: u32,
    modified: u64,
) -> Header {
    let mut header = Header::new_ustar();
    let fields = header.as_old_mut();
    fill(&mut fields.name, name);
    fill(&mut fields.linkname, target);
    header.set_entry_type(entry);
    // In base 256 if it is too large for octal. That is not POSIX; the PAX header has the size,
    // too, and some programs understand only one of the two.
    header.set_size(size);
    header.set_mode(mode);
    header.set_mtime(modified);
    // Owners on the server are private, and useless elsewhere.
    header.set_uid(0);
    header.set_gid(0);
    header.set_cksum();
    header
}

/// Returns as much of a name as the field takes.
fn fill(field: &mut [u8; NAME], name: &[u8]) {
    let len = name.len().min(NAME);
    field[..len].copy_from_slice(&name[..len]);
}

/// Returns the records of the PAX header; empty if the block suffices.
fn records(facts: &MemberFacts<'_>) -> Vec<u8> {
    let target = match facts.kind {
        MemberType::Symlink(target) => target,
        MemberType::File | MemberType::Folder => b"",
    };
    let names = [("path", facts.path), ("linkpath", target)];
    let is_utf8 = |name| std::str::from_utf8(name).is_ok();
    let mut out = Vec::new();
    if names.iter().any(|(_, name)| name.len() > NAME && !is_utf8(name)) {
        record(&mut out, "hdrcharset", b"BINARY");
    }
    for (key, name) in names {
        // Only PAX marks a name as UTF-8, for systems where names have another form.
        if name.len() > NAME || (!name.is_ascii() && is_utf8(name)) {
            record(&mut out, key, name);
        }
    }
    if facts.size > MAX_OCTAL {
        record(&mut out, "size", facts.size.to_string().as_bytes());
    }
    let FileTime { seconds, nanoseconds } = facts.modified;
    if nanoseconds != 0 || !(0..=MAX_OCTAL as i64).contains(&seconds) {
        record(&mut out, "mtime", decimal(facts.modified).as_bytes());
    }
    out
}

/// Adds one record: its own length, a key, a value.
fn record(out: &mut Vec<u8>, key: &str, value: &[u8]) {
    let bare = key.len() + value.len() + " =\n".len();
    let mut len = bare;
    // The length counts its own digits, and counting them may add one.
    while len != bare + digits(len) {
        len = bare + digits(len);
    }
    out.extend_from_slice(format!("{len} {key}=").as_bytes());
    out.extend_from_slice(value);
    out.push(b'\n');
}

fn digits(number: usize) -> usize {
    number.checked_ilog10().unwrap_or(0) as usize + 1
}

/// Returns a time as PAX writes it. The nanoseconds of the kernel count forwards even before
/// 1970.
fn decimal(FileTime { seconds, nanoseconds }: FileTime) -> String {
    match nanoseconds {
        0 => seconds.to_string(),
        _ if seconds < 0 => {
            let (seconds, nanoseconds) = (-(seconds + 1), 1_000_000_000 - nanoseconds);
            format!("-{seconds}.{nanoseconds:09}")
        }
        _ => format!("{seconds}.{nanoseconds:09}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: MemberFacts<'_> = MemberFacts {
        path: b"a/b",
        kind: MemberType::File,
        mode: 0o644,
        size: 3,
        modified: FileTime { seconds: 7, nanoseconds: 0 },
    };

    fn header(facts: &MemberFacts<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        write(&mut out, facts);
        assert_eq!((out.len() as u64, out.len() as u64 % BLOCK), (len(facts), 0));
        out
    }

    /// Returns the records in front of a member.
    fn pax(facts: &MemberFacts<'_>) -> String {
        let out = header(facts);
        if out.len() as u64 == BLOCK {
            return String::new();
        }
        let extended = Header::from_byte_slice(&out[..BLOCK as usize]);
        assert!(extended.entry_type().is_pax_local_extensions());
        let len = extended.size().unwrap() as usize;
        String::from_utf8_lossy(&out[BLOCK as usize..][..len]).into_owned()
    }

    #[test]
    fn a_plain_member_is_one_block() {
        let out = header(&PLAIN);
        let block = Header::from_byte_slice(&out);
        assert_eq!(block.path_bytes().as_ref(), b"a/b");
        assert_eq!(block.entry_type(), EntryType::Regular);
        assert_eq!((block.size().unwrap(), block.mode().unwrap()), (3, 0o644));
        assert_eq!((block.mtime().unwrap(), block.uid().unwrap()), (7, 0));
        assert_eq!(out.len() as u64, BLOCK);
    }

    #[test]
    fn long_values_go_into_a_pax_header() {
        let link = |target| MemberFacts { kind: MemberType::Symlink(target), size: 0, ..PLAIN };
        let (hundred, more, other) = ([b'x'; 100], [b'x'; 101], [b'\xff'; 101]);
        let long_path = format!("111 path={}\n", "x".repeat(101));
        let other_path = format!("21 hdrcharset=BINARY\n111 path={}\n", "\u{fffd}".repeat(101));
        let other_link =
            format!("21 hdrcharset=BINARY\n11 path=é\n115 linkpath={}\n", "\u{fffd}".repeat(101));
        let long_link = format!("115 linkpath={}\n", "x".repeat(101));
        let at = |seconds, nanoseconds| MemberFacts {
            modified: FileTime { seconds, nanoseconds },
            ..PLAIN
        };
        let cases: [(MemberFacts<'_>, &str); 16] = [
            (MemberFacts { path: &hundred, ..PLAIN }, ""),
            (MemberFacts { path: &more, ..PLAIN }, &long_path),
            (MemberFacts { path: "é".as_bytes(), ..PLAIN }, "11 path=é\n"),
            (MemberFacts { path: b"\xff", ..PLAIN }, ""),
            (MemberFacts { path: &other, ..PLAIN }, &other_path),
            (link(b"../b"), ""),
            (link(&hundred), ""),
            (link(&more), &long_link),
            (link(b"\xff"), ""),
            (MemberFacts { path: "é".as_bytes(), ..link(&other) }, &other_link),
            (MemberFacts { size: MAX_OCTAL, ..PLAIN }, ""),
            (MemberFacts { size: MAX_OCTAL + 1, ..PLAIN }, "19 size=8589934592\n"),
            (at(1, 5), "21 mtime=1.000000005\n"),
            (at(-1, 0), "12 mtime=-1\n"),
            (at(-1, 999_999_999), "22 mtime=-0.000000001\n"),
            (at(8_589_934_592, 0), "20 mtime=8589934592\n"),
        ];
        for (facts, records) in cases {
            assert_eq!(pax(&facts), records, "{facts:?}");
        }
    }

    #[test]
    fn a_records_length_counts_its_own_digits() {
        for len in 0..2_000 {
            let mut out = Vec::new();
            record(&mut out, "k", &vec![b'v'; len]);
            let (number, _) = std::str::from_utf8(&out).unwrap().split_once(' ').unwrap();
            assert_eq!(number.parse(), Ok(out.len()));
        }
    }

    #[test]
    fn setuid_bits_are_not_archived() {
        let out = header(&MemberFacts { mode: 0o104_755, ..PLAIN });
        assert_eq!(Header::from_byte_slice(&out).mode().unwrap(), 0o755);
    }
}
