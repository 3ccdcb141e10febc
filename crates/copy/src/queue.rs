//! A queue of tasks for several threads.
//!
//! The task that was added last is taken first. A walk that puts the files of a folder on top of
//! its folders, and those on top of the rest of its listing, has at most as many tasks waiting as
//! its tree is deep and a part of a listing is long, however many entries there are.
//!
//! Two threads that create files in the same folder wait for each other, as the kernel locks the
//! folder for each. A thread therefore gets a task that fills another folder, if there is one near
//! the top.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use underpass_engine::wait::{lock, unpoison};

use crate::tree::link_table::MAX_WAITING;

/// Returns a number for the object that a task keeps busy, such as the address of a folder; `None`
/// if any number of such tasks can run at a time. Until the task is done, no other object may get
/// that number.
type BusyKey<T> = fn(&T) -> Option<usize>;

/// Tasks that wait, and those in progress.
#[derive(Debug)]
pub(crate) struct WorkQueue<T> {
    busy_key: BusyKey<T>,
    state: Mutex<QueueState<T>>,
    changed: Condvar,
}

/// The right to do one task. It is given back by [`WorkQueue::done`], or when it is dropped, as by
/// a thread that panics.
#[derive(Debug)]
#[must_use]
pub(crate) struct TaskLease<'q, T> {
    queue: &'q WorkQueue<T>,
    busy_key: Option<usize>,
}

impl<T> Drop for TaskLease<'_, T> {
    fn drop(&mut self) {
        let mut state = lock(&self.queue.state);
        if let Some(index) = state.busy.iter().position(|key| *key == self.busy_key) {
            state.busy.swap_remove(index);
        }
        if state.is_finished() {
            self.queue.changed.notify_all();
        }
    }
}

#[derive(Debug)]
struct QueueState<T> {
    /// The next one is at the back, or near it.
    tasks: VecDeque<T>,
    /// The resources in use by tasks in progress.
    busy: Vec<Option<usize>>,
    /// Threads that wait for a task.
    waiting: usize,
}

impl<T> WorkQueue<T> {
    /// Creates an empty queue.
    pub(crate) fn new(busy_key: BusyKey<T>) -> Self {
        let state = QueueState { tasks: VecDeque::new(), busy: Vec::new(), waiting: 0 };
        Self { busy_key, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Adds tasks; the last one is taken first.
    pub(crate) fn push(&self, tasks: impl IntoIterator<Item = T>) {
        let mut state = lock(&self.state);
        let before = state.tasks.len();
        state.tasks.extend(tasks);
        if state.waiting > 0 && state.tasks.len() > before {
            self.changed.notify_all();
        }
    }

    /// Adds a task that is taken after all others.
    pub(crate) fn push_last(&self, task: T) {
        lock(&self.state).tasks.push_front(task);
        self.changed.notify_all();
    }

    /// Takes the next task, and waits for one while another thread runs a task that may add more.
    /// Returns `None` when no task is left. Call [`done`](Self::done) when it is done.
    pub(crate) fn lease_next(&self) -> Option<(T, TaskLease<'_, T>)> {
        let mut state = lock(&self.state);
        loop {
            if let Some((task, busy_key)) = state.next(self.busy_key) {
                return Some((task, TaskLease { queue: self, busy_key }));
            }
            if state.busy.is_empty() {
                return None;
            }
            state.waiting += 1;
            state = unpoison(self.changed.wait(state));
            state.waiting -= 1;
        }
    }

    /// Gives back the lease of a task that is done, after it has added all its tasks.
    pub(crate) fn done(&self, lease: TaskLease<'_, T>) {
        drop(lease);
    }

    /// Waits until everything is done, at most for `time`; returns whether everything is.
    pub(crate) fn wait(&self, time: Duration) -> bool {
        let waited =
            self.changed.wait_timeout_while(lock(&self.state), time, |state| !state.is_finished());
        !unpoison(waited).1.timed_out()
    }
}

impl<T> QueueState<T> {
    /// Takes the next task, and the number of the object that it keeps busy.
    fn next(&mut self, busy_key: BusyKey<T>) -> Option<(T, Option<usize>)> {
        let below = choose(self.tasks.iter().rev().map(busy_key), &self.busy);
        let task = self.tasks.remove(self.tasks.len().checked_sub(below + 1)?)?;
        let key = busy_key(&task);
        self.busy.push(key);
        Some((task, key))
    }

    fn is_finished(&self) -> bool {
        self.busy.is_empty() && self.tasks.is_empty()
    }
}

/// Returns how far below the top the next task is. `keys` are the objects that the tasks keep busy,
/// from the top down: the next task is the first one whose object is not busy already, or else the
/// one at the top.
fn choose(keys: impl Iterator<Item = Option<usize>>, busy: &[Option<usize>]) -> usize {
    let is_free = |key: Option<usize>| key.is_none() || !busy.contains(&key);
    keys.take(MAX_LOOK_AHEAD).position(is_free).unwrap_or(0)
}

/// The number of tasks searched from the top: the files of some thousand entries.
const MAX_LOOK_AHEAD: usize = 64;

/// Returns how many levels of a tree each thread may have open, and how many threads there are,
/// with this number of descriptors.
pub(crate) fn levels_and_jobs(descriptors: u64, jobs: usize) -> (usize, usize) {
    let free = usize::try_from(descriptors).unwrap_or(usize::MAX).saturating_sub(OTHER_FILES);
    let jobs = jobs.min(free / MIN_FILES_PER_JOB).max(1);
    let levels = (free / jobs).saturating_sub(FILES_AT_WORK) / 2;
    (levels.max(2), jobs)
}

/// Descriptors that the process has open otherwise, and those of folders where links wait.
const OTHER_FILES: usize = 32 + 2 * MAX_WAITING;

/// With fewer descriptors there are fewer threads.
const MIN_FILES_PER_JOB: usize = 32;

/// Descriptors that a thread needs for one entry.
const FILES_AT_WORK: usize = 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_that_come_from_a_task_are_done_too() {
        let queue = WorkQueue::new(|_: &u32| None);
        queue.push([3]);
        let mut steps = 0;
        while let Some((left, lease)) = queue.lease_next() {
            steps += 1;
            queue.push((left > 0).then(|| left - 1));
            queue.done(lease);
        }
        assert_eq!(steps, 4);
    }

    #[test]
    fn a_task_whose_thread_panics_does_not_block_others() {
        let queue = WorkQueue::new(|_: &u32| None);
        queue.push([1]);
        let outcome = std::panic::catch_unwind(|| {
            let _taken = queue.lease_next();
            panic!("on purpose");
        });
        assert!(outcome.is_err());
        assert!(queue.wait(Duration::ZERO));
        assert!(queue.lease_next().is_none());
    }

    #[test]
    fn tasks_of_idle_folders_nearby_are_preferred() {
        for (tasks, busy, next) in [
            (&[Some(1), Some(1)][..], &[][..], 0),
            (&[Some(1), Some(1), Some(2)], &[Some(1)], 2),
            (&[Some(1), None, Some(2)], &[None, Some(1), Some(2)], 1),
            (&[Some(1), Some(2)], &[Some(1), Some(2)], 0),
            (&[], &[Some(1)], 0),
        ] {
            assert_eq!(choose(tasks.iter().copied(), busy), next, "{tasks:?} {busy:?}");
        }
        let far = std::iter::repeat_n(Some(1), MAX_LOOK_AHEAD).chain([Some(2)]);
        assert_eq!(choose(far, &[Some(1)]), 0);
    }
}
