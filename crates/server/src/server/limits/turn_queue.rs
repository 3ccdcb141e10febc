//! Lets short work go first. Longer work waits in a line, of which only a fraction of a millisecond
//! is done before the worker checks for connections that have become ready, or a millisecond if no
//! short responses compete.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::yield_now;

/// The line of one worker.
#[derive(Debug)]
pub(crate) struct TurnQueue {
    line: Semaphore,
    /// How many wait for a turn, or have one.
    waiting: Cell<usize>,
    /// The time that turns have taken since the worker last checked for ready connections.
    spent: Cell<Duration>,
    /// The time of the last short response or new connection.
    last_short: Cell<Option<Instant>>,
}

impl Default for TurnQueue {
    fn default() -> Self {
        Self {
            line: Semaphore::new(1),
            waiting: Cell::default(),
            spent: Cell::default(),
            last_short: Cell::default(),
        }
    }
}

impl TurnQueue {
    /// Waits for a turn, in the order of the calls. A turn must not be kept while its holder waits
    /// for anything.
    pub(crate) async fn begin(&self) -> TurnPermit<'_> {
        let counted = Counted::new(&self.waiting);
        // The semaphore is never closed. One waiter at a time is woken, so a long line costs
        // nothing.
        let place = self.line.acquire().await.ok();
        let mut now = Instant::now();
        if self.spent.get() >= self.max_spent(now) {
            // This returns after the runtime has checked for other connections that are ready.
            yield_now().await;
            self.spent.set(Duration::ZERO);
            now = Instant::now();
        }
        TurnPermit { turns: self, began: now, _place: place, _counted: counted }
    }

    /// Waits until those who are in line now have had their turns; returns false at once if nobody
    /// is. Callers of this function are not in line, or two of them would keep each other busy.
    pub(crate) async fn pass(&self) -> bool {
        let are_others = self.waiting.get() > 0;
        if are_others {
            let _ = self.line.acquire().await;
        }
        are_others
    }

    /// Returns whether a turn could begin at once: the line is empty and, while there are short
    /// responses to send, the worker has just checked for them.
    pub(crate) fn is_free(&self, now: Instant) -> bool {
        self.line.available_permits() > 0
            && (!self.is_contended(now) || self.spent.get() < MAX_SPENT)
    }

    /// Records a short response or a new connection.
    pub(crate) fn record_short(&self, now: Instant) {
        self.last_short.set(Some(now));
    }

    /// Returns whether short responses compete.
    pub(crate) fn is_contended(&self, now: Instant) -> bool {
        self.last_short.get().is_some_and(|at| now.saturating_duration_since(at) < SHORT_WAIT)
    }

    /// Returns the time for turns before connections that are ready go first. Large responses in
    /// line lose little by a long time; with a short one, others could keep overtaking the line.
    fn max_spent(&self, now: Instant) -> Duration {
        if self.is_contended(now) { MAX_SPENT } else { MAX_SPENT_ALONE }
    }

    /// Runs work; the part before its first wait takes a turn.
    pub(crate) async fn run<T>(&self, work: impl Future<Output = T>) -> T {
        let mut turn = Some(self.begin().await);
        let mut work = pin!(work);
        poll_fn(|context| {
            let polled: Poll<T> = work.as_mut().poll(context);
            turn = None;
            polled
        })
        .await
    }
}

/// A turn, which lasts until it is dropped.
#[derive(Debug)]
pub(crate) struct TurnPermit<'a> {
    turns: &'a TurnQueue,
    began: Instant,
    _place: Option<SemaphorePermit<'a>>,
    _counted: Counted<'a>,
}

/// A place among those who wait for a turn or have one.
#[derive(Debug)]
struct Counted<'a>(&'a Cell<usize>);

impl<'a> Counted<'a> {
    fn new(count: &'a Cell<usize>) -> Self {
        count.set(count.get() + 1);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Drop for TurnPermit<'_> {
    fn drop(&mut self) {
        self.turns.spent.set(self.turns.spent.get() + self.began.elapsed());
    }
}

/// The time for turns before connections that are ready go first, while short responses compete.
const MAX_SPENT: Duration = Duration::from_micros(50);

/// The same among large responses alone: some turns of 2 MiB.
const MAX_SPENT_ALONE: Duration = Duration::from_millis(1);

/// The time after a short response or a new connection for which short responses count as
/// competing.
const SHORT_WAIT: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::rc::Rc;
    use std::task::{Context, Waker};

    use tokio::task::{LocalSet, spawn_local};

    use super::*;

    /// Computes for longer than all turns together may before others go first.
    fn compute() {
        let started = Instant::now();
        while started.elapsed() <= MAX_SPENT {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn turns_are_short_only_while_short_responses_compete() {
        let (turns, now) = (TurnQueue::default(), Instant::now());
        assert_eq!(turns.max_spent(now), MAX_SPENT_ALONE);
        turns.record_short(now);
        assert_eq!(turns.max_spent(now), MAX_SPENT);
        assert_eq!(turns.max_spent(now + SHORT_WAIT), MAX_SPENT_ALONE);
    }

    #[test]
    fn waiting_responses_keep_their_order() {
        let (turns, now) = (TurnQueue::default(), Instant::now());
        let mut context = Context::from_waker(Waker::noop());
        assert!(turns.is_free(now));
        let begun = pin!(turns.begin()).poll(&mut context);
        assert!(begun.is_ready() && !turns.is_free(now));
        let mut waits = pin!(turns.begin());
        assert!(waits.as_mut().poll(&mut context).is_pending());
        drop(begun);
        assert!(!turns.is_free(now), "the one that waited is next");
        assert!(waits.poll(&mut context).is_ready() && turns.is_free(now));
        turns.spent.set(MAX_SPENT);
        assert!(turns.is_free(now));
        turns.record_short(now);
        assert!(!turns.is_free(now), "short responses go first");
    }

    #[test]
    fn those_that_let_turns_pass_are_not_in_line() {
        let turns = TurnQueue::default();
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(pin!(turns.pass()).poll(&mut context), Poll::Ready(false));
        let begun = pin!(turns.begin()).poll(&mut context);
        let (mut first, mut second) = (pin!(turns.pass()), pin!(turns.pass()));
        assert!(first.as_mut().poll(&mut context).is_pending());
        assert!(second.as_mut().poll(&mut context).is_pending());
        drop(begun);
        assert_eq!(pin!(turns.pass()).poll(&mut context), Poll::Ready(false));
        assert_eq!(first.poll(&mut context), Poll::Ready(true));
        assert_eq!(second.poll(&mut context), Poll::Ready(true));
        drop(pin!(turns.begin()).poll(&mut context));
        assert_eq!(turns.waiting.get(), 0);
    }

    #[test]
    fn ready_connections_go_first_and_the_queue_keeps_its_order() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(b"ready").unwrap();
        ours.set_nonblocking(true).unwrap();
        let (turns, done) = (Rc::new(TurnQueue::default()), Rc::new(RefCell::new(Vec::new())));
        turns.record_short(Instant::now());
        let local = LocalSet::new();
        local.block_on(&runtime, async {
            let mut tasks = Vec::new();
            for number in 0..40 {
                let (turns, done) = (Rc::clone(&turns), Rc::clone(&done));
                tasks.push(spawn_local(async move {
                    let work = async {
                        compute();
                        done.borrow_mut().push(Some(number));
                    };
                    match number % 2 {
                        0 => turns.run(work).await,
                        _ => {
                            let _turn = turns.begin().await;
                            work.await;
                        }
                    }
                }));
            }
            let ours = tokio::net::UnixStream::from_std(ours).unwrap();
            let short = Rc::clone(&done);
            tasks.push(spawn_local(async move {
                ours.readable().await.unwrap();
                short.borrow_mut().push(None);
            }));
            for task in tasks {
                task.await.unwrap();
            }
        });
        let done = done.borrow();
        let place = done.iter().position(Option::is_none);
        assert!(place.is_some_and(|place| place < 4), "{done:?}");
        assert!(done.iter().flatten().is_sorted(), "{done:?}");
    }
}
