//! SIGINT and SIGTERM end a transfer in order: temporary files go, the peer sees a reset.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// A flag that the first SIGINT or SIGTERM sets; the second one ends the process at once.
pub(crate) fn cancel_flag() -> Arc<AtomicBool> {
    let cancel = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // Both fail only for signals that cannot be caught, which these can.
        let _ = flag::register_conditional_shutdown(signal, 1, Arc::clone(&cancel));
        let _ = flag::register(signal, Arc::clone(&cancel));
    }
    cancel
}
