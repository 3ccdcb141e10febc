//! System calls that return what a test wants, only on the thread that makes them.

use std::os::fd::{AsFd, AsRawFd};
use std::thread;
use std::time::Duration;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter,
};
use underpass_engine::{Error, Status, Transfer};

/// A system call, distinguished from others of its name by some of its arguments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    number: i64,
    /// Indexes and values.
    arguments: [Option<(u8, u64)>; 2],
}

impl Call {
    #[allow(clippy::unnecessary_cast)] // the constant's type differs by target
    pub(crate) const CLONE_RANGE: Self =
        Self { number: libc::SYS_ioctl, arguments: [Some((1, libc::FICLONERANGE as u64)), None] };
    pub(crate) const COPY_FILE_RANGE: Self =
        Self { number: libc::SYS_copy_file_range, arguments: [None; 2] };
    /// As the engine maps files. An allocator's mappings are writable and private.
    pub(crate) const MAP_FILE: Self = Self {
        number: libc::SYS_mmap,
        arguments: [Some((2, libc::PROT_READ as u64)), Some((3, libc::MAP_SHARED as u64))],
    };
    pub(crate) const MAKE_PIPE: Self = Self { number: libc::SYS_pipe2, arguments: [None; 2] };
    pub(crate) const SENDFILE: Self = Self { number: libc::SYS_sendfile, arguments: [None; 2] };
    pub(crate) const SPLICE: Self = Self { number: libc::SYS_splice, arguments: [None; 2] };

    /// splice(2) into this sink: the second half if there are two.
    pub(crate) fn splice_into(sink: impl AsFd) -> Self {
        let fd = u64::try_from(sink.as_fd().as_raw_fd()).unwrap();
        Self { number: libc::SYS_splice, arguments: [Some((2, fd)), None] }
    }

    /// fallocate(2) of this many bytes.
    pub(crate) fn allocate(len: u32) -> Self {
        Self { number: libc::SYS_fallocate, arguments: [Some((3, len.into())), None] }
    }

    fn filter(self, errno: u32) -> BpfProgram {
        let conditions = self.arguments.into_iter().flatten().map(|(place, value)| {
            SeccompCondition::new(place, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value).unwrap()
        });
        let conditions: Vec<_> = conditions.collect();
        let rules = if conditions.is_empty() {
            vec![]
        } else {
            vec![SeccompRule::new(conditions).unwrap()]
        };
        let filter = SeccompFilter::new(
            [(self.number, rules)].into(),
            SeccompAction::Allow,
            SeccompAction::Errno(errno),
            std::env::consts::ARCH.try_into().unwrap(),
        );
        filter.unwrap().try_into().unwrap()
    }
}

/// Runs `work` on a thread on which the kernel returns `errno` for `call`; 0 is a success.
///
/// A filter cannot be removed, so it ends with its thread.
pub(crate) fn refusing<T: Send>(call: Call, errno: u32, work: impl FnOnce() -> T + Send) -> T {
    let filter = call.filter(errno);
    let filtered = || {
        apply_filter(&filter).unwrap();
        work()
    };
    thread::scope(|scope| scope.spawn(filtered).join().unwrap())
}

/// Continues to the end, by [`Transfer::advance`] alone.
pub(crate) fn advance_to_the_end<F: AsFd, S: AsFd>(
    transfer: &mut Transfer<'_, F, S>,
) -> Result<(), Error> {
    loop {
        match transfer.advance()? {
            Status::Done => return Ok(()),
            Status::Yielded => {}
            Status::Waiting(_) => thread::sleep(Duration::from_micros(50)),
        }
    }
}

/// Continues to the end of the turn, and returns how many bytes have been moved by then.
pub(crate) fn advance_a_turn<F: AsFd, S: AsFd>(transfer: &mut Transfer<'_, F, S>) -> u64 {
    while let Status::Waiting(_) = transfer.advance().unwrap() {
        thread::sleep(Duration::from_micros(50));
    }
    transfer.report().bytes()
}
