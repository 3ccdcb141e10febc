//! Pauses that are shorter than a millisecond, the resolution of the runtime's timers.

use std::cell::{Cell, OnceCell};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::sleep;

/// A timer for the short pauses of one worker: those that overlap end together.
#[derive(Debug, Default)]
pub(crate) struct ShortPauses {
    /// `None` if the system gives no timer.
    timer: OnceCell<Option<AsyncFd<OwnedFd>>>,
    /// The number of times that the timer was set.
    set: Cell<u64>,
    is_set: Cell<bool>,
}

impl ShortPauses {
    /// Waits for some part of a millisecond: the shorter the response has waited, the sooner its
    /// client is expected to have read all. Without a timer it waits for a millisecond or two.
    pub(super) async fn pause(&self, waited: Duration) {
        if self.wait(waited.clamp(MIN_PAUSE, MAX_PAUSE)).await.is_err() {
            sleep(Duration::from_millis(1)).await;
        }
    }

    async fn wait(&self, pause: Duration) -> io::Result<()> {
        let timer = self.timer.get_or_init(|| new_timer().ok());
        let timer = timer.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        if !self.is_set.get() {
            timerfd_settime(timer, TimerfdTimerFlags::empty(), &once(pause))?;
            self.is_set.set(true);
            self.set.set(self.set.get() + 1);
        }
        let set = self.set.get();
        let mut fired = timer.readable().await?;
        // Another pause that ended at the same time may have set it again, and others wait for that.
        if self.set.get() == set {
            fired.clear_ready();
            self.is_set.set(false);
        }
        Ok(())
    }
}

#[allow(deprecated, reason = "sound for an OwnedFd, and what replaces it is unsafe")]
fn new_timer() -> io::Result<AsyncFd<OwnedFd>> {
    let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
    AsyncFd::with_interest(timerfd_create(TimerfdClockId::Monotonic, flags)?, Interest::READABLE)
}

/// Setting a timer again also forgets that it has fired, so it is never read.
fn once(pause: Duration) -> Itimerspec {
    Itimerspec {
        it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
        it_value: Timespec { tv_sec: 0, tv_nsec: pause.subsec_nanos().into() },
    }
}

/// The first pause: over loopback, a client takes the end of a response in less than a tenth of a
/// millisecond.
const MIN_PAUSE: Duration = Duration::from_micros(50);

/// The longest pause. A timer that fires costs some 20 µs on a virtual machine.
const MAX_PAUSE: Duration = Duration::from_micros(200);

#[cfg(test)]
mod tests {
    use super::ShortPauses;
    use std::future::Future;
    use std::pin::{Pin, pin};
    use std::rc::Rc;
    use std::task::{Context, Waker};
    use std::time::Duration;
    use tokio::runtime::Builder;
    use tokio::task::{LocalSet, spawn_local, yield_now};
    use tokio::time::{sleep, timeout};

    #[test]
    fn a_pause_that_ends_late_does_not_prolong_others() {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let pauses = ShortPauses::default();
            let begin = |pause: Pin<&mut dyn Future<Output = ()>>| {
                let _ = pause.poll(&mut Context::from_waker(Waker::noop()));
            };
            let (mut late, mut waiting) =
                (pin!(pauses.pause(Duration::ZERO)), pin!(pauses.pause(Duration::ZERO)));
            begin(late.as_mut());
            pauses.pause(Duration::ZERO).await;
            begin(waiting.as_mut());
            sleep(Duration::from_millis(5)).await;
            late.await;
            timeout(Duration::from_secs(5), pauses.pause(Duration::ZERO)).await.unwrap();
            waiting.await;
        });
    }

    #[test]
    fn pauses_that_overlap_or_are_abandoned_end() {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let set = LocalSet::new();
        let pauses = Rc::new(ShortPauses::default());
        let others = Rc::clone(&pauses);
        let pausing = set.run_until(async move {
            let other = spawn_local(async move {
                for _ in 0..100 {
                    others.pause(Duration::ZERO).await;
                }
            });
            for _ in 0..100 {
                let mut context = Context::from_waker(Waker::noop());
                let _ = pin!(pauses.pause(Duration::ZERO)).poll(&mut context);
                yield_now().await;
            }
            pauses.pause(Duration::ZERO).await;
            other.await.unwrap();
            assert!(matches!(pauses.timer.get(), Some(Some(_))), "it has its own timer");
        });
        runtime.block_on(async { timeout(Duration::from_secs(10), pausing).await.unwrap() });
    }
}
