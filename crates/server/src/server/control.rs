//! Ends a server from outside.

use tokio::sync::watch;

/// A handle that ends a server from any thread; all clones belong to the same server.
#[derive(Clone, Debug)]
pub struct Control(watch::Sender<Phase>);

impl Control {
    /// Creates the control of a server that is still to be started.
    #[must_use]
    pub fn new() -> Self {
        Self(watch::Sender::new(Phase::Serving))
    }

    /// Stops accepting; the server ends once its transfers have ended or their time is up.
    pub fn drain(&self) {
        self.advance_to(Phase::Draining);
    }

    /// Ends the server at once. A client in the middle of a transfer sees a reset.
    pub fn stop(&self) {
        self.advance_to(Phase::Stopped);
    }

    /// Returns a receiver of the phase and each change of it.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Phase> {
        self.0.subscribe()
    }

    fn advance_to(&self, phase: Phase) {
        self.0.send_if_modified(|now| {
            let is_later = phase > *now;
            *now = phase.max(*now);
            is_later
        });
    }
}

impl Default for Control {
    fn default() -> Self {
        Self::new()
    }
}

/// The phase of a server; it never goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// The server accepts connections.
    Serving,
    /// The server lets transfers end.
    Draining,
    /// The server ends.
    Stopped,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_ends_does_not_start_again() {
        let control = Control::new();
        let phase = control.subscribe();
        control.clone().stop();
        control.drain();
        assert_eq!(*phase.borrow(), Phase::Stopped);
    }
}
