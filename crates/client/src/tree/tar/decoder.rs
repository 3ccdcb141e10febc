//! The state of an archive that is being read.

use rustix::fs::Timespec;
use tar::{EntryType, Header};
use underpass_protocol::archive::{BLOCK, padding};

use super::TarError;
use super::pax::PaxHeader;

/// A member, whose contents follow its header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TarMember {
    /// Its path in the archive.
    pub path: Vec<u8>,
    /// Its kind.
    pub kind: MemberKind,
    /// Its permission bits, without set-user-ID and its kin: at most `0o777`.
    pub mode: u32,
    /// When it was last changed.
    pub modified: Timespec,
    /// The number of bytes of contents that follow, padded to whole blocks.
    pub size: u64,
}

impl TarMember {
    /// Returns the number of bytes that follow, including the padding.
    #[must_use]
    pub fn padded(&self) -> u64 {
        self.size + padding(self.size)
    }
}

/// The kind of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberKind {
    /// A file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link, with its target.
    Symlink(Vec<u8>),
    /// Another name of a file that came before, with the path of that.
    HardLink(Vec<u8>),
    /// A device, a pipe or something that only its writer knows, with the letter of its kind.
    Other(u8),
}

/// The result of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TarEvent {
    /// The header goes on.
    More,
    /// The header is complete. The padded contents have to be taken before the next step.
    Member(TarMember),
    /// The archive is complete.
    End,
}

/// Reads headers.
#[derive(Debug, Default)]
pub struct Decoder {
    /// The facts about the member to come in the headers so far.
    extended: PaxHeader,
    /// The extension whose contents are due, with their length.
    due: Option<(Extension, usize)>,
}

/// Headers that only prepare for the one to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extension {
    /// GNU: a long target of a link.
    LongLink,
    /// GNU: a long path.
    LongName,
    /// PAX: records for the next member.
    Pax,
    /// Nothing that concerns us: records for all members, the name of a volume.
    Skipped,
}

impl Decoder {
    /// Returns the number of bytes that the next step takes, all of which are certain to be there.
    #[must_use]
    pub fn needed(&self) -> usize {
        match self.due {
            None => BLOCK as usize,
            Some((_, len)) => len + padding(len as u64) as usize,
        }
    }

    /// Returns whether these are the contents of an extension, which a header always follows.
    #[must_use]
    pub fn is_extended(&self) -> bool {
        self.due.is_some()
    }

    /// Takes [`needed`](Self::needed) bytes.
    ///
    /// # Errors
    ///
    /// [`TarError`] if this is not an archive, or one that cannot be read.
    pub fn step(&mut self, bytes: &[u8]) -> Result<TarEvent, TarError> {
        if bytes.len() != self.needed() {
            return Err(TarError::Cut);
        }
        match self.due.take() {
            None => self.header(bytes),
            Some((extension, len)) => {
                self.extend(extension, &bytes[..len])?;
                Ok(TarEvent::More)
            }
        }
    }

    /// Takes the contents of an extension.
    fn extend(&mut self, extension: Extension, value: &[u8]) -> Result<(), TarError> {
        let text = || value.split(|byte| *byte == 0).next().unwrap_or_default().to_vec();
        match extension {
            Extension::LongLink => self.extended.target = Some(text()),
            Extension::LongName => self.extended.path = Some(text()),
            Extension::Pax => self.extended.read(value)?,
            Extension::Skipped => {}
        }
        Ok(())
    }

    /// Takes a block with a header.
    fn header(&mut self, block: &[u8]) -> Result<TarEvent, TarError> {
        if block.iter().all(|byte| *byte == 0) {
            // Two of them end an archive, but one is where no header can be any more.
            return Ok(TarEvent::End);
        }
        let header = Header::from_byte_slice(block);
        check(header, block)?;
        let letter = header.entry_type().as_byte();
        if matches!(letter, b'S' | b'M') {
            return Err(TarError::Unsupported);
        }
        let size = header.entry_size().map_err(|_| TarError::Number)?;
        let extension = match letter {
            b'K' => Some(Extension::LongLink),
            b'L' => Some(Extension::LongName),
            b'x' => Some(Extension::Pax),
            b'g' | b'V' => Some(Extension::Skipped),
            _ => None,
        };
        if let Some(extension) = extension {
            let len = usize::try_from(size).ok().filter(|len| *len <= MAX_EXTENDED);
            let len = len.ok_or(TarError::TooLong)?;
            if len > 0 {
                self.due = Some((extension, len));
            }
            return Ok(TarEvent::More);
        }
        let extended = std::mem::take(&mut self.extended);
        if extended.is_sparse {
            return Err(TarError::Unsupported);
        }
        member(header, extended, size).map(TarEvent::Member)
    }
}

/// Combines a member's own header with those before it.
fn member(header: &Header, extended: PaxHeader, size: u64) -> Result<TarMember, TarError> {
    let path = extended.path.unwrap_or_else(|| header.path_bytes().into_owned());
    let target = || {
        let own = || header.link_name_bytes().unwrap_or_default().into_owned();
        extended.target.unwrap_or_else(own)
    };
    let kind = match header.entry_type() {
        // Before ustar a folder was a file with a slash at its end.
        EntryType::Regular if path.ends_with(b"/") => MemberKind::Folder,
        EntryType::Regular | EntryType::Continuous => MemberKind::File,
        EntryType::Directory => MemberKind::Folder,
        EntryType::Symlink => MemberKind::Symlink(target()),
        EntryType::Link => MemberKind::HardLink(target()),
        other => MemberKind::Other(other.as_byte()),
    };
    let has_contents = match kind {
        MemberKind::File => true,
        MemberKind::Folder | MemberKind::Symlink(_) | MemberKind::HardLink(_) => false,
        // POSIX: members of unknown kinds are to be treated as files. Devices and pipes are known
        // kinds.
        MemberKind::Other(letter) => !matches!(letter, b'3' | b'4' | b'6'),
    };
    let size = if has_contents { extended.size.unwrap_or(size) } else { 0 };
    if size > MAX_SIZE {
        return Err(TarError::Number);
    }
    let mtime = header.mtime().map_err(|_| TarError::Number);
    let modified = match extended.modified {
        Some(modified) => modified,
        // In base 256 it may be negative: the field is a number in two's complement.
        None => Timespec { tv_sec: mtime?.cast_signed(), tv_nsec: 0 },
    };
    let mode = header.mode().map_err(|_| TarError::Number)? & PERMISSIONS;
    Ok(TarMember { path, kind, mode, modified, size })
}

/// Verifies the checksum of a header, which old programs computed with signed bytes.
fn check(header: &Header, block: &[u8]) -> Result<(), TarError> {
    let stated = i64::from(header.cksum().map_err(|_| TarError::NotTar)?);
    let field = 148..156;
    let byte = |(at, byte): (usize, &u8)| if field.contains(&at) { b' ' } else { *byte };
    let bytes = || block.iter().enumerate().map(byte);
    let unsigned: i64 = bytes().map(i64::from).sum();
    let signed: i64 = bytes().map(|byte| i64::from(byte.cast_signed())).sum();
    if stated == unsigned || stated == signed { Ok(()) } else { Err(TarError::NotTar) }
}

/// The permission bits that are kept: without set-user-ID, set-group-ID and sticky.
const PERMISSIONS: u32 = 0o777;

/// The maximum size of an extension in bytes. Paths have 4,096, and libarchive uses the same limit.
const MAX_EXTENDED: usize = 1 << 20;

/// The maximum size of a file in bytes, which leaves room for offsets in the archive.
const MAX_SIZE: u64 = i64::MAX as u64 / 2;
