//! Where in the archive each member's bytes are. Pure: facts in, offsets out.
//!
//! Members stand in one table of rows and one of names, in which each name is only the last part of
//! its path, so that a deep tree does not take the square of its depth. A million members take about
//! 110 MB, most of it for the versions.

use std::fmt;
use std::ops::Range;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use underpass_engine::Version;

use super::error::ArchiveError;
use super::fingerprint::Fingerprint;
use super::header::{self, BLOCK, Facts, padding};
use super::pieces::Pieces;

/// What a member is. A hard link is a file like any other; devices, pipes and sockets have no
/// place in an archive for download.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind<'a> {
    /// A file; its length is that of its version.
    File,
    /// A folder.
    Folder,
    /// A symbolic link, with its target as it is.
    Symlink(&'a [u8]),
}

/// One member, as it is put into a [`Builder`].
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// The number of the folder that it is in; `None` for the archived folder itself.
    pub parent: Option<u32>,
    /// Its name in that folder, without a slash.
    pub name: &'a [u8],
    /// What it is.
    pub kind: Kind<'a>,
    /// Its permissions.
    pub mode: u32,
    /// The file as it was when the archive was laid out: length, times, identity.
    pub version: Version,
}

/// Lays out an archive member by member.
#[derive(Debug)]
pub struct Builder {
    layout: Layout,
    fingerprint: Fingerprint,
    newest: (i64, i64),
    /// The member's path, kept for the sake of its memory.
    path: Vec<u8>,
}

impl Builder {
    /// An archive whose members are all below a folder of this name; below none if it is empty.
    ///
    /// Anything but a plain name is taken for none, so that nothing is unpacked elsewhere.
    #[must_use]
    pub fn new(top: &[u8]) -> Self {
        let is_plain = !matches!(top, b"" | b"." | b"..") && !top.contains(&b'/');
        let top = if is_plain { [top, b"/"].concat() } else { Vec::new() };
        let mut fingerprint = Fingerprint::new();
        fingerprint.number(FORMAT);
        let layout = Layout {
            top,
            rows: Vec::new(),
            text: Vec::new(),
            len: 0,
            etag: 0,
            modified: UNIX_EPOCH,
        };
        let newest = (i64::MIN, 0);
        Self { layout, fingerprint, newest, path: Vec::new() }
    }

    /// The archived folder itself, which should be the first member. It has a header only if the
    /// archive has a top folder.
    ///
    /// # Errors
    ///
    /// As [`push`](Self::push).
    pub fn push_top(&mut self, mode: u32, version: Version) -> Result<(), ArchiveError> {
        if self.layout.top.is_empty() {
            return Ok(());
        }
        let member = Member { parent: None, name: b"", kind: Kind::Folder, mode, version };
        self.push(&member).map(drop)
    }

    /// Adds a member behind the others, and tells its number.
    ///
    /// # Errors
    ///
    /// [`ArchiveError::TooLarge`] if the archive becomes longer than a file could be, and
    /// [`ArchiveError::TooMany`] if there are more members than it can count.
    pub fn push(&mut self, member: &Member<'_>) -> Result<u32, ArchiveError> {
        let layout = &mut self.layout;
        let number = u32::try_from(layout.rows.len()).ok().filter(|&number| number < NO_PARENT);
        let text = u32::try_from(layout.text.len()).ok();
        let (Some(number), Some(text)) = (number, text) else {
            return Err(ArchiveError::TooMany { limit: layout.rows.len() });
        };
        layout.text.extend_from_slice(member.name);
        let (kind, target) = match member.kind {
            Kind::File => (RowKind::File, &b""[..]),
            Kind::Folder => (RowKind::Folder, &b""[..]),
            Kind::Symlink(target) => (RowKind::Symlink, target),
        };
        layout.text.extend_from_slice(target);
        layout.rows.push(Row {
            start: layout.len,
            version: member.version,
            text,
            name_len: u32::try_from(member.name.len()).map_err(|_| ArchiveError::TooLarge)?,
            parent: member.parent.filter(|&parent| parent < number).unwrap_or(NO_PARENT),
            // Its sixteen bits are all that a mode has.
            mode: member.mode as u16,
            kind,
        });
        self.measure(number as usize)?;
        Ok(number)
    }

    /// The layout of all the members.
    #[must_use]
    pub fn finish(self) -> Layout {
        let mut layout = self.layout;
        layout.rows.shrink_to_fit();
        layout.text.shrink_to_fit();
        layout.etag = self.fingerprint.value();
        if !layout.rows.is_empty() {
            layout.modified = time(self.newest);
        }
        layout
    }

    /// Takes the last member into account.
    fn measure(&mut self, index: usize) -> Result<(), ArchiveError> {
        let header = header::len(&self.layout.facts(index, &mut self.path));
        let size = self.layout.size(index);
        let room = LONGEST - self.layout.len;
        let len = header
            .checked_add(size)
            .and_then(|len| len.checked_add(padding(size)))
            .filter(|&len| len <= room)
            .ok_or(ArchiveError::TooLarge)?;
        self.layout.len += len;
        let row = &self.layout.rows[index];
        self.newest = self.newest.max(row.version.modified());
        let fingerprint = &mut self.fingerprint;
        fingerprint.bytes(&self.path);
        fingerprint.bytes(self.layout.target(index));
        fingerprint.number(u64::from(row.mode) << 8 | row.kind as u64);
        fingerprint.number(size);
        moment(fingerprint, row.version.modified());
        if row.kind == RowKind::File {
            // Its bytes are in the archive, so it matters whether it is the same file.
            fingerprint.number(row.version.inode());
            moment(fingerprint, row.version.changed());
        }
        Ok(())
    }
}

/// Where in the archive each member's bytes are.
pub struct Layout {
    /// What every path in the archive begins with: a name and a slash, or nothing.
    top: Vec<u8>,
    rows: Vec<Row>,
    /// The name of each member, and a link's target behind it.
    text: Vec<u8>,
    /// The length of all members.
    len: u64,
    etag: u128,
    modified: SystemTime,
}

impl Layout {
    /// The length of the archive in bytes: of all members and two blocks of zeros.
    ///
    /// GNU tar goes on with zeros up to a multiple of 10,240 for the sake of tape drives; nothing
    /// that reads archives needs it.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len + TRAILER
    }

    /// Whether no member is in it. Its two blocks of zeros are.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// How many members it has.
    #[must_use]
    pub fn members(&self) -> usize {
        self.rows.len()
    }

    /// The strong validator of the archive, quoted: another one if any byte may be another.
    ///
    /// It is made of each member's path, kind, mode, target, length and mtime, and of each file's
    /// inode and ctime.
    #[must_use]
    pub fn etag(&self) -> String {
        format!("\"{:032x}\"", self.etag)
    }

    /// When the newest member was last changed.
    #[must_use]
    pub fn modified(&self) -> SystemTime {
        self.modified
    }

    /// The bytes of a range, in order; what lies behind the end of the archive is left out.
    pub fn pieces(&self, range: Range<u64>) -> Pieces<'_> {
        Pieces::new(self, range)
    }

    /// The version that a member had when the archive was laid out.
    pub(super) fn version(&self, index: usize) -> Version {
        self.rows[index].version
    }

    /// The member in which this offset is, or the number of members behind all of them.
    pub(super) fn find(&self, at: u64) -> usize {
        if at >= self.len {
            return self.rows.len();
        }
        self.rows.partition_point(|row| row.start <= at).saturating_sub(1)
    }

    /// The offset of a member, or of the zeros behind all of them.
    pub(super) fn start(&self, index: usize) -> u64 {
        self.rows.get(index).map_or(self.len, |row| row.start)
    }

    /// The length of a member's contents.
    pub(super) fn size(&self, index: usize) -> u64 {
        let row = &self.rows[index];
        if row.kind == RowKind::File { row.version.size() } else { 0 }
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

    /// What a member's header says; `path` is overwritten with its path in the archive.
    pub(super) fn facts<'a>(&'a self, index: usize, path: &'a mut Vec<u8>) -> Facts<'a> {
        path.clear();
        path.extend_from_slice(&self.top);
        self.write_path(index, path);
        let row = &self.rows[index];
        let kind = match row.kind {
            RowKind::File => Kind::File,
            RowKind::Folder => {
                if !path.ends_with(b"/") {
                    path.push(b'/');
                }
                Kind::Folder
            }
            RowKind::Symlink => Kind::Symlink(self.target(index)),
        };
        let (mode, modified) = (row.mode.into(), row.version.modified());
        Facts { path, kind, mode, size: self.size(index), modified }
    }

    fn name(&self, index: usize) -> &[u8] {
        let row = &self.rows[index];
        &self.text[row.text as usize..][..row.name_len as usize]
    }

    /// A link's target; empty for anything else.
    fn target(&self, index: usize) -> &[u8] {
        let row = &self.rows[index];
        let end = self.rows.get(index + 1).map_or(self.text.len(), |next| next.text as usize);
        &self.text[(row.text + row.name_len) as usize..end]
    }
}

impl fmt::Debug for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("Layout");
        fields.field("members", &self.rows.len()).field("len", &self.len());
        fields.field("etag", &self.etag()).finish_non_exhaustive()
    }
}

/// What is kept of a member.
#[derive(Debug)]
struct Row {
    /// The offset of its header.
    start: u64,
    version: Version,
    /// Where its name begins.
    text: u32,
    name_len: u32,
    parent: u32,
    mode: u16,
    kind: RowKind,
}

/// [`Kind`] without a link's target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RowKind {
    File,
    Folder,
    Symlink,
}

/// Two blocks of zeros end an archive.
const TRAILER: u64 = 2 * BLOCK;

/// No offset of a file is larger, so most clients count no further.
const LONGEST: u64 = i64::MAX as u64 - TRAILER;

/// The folder of members that have none.
const NO_PARENT: u32 = u32::MAX;

/// The number of the format: another one whenever headers are written in another way, since an
/// archive begun with an older release must not be completed with a newer one.
const FORMAT: u64 = 1;

fn moment(fingerprint: &mut Fingerprint, (seconds, nanoseconds): (i64, i64)) {
    fingerprint.number(seconds as u64);
    fingerprint.number(nanoseconds as u64);
}

/// A time of the kernel; one that `SystemTime` cannot hold is 1970.
fn time((seconds, nanoseconds): (i64, i64)) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let second =
        if seconds < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
    let fraction = Duration::from_nanos(nanoseconds.unsigned_abs());
    second.and_then(|second| second.checked_add(fraction)).unwrap_or(UNIX_EPOCH)
}
