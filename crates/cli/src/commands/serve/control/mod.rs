//! Signals: SIGTERM, SIGINT and SIGQUIT drain connections, a second one ends at once, SIGUSR1
//! reopens the log, SIGHUP reads the certificate and the sites again, too.

mod reload;

use std::io;
use std::process;
use std::thread::{self, JoinHandle};

use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1};
use signal_hook::iterator::{Handle, Signals};
use underpass_server::server::Control;

use super::log_file::AccessLog;
use crate::failure::{Failure, Result};
use crate::signals::outlive_file_limit;

pub(crate) use reload::Reload;

/// Keeps signals for [`SignalWatch::start`] from now on. Call this before the server is announced,
/// because a process that knows of it may send one.
pub(crate) fn keep_signals() -> Result<Signals> {
    outlive_file_limit();
    let signals = Signals::new([SIGHUP, SIGUSR1, SIGINT, SIGTERM, SIGQUIT]);
    signals.map_err(|source| Failure::System { action: "waiting for signals", source })
}

/// A thread that waits for signals.
#[derive(Debug)]
pub(crate) struct SignalWatch {
    handle: Handle,
    thread: JoinHandle<()>,
}

impl SignalWatch {
    /// Begins to wait for signals, and notifies systemd that the server is ready.
    ///
    /// # Errors
    ///
    /// The error of the system if there can be no thread.
    pub(crate) fn start(
        mut signals: Signals,
        control: Control,
        log: Option<AccessLog>,
        mut reload: Option<Reload>,
    ) -> io::Result<Self> {
        let handle = signals.handle();
        let thread = thread::Builder::new().spawn(move || {
            let mut ends = 0;
            for signal in signals.forever() {
                if matches!(signal, SIGHUP | SIGUSR1) {
                    log.iter().for_each(AccessLog::reopen);
                    reload.iter_mut().filter(|_| signal == SIGHUP).for_each(Reload::run);
                    continue;
                }
                ends += 1;
                match ends {
                    1 => {
                        notify(NotifyState::Stopping);
                        control.drain();
                    }
                    2 => control.stop(),
                    // The second signal ends the server at once.
                    _ => process::exit(1),
                }
            }
        })?;
        notify(NotifyState::Ready);
        Ok(Self { handle, thread })
    }

    /// Stops waiting.
    pub(crate) fn end(self) {
        self.handle.close();
        // The thread has nothing left to do, and a panic of it was already reported.
        let _ = self.thread.join();
    }
}

/// Notifies systemd; without systemd this does nothing.
fn notify(state: NotifyState<'_>) {
    let _ = sd_notify::notify(&[state]);
}
