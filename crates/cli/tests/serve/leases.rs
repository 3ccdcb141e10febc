//! Files on which another program holds a write lease, as Samba does for its clients.

use std::fs;
use std::path::Path;

use underpass_testkit::http::Client;

use crate::rig::{Running, folder, has, piped, serve};

/// Takes a write lease on a file, and releases it once the kernel asks for that.
const LEASE: &str = "
import fcntl, signal, sys
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
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
";

/// Starts a program that holds a write lease on a file until the kernel asks for it.
pub(crate) fn hold_lease(path: &Path) -> Running {
    let mut command = piped("python3");
    command.args(["-c", LEASE]).arg(path);
    Running::listening(command)
}

#[test]
fn a_file_is_sent_once_another_program_has_released_its_lease() {
    if !has("python3") {
        return;
    }
    let folder = folder();
    let file = folder.path().join("file");
    fs::write(&file, "the text").unwrap();
    let server = serve(&folder, &[]);
    for (target, expected) in [
        ("/?archive=tar", "the text"),
        ("/?archive=zip", "the text"),
        ("/file?hash", "41a1f654dc79"),
        ("/file", "the text"),
    ] {
        let holder = hold_lease(&file);
        let mut client = Client::new(server.connect());
        client
            .send(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"));
        let reply = client.finish();
        assert_eq!(reply.status, 200, "{target}: {reply:?}");
        assert!(reply.text().contains(expected), "{target}: {reply:?}");
        holder.finish().succeeded();
    }
}
