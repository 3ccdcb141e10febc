//! The threads that copy, and the one stack of what is still to be done.
//!
//! Last in, first out: the files of a folder before its folders, and those before the rest of its
//! listing. So what waits here is bounded by how deep the tree is and by the size of a part of a
//! listing, not by how many entries there are.
//!
//! Two who make files in the same folder wait for each other, as the kernel makes one at a time
//! there. So whoever comes for the next task gets one elsewhere, if there is one not far from the
//! top.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::folder::{Entry, Folder};
use crate::later::Later;

/// Something to do in a folder. It counts as one that the folder waits for.
#[derive(Debug)]
pub(crate) enum Task {
    /// Copy these.
    Entries(Arc<Folder>, Vec<Entry>),
    /// Go on reading its listing.
    Read(Arc<Folder>),
    /// Copy a folder in it.
    Enter(Arc<Folder>, Entry),
    /// Copy what is in a folder that was too deep.
    Later(Box<Later>),
}

impl Task {
    /// The folder that waits for it, and whether its own name does too.
    pub(crate) fn folder(&self) -> (Arc<Folder>, bool) {
        match self {
            Self::Entries(folder, _) | Self::Read(folder) => (Arc::clone(folder), true),
            Self::Enter(folder, _) => (Arc::clone(folder), false),
            Self::Later(later) => (Arc::clone(&later.top), false),
        }
    }
}

/// The folder that a task fills with files, by its address; `None` if it makes at most one entry.
fn filled(task: &Task) -> Option<usize> {
    match task {
        Task::Entries(folder, _) => Some(Arc::as_ptr(folder).addr()),
        Task::Read(_) | Task::Enter(..) | Task::Later(_) => None,
    }
}

/// Which task is the next one, of those at the top by the folders that they fill, the last one
/// first: the first of them in whose folder nobody is busy, or else the last one.
fn choose(tasks: impl Iterator<Item = Option<usize>>, busy: &[Option<usize>]) -> usize {
    let is_free = |folder: Option<usize>| folder.is_none() || !busy.contains(&folder);
    tasks.take(NEAR).position(is_free).unwrap_or(0)
}

/// What is to be done, and who is at it.
#[derive(Debug, Default)]
pub(crate) struct Stack {
    state: Mutex<State>,
    changed: Condvar,
}

/// That a task was taken, to be given back when it is done.
#[derive(Debug)]
#[must_use]
pub(crate) struct Taken(Option<usize>);

#[derive(Debug, Default)]
struct State {
    /// Taken from the back.
    tasks: VecDeque<Task>,
    /// What everybody who is at something fills by it; meanwhile nobody else has its address.
    busy: Vec<Option<usize>>,
    waiting: usize,
}

impl State {
    fn next(&mut self) -> Option<(Task, Taken)> {
        let below = choose(self.tasks.iter().rev().map(filled), &self.busy);
        let task = self.tasks.remove(self.tasks.len().checked_sub(below + 1)?)?;
        let filled = filled(&task);
        self.busy.push(filled);
        Some((task, Taken(filled)))
    }
}

impl Stack {
    /// Puts tasks on the stack; the last one comes first.
    pub(crate) fn push(&self, tasks: impl IntoIterator<Item = Task>) {
        let mut state = self.lock();
        let before = state.tasks.len();
        state.tasks.extend(tasks);
        if state.waiting > 0 && state.tasks.len() > before {
            self.changed.notify_all();
        }
    }

    /// Puts a task below all others.
    pub(crate) fn push_last(&self, task: Task) {
        self.lock().tasks.push_front(task);
        self.changed.notify_all();
    }

    /// The next task. `None` when nothing is left and nobody is at anything from which more could
    /// come. Who takes one says [`done`](Self::done) when it is.
    pub(crate) fn take(&self) -> Option<(Task, Taken)> {
        let mut state = self.lock();
        loop {
            if let Some(next) = state.next() {
                return Some(next);
            }
            if state.busy.is_empty() {
                return None;
            }
            state.waiting += 1;
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
    }

    /// A task that was taken is done.
    pub(crate) fn done(&self, taken: Taken) {
        let mut state = self.lock();
        if let Some(index) = state.busy.iter().position(|filled| *filled == taken.0) {
            state.busy.swap_remove(index);
        }
        if state.busy.is_empty() && state.tasks.is_empty() {
            self.changed.notify_all();
        }
    }

    /// Waits until everything is done, or so long; true if everything is.
    pub(crate) fn wait(&self, time: Duration) -> bool {
        let state = self.lock();
        let is_going = |state: &mut State| !state.busy.is_empty() || !state.tasks.is_empty();
        let waited = self.changed.wait_timeout_while(state, time, is_going);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How many tasks from the top are looked through: the files of some thousand entries.
const NEAR: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_in_which_somebody_is_busy_is_left_to_them_if_there_is_another_one_near() {
        for (tasks, busy, next) in [
            (&[Some(1), Some(1)][..], &[][..], 0),
            (&[Some(1), Some(1), Some(2)], &[Some(1)], 2),
            (&[Some(1), None, Some(2)], &[None, Some(1), Some(2)], 1),
            (&[Some(1), Some(2)], &[Some(1), Some(2)], 0),
            (&[], &[Some(1)], 0),
        ] {
            assert_eq!(choose(tasks.iter().copied(), busy), next, "{tasks:?} {busy:?}");
        }
        let far = std::iter::repeat_n(Some(1), NEAR).chain([Some(2)]);
        assert_eq!(choose(far, &[Some(1)]), 0);
    }
}
