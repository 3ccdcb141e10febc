//! Signals: SIGTERM, SIGINT and SIGQUIT drain connections, a second one ends at once, SIGUSR1
//! reopens the log, SIGHUP reads the certificate and the sites again, too, and ends a share.

mod reload;

use std::env;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1};
use signal_hook::iterator::{Handle, Signals};
use underpass_observe::log_writer::LogBuffer;
use underpass_server::Control;
use underpass_sys::{SAME_REQUEST, is_ignored};

use crate::failure::{Failure, Result, plain};
use crate::output::note;

pub(crate) use reload::Reload;

/// Keeps signals for [`SignalWatch::start`] from now on. Call this before the server is announced,
/// because a process that knows of it may send one.
///
/// A share outlives its terminal if SIGHUP was ignored when it started, as after nohup(1).
pub(crate) fn keep_signals(is_share: bool) -> Result<Signals> {
    let hangup = (!is_share || !is_ignored(SIGHUP)).then_some(SIGHUP);
    let signals = [SIGUSR1, SIGINT, SIGTERM, SIGQUIT].into_iter().chain(hangup);
    let signals = Signals::new(signals.collect::<Vec<_>>());
    signals.map_err(|source| Failure::System { action: "waiting for signals", source })
}

/// A thread that waits for signals.
#[derive(Debug)]
pub(crate) struct SignalWatch {
    handle: Handle,
    thread: JoinHandle<()>,
}

impl SignalWatch {
    /// Begins to wait for signals, and notifies systemd that the server is ready. `drain` is the
    /// time that transfers may take to end. SIGHUP ends a share, which has nothing to read again:
    /// the terminal that shows its URL was closed.
    ///
    /// # Errors
    ///
    /// The error of the system if there can be no thread.
    pub(crate) fn start(
        mut signals: Signals,
        control: Control,
        log: Option<LogBuffer>,
        reload: Option<Reload>,
        drain: Duration,
    ) -> io::Result<Self> {
        let handle = signals.handle();
        let reload = reload.map(reload_on_request).transpose()?;
        let thread = thread::Builder::new().spawn(move || {
            let (mut ends, mut first) = (0, None);
            for signal in signals.forever() {
                if signal == SIGUSR1 || (signal == SIGHUP && reload.is_some()) {
                    log.iter().for_each(LogBuffer::reopen);
                    if let Some(reload) = reload.as_ref().filter(|_| signal == SIGHUP) {
                        // A reload that has not begun yet reads the same configuration.
                        let _ = reload.try_send(());
                    }
                    continue;
                }
                let first = *first.get_or_insert_with(Instant::now);
                if ends == 1 && first.elapsed() < SAME_REQUEST {
                    continue;
                }
                ends += 1;
                match ends {
                    1 => {
                        notify("STOPPING=1");
                        control.drain();
                        exit_after(drain.saturating_add(END_TIME));
                    }
                    2 => {
                        control.stop();
                        exit_after(STOP_TIME);
                    }
                    _ => process::exit(1),
                }
            }
        })?;
        notify("READY=1");
        Ok(Self { handle, thread })
    }

    /// Stops waiting.
    pub(crate) fn end(self) {
        self.handle.close();
        // A panic of the thread was already reported.
        let _ = self.thread.join();
    }
}

/// Ends the process after this time if it has not ended by then: a worker may be in a system call
/// that does not return, as on a mount whose server is gone.
fn exit_after(time: Duration) {
    // Without a thread, another signal ends the process.
    let _ = thread::Builder::new().name("end".to_owned()).spawn(move || {
        thread::sleep(time);
        process::exit(1);
    });
}

/// Reads the configuration again for each message, on a separate thread: that may take long, and
/// must not delay other signals.
fn reload_on_request(mut reload: Reload) -> io::Result<SyncSender<()>> {
    let (sender, requests) = sync_channel(1);
    let work = move || requests.iter().for_each(|()| reload.run());
    thread::Builder::new().name("reload".to_owned()).spawn(work)?;
    Ok(sender)
}

/// Notifies systemd, or another supervisor that started the server, as sd_notify(3) says; otherwise
/// this does nothing.
fn notify(state: &str) {
    let Some(name) = env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else { return };
    let address = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(&name),
    };
    let sent = address.and_then(|address| {
        let socket = UnixDatagram::unbound()?;
        socket.connect_addr(&address)?;
        socket.send(state.as_bytes())
    });
    if let Err(error) = sent {
        let name = name.display();
        note(&format!("sending {state} to {name} (NOTIFY_SOCKET) failed: {}", plain(&error)));
    }
}

/// The time that the server has to end once its transfers have ended or were cut off. It includes
/// the wait for a log that nothing reads.
const END_TIME: Duration = Duration::from_secs(10);

/// The time in which a server that is to end at once can reset its connections and write its log.
const STOP_TIME: Duration = Duration::from_secs(1);
