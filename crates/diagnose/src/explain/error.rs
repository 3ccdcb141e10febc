//! The reason why a program could not be explained.

use std::path::Path;
use std::{fs, io};

use rustix::io::Errno;
use underpass_engine::hint::{Hint, Hinted, Plain};

use crate::procfs::field;

/// The reason why a program could not be explained.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    /// The `/proc` of this PID namespace, which shows what a program moves, is not mounted.
    #[error("tracing needs /proc, and that of this PID namespace is not mounted")]
    NoProc,
    /// It could not be started.
    #[error("running {program}: {}", Plain(&(*.errno).into()))]
    NotStarted {
        /// The program.
        program: String,
        /// The answer of execve(2).
        errno: Errno,
    },
    /// It cannot be traced.
    #[error("tracing is not allowed here: {}", Plain(.source))]
    Refused {
        /// The remedy.
        remedy: Hint,
        /// The answer of ptrace(2).
        source: io::Error,
    },
    /// Another error occurred while it was traced.
    #[error("tracing: {}", Plain(.0))]
    Io(#[source] io::Error),
}

impl ExplainError {
    /// Creates the error of starting to trace.
    pub(super) fn starting(source: io::Error) -> Self {
        match Errno::from_io_error(&source) {
            Some(Errno::PERM | Errno::ACCESS | Errno::NOSYS) => {
                Self::Refused { remedy: Hint::new(remedy()), source }
            }
            _ => Self::Io(source),
        }
    }

    /// Returns the exit code that a shell uses: 127 if there is no such program, 126 if it cannot
    /// be run.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NotStarted { errno: Errno::NOENT, .. } => 127,
            Self::NotStarted { .. } => 126,
            Self::NoProc | Self::Refused { .. } | Self::Io(_) => 1,
        }
    }
}

impl Hinted for ExplainError {
    fn hint(&self) -> Option<Hint> {
        match self {
            Self::NotStarted { program, errno } => Some(Hint::new(match *errno {
                Errno::NOENT => "is it installed, and in PATH?",
                Errno::ACCESS if Path::new(program).is_dir() => "a folder is not a program",
                Errno::ACCESS => "chmod +x makes it a program",
                Errno::NOEXEC => "it is not a program for this machine; a script begins with #!",
                _ => return None,
            })),
            Self::Refused { remedy, .. } => Some(*remedy),
            Self::NoProc => Some(Hint::new("mount -t proc proc /proc")),
            Self::Io(_) => None,
        }
    }
}

/// Returns the remedy for a refusal, by the visible signs of its cause.
fn remedy() -> &'static str {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let scope = fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").unwrap_or_default();
    remedy_for(&status, scope.trim())
}

fn remedy_for(status: &str, scope: &str) -> &'static str {
    if field(status, "TracerPid").is_some_and(|tracer| tracer != "0") {
        return "another tracer, such as strace or gdb, is tracing this process: run it without that";
    }
    match scope {
        "3" => "sysctl kernel.yama.ptrace_scope is 3, which only a reboot changes",
        "2" => "run it as root, or set sysctl kernel.yama.ptrace_scope to 1",
        _ => "in a container, start that with --cap-add SYS_PTRACE or another seccomp profile",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remedy_of_a_refused_trace_fits_its_cause() {
        let remedy = |status, scope| remedy_for(status, scope);
        assert!(remedy("Name:\tx\nTracerPid:\t12\n", "3").contains("strace"));
        assert!(remedy("TracerPid:\t0\n", "3").contains("reboot"));
        assert!(remedy("TracerPid:\t0\n", "2").contains("root"));
        assert!(remedy("TracerPid:\t0\n", "1").contains("container"));
        assert!(remedy("", "").contains("container"));
    }

    #[test]
    fn exit_codes_are_those_of_a_shell() {
        let code = |errno| ExplainError::NotStarted { program: "x".to_owned(), errno }.exit_code();
        assert_eq!((code(Errno::NOENT), code(Errno::ACCESS), code(Errno::NOEXEC)), (127, 126, 126));
    }
}
