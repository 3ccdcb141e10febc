//! The offset of each member in the archive. This module is pure: metadata in, offsets out.
//!
//! Members are stored in one table of rows and one of names, in which each name is only the last
//! part of its path, so that memory does not grow with the square of a tree's depth. A member takes
//! 64 bytes, its name and a link's target: some 80 MB for a million.

use std::fmt;

use super::fingerprint::Fingerprint;
use super::format::ArchiveFormat;
use super::header::{BLOCK, MemberFacts, MemberType};
use super::row::{CompactVersion, KIND_SHIFT, MODE, MemberRow, RowKind};
use super::zip;
use crate::version::FileVersion;

/// The reason why an archive cannot be laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// A path is longer than the format allows.
    #[error("a path has more than {limit} bytes")]
    LongPath {
        /// The maximum length of a path in bytes.
        limit: usize,
    },
    /// The archive would be longer than a file can be.
    #[error("the archive would be longer than 8 EiB")]
    TooLarge,
    /// There are more members than can be counted.
    #[error("the archive has more than {limit} members")]
    TooMany {
        /// The number of members that were accepted.
        limit: usize,
    },
}

/// A member, as it is put into a [`Builder`].
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// The number of the folder that it is in; `None` for the archived folder itself.
    pub parent: Option<u32>,
    /// Its name in that folder, without a slash.
    pub name: &'a [u8],
    /// The kind of the member.
    pub kind: MemberType<'a>,
    /// Its permission bits, as chmod(2) takes them.
    pub mode: u32,
    /// The file as it was when the archive was laid out: length, times, identity.
    pub version: FileVersion,
}

/// Lays out an archive member by member.
#[derive(Debug)]
pub struct Builder {
    layout: Layout,
    fingerprint: Fingerprint,
    /// The member's path, kept to reuse its memory.
    path: Vec<u8>,
}

impl Builder {
    /// Creates an archive whose members are all below a folder of this name; below none if it is
    /// empty.
    ///
    /// A name that is not plain counts as empty, so that nothing is unpacked elsewhere.
    #[must_use]
    pub fn new(format: ArchiveFormat, top: &[u8]) -> Self {
        let is_plain = !matches!(top, b"" | b"." | b"..") && !top.contains(&b'/');
        let top = if is_plain { [top, b"/"].concat() } else { Vec::new() };
        let mut fingerprint = Fingerprint::new();
        fingerprint.number(match format {
            ArchiveFormat::Tar => TAR_FORMAT,
            ArchiveFormat::Zip => ZIP_FORMAT,
        });
        let layout = Layout {
            format,
            top,
            rows: Vec::new(),
            text: Vec::new(),
            devices: Vec::new(),
            len: 0,
            directory: Directory::default(),
            etag: 0,
        };
        Self { layout, fingerprint, path: Vec::new() }
    }

    /// Adds the archived folder itself, which should be the first member. It has a header only
    /// if the archive has a top folder.
    ///
    /// # Errors
    ///
    /// As [`push`](Self::push).
    pub fn push_top(&mut self, mode: u32, version: FileVersion) -> Result<(), LayoutError> {
        if self.layout.top.is_empty() {
            return Ok(());
        }
        let member = Member { parent: None, name: b"", kind: MemberType::Folder, mode, version };
        self.push(&member).map(drop)
    }

    /// Adds a member after the others, and returns its number.
    ///
    /// # Errors
    ///
    /// [`LayoutError::TooLarge`] if the archive becomes longer than a file could be,
    /// [`LayoutError::TooMany`] if there are more members than it can count, and
    /// [`LayoutError::LongPath`] if the format has no room for the path.
    pub fn push(&mut self, member: &Member<'_>) -> Result<u32, LayoutError> {
        let layout = &mut self.layout;
        let number = u32::try_from(layout.rows.len()).ok().filter(|&number| number < NO_PARENT);
        let text = u32::try_from(layout.text.len()).ok();
        let device = layout.device(member.version.device);
        let (Some(number), Some(text), Some(device)) = (number, text, device) else {
            return Err(LayoutError::TooMany { limit: layout.rows.len() });
        };
        layout.text.extend_from_slice(member.name);
        let (kind, target) = match member.kind {
            MemberType::File => (RowKind::File, &b""[..]),
            MemberType::Folder => (RowKind::Folder, &b""[..]),
            MemberType::Symlink(target) => (RowKind::Symlink, target),
        };
        if kind == RowKind::Symlink {
            // No name contains this byte.
            layout.text.push(0);
            layout.text.extend_from_slice(target);
        }
        layout.rows.push(MemberRow {
            start: layout.len,
            version: CompactVersion::of(&member.version, device),
            text,
            parent: member.parent.filter(|&parent| parent < number).unwrap_or(NO_PARENT),
            mode: (member.mode as u16 & MODE) | (kind as u16) << KIND_SHIFT,
        });
        self.measure(number as usize, member)?;
        Ok(number)
    }

    /// Returns the layout of all the members.
    #[must_use]
    pub fn finish(self) -> Layout {
        let mut layout = self.layout;
        layout.rows.shrink_to_fit();
        layout.text.shrink_to_fit();
        layout.etag = self.fingerprint.value();
        layout
    }

    /// Adds the last member to the length and the fingerprint.
    fn measure(&mut self, index: usize, member: &Member<'_>) -> Result<(), LayoutError> {
        let facts = self.layout.facts(index, &mut self.path);
        let (format, start, size) = (self.layout.format, self.layout.len, facts.size);
        if facts.path.len() > format.max_path() {
            return Err(LayoutError::LongPath { limit: format.max_path() });
        }
        let around = format.head_len(&facts) + format.tail_len(&facts);
        let (entry, spare) = match format {
            ArchiveFormat::Tar => (0, 0),
            ArchiveFormat::Zip => (zip::entry_len(&facts, start), zip::END_GROWTH),
        };
        let room = MAX_ARCHIVE - self.layout.len();
        if size.checked_add(around + entry + spare).is_none_or(|len| len > room) {
            return Err(LayoutError::TooLarge);
        }
        self.layout.len += around + size;
        if format == ArchiveFormat::Zip {
            self.layout.directory.push(index, entry);
        }
        let (version, kind) = (&member.version, self.layout.rows[index].kind());
        let fingerprint = &mut self.fingerprint;
        fingerprint.bytes(&self.path);
        fingerprint.bytes(self.layout.target(index));
        // A mode has sixteen bits.
        fingerprint.number(u64::from(member.mode as u16) << 8 | kind as u64);
        fingerprint.number(size);
        fingerprint.time(version.modified);
        if kind == RowKind::File {
            // Its bytes are in the archive, so it matters whether it is the same file.
            fingerprint.number(version.inode);
            fingerprint.time(version.changed);
        }
        Ok(())
    }
}

/// The layout of an archive: where each member's bytes are.
pub struct Layout {
    format: ArchiveFormat,
    /// The beginning of every path in the archive: a name and a slash, or nothing.
    top: Vec<u8>,
    rows: Vec<MemberRow>,
    /// The name of each member, for a link followed by a zero and its target.
    text: Vec<u8>,
    /// The file systems that members are on.
    devices: Vec<u64>,
    /// The length of all members.
    len: u64,
    /// The directory of a zip.
    directory: Directory,
    etag: u128,
}

impl Layout {
    /// Returns the length of the archive in bytes: of all members, and two blocks of zeros or the
    /// directory of a zip.
    ///
    /// GNU tar continues with zeros up to a multiple of 10,240 for the sake of tape drives;
    /// nothing that reads archives needs it.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self.format {
            ArchiveFormat::Tar => self.len + TRAILER,
            ArchiveFormat::Zip => {
                let len = self.directory.len;
                self.len + len + zip::end_len(self.members() as u64, self.len, len)
            }
        }
    }

    /// Returns the format.
    #[must_use]
    pub fn format(&self) -> ArchiveFormat {
        self.format
    }

    /// Returns whether the archive has no member. What ends every archive remains.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns how many members the archive has.
    #[must_use]
    pub fn members(&self) -> usize {
        self.rows.len()
    }

    /// Returns how many bytes of memory the layout takes.
    #[must_use]
    pub fn memory(&self) -> usize {
        let rows = self.rows.capacity() * size_of::<MemberRow>();
        let numbers = self.devices.capacity() + self.directory.starts.capacity();
        size_of::<Self>() + rows + self.text.capacity() + numbers * size_of::<u64>()
    }

    /// Returns the strong validator of the archive, quoted: it differs if any byte may differ.
    ///
    /// It is made of each member's path, kind, mode, target, length and mtime, and of each file's
    /// inode and ctime.
    #[must_use]
    pub fn etag(&self) -> String {
        format!("\"{:032x}\"", self.etag)
    }

    /// Returns the version that a member had when the archive was laid out.
    pub(super) fn version(&self, index: usize) -> FileVersion {
        let version = &self.rows[index].version;
        version.whole(self.devices[usize::from(version.device)])
    }

    /// Returns the member that contains this offset, or the number of members if it is after all
    /// of them.
    pub(super) fn find(&self, at: u64) -> usize {
        if at >= self.len {
            return self.rows.len();
        }
        self.rows.partition_point(|row| row.start <= at).saturating_sub(1)
    }

    /// Returns the directory of a zip.
    pub(super) fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Returns the offset of a member, or of what follows all of them.
    pub(super) fn start(&self, index: usize) -> u64 {
        self.rows.get(index).map_or(self.len, |row| row.start)
    }

    /// Returns the length of a member's contents.
    pub(super) fn size(&self, index: usize) -> u64 {
        let row = &self.rows[index];
        if row.kind() == RowKind::File { row.version.size } else { 0 }
    }

    /// Writes a member's path relative to the archived folder.
    pub(super) fn write_path(&self, index: usize, out: &mut Vec<u8>) {
        let mut parts = vec![self.name(index)];
        let mut parent = self.rows[index].parent;
        while let Some(row) = self.rows.get(parent as usize) {
            parts.push(self.name(parent as usize));
            parent = row.parent;
        }
        let mut parts = parts.into_iter().rev().filter(|part| !part.is_empty());
        out.extend_from_slice(parts.next().unwrap_or_default());
        for part in parts {
            out.push(b'/');
            out.extend_from_slice(part);
        }
    }

    /// Returns the contents of a member's header; `path` is overwritten with its path in the
    /// archive.
    pub(super) fn facts<'a>(&'a self, index: usize, path: &'a mut Vec<u8>) -> MemberFacts<'a> {
        path.clear();
        path.extend_from_slice(&self.top);
        self.write_path(index, path);
        let row = &self.rows[index];
        let kind = match row.kind() {
            RowKind::File => MemberType::File,
            RowKind::Folder => {
                if !path.ends_with(b"/") {
                    path.push(b'/');
                }
                MemberType::Folder
            }
            RowKind::Symlink => MemberType::Symlink(self.target(index)),
        };
        let (mode, [modified, _]) = ((row.mode & MODE).into(), row.version.times());
        MemberFacts { path, kind, mode, size: self.size(index), modified }
    }

    /// Returns the number of a file system, of which there may be 65,536.
    fn device(&mut self, device: u64) -> Option<u16> {
        // From the end: most members are on the same file system as the one before.
        let known = self.devices.iter().rposition(|&known| known == device);
        let index = known.unwrap_or(self.devices.len());
        let number = u16::try_from(index).ok()?;
        if known.is_none() {
            self.devices.push(device);
        }
        Some(number)
    }

    fn name(&self, index: usize) -> &[u8] {
        self.name_and_target(index).0
    }

    /// Returns a link's target; empty for anything else.
    fn target(&self, index: usize) -> &[u8] {
        self.name_and_target(index).1
    }

    fn name_and_target(&self, index: usize) -> (&[u8], &[u8]) {
        let row = &self.rows[index];
        let end = self.rows.get(index + 1).map_or(self.text.len(), |next| next.text as usize);
        let text = &self.text[row.text as usize..end];
        let zero = text.iter().position(|&byte| byte == 0);
        match zero.filter(|_| row.kind() == RowKind::Symlink) {
            Some(zero) => (&text[..zero], &text[zero + 1..]),
            None => (text, b""),
        }
    }
}

/// The directory at the end of a zip: its length, and where some of its entries are.
#[derive(Debug, Default)]
pub(super) struct Directory {
    pub(super) len: u64,
    /// The offset in the directory of each 64th entry: a range may begin anywhere, and the lengths
    /// of entries follow from their paths.
    starts: Vec<u64>,
}

impl Directory {
    fn push(&mut self, index: usize, entry_len: u64) {
        if index.is_multiple_of(STRIDE) {
            self.starts.push(self.len);
        }
        self.len += entry_len;
    }

    /// Returns an entry at or shortly before this offset in the directory, and its own offset.
    pub(super) fn near(&self, at: u64) -> (usize, u64) {
        let place = self.starts.partition_point(|&start| start <= at).saturating_sub(1);
        (place * STRIDE, self.starts.get(place).copied().unwrap_or(0))
    }
}

impl fmt::Debug for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("Layout");
        fields.field("members", &self.rows.len()).field("len", &self.len());
        fields.field("etag", &self.etag()).finish_non_exhaustive()
    }
}

/// Two blocks of zeros end an archive.
const TRAILER: u64 = 2 * BLOCK;

/// The largest offset in a file; most clients support no larger one.
const MAX_ARCHIVE: u64 = i64::MAX as u64;

/// The number of entries of a zip's directory for which one offset is kept.
const STRIDE: usize = 64;

/// The parent of members that have none.
const NO_PARENT: u32 = u32::MAX;

/// The number of the format: another one whenever headers are written in another way, since an
/// archive begun with an older release must not be completed with a newer one.
const TAR_FORMAT: u64 = 1;

/// The number of the other format, by which the two archives of a folder differ.
const ZIP_FORMAT: u64 = 1 << 32;
