//! Precompressed neighbours, such as `page.html.gz` of `page.html`. One is sent instead of its file
//! only if nothing indicates that its contents differ: it may have been made for another purpose.

use std::os::fd::OwnedFd;

use rustix::fs::{Timespec, fstat};
use rustix::io::{Errno, pread};
use underpass_engine::{is_file, is_resident};

use super::ServedFile;
use crate::files::root::{DiskWait, Root};
use crate::files::writer_checks::{StableVersions, WriterChecks};
use underpass_protocol::request::negotiate::Coding;

/// Opens the neighbour with the same contents compressed. `None` if there is none, if it is older
/// than the file, open for writing, or does not unpack to the file's length.
pub(super) fn open(
    root: &Root,
    stable_versions: &StableVersions,
    path: &[u8],
    coding: Coding,
    original: &ServedFile,
    disk_wait: DiskWait,
    checks: &mut WriterChecks,
) -> Result<Option<ServedFile>, Errno> {
    let name = [path, coding.extension().as_bytes()].concat();
    let (file, reached) = match root.open_reached(&name, disk_wait) {
        Ok(opened) => opened,
        Err(Errno::AGAIN) if disk_wait == DiskWait::Never => return Err(Errno::AGAIN),
        Err(_) => return Ok(None),
    };
    let stat = fstat(&file)?;
    // A link could lead to a path that the client may not read.
    let is_neighbour = match (&original.reached, reached) {
        (None, None) => true,
        (Some(original), Some(reached)) => {
            reached == [original.as_slice(), coding.extension().as_bytes()].concat()
        }
        _ => false,
    };
    if !is_neighbour || !is_file(&stat) || stat.st_size == 0 {
        return Ok(None);
    }
    let checked = match checks.check(stable_versions, &name, &file, &stat, disk_wait) {
        Ok(checked) => checked,
        // The neighbour is being compressed again.
        Err(Errno::BUSY) => return Ok(None),
        Err(errno) => return Err(errno),
    };
    let is_older = is_older(checked.version.modified(), original.version.modified());
    if checked.has_writer || is_older {
        return Ok(None);
    }
    let packed = ServedFile::new(file, checked, original.media_type.clone(), disk_wait);
    Ok(is_of_length(&packed, coding, original.len(), disk_wait)?.then_some(packed))
}

/// Returns whether one time is before another. Archives and some file systems store whole seconds.
fn is_older(one: Timespec, other: Timespec) -> bool {
    let is_coarse = one.tv_nsec == 0 || other.tv_nsec == 0;
    if is_coarse { one.tv_sec < other.tv_sec } else { one < other }
}

/// Returns whether all clients can read a compressed file and it unpacks to this length, as far as
/// its format states that.
fn is_of_length(
    packed: &ServedFile,
    coding: Coding,
    len: u64,
    disk_wait: DiskWait,
) -> Result<bool, Errno> {
    match coding {
        // A Brotli stream does not state its length.
        Coding::Br => Ok(true),
        // RFC 1952 2.3.1: the last four bytes are the length of the last member. Browsers read the
        // first member alone.
        Coding::Gzip => {
            let mut end = [0; 4];
            let Some(at) = packed.len().checked_sub(4) else { return Ok(false) };
            read(packed, at, &mut end, disk_wait)?;
            Ok(u32::from_le_bytes(end) == len as u32)
        }
        Coding::Zstd => {
            let mut head = [0; 18];
            read(packed, 0, &mut head, disk_wait)?;
            let frame = ZstdFrame::parse(&head);
            Ok(frame.is_some_and(|frame| {
                frame.window <= MAX_ZSTD_WINDOW && frame.content.is_none_or(|it| it == len)
            }))
        }
    }
}

/// Reads bytes at an offset, up to the end of the file.
fn read(packed: &ServedFile, at: u64, bytes: &mut [u8], wait: DiskWait) -> Result<(), Errno> {
    let file: &OwnedFd = &packed.file;
    let len = (bytes.len() as u64).min(packed.len() - at);
    if wait == DiskWait::Never && !is_resident(file, at, len) {
        return Err(Errno::AGAIN);
    }
    pread(file, bytes, at).map(drop)
}

/// The head of a Zstandard frame (RFC 8878 3.1.1.1).
struct ZstdFrame {
    window: u64,
    /// The unpacked length.
    content: Option<u64>,
}

impl ZstdFrame {
    /// Parses the first bytes of a file.
    fn parse(head: &[u8; 18]) -> Option<Self> {
        let rest = head.strip_prefix(&[0x28, 0xb5, 0x2f, 0xfd])?;
        let (descriptor, mut rest) = rest.split_first()?;
        let is_single = descriptor & 0x20 != 0;
        let mut window = None;
        if !is_single {
            let (byte, after) = rest.split_first()?;
            let base = 1 << (10 + (byte >> 3));
            window = Some(base + base / 8 * u64::from(byte & 7));
            rest = after;
        }
        let rest = rest.get([0, 1, 2, 4][usize::from(descriptor & 3)]..)?;
        let len = match descriptor >> 6 {
            0 => usize::from(is_single),
            bits => 1 << bits,
        };
        let mut number = [0; 8];
        number[..len].copy_from_slice(rest.get(..len)?);
        // A field of two bytes stores the length minus 256.
        let offset = if len == 2 { 256 } else { 0 };
        let content = (len > 0).then(|| u64::from_le_bytes(number).saturating_add(offset));
        Some(Self { window: window.or(content)?, content })
    }
}

/// The maximum window in bytes of Zstandard as a content coding (RFC 9659).
const MAX_ZSTD_WINDOW: u64 = 8 << 20;
