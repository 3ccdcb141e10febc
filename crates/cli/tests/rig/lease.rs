//! Another program that holds a lease on a file.

use std::path::Path;

use crate::rig::{Running, piped};

/// Takes a write lease on a file, and releases it once the kernel asks for that.
const LEASE: &str = "
import fcntl, signal, sys, time
file = open(sys.argv[1], 'r+')
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGIO])
while True:
    try:
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        break
    except BlockingIOError:
        pass # a process that another test starts still has a copy of a descriptor
print('listening on', sys.argv[1], file=sys.stderr, flush=True)
signal.sigwait([signal.SIGIO])
time.sleep(0.2) # Samba asks its client first
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
";

/// Starts a program that holds a write lease on a file until the kernel asks for it.
pub fn hold_lease(path: &Path) -> Running {
    let mut command = piped("python3");
    command.args(["-c", LEASE]).arg(path);
    Running::listening(command)
}
