//! What a descriptor of another process is.
//!
//! It is looked up anew at each call, which costs a microsecond beside the ten of the stop itself.
//! So nothing has to be known about who closes, duplicates or inherits what.

use std::collections::HashMap;
use std::rc::Rc;

use rustix::fs::{AtFlags, CWD, FileType, Statx, StatxFlags, getxattr, readlink, statfs, statx};

use crate::EndKind;

/// A file, whatever its names are: device, number, and the second and nanosecond of its birth
/// where the file system knows, since numbers are given again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FileId {
    device: (u32, u32),
    number: u64,
    born: (i64, u32),
}

impl FileId {
    #[cfg(test)]
    pub(super) fn numbered(number: u64) -> Self {
        Self { device: (0, 0), number, born: (0, 0) }
    }
}

/// One end of a call.
#[derive(Clone, Debug)]
pub(super) struct End {
    /// What it is.
    pub(super) kind: EndKind,
    /// Which file, socket or pipe it is.
    pub(super) id: FileId,
    /// Bytes of a file.
    pub(super) size: u64,
    /// How to call it, together with all others that have the same name.
    pub(super) name: Rc<str>,
}

/// Looks up descriptors, and remembers the names of what it has met.
#[derive(Debug, Default)]
pub(super) struct Descriptors {
    names: HashMap<FileId, (EndKind, Rc<str>)>,
    /// Whether the kernel makes up the files of a device that is none.
    made_up: HashMap<(u32, u32), bool>,
}

impl Descriptors {
    /// Returns what a descriptor of a thread is.
    pub(super) fn look(&mut self, tid: u32, fd: u64) -> End {
        // Descriptors are ints; what stands in the upper half of a register means nothing.
        let path = format!("/proc/{tid}/fd/{}", fd as u32);
        let wanted = StatxFlags::TYPE | StatxFlags::INO | StatxFlags::SIZE | StatxFlags::BTIME;
        let Ok(facts) = statx(CWD, &*path, AtFlags::STATX_DONT_SYNC, wanted) else {
            let id = FileId { device: (0, 0), number: 0, born: (0, 0) };
            return End { kind: EndKind::Other, id, size: 0, name: "nothing".into() };
        };
        let id = FileId {
            device: (facts.stx_dev_major, facts.stx_dev_minor),
            number: facts.stx_ino,
            born: (facts.stx_btime.tv_sec, facts.stx_btime.tv_nsec),
        };
        // All that is no file but events and timers shares one number.
        let is_known = !matches!(FileType::from_raw_mode(facts.stx_mode.into()), FileType::Unknown);
        if let Some((kind, name)) = self.names.get(&id).filter(|_| is_known) {
            return End { kind: *kind, id, size: facts.stx_size, name: name.clone() };
        }
        let (kind, name) = self.meet(&path, &facts);
        let name: Rc<str> = name.into();
        if self.names.len() == MAX_NAMES {
            self.names.clear();
        }
        self.names.insert(id, (kind, name.clone()));
        End { kind, id, size: facts.stx_size, name }
    }

    /// Kind and name of something new.
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

    /// Returns whether the kernel makes up a file as it is read.
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

/// Files that are made without a name (`O_TMPFILE` of open(2)) and get one later are known by
/// their number, which says nothing to people.
fn without_number(path: String) -> String {
    let unnamed = path.strip_suffix(" (deleted)").and_then(|path| path.rsplit_once("/#"));
    match unnamed {
        Some((folder, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => {
            format!("{folder}/ (a new file)")
        }
        _ => path,
    }
}

/// `TCP socket`, `UNIX socket`: sockets tell their protocol as an extended attribute.
fn protocol(path: &str) -> String {
    let mut name = [0; 32];
    let len = getxattr(path, "system.sockprotoname", &mut name).unwrap_or(0);
    let name = String::from_utf8_lossy(&name[..len.min(name.len())]);
    let name = name.trim_end_matches('\0');
    if name.is_empty() { "socket".to_owned() } else { format!("{name} socket") }
}

/// Returns whether devices with this number are terminals: the console, virtual and serial ones,
/// and both sides of those that programs make (devices.txt of Linux).
fn is_terminal(number: u32) -> bool {
    matches!(number, 4 | 5 | 128..=143 | 204)
}

/// Names that are remembered.
const MAX_NAMES: usize = 65_536;

/// procfs, sysfs, both cgroup file systems, debugfs, tracefs, securityfs, selinuxfs.
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
