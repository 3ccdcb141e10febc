//! The counters of a traced program.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use rustix::io::Errno;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use underpass_engine::{EndKind, Mechanism, errno};

use super::calls::ByteDirection;
use super::descriptors::{CallEnd, DescriptorId};

/// The counters of a traced program.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Crossings between the kernel and memory: direction, kind of end, and kind of memory.
    pub(super) crossings: BTreeMap<(ByteDirection, EndKind, MemoryKind), Count>,
    /// Moves inside the kernel: mechanism, source and sink.
    pub(super) moves: BTreeMap<(&'static str, EndKind, EndKind), Count>,
    /// Bytes and calls by system call.
    pub(super) by_call: BTreeMap<&'static str, Count>,
    /// Errors by system call or mechanism, ends and errno, in the order of their first
    /// occurrence.
    pub(super) refusals: Vec<RefusalCount>,
    /// Traffic by file, protocol of a socket, or other name of an end.
    pub(super) ends: HashMap<(EndKind, Rc<str>), EndCount>,
    /// Calls that would have had to wait.
    pub(super) waits: u64,
    /// The files that were mapped.
    mapped: HashMap<DescriptorId, MappedFile>,
    /// The bytes and the number of the mapped files that were dropped from `mapped`.
    mapped_before: (u64, u64),
    /// Calls whose work cannot be observed.
    pub(super) hidden: HiddenCalls,
    /// The sockets that are counted in `ends`.
    sockets: HashSet<DescriptorId>,
    /// Bytes that splice(2) has put into pipes and not yet taken out.
    held: HashMap<DescriptorId, PipeContent>,
}

/// Calls whose work cannot be observed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HiddenCalls {
    /// Calls that create or drive an io_uring(7).
    pub io_uring_calls: u64,
    /// Calls of io_submit(2).
    pub io_submit_calls: u64,
    /// Calls with the numbers of another architecture, such as those of 32-bit programs.
    pub foreign_calls: u64,
    /// Calls that copy between the memory of processes: process_vm_readv(2), message queues.
    pub between_processes_calls: u64,
}

/// Bytes and calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// The number of bytes moved.
    pub bytes: u64,
    /// Calls, including those that moved nothing.
    pub calls: u64,
    /// Calls that moved at least one byte.
    pub moving_calls: u64,
}

impl Count {
    fn add(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.calls += 1;
        self.moving_calls += u64::from(bytes > 0);
    }

    /// Returns the sum of both.
    pub(super) fn plus(mut self, other: Self) -> Self {
        self.bytes += other.bytes;
        self.calls += other.calls;
        self.moving_calls += other.moving_calls;
        self
    }

    /// Returns the mean size of a call that moved bytes.
    #[must_use]
    pub fn mean_bytes(self) -> u64 {
        self.bytes.checked_div(self.moving_calls).unwrap_or(0)
    }
}

impl Serialize for Count {
    /// Writes bytes and calls, and the mean size of a call in place of the calls that moved bytes.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Count", 3)?;
        fields.serialize_field("bytes", &self.bytes)?;
        fields.serialize_field("calls", &self.calls)?;
        fields.serialize_field("mean_bytes", &self.mean_bytes())?;
        fields.end()
    }
}

/// The kind of memory that bytes cross from or to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum MemoryKind {
    /// The program's own memory.
    #[default]
    Buffer,
    /// A part of a file that is mapped: one copy less.
    Mapping,
    /// Pages that the kernel references instead of copying: `MSG_ZEROCOPY`.
    Referenced,
}

/// The traffic of one end.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct EndCount {
    /// The number of sockets with this name; 1 for an end that is not a socket.
    pub number: u64,
    /// Read from it into memory.
    pub read: Count,
    /// Written to it from memory.
    pub written: Count,
    /// Moved from it inside the kernel.
    pub moved_from: Count,
    /// Moved to it inside the kernel.
    pub moved_to: Count,
}

/// One kind of error, and how often it occurred.
#[derive(Clone, Debug)]
pub(super) struct RefusalCount {
    /// The mechanism, or system call.
    pub(super) what: &'static str,
    /// The kernel's answer.
    pub(super) errno: Errno,
    /// The source; `Other` stands for memory, too.
    pub(super) from: EndKind,
    /// The sink.
    pub(super) to: EndKind,
    /// Bytes delivered by all calls together when it first occurred.
    pub(super) at: u64,
    /// The number of times it occurred.
    pub(super) times: u64,
}

impl RefusalCount {
    /// Returns whether the kernel does not offer the mechanism for these ends, as opposed to
    /// failing at it.
    pub(super) fn is_decline(&self) -> bool {
        match (self.what, self.what.parse::<Mechanism>()) {
            (_, Ok(mechanism)) => mechanism.declines(self.errno),
            ("tee", _) => Mechanism::Splice.declines(self.errno),
            ("vmsplice", _) => self.errno == Errno::BADF || Mechanism::Splice.declines(self.errno),
            (_, Err(_)) => false,
        }
    }

    /// Returns the symbol of the error, such as `EXDEV`.
    pub(super) fn symbol(&self) -> String {
        errno::name(self.errno).into_owned()
    }
}

/// The content of a pipe, and where it came from.
#[derive(Clone, Copy, Debug)]
struct PipeContent {
    from: EndKind,
    /// The end that the last of the bytes went to.
    to: Option<EndKind>,
    bytes: u64,
    calls: u64,
}

/// A file that was mapped.
#[derive(Clone, Copy, Debug, Default)]
struct MappedFile {
    bytes: u64,
    /// Whether it is a program or library.
    is_code: bool,
}

/// The two ends of a move.
#[derive(Clone, Copy, Debug)]
pub(super) struct Endpoints<'a> {
    /// The source.
    pub(super) from: &'a CallEnd,
    /// The sink.
    pub(super) to: &'a CallEnd,
}

impl Ledger {
    /// Counts a call that copies between the kernel and memory.
    pub(super) fn count_crossing(
        &mut self,
        name: &'static str,
        direction: ByteDirection,
        end: &CallEnd,
        split: MemorySplit,
    ) {
        let bytes = split.plain + split.mapped + split.referenced;
        self.by_call.entry(name).or_default().add(bytes);
        let parts = [
            (MemoryKind::Buffer, split.plain),
            (MemoryKind::Mapping, split.mapped),
            (MemoryKind::Referenced, split.referenced),
        ];
        // A call counts once, for the kind of memory that most of its bytes were in.
        let most = parts.iter().filter(|(_, bytes)| *bytes > 0).max_by_key(|(_, bytes)| *bytes);
        let most = most.map_or(split.tried, |(origin, _)| *origin);
        for (origin, bytes) in parts {
            let count = || Count { bytes, calls: 0, moving_calls: 0 };
            if origin == most {
                self.crossings.entry((direction, end.kind, origin)).or_default().add(bytes);
            } else if bytes > 0 {
                let sum = self.crossings.entry((direction, end.kind, origin)).or_default();
                *sum = sum.plus(count());
            }
        }
        if direction == ByteDirection::In && end.kind == EndKind::Pipe {
            self.count_read_from_pipe(end.id, bytes);
        }
        let end = self.end(end);
        match direction {
            ByteDirection::In => end.read.add(bytes),
            ByteDirection::Out => end.written.add(bytes),
        }
    }

    /// Counts a call that moves bytes inside the kernel.
    pub(super) fn moved(
        &mut self,
        name: &'static str,
        mechanism: &'static str,
        ends: Endpoints<'_>,
        bytes: u64,
    ) {
        self.by_call.entry(name).or_default().add(bytes);
        self.end(ends.from).moved_from.add(bytes);
        self.end(ends.to).moved_to.add(bytes);
        if mechanism != SPLICE {
            let key = (mechanism, ends.from.kind, ends.to.kind);
            return self.moves.entry(key).or_default().add(bytes);
        }
        if ends.to.kind == EndKind::Pipe {
            let fresh = PipeContent { from: ends.from.kind, to: None, bytes: 0, calls: 0 };
            let mut held = self.held.get(&ends.to.id).copied().unwrap_or(fresh);
            if held.from != ends.from.kind {
                self.count_left_in_pipe(held);
                held = fresh;
            }
            held.bytes += bytes;
            held.calls += 1;
            if self.held.len() == MAX_IDS {
                self.count_rest();
            }
            self.held.insert(ends.to.id, held);
            return;
        }
        self.drain(ends, bytes);
    }

    /// Counts what splice(2) takes out of a pipe: bytes that it had put in itself have then moved
    /// from their source to this sink.
    fn drain(&mut self, ends: Endpoints<'_>, bytes: u64) {
        let (mut passed, mut before) = (0, 0);
        let mut from = ends.from.kind;
        if let Some(held) = self.held.get_mut(&ends.from.id) {
            passed = bytes.min(held.bytes);
            before = std::mem::take(&mut held.calls);
            from = held.from;
            held.to = Some(ends.to.kind);
            held.bytes -= passed;
        }
        let whole = Count { bytes: passed, calls: before + 1, moving_calls: u64::from(bytes > 0) };
        let sum = self.moves.entry((SPLICE, from, ends.to.kind)).or_default();
        *sum = sum.plus(whole);
        if bytes > passed {
            // Another call than splice has put these bytes there.
            let other = Count { bytes: bytes - passed, calls: 0, moving_calls: 0 };
            let sum = self.moves.entry((SPLICE, EndKind::Pipe, ends.to.kind)).or_default();
            *sum = sum.plus(other);
        }
    }

    /// Counts what read(2) takes out of a pipe: bytes that splice(2) had put there have moved no
    /// further.
    fn count_read_from_pipe(&mut self, pipe: DescriptorId, bytes: u64) {
        let Some(held) = self.held.get_mut(&pipe) else { return };
        let passed = bytes.min(held.bytes);
        if passed > 0 {
            held.bytes -= passed;
            let (from, calls) = (held.from, std::mem::take(&mut held.calls));
            let sum = self.moves.entry((SPLICE, from, EndKind::Pipe)).or_default();
            *sum = sum.plus(Count { bytes: passed, calls, moving_calls: calls });
        }
    }

    /// Counts bytes that have moved only into a pipe.
    fn count_left_in_pipe(&mut self, held: PipeContent) {
        let PipeContent { from, bytes, calls, .. } = held;
        let moving_calls = if bytes > 0 { calls } else { 0 };
        // A last call that finds the end of the source belongs to those that have moved the rest.
        let to = held.to.filter(|_| bytes == 0).unwrap_or(EndKind::Pipe);
        if calls > 0 || bytes > 0 {
            let sum = self.moves.entry((SPLICE, from, to)).or_default();
            *sum = sum.plus(Count { bytes, calls, moving_calls });
        }
    }

    /// Counts what is still in pipes: at the end, or when there are too many pipes to remember.
    pub(super) fn count_rest(&mut self) {
        for held in std::mem::take(&mut self.held).into_values() {
            self.count_left_in_pipe(held);
        }
    }

    /// Counts a part of a file that was mapped.
    pub(super) fn count_mapping(&mut self, file: DescriptorId, bytes: u64, is_code: bool) {
        if self.mapped.len() == MAX_IDS && !self.mapped.contains_key(&file) {
            self.mapped_before = self.mapped_data();
            self.mapped.clear();
        }
        let mapped = self.mapped.entry(file).or_default();
        mapped.bytes += bytes;
        mapped.is_code |= is_code;
    }

    /// Returns the bytes of mapped files, without programs and libraries, and the number of files.
    pub(super) fn mapped_data(&self) -> (u64, u64) {
        let data = self.mapped.values().filter(|file| !file.is_code);
        data.fold(self.mapped_before, |(bytes, files), file| (bytes + file.bytes, files + 1))
    }

    /// Counts an error; of calls that move bytes in the kernel, by mechanism.
    pub(super) fn refused(&mut self, what: &'static str, ends: (EndKind, EndKind), errno: Errno) {
        let (from, to) = ends;
        let at = self.delivered();
        let same = |known: &&mut RefusalCount| {
            (known.what, known.errno, known.from, known.to) == (what, errno, from, to)
        };
        match self.refusals.iter_mut().find(same) {
            Some(known) => known.times += 1,
            None => {
                self.refusals.push(RefusalCount { what, errno, from, to, at, times: 1 });
            }
        }
    }

    /// Returns the bytes that were delivered: written from memory, read into a mapped file, or moved
    /// inside the kernel.
    pub(super) fn delivered(&self) -> u64 {
        let written = self.crossings.iter().filter(|((direction, _, memory), _)| {
            *direction == ByteDirection::Out || *memory == MemoryKind::Mapping
        });
        let written: u64 = written.map(|(_, count)| count.bytes).sum();
        written + self.moves.values().map(|count| count.bytes).sum::<u64>()
    }

    /// Returns the counter of an end.
    fn end(&mut self, end: &CallEnd) -> &mut EndCount {
        let mut name = Rc::clone(&end.name);
        if self.ends.len() >= MAX_ENDS && !self.ends.contains_key(&(end.kind, Rc::clone(&name))) {
            name = "all others".into();
        }
        if end.kind == EndKind::Socket && self.sockets.len() == MAX_IDS {
            self.sockets.clear();
        }
        let is_new = end.kind != EndKind::Socket || self.sockets.insert(end.id);
        let count = self.ends.entry((end.kind, name)).or_default();
        if end.kind == EndKind::Socket {
            count.number += u64::from(is_new);
        } else {
            count.number = 1;
        }
        count
    }
}

/// The bytes of one call, by the kind of memory that they were in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MemorySplit {
    pub(super) plain: u64,
    pub(super) mapped: u64,
    pub(super) referenced: u64,
    /// The kind of memory of a call that moved nothing.
    pub(super) tried: MemoryKind,
}

impl MemorySplit {
    /// Returns the split of bytes that the kernel only refers to.
    pub(super) fn of_referenced(bytes: u64) -> Self {
        Self { referenced: bytes, tried: MemoryKind::Referenced, ..Self::default() }
    }
}

/// The mechanism whose moves go through pipes.
const SPLICE: &str = "splice";

/// The maximum number of names that are counted separately.
const MAX_ENDS: usize = 10_000;

/// The maximum number of sockets, of pipes and of mapped files that are remembered. Servers use new
/// ones as long as they run; forgotten ones that are still in use are counted again.
const MAX_IDS: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_runs_for_ever_does_not_fill_the_memory() {
        let end = |kind, number: u64| {
            let id = DescriptorId::numbered(number);
            CallEnd { kind, id, size: 0, name: kind.name().into() }
        };
        let mut ledger = Ledger::default();
        let count = 3 * MAX_IDS as u64;
        for number in 0..count {
            let [socket, file] = [EndKind::Socket, EndKind::File].map(|kind| end(kind, number));
            let pipe = end(EndKind::Pipe, number);
            ledger.moved(SPLICE, SPLICE, Endpoints { from: &socket, to: &pipe }, 10);
            ledger.moved(SPLICE, SPLICE, Endpoints { from: &pipe, to: &file }, 7);
            ledger.count_mapping(file.id, 4096, number % 2 == 0);
            assert!(ledger.sockets.len() <= MAX_IDS);
            assert!(ledger.held.len() <= MAX_IDS && ledger.mapped.len() <= MAX_IDS);
        }
        ledger.count_rest();
        let moved = |to| ledger.moves[&(SPLICE, EndKind::Socket, to)].bytes;
        assert_eq!((moved(EndKind::File), moved(EndKind::Pipe)), (7 * count, 3 * count));
        assert_eq!(ledger.ends[&(EndKind::Socket, "socket".into())].number, count);
        assert_eq!(ledger.mapped_data(), (4096 * count / 2, count / 2));
    }

    #[test]
    fn declines_match_the_tables_of_the_engine() {
        let is_decline = |what, errno| {
            let (from, to) = (EndKind::File, EndKind::File);
            RefusalCount { what, errno, from, to, at: 0, times: 1 }.is_decline()
        };
        for (what, errno) in [
            ("copy_file_range", Errno::ACCESS),
            ("copy_file_range", Errno::NOENT),
            ("sendfile", Errno::SPIPE),
            ("splice", Errno::SPIPE),
            ("tee", Errno::INVAL),
            ("vmsplice", Errno::BADF),
        ] {
            assert!(is_decline(what, errno), "{what} {errno:?}");
        }
        for (what, errno) in [
            ("copy_file_range", Errno::IO),
            ("sendfile", Errno::BADF),
            ("read", Errno::INVAL),
            ("mremap", Errno::INVAL),
        ] {
            assert!(!is_decline(what, errno), "{what} {errno:?}");
        }
    }
}
