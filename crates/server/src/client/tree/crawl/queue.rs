//! What is still to be fetched, shared by the threads that fetch it.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::client::tree::error::TreeError;

/// What is still to be done.
#[derive(Debug)]
pub(super) struct Queue<T> {
    state: Mutex<QueueState<T>>,
    changed: Condvar,
}

#[derive(Debug)]
struct QueueState<T> {
    waiting: VecDeque<T>,
    /// Threads at work, each of which may find more.
    at_work: usize,
    /// Why nobody goes on.
    failed: Option<TreeError>,
}

impl<T> Queue<T> {
    pub(super) fn new(first: T) -> Self {
        let waiting = VecDeque::from([first]);
        let state = Mutex::new(QueueState { waiting, at_work: 0, failed: None });
        Self { state, changed: Condvar::new() }
    }

    /// The next thing to do; waits for it as long as somebody may find one. Nothing once all is
    /// done, or has failed.
    pub(super) fn take(&self) -> Option<T> {
        let mut state = self.lock();
        loop {
            if state.failed.is_some() {
                return None;
            }
            if let Some(next) = state.waiting.pop_front() {
                state.at_work += 1;
                return Some(next);
            }
            if state.at_work == 0 {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Adds what has been found: what comes `first` before all that waits, the rest behind it.
    pub(super) fn add(&self, first: Vec<T>, last: Vec<T>) {
        let mut state = self.lock();
        first.into_iter().rev().for_each(|each| state.waiting.push_front(each));
        state.waiting.extend(last);
        self.changed.notify_all();
    }

    /// What was taken has been done, or ends everything.
    pub(super) fn done(&self, outcome: Result<(), TreeError>) {
        let mut state = self.lock();
        state.at_work -= 1;
        if let Err(error) = outcome {
            state.failed.get_or_insert(error);
        }
        self.changed.notify_all();
    }

    /// How it ended.
    pub(super) fn finish(self) -> Result<(), TreeError> {
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        state.failed.map_or(Ok(()), Err)
    }

    fn lock(&self) -> MutexGuard<'_, QueueState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
