//! The files and sockets that descriptors of another process refer to.
//!
//! Each call looks its descriptor up again, which costs a microsecond, compared to ten for the
//! stop itself. So it is not necessary to track which process closes, duplicates or inherits a
//! descriptor.

use std::collections::HashMap;
use std::fs;
use std::rc::Rc;

use rustix::fs::{AtFlags, CWD, FileType, Statx, StatxFlags, getxattr, readlink, statfs, statx};
use underpass_engine::{EndKind, birth_time};

use crate::procfs::field;

/// A file, whatever its names are: device, inode number, and the birth time in seconds and
/// nanoseconds where the file system records it, since numbers are reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct DescriptorId {
    device: (u32, u32),
    number: u64,
    born: Option<(i64, u32)>,
}

impl DescriptorId {
    #[cfg(test)]
    pub(super) fn numbered(number: u64) -> Self {
        Self { device: (0, 0), number, born: None }
    }
}

/// One end of a call.
#[derive(Clone, Debug)]
pub(super) struct CallEnd {
    /// The kind of the end.
    pub(super) kind: EndKind,
    /// The identity of the file, socket or pipe.
    pub(super) id: DescriptorId,
    /// The size of a file in bytes.
    pub(super) size: u64,
    /// The name, shared with all other ends that are shown under it.
    pub(super) name: Rc<str>,
}

/// Looks up descriptors, and caches their names.
#[derive(Debug, Default)]
pub(super) struct Descriptors {
    names: HashMap<DescriptorId, (EndKind, Rc<str>)>,
    /// By device number without a device: whether the kernel generates the files as they are read.
    made_up: HashMap<(u32, u32), bool>,
}

impl Descriptors {
    /// Returns what a descriptor of a thread is.
    pub(super) fn end(&mut self, tid: u32, fd: u64) -> CallEnd {
        // Descriptors are ints; the upper half of the register is meaningless.
        let path = format!("/proc/{tid}/fd/{}", fd as u32);
        let wanted = StatxFlags::TYPE | StatxFlags::INO | StatxFlags::SIZE | StatxFlags::BTIME;
        let Ok(facts) = statx(CWD, &*path, AtFlags::STATX_DONT_SYNC, wanted) else {
            let id = DescriptorId { device: (0, 0), number: 0, born: None };
            return CallEnd { kind: EndKind::Other, id, size: 0, name: "nothing".into() };
        };
        let id = DescriptorId {
            device: (facts.stx_dev_major, facts.stx_dev_minor),
            number: facts.stx_ino,
            born: birth_time(&facts),
        };
        // Everything that is not a file except events and timers shares one number.
        let is_known = !matches!(FileType::from_raw_mode(facts.stx_mode.into()), FileType::Unknown);
        let size = facts.stx_size;
        // Without a birth time, another file may have got the number meanwhile.
        let is_file = FileType::from_raw_mode(facts.stx_mode.into()) == FileType::RegularFile;
        let is_known = is_known && (!is_file || id.born.is_some());
        if let Some((kind, name)) = self.names.get(&id).filter(|_| is_known) {
            return CallEnd { kind: *kind, id, size, name: name.clone() };
        }
        let (kind, name) = self.meet(&path, &facts);
        let name: Rc<str> = name.into();
        if self.names.len() == MAX_NAMES {
            self.names.clear();
        }
        self.names.insert(id, (kind, name.clone()));
        CallEnd { kind, id, size, name }
    }

    /// Returns the kind and name of an unknown end.
    fn meet(&mut self, path: &str, facts: &Statx) -> (EndKind, String) {
        let target = || match readlink(path, Vec::new()) {
            Ok(target) => target.to_string_lossy().into_owned(),
            Err(_) => "unknown".to_owned(),
        };
        match FileType::from_raw_mode(facts.stx_mode.into()) {
            FileType::Socket => (EndKind::Socket, protocol(path)),
            FileType::Fifo => (EndKind::Pipe, "pipe".to_owned()),
            FileType::CharacterDevice if is_terminal(facts.stx_rdev_major) => {
                (EndKind::Terminal, target())
            }
            FileType::CharacterDevice | FileType::BlockDevice => (EndKind::Device, target()),
            FileType::RegularFile if !self.is_made_up(path, facts) => {
                (EndKind::File, without_number(target()))
            }
            _ => (EndKind::Other, target()),
        }
    }

    /// Returns whether the kernel generates a file as it is read.
    fn is_made_up(&mut self, path: &str, facts: &Statx) -> bool {
        if facts.stx_dev_major != 0 {
            return false;
        }
        let device = (facts.stx_dev_major, facts.stx_dev_minor);
        *self.made_up.entry(device).or_insert_with(|| {
            let Ok(facts) = statfs(path) else { return false };
            // The type of the field differs between architectures.
            #[allow(clippy::unnecessary_cast)]
            let magic = facts.f_type as u64;
            MADE_UP.contains(&magic)
        })
    }
}

/// Returns whether a descriptor of a thread is open for reading only.
pub(super) fn is_read_only(tid: u32, fd: u64) -> bool {
    let facts = fs::read_to_string(format!("/proc/{tid}/fdinfo/{}", fd as u32));
    let flags = facts.ok().and_then(|facts| u32::from_str_radix(field(&facts, "flags")?, 8).ok());
    flags.is_some_and(|flags| flags & libc::O_ACCMODE as u32 == libc::O_RDONLY as u32)
}

/// Removes the number from the path of a file that was created unnamed (`O_TMPFILE` of open(2))
/// and named later, because the number means nothing to people.
fn without_number(path: String) -> String {
    let unnamed = path.strip_suffix(" (deleted)").and_then(|path| path.rsplit_once("/#"));
    match unnamed {
        Some((folder, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => {
            format!("{folder}/ (a new file)")
        }
        _ => path,
    }
}

/// Returns the protocol, such as `TCP socket` or `UNIX socket`, which sockets have as an extended
/// attribute.
fn protocol(path: &str) -> String {
    let mut name = [0; 32];
    let len = getxattr(path, "system.sockprotoname", &mut name).unwrap_or(0);
    let name = String::from_utf8_lossy(&name[..len.min(name.len())]);
    let name = name.trim_end_matches('\0');
    if name.is_empty() { "socket".to_owned() } else { format!("{name} socket") }
}

/// Returns whether devices with this number are terminals: the console, virtual and serial ones,
/// and both sides of pseudoterminals (devices.txt of Linux).
fn is_terminal(number: u32) -> bool {
    matches!(number, 4 | 5 | 128..=143 | 204)
}

/// The maximum number of cached names.
const MAX_NAMES: usize = 65_536;

/// The magic numbers of procfs, sysfs, both cgroup file systems, debugfs, tracefs, securityfs,
/// selinuxfs.
const MADE_UP: [u64; 8] = [
    0x9fa0,
    0x6265_6572,
    0x0027_e0eb,
    0x6367_7270,
    0x6462_6720,
    0x7472_6163,
    0x7363_6673,
    0xf97c_ff8c,
];
