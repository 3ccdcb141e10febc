//! The threads that copy, and the one stack of what is still to be done.
//!
//! Last in, first out: the files of a folder before its folders, and those before the rest of its
//! listing. So what waits here is bounded by how deep the tree is and by the size of a part of a
//! listing, not by how many entries there are.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::folder::{Entry, Folder};

/// Something to do in a folder. It counts as one that the folder waits for.
#[derive(Debug)]
pub(super) enum Task {
    /// Copy these.
    Entries(Arc<Folder>, Vec<Entry>),
    /// Go on reading its listing.
    Read(Arc<Folder>),
    /// Copy a folder in it.
    Enter(Arc<Folder>, Entry),
}

impl Task {
    /// The folder that waits for it, and whether its own name does too.
    pub(super) fn folder(&self) -> (Arc<Folder>, bool) {
        match self {
            Self::Entries(folder, _) | Self::Read(folder) => (Arc::clone(folder), true),
            Self::Enter(folder, _) => (Arc::clone(folder), false),
        }
    }
}

/// What is to be done, and who is at it.
#[derive(Debug, Default)]
pub(super) struct Stack {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Taken from the back.
    tasks: VecDeque<Task>,
    busy: usize,
    waiting: usize,
}

impl Stack {
    /// Puts tasks on the stack; the last one comes first.
    pub(super) fn push(&self, tasks: impl IntoIterator<Item = Task>) {
        let mut state = self.lock();
        let before = state.tasks.len();
        state.tasks.extend(tasks);
        if state.waiting > 0 && state.tasks.len() > before {
            self.changed.notify_all();
        }
    }

    /// The next task. `None` when nothing is left and nobody is at anything from which more could
    /// come. Who takes one says [`done`](Self::done) when it is.
    pub(super) fn take(&self) -> Option<Task> {
        let mut state = self.lock();
        loop {
            if let Some(task) = state.tasks.pop_back() {
                state.busy += 1;
                return Some(task);
            }
            if state.busy == 0 {
                return None;
            }
            state.waiting += 1;
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
    }

    /// A task that was taken is done.
    pub(super) fn done(&self) {
        let mut state = self.lock();
        state.busy -= 1;
        if state.busy == 0 && state.tasks.is_empty() {
            self.changed.notify_all();
        }
    }

    /// Waits until everything is done, or so long; true if everything is.
    pub(super) fn wait(&self, time: Duration) -> bool {
        let state = self.lock();
        let is_going = |state: &mut State| state.busy > 0 || !state.tasks.is_empty();
        let waited = self.changed.wait_timeout_while(state, time, is_going);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
