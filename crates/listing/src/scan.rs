//! Makes one pass over the entries of a folder, in the kernel's order, or over those of a store.
//!
//! A folder may have a million entries, so a pass keeps none of them. It reads the attributes of an
//! entry only if its type or position cannot be known without them.

use std::borrow::Cow;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    Access, AtFlags, FileType, Mode, OFlags, RawDir, Timespec, accessat, openat, statat,
};
use rustix::io::Errno;

use underpass_protocol::listing::{Format, PageCursor, SortKey};

use super::Listing;
use super::entry::{Attributes, Entries, ListedEntry};
use super::text::search_key;

/// An entry with only the attributes that the pass needed.
#[derive(Clone, Debug)]
pub(super) struct ScannedEntry<'n> {
    /// The name.
    pub(super) name: Cow<'n, [u8]>,
    /// Whether the entry itself is a link.
    pub(super) is_symlink: bool,
    /// Whether it is a folder, or a link to one.
    pub(super) is_folder: bool,
    /// The attributes, if they were read.
    pub(super) attributes: Option<Attributes>,
}

impl ScannedEntry<'_> {
    /// Returns its position in an order by this key, which must be the key of the pass.
    pub(super) fn place(&self, key: SortKey) -> PageCursor<'_> {
        let value = self.attributes.map_or(0, |attributes| match key {
            SortKey::Name => 0,
            SortKey::Size if self.is_folder => 0,
            SortKey::Size => i128::from(attributes.len),
            SortKey::Time => {
                let Timespec { tv_sec, tv_nsec } = attributes.modified;
                i128::from(tv_sec) * 1_000_000_000 + i128::from(tv_nsec)
            }
        });
        PageCursor { is_folder: self.is_folder, value, name: &self.name }
    }

    /// Returns a copy that outlives the pass.
    pub(super) fn into_owned(self) -> ScannedEntry<'static> {
        ScannedEntry { name: Cow::Owned(self.name.into_owned()), ..self }
    }
}

/// Passes each entry that may be shown to `visit` until it breaks; returns the number of links that
/// were left out because their target does not exist or may not be served.
///
/// # Errors
///
/// The errors of reading the folder and the attributes of its entries, and of `visit`. An entry
/// that has just been removed, or whose attributes this user may not read, is left out.
pub(super) fn scan(
    listing: &Listing<'_>,
    mut visit: impl FnMut(ScannedEntry<'_>) -> io::Result<ControlFlow<()>>,
) -> io::Result<u64> {
    let mut scan = Scan::new(listing)?;
    while scan.step(listing, BUF_LEN, &mut visit)?.is_continue() {}
    Ok(scan.lost_links)
}

/// A pass over a folder that can pause after any read.
#[derive(Debug)]
pub(super) struct Scan {
    position: PassPosition,
    /// The number of links left out so far.
    pub(super) lost_links: u64,
}

/// The position at which a pass continues.
#[derive(Debug)]
enum PassPosition {
    /// The folder, opened with a separate cursor.
    Folder(Arc<OwnedFd>),
    /// The index of the next entry.
    Named(usize),
}

impl Scan {
    /// Creates a pass that begins with the first entry.
    pub(super) fn new(listing: &Listing<'_>) -> io::Result<Self> {
        let position = match listing.entries {
            Entries::Folder { folder, .. } => PassPosition::Folder(Arc::new(reopen(folder)?)),
            Entries::Named(_) => PassPosition::Named(0),
        };
        Ok(Self { position, lost_links: 0 })
    }

    /// Creates a pass over a folder whose cursor no other pass moves.
    pub(super) fn of(folder: &Arc<OwnedFd>) -> Self {
        Self { position: PassPosition::Folder(Arc::clone(folder)), lost_links: 0 }
    }

    /// Visits the entries that one read into `len` bytes returns; breaks at the end of the folder,
    /// or if `visit` breaks.
    ///
    /// # Errors
    ///
    /// As [`scan`].
    pub(super) fn step(
        &mut self,
        listing: &Listing<'_>,
        len: usize,
        mut visit: impl FnMut(ScannedEntry<'_>) -> io::Result<ControlFlow<()>>,
    ) -> io::Result<ControlFlow<()>> {
        let wanted = EntrySelection::new(listing);
        let folder = match &mut self.position {
            PassPosition::Folder(folder) => folder,
            PassPosition::Named(next) => return step_named(&wanted, next, len, visit),
        };
        let mut buf = Vec::with_capacity(len);
        let mut raw = RawDir::new(&*folder, buf.spare_capacity_mut());
        loop {
            let Some(raw_entry) = raw.next() else { return Ok(ControlFlow::Break(())) };
            let raw_entry = raw_entry?;
            let (name, kind) = (raw_entry.file_name().to_bytes(), raw_entry.file_type());
            if wanted.has_name(name) {
                match wanted.find(name, kind)? {
                    Some(found) if wanted.hides(&found) => {}
                    Some(found) => {
                        if visit(found)?.is_break() {
                            return Ok(ControlFlow::Break(()));
                        }
                    }
                    None => {
                        let is_lost = kind == FileType::Symlink && !wanted.hides_name(name, false);
                        self.lost_links += u64::from(is_lost);
                    }
                }
            }
            if raw.is_buffer_empty() {
                return Ok(ControlFlow::Continue(()));
            }
        }
    }
}

/// Visits entries from `next` on whose names have about `len` bytes; breaks as [`Scan::step`].
fn step_named<'l>(
    wanted: &EntrySelection<'l>,
    next: &mut usize,
    len: usize,
    mut visit: impl FnMut(ScannedEntry<'_>) -> io::Result<ControlFlow<()>>,
) -> io::Result<ControlFlow<()>> {
    let Entries::Named(entries) = wanted.listing.entries else {
        return Ok(ControlFlow::Break(()));
    };
    let mut visited = 0;
    while let Some(entry) = entries.get(*next) {
        if visited > len {
            return Ok(ControlFlow::Continue(()));
        }
        *next += 1;
        visited += entry.name.len() + ENTRY_LEN;
        let found = ScannedEntry {
            name: Cow::Borrowed(entry.name),
            is_symlink: false,
            is_folder: entry.is_folder,
            attributes: Some(Attributes::of_named(&entry)),
        };
        if wanted.has_name(entry.name) && !wanted.hides(&found) && visit(found)?.is_break() {
            break;
        }
    }
    Ok(ControlFlow::Break(()))
}

/// Sums `len` over every name in the folder, shown or not.
pub(super) fn add_up(listing: &Listing<'_>, len: impl Fn(&[u8]) -> u64) -> io::Result<u64> {
    let folder = match listing.entries {
        Entries::Folder { folder, .. } => reopen(folder)?,
        Entries::Named(entries) => {
            let lens = (0..).map_while(|index| entries.get(index)).map(|entry| len(entry.name));
            return Ok(lens.fold(0, u64::saturating_add));
        }
    };
    let mut buf = Vec::with_capacity(BUF_LEN);
    let mut raw = RawDir::new(&folder, buf.spare_capacity_mut());
    let mut sum = 0_u64;
    while let Some(entry) = raw.next() {
        sum = sum.saturating_add(len(entry?.file_name().to_bytes()));
    }
    Ok(sum)
}

/// Returns the entry with the attributes that its format shows; `None` if it is gone or can no
/// longer be served.
///
/// # Errors
///
/// As fstatat(2).
pub(super) fn complete(
    listing: &Listing<'_>,
    found: &ScannedEntry<'_>,
) -> io::Result<Option<ListedEntry>> {
    let (is_symlink, attributes) = match found.attributes {
        Some(attributes) => (found.is_symlink, attributes),
        None if !listing.query.format.shows_attributes() => {
            (found.is_symlink, Attributes::of_kind(found.is_folder))
        }
        None => match read_attributes(listing, &found.name) {
            Ok(Some(read)) => read,
            Ok(None) => return Ok(None),
            Err(_) if found.is_folder && listing.query.format == Format::Html => {
                (found.is_symlink, Attributes::of_kind(true).timeless())
            }
            Err(error) => return Err(error),
        },
    };
    Ok(Some(ListedEntry { name: found.name.as_ref().into(), is_symlink, attributes }))
}

/// Selects the entries that a listing shows.
struct EntrySelection<'l> {
    /// The listing.
    listing: &'l Listing<'l>,
    /// The word to find, as [`search_key`] returns it.
    word: Option<String>,
}

impl<'l> EntrySelection<'l> {
    /// Creates the selection of this listing.
    fn new(listing: &'l Listing<'l>) -> Self {
        Self { listing, word: listing.query.search.as_deref().map(search_key) }
    }

    /// Returns whether the name alone does not exclude the entry.
    fn has_name(&self, name: &[u8]) -> bool {
        if matches!(name, b"." | b"..") || (name.starts_with(b".") && !self.listing.shows_hidden) {
            return false;
        }
        self.word
            .as_ref()
            .is_none_or(|word| search_key(&String::from_utf8_lossy(name)).contains(word.as_str()))
    }

    /// Reads the needed attributes of the entry; `None` if it cannot be served.
    fn find<'n>(
        &self,
        name: &'n [u8],
        file_type: FileType,
    ) -> io::Result<Option<ScannedEntry<'n>>> {
        let needs_attributes = self.listing.query.order.key != SortKey::Name;
        Ok(match file_type {
            FileType::Directory | FileType::RegularFile if !needs_attributes => {
                Some(unread(name, file_type))
            }
            // Some file systems report an unknown type for all their entries.
            FileType::Directory | FileType::RegularFile | FileType::Symlink | FileType::Unknown => {
                let is_page = self.listing.query.format == Format::Html;
                let read = match read_attributes(self.listing, name) {
                    // The page reports how many links it leaves out.
                    Err(_) if is_page && file_type == FileType::Symlink => None,
                    Err(_) if is_shown_unread(self.listing, file_type) => {
                        return Ok(Some(unread(name, file_type)));
                    }
                    read => read?,
                };
                read.map(|(is_symlink, attributes)| ScannedEntry {
                    name: Cow::Borrowed(name),
                    is_symlink,
                    is_folder: attributes.is_folder(),
                    attributes: Some(attributes),
                })
            }
            // Requests for these would be refused.
            FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice => None,
        })
    }

    /// Returns whether the server hides the entry.
    fn hides(&self, found: &ScannedEntry<'_>) -> bool {
        self.hides_name(&found.name, found.is_folder)
    }

    fn hides_name(&self, name: &[u8], is_folder: bool) -> bool {
        (self.listing.hides)(&self.listing.path_of(name), is_folder)
    }
}

/// Reads the attributes of an entry on disk, through a link if it is one; the flag tells whether it
/// is. `None` for an entry that is gone, inaccessible or cannot be served.
///
/// # Errors
///
/// As fstatat(2): a program that mirrors the folder must not treat an unreadable entry as removed.
/// A link is left out if its target does not exist or may not be served.
fn read_attributes(listing: &Listing<'_>, name: &[u8]) -> io::Result<Option<(bool, Attributes)>> {
    let Entries::Folder { folder, root } = listing.entries else { return Ok(None) };
    let stat = match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(None),
        // Only this entry is inaccessible, not the whole folder.
        Err(Errno::ACCESS | Errno::PERM) if may_search(folder) => return Ok(None),
        stat => stat?,
    };
    let attributes = Attributes::from(&stat);
    let is_symlink = attributes.file_type == FileType::Symlink;
    let attributes = if is_symlink {
        match root.resolve(&listing.path_of(name)) {
            Err(error) if Errno::from_io_error(&error).is_some_and(leads_nowhere) => {
                return Ok(None);
            }
            target => target?,
        }
    } else {
        attributes
    };
    let shows_time = !attributes.is_folder() || (listing.shows_times)(&listing.path_of(name));
    let attributes = if shows_time { attributes } else { attributes.timeless() };
    Ok(attributes.is_served().then_some((is_symlink, attributes)))
}

/// Returns an entry with only its name and type.
fn unread(name: &[u8], file_type: FileType) -> ScannedEntry<'_> {
    ScannedEntry {
        name: Cow::Borrowed(name),
        is_symlink: file_type == FileType::Symlink,
        is_folder: file_type == FileType::Directory,
        attributes: None,
    }
}

/// Returns whether an entry is listed although its attributes cannot be read: a folder on the page
/// for people, so that a mount whose server is gone does not hide all others; any entry where only
/// names are listed, and in a walk, which reports that something could not be read.
fn is_shown_unread(listing: &Listing<'_>, file_type: FileType) -> bool {
    match listing.query.format {
        Format::Html => file_type == FileType::Directory,
        Format::Simple => true,
        // It may be a folder to enter.
        Format::Size => file_type != FileType::Unknown,
        _ => false,
    }
}

/// Returns whether the entries of a folder can be looked up by name.
fn may_search(folder: BorrowedFd<'_>) -> bool {
    accessat(folder, c".", Access::EXEC_OK, AtFlags::EACCESS).is_ok()
}

/// Returns whether an error means that the target of a link does not exist or may not be served,
/// rather than that it cannot be read now.
#[must_use]
pub fn leads_nowhere(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::NOENT
            | Errno::NOTDIR
            | Errno::LOOP
            | Errno::NAMETOOLONG
            | Errno::XDEV
            | Errno::ACCESS
            | Errno::PERM
    )
}

/// Returns whether the listing shows a folder, or a link to one, with this name.
pub(super) fn is_folder(listing: &Listing<'_>, name: &[u8]) -> bool {
    let wanted = EntrySelection::new(listing);
    if !wanted.has_name(name) || wanted.hides_name(name, true) {
        return false;
    }
    match listing.entries {
        Entries::Folder { .. } => {
            let read = read_attributes(listing, name).ok().flatten();
            read.is_some_and(|(_, attributes)| attributes.is_folder())
        }
        Entries::Named(entries) => {
            let mut all = (0..).map_while(|index| entries.get(index));
            all.find(|entry| entry.name == name).is_some_and(|entry| entry.is_folder)
        }
    }
}

/// Reopens the folder for a separate cursor, because the descriptor may be in use elsewhere.
pub(super) fn reopen(folder: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(folder, c".", flags, Mode::empty())?)
}

/// Checks that an open folder was not removed: a removed one looks empty.
///
/// # Errors
///
/// `ENOENT` if it was removed; another error if it cannot be read.
pub fn check_exists(folder: impl AsFd) -> io::Result<()> {
    let folder = reopen(folder.as_fd())?;
    let mut buf = Vec::with_capacity(MAX_ENTRY_LEN);
    RawDir::new(&folder, buf.spare_capacity_mut()).next().transpose()?;
    Ok(())
}

/// A buffer of this size has room for an entry with the longest name.
const MAX_ENTRY_LEN: usize = 512;

/// The bytes of a getdents64(2) entry besides its name.
const ENTRY_LEN: usize = 24;

/// The buffer size of the C library, 32 KiB: about 800 entries per call.
pub(super) const BUF_LEN: usize = 32 << 10;
