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
    /// Its permission bits, at most `0o777`: without set-user-ID, set-group-ID and sticky.
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
    /// A hard link to an earlier member, with the path of that one.
    HardLink(Vec<u8>),
    /// A device, a pipe or a vendor-specific entry, with the letter of its kind.
    Other(u8),
}

/// The result of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TarEvent {
    /// The header continues.
    More,
    /// The header is complete. The padded contents must be consumed before the next step.
    Member(TarMember),
    /// The archive is complete.
    End,
}

/// Reads headers.
#[derive(Debug, Default)]
pub struct Decoder {
    /// What earlier headers say about the next member.
    extended: PaxHeader,
    /// The extension whose contents come next, with their length.
    due: Option<(Extension, usize)>,
}

/// Headers that describe the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extension {
    /// GNU: a long link target.
    LongLink,
    /// GNU: a long path.
    LongName,
    /// PAX: records for the next member.
    Pax,
    /// Ignored: records for all members, the name of a volume.
    Skipped,
}

impl Decoder {
    /// Returns the number of bytes that the next step consumes, all of which are certain to exist.
    #[must_use]
    pub fn needed(&self) -> usize {
        match self.due {
            None => BLOCK as usize,
            Some((_, len)) => len + padding(len as u64) as usize,
        }
    }

    /// Returns whether the next bytes are the contents of an extension, always before a header.
    #[must_use]
    pub fn is_extended(&self) -> bool {
        self.due.is_some()
    }

    /// Consumes [`needed`](Self::needed) bytes.
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

    /// Applies the contents of an extension.
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

    /// Parses a header block.
    fn header(&mut self, block: &[u8]) -> Result<TarEvent, TarError> {
        if block.iter().all(|byte| *byte == 0) {
            // Two of them end an archive, but the first is enough, because it cannot be a header.
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
        // Before ustar, a folder was a file whose name ends in a slash.
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

/// The maximum size of an extension in bytes, which libarchive has, too. PATH_MAX is 4,096.
const MAX_EXTENDED: usize = 1 << 20;

/// The maximum size of a file in bytes, which leaves room for offsets in the archive.
const MAX_SIZE: u64 = i64::MAX as u64 / 2;
