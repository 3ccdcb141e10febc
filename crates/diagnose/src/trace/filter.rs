//! The system calls that stop a traced program, as a filter program for seccomp(2).
//!
//! A stop costs a hundred times as much as a call, so the kernel lets every call pass that is not
//! traced.

use std::fmt;

/// The condition under which a system call stops the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallFilter {
    /// Always.
    Always,
    /// If the lower 32 bits of this argument, counted from 0, have this value.
    If {
        /// The argument.
        argument: u8,
        /// Its value.
        is: u32,
    },
    /// Unless `argument & mask == value`, in the lower 32 bits.
    Unless {
        /// The argument, counted from 0.
        argument: u8,
        /// The bits that are compared.
        mask: u32,
        /// Their value.
        value: u32,
    },
}

/// A filter program that decides by the number and arguments of a call whether it stops.
///
/// Calls of another architecture than this program's own, such as those of 32-bit programs,
/// always stop, so that they do not go unnoticed.
#[derive(Clone, Default)]
pub struct Filter {
    pub(super) code: Vec<libc::sock_filter>,
}

impl Filter {
    /// Returns a filter that stops at these calls; `None` on an unknown architecture.
    #[must_use]
    pub fn new(watched: &[(i64, CallFilter)]) -> Option<Self> {
        let mut filter = Self::default();
        filter.load(ARCHITECTURE_AT);
        filter.jump(libc::BPF_JEQ, ARCHITECTURE?, 1, 0);
        filter.answer(libc::SECCOMP_RET_TRACE);
        filter.load(NUMBER_AT);
        // The second numbering of x86-64, with its bit for 32-bit pointers.
        filter.jump(libc::BPF_JSET, X32_BIT, 0, 1);
        filter.answer(libc::SECCOMP_RET_TRACE);
        for (number, watch) in watched {
            filter.watch(u32::try_from(*number).ok()?, *watch);
        }
        filter.answer(libc::SECCOMP_RET_ALLOW);
        Some(filter)
    }

    /// Adds the conditions for one call. The number of the call is loaded before and after.
    fn watch(&mut self, number: u32, watch: CallFilter) {
        match watch {
            CallFilter::Always => {
                self.jump(libc::BPF_JEQ, number, 0, 1);
                self.answer(libc::SECCOMP_RET_TRACE);
            }
            CallFilter::If { argument, is } => {
                self.jump(libc::BPF_JEQ, number, 0, 4);
                self.load(ARGUMENTS_AT + 8 * u32::from(argument));
                self.jump(libc::BPF_JEQ, is, 0, 1);
                self.answer(libc::SECCOMP_RET_TRACE);
                self.load(NUMBER_AT);
            }
            CallFilter::Unless { argument, mask, value } => {
                self.jump(libc::BPF_JEQ, number, 0, 5);
                self.load(ARGUMENTS_AT + 8 * u32::from(argument));
                self.push(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, mask, 0, 0);
                self.jump(libc::BPF_JEQ, value, 1, 0);
                self.answer(libc::SECCOMP_RET_TRACE);
                self.load(NUMBER_AT);
            }
        }
    }

    fn load(&mut self, at: u32) {
        self.push(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at, 0, 0);
    }

    fn jump(&mut self, test: u32, value: u32, if_so: u8, if_not: u8) {
        self.push(libc::BPF_JMP | test | libc::BPF_K, value, if_so, if_not);
    }

    fn answer(&mut self, answer: u32) {
        self.push(libc::BPF_RET | libc::BPF_K, answer, 0, 0);
    }

    fn push(&mut self, code: u32, k: u32, jt: u8, jf: u8) {
        // All codes have 16 bits, though libc's constants are wider.
        self.code.push(libc::sock_filter { code: code as u16, jt, jf, k });
    }
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filter").field("instructions", &self.code.len()).finish()
    }
}

/// The offset of the call number in `seccomp_data` of linux/seccomp.h.
const NUMBER_AT: u32 = 0;

/// The offset of the architecture.
const ARCHITECTURE_AT: u32 = 4;

/// The offset of the lower half of the first argument; every architecture here is little-endian.
const ARGUMENTS_AT: u32 = 16;

/// `__X32_SYSCALL_BIT` of asm/unistd.h; no other architecture has numbers as large.
const X32_BIT: u32 = 0x4000_0000;

/// `AUDIT_ARCH_` of linux/audit.h for this program's own calls.
pub(super) const ARCHITECTURE: Option<u32> = if cfg!(target_arch = "x86_64") {
    Some(0xc000_003e)
} else if cfg!(target_arch = "aarch64") {
    Some(0xc000_00b7)
} else if cfg!(target_arch = "riscv64") {
    Some(0xc000_00f3)
} else {
    None
};

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the kernel's decision, for the few instructions that are used.
    fn answer(filter: &Filter, architecture: u32, number: u32, arguments: [u32; 6]) -> u32 {
        let load = |at: u32| match at {
            NUMBER_AT => number,
            ARCHITECTURE_AT => architecture,
            at => arguments[((at - ARGUMENTS_AT) / 8) as usize],
        };
        let (mut at, mut value) = (0, 0);
        loop {
            let libc::sock_filter { code, jt, jf, k } = filter.code[at];
            at += 1;
            let jump = |is_so: bool| usize::from(if is_so { jt } else { jf });
            match u32::from(code) {
                code if code & 7 == libc::BPF_RET => return k,
                code if code & 7 == libc::BPF_LD => value = load(k),
                code if code & 7 == libc::BPF_ALU => value &= k,
                code if code & 0xf0 == libc::BPF_JEQ => at += jump(value == k),
                code if code & 0xf0 == libc::BPF_JSET => at += jump(value & k != 0),
                code => unreachable!("{code}"),
            }
        }
    }

    #[test]
    fn only_watched_calls_stop_the_program() {
        let watched = [
            (10, CallFilter::If { argument: 1, is: 77 }),
            (11, CallFilter::Unless { argument: 3, mask: 0x30, value: 0x20 }),
            (12, CallFilter::Always),
        ];
        let filter = Filter::new(&watched).expect("this architecture is known");
        let own = ARCHITECTURE.expect("this architecture is known");
        let stops = |number, argument: usize, value| {
            let mut arguments = [0; 6];
            arguments[argument] = value;
            answer(&filter, own, number, arguments) == libc::SECCOMP_RET_TRACE
        };
        assert!(stops(10, 1, 77) && !stops(10, 1, 78) && !stops(10, 0, 77));
        assert!(!stops(11, 3, 0x20) && !stops(11, 3, 0x22) && stops(11, 3, 0x30));
        assert!(stops(11, 3, 0) && stops(12, 0, 5));
        assert!(!stops(9, 1, 77) && !stops(13, 0, 0) && !stops(0, 0, 0));
        assert!(stops(X32_BIT | 9, 0, 0), "the second numbering is not to be overlooked");
        assert_eq!(answer(&filter, own ^ 1, 9, [0; 6]), libc::SECCOMP_RET_TRACE);
    }
}
