//! Records system calls in the ledger: their arguments when they begin, their results when they
//! end.

use rustix::io::Errno;
use underpass_engine::{EndKind, Mechanism};

use super::calls::{ByteDirection, MemoryArguments, SyscallEffect, WatchedCall};
use super::descriptors::{CallEnd, DescriptorId, Descriptors, is_read_only};
use super::ledger::{Endpoints, Ledger, MemorySplit};
use super::mappings::Mappings;
use super::process::{
    CallSubject, MemoryRange, PendingCall, message_bytes, parts, room, split, words,
};

/// Records the start and end of system calls.
#[derive(Debug, Default)]
pub(super) struct SyscallObserver {
    descriptors: Descriptors,
    /// The counters.
    pub(super) ledger: Ledger,
    /// Whether the program has set up a filter of its own. Calls that it refuses never reach ours
    /// (seccomp(2)), and are visible only if the program stops at every call.
    pub(super) is_confined: bool,
    /// Whether any socket was allowed to refer to pages of the program; hardly one program has both
    /// kinds of sockets.
    allows_zero_copy: bool,
}

impl SyscallObserver {
    /// Records that a call has begun; returns `None` if its end is not needed.
    pub(super) fn begins(
        &mut self,
        tid: u32,
        mappings: &mut Mappings,
        known: &'static WatchedCall,
        arguments: [u64; 6],
    ) -> Option<PendingCall> {
        let subject = match known.effect {
            SyscallEffect::Cross { memory, flags, .. } => {
                let end = self.descriptors.end(tid, arguments[0]);
                // A longer datagram is cut off where its memory ends, and its whole length returned.
                let is_exact = flags.is_some_and(|index| has(arguments[index], libc::MSG_TRUNC));
                CallSubject::Cross(end, parts(tid, mappings, memory, &arguments, is_exact))
            }
            SyscallEffect::Vmsplice => {
                CallSubject::Cross(self.descriptors.end(tid, arguments[0]), Vec::new())
            }
            SyscallEffect::Move { from, to } => CallSubject::Move {
                from: self.descriptors.end(tid, arguments[from]),
                to: self.descriptors.end(tid, arguments[to]),
                whole: 0,
            },
            SyscallEffect::Clone => {
                let from = self.descriptors.end(tid, arguments[2]);
                let whole = from.size;
                CallSubject::Move { from, to: self.descriptors.end(tid, arguments[0]), whole }
            }
            SyscallEffect::CloneRange => self.clone_range(tid, &arguments)?,
            SyscallEffect::Map => self.map(tid, &arguments),
            SyscallEffect::Unmap => {
                mappings.remove(arguments[0], arguments[1]);
                return None;
            }
            SyscallEffect::Remap => {
                mappings.at(arguments[0])?;
                CallSubject::Plain
            }
            SyscallEffect::Ring
            | SyscallEffect::Later
            | SyscallEffect::BetweenProcesses
            | SyscallEffect::AllowZeroCopy
            | SyscallEffect::Confine => CallSubject::Plain,
        };
        Some(PendingCall { known, arguments, subject })
    }

    /// Records that a call has ended.
    pub(super) fn ends(
        &mut self,
        tid: u32,
        mappings: &mut Mappings,
        pending: PendingCall,
        result: Result<u64, Errno>,
    ) {
        if result.is_err_and(is_to_be_made_again) {
            return;
        }
        let PendingCall { known, arguments, subject } = pending;
        let done = u64::from(result.is_ok());
        match (known.effect, subject) {
            (SyscallEffect::Cross { direction, memory, flags }, CallSubject::Cross(end, parts)) => {
                let flags = flags.map_or(0, |index| arguments[index]);
                let bytes = result.map(|result| match memory {
                    MemoryArguments::Messages => {
                        message_bytes(tid, arguments[1], result, has(flags, libc::MSG_TRUNC))
                    }
                    _ => result,
                });
                self.crossed(known.name, direction, &end, &parts, flags, bytes);
            }
            (SyscallEffect::Vmsplice, CallSubject::Cross(end, _)) => {
                self.vmspliced(known.name, &end, is_read_only(tid, arguments[0]), result);
            }
            (effect, CallSubject::Move { from, to, whole }) => {
                let is_clone = matches!(effect, SyscallEffect::Clone | SyscallEffect::CloneRange);
                let result = result.map(|moved| if is_clone { whole } else { moved });
                let mechanism = if is_clone { Mechanism::Reflink.name() } else { known.name };
                let ends = (from.kind, to.kind);
                self.failed(mechanism, ends, result);
                let between = Endpoints { from: &from, to: &to };
                self.ledger.moved(known.name, mechanism, between, result.unwrap_or(0));
            }
            (SyscallEffect::Map, CallSubject::Map(file)) => {
                if let Ok(address) = result {
                    self.mapped(mappings, address, &arguments, file);
                }
            }
            (SyscallEffect::Remap, _) => {
                if let Ok(address) = result {
                    moved_mapping(mappings, address, &arguments);
                }
            }
            (SyscallEffect::AllowZeroCopy, _) => {
                // The same number is a different option at other levels.
                let is_of_socket = arguments[1] as u32 == libc::SOL_SOCKET as u32;
                self.allows_zero_copy |= result.is_ok() && is_of_socket;
            }
            (SyscallEffect::Ring, _) => self.ledger.hidden.io_uring_calls += done,
            (SyscallEffect::Later, _) => self.ledger.hidden.io_submit_calls += done,
            (SyscallEffect::BetweenProcesses, _) => {
                self.ledger.hidden.between_processes_calls += done;
            }
            (SyscallEffect::Confine, _) => self.is_confined |= result.is_ok(),
            _ => {}
        }
    }

    /// Counts a call of vmsplice(2): into a pipe it moves by reference, out of one it copies.
    fn vmspliced(
        &mut self,
        name: &'static str,
        end: &CallEnd,
        is_read_only: bool,
        result: Result<u64, Errno>,
    ) {
        let bytes = result.unwrap_or(0);
        let (direction, ends, split) = if is_read_only {
            (ByteDirection::In, (EndKind::Pipe, EndKind::Other), split(&[], bytes))
        } else {
            let split = MemorySplit::of_referenced(bytes);
            (ByteDirection::Out, (EndKind::Other, EndKind::Pipe), split)
        };
        self.ledger.count_crossing(name, direction, end, split);
        self.failed(name, ends, result);
    }

    /// Counts a call that has copied between the kernel and memory.
    fn crossed(
        &mut self,
        name: &'static str,
        direction: ByteDirection,
        end: &CallEnd,
        parts: &[MemoryRange],
        flags: u64,
        result: Result<u64, Errno>,
    ) {
        let bytes = match (direction, result.unwrap_or(0)) {
            // The return value counts these bytes, but the kernel discards them.
            (ByteDirection::In, _) if has(flags, libc::MSG_TRUNC) && is_stream(end) => 0,
            (ByteDirection::In, bytes) if has(flags, libc::MSG_TRUNC) => bytes.min(room(parts)),
            (_, bytes) => bytes,
        };
        // Sockets without the option ignore the flag. Those that are accepted inherit it.
        let is_referenced = has(flags, libc::MSG_ZEROCOPY)
            && self.allows_zero_copy
            && !end.name.starts_with("UNIX");
        let split = match direction {
            ByteDirection::Out if is_referenced => MemorySplit::of_referenced(bytes),
            _ => split(parts, bytes),
        };
        let ends = match direction {
            ByteDirection::In => (end.kind, EndKind::Other),
            ByteDirection::Out => (EndKind::Other, end.kind),
        };
        self.failed(name, ends, result);
        self.ledger.count_crossing(name, direction, end, split);
    }

    /// Records an error, if the result is one.
    fn failed(&mut self, what: &'static str, ends: (EndKind, EndKind), result: Result<u64, Errno>) {
        match result {
            Err(Errno::AGAIN) => self.ledger.waits += 1,
            Err(errno) => self.ledger.refused(what, ends, errno),
            Ok(_) => {}
        }
    }

    /// Returns the two files, and how many bytes of the first are cloned.
    fn clone_range(&mut self, tid: u32, arguments: &[u64; 6]) -> Option<CallSubject> {
        let range = words(tid, arguments[2], 3)?;
        let [source, at, len] = *range else { return None };
        let from = self.descriptors.end(tid, source);
        // A length of 0 means up to the end.
        let whole = if len == 0 { from.size.saturating_sub(at) } else { len };
        Some(CallSubject::Move { from, to: self.descriptors.end(tid, arguments[0]), whole })
    }

    /// Returns the file that is about to be mapped.
    fn map(&mut self, tid: u32, arguments: &[u64; 6]) -> CallSubject {
        let [_, _, _, flags, fd, _] = *arguments;
        if flags & libc::MAP_ANONYMOUS as u64 != 0 {
            return CallSubject::Map(None);
        }
        let end = self.descriptors.end(tid, fd);
        CallSubject::Map((end.kind == EndKind::File).then_some(end.id))
    }

    /// Records a new mapping.
    fn mapped(
        &mut self,
        mappings: &mut Mappings,
        address: u64,
        arguments: &[u64; 6],
        file: Option<DescriptorId>,
    ) {
        let [_, len, protection, ..] = *arguments;
        let Some(file) = file else { return mappings.remove(address, len) };
        mappings.insert(address, len, file);
        let is_code = protection & libc::PROT_EXEC as u64 != 0;
        self.ledger.count_mapping(file, len, is_code);
        if is_code {
            mappings.mark_code(file);
        }
    }
}

/// Records that a mapping has moved in memory.
fn moved_mapping(mappings: &mut Mappings, address: u64, arguments: &[u64; 6]) {
    let [old, old_len, new_len, ..] = *arguments;
    let Some(file) = mappings.at(old) else { return };
    mappings.remove(old, old_len);
    mappings.insert(address, new_len, file);
}

/// Returns whether the flags of a call have this one.
fn has(flags: u64, flag: libc::c_int) -> bool {
    flags & flag as u64 != 0
}

/// Returns whether the end is a socket without message boundaries.
fn is_stream(end: &CallEnd) -> bool {
    end.kind == EndKind::Socket && (end.name.starts_with("TCP") || end.name.starts_with("MPTCP"))
}

/// Returns whether a call was interrupted, and the kernel restarts it or returns `EINTR` to the
/// program: the errors that no program ever sees, `ERESTARTSYS` to `ERESTART_RESTARTBLOCK`.
fn is_to_be_made_again(errno: Errno) -> bool {
    matches!(errno.raw_os_error(), 512..=516)
}
