//! The queue of entries still to be fetched, shared by the workers.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Condvar, Mutex};

use underpass_engine::wait::{lock, unpoison};
use url::Url;

use crate::tree::error::{Result, TreeError};
use crate::tree::listing::ListingEntry;

/// A file or folder to be fetched.
#[derive(Debug)]
pub(super) struct CrawlTask {
    pub(super) entry: ListingEntry,
    /// Its depth; 0 is the whole folder.
    pub(super) depth: u32,
    /// Whether another entry of its folder has the name of its partial file or journal.
    pub(super) has_rival: bool,
    /// Whether a worker that the server refused has handed it to the others.
    pub(super) is_given_back: bool,
    /// Whether it may get credentials: it was only named by servers that were sent them.
    pub(super) is_trusted: bool,
    /// The folders that contain it; `None` for the whole folder.
    pub(super) around: Option<Arc<FolderChain>>,
}

/// A folder and those that contain it. A folder must not contain itself: its files would be listed
/// endlessly, each time one level deeper.
#[derive(Debug)]
pub(super) struct FolderChain {
    /// Its URL in the listing.
    pub(super) listed: Url,
    /// The URL that answered, after redirects.
    pub(super) answered: Url,
    /// The [`contents`] of its listing.
    pub(super) contents: Option<ListingContents>,
    /// The folder that contains it.
    pub(super) around: Option<Arc<FolderChain>>,
}

impl FolderChain {
    /// Returns whether one of these folders has this URL.
    pub(super) fn has(innermost: Option<&Arc<Self>>, url: &Url) -> bool {
        std::iter::successors(innermost, |folder| folder.around.as_ref())
            .any(|folder| folder.listed == *url || folder.answered == *url)
    }

    /// Returns whether several of these folders have this listing. URLs do not reveal a link on the
    /// server to a parent folder, or a page that is served for every path.
    pub(super) fn repeats(
        innermost: Option<&Arc<Self>>,
        contents: Option<ListingContents>,
    ) -> bool {
        let around = std::iter::successors(innermost, |folder| folder.around.as_ref());
        let same = around.filter(|folder| folder.contents == contents).count();
        contents.is_some_and(|contents| same >= contents.max_repeats)
    }
}

/// The fingerprint of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ListingContents {
    hash: u64,
    /// How many folders within each other may have it.
    max_repeats: usize,
}

/// Returns the fingerprint of a listing; `None` if it has no file, because folders that split
/// others by digits of a number have the same names at each level.
pub(super) fn contents(entries: &[ListingEntry]) -> Option<ListingContents> {
    let mut hasher = DefaultHasher::new();
    for ListingEntry { path, is_folder, facts, .. } in entries {
        let time = facts.modified.map(|time| (time.tv_sec, time.tv_nsec));
        (path, is_folder, facts.size, time).hash(&mut hasher);
    }
    let mut files = entries.iter().filter(|entry| !entry.is_folder).peekable();
    files.peek()?;
    let is_known =
        |entry: &ListingEntry| entry.facts.size.is_some() || entry.facts.modified.is_some();
    let max_repeats = if files.any(is_known) { MAX_REPEATS } else { MAX_REPEATS_OF_NAMES };
    Some(ListingContents { hash: hasher.finish(), max_repeats })
}

/// How many folders within each other may have the same listing.
const MAX_REPEATS: usize = 3;

/// The same for listings of names alone, such as pages, which are more often equal by chance.
const MAX_REPEATS_OF_NAMES: usize = 5;

/// A work queue to which the workers themselves add tasks.
#[derive(Debug)]
pub(super) struct CrawlQueue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Debug)]
struct QueueState {
    waiting: VecDeque<CrawlTask>,
    /// Busy workers, each of which may add tasks.
    at_work: usize,
    /// Workers that wait for a task.
    idle: usize,
    /// The error that stops all workers.
    failed: Option<TreeError>,
}

impl CrawlQueue {
    pub(super) fn new(first: CrawlTask) -> Self {
        let waiting = VecDeque::from([first]);
        let state = Mutex::new(QueueState { waiting, at_work: 0, idle: 0, failed: None });
        Self { state, changed: Condvar::new() }
    }

    /// Returns the next task, and waits while a busy worker may add one; `None` once everything is
    /// done or has failed.
    pub(super) fn next_task(&self) -> Option<CrawlTask> {
        let mut state = lock(&self.state);
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
            state.idle += 1;
            state = unpoison(self.changed.wait(state));
            state.idle -= 1;
        }
    }

    /// Adds tasks: `first` at the front of the queue, `last` at its end.
    pub(super) fn add(&self, first: Vec<CrawlTask>, last: Vec<CrawlTask>) {
        let mut state = lock(&self.state);
        first.into_iter().rev().for_each(|each| state.waiting.push_front(each));
        state.waiting.extend(last);
        self.changed.notify_all();
    }

    /// Hands a task to the other workers, because this one ends; returns it if there are none, or
    /// if nothing was fetched yet.
    pub(super) fn leave(&self, task: CrawlTask) -> Option<CrawlTask> {
        let mut state = lock(&self.state);
        if state.at_work + state.idle == 1 || task.depth == 0 {
            return Some(task);
        }
        state.at_work -= 1;
        state.waiting.push_back(task);
        self.changed.notify_all();
        None
    }

    /// Records that a task is done; an error stops all workers.
    pub(super) fn done(&self, outcome: Result<()>) {
        lock(&self.state).at_work -= 1;
        match outcome {
            Ok(()) => self.changed.notify_all(),
            Err(error) => self.fail(error),
        }
    }

    /// Stops all workers after their current tasks; the first error counts.
    pub(super) fn fail(&self, error: TreeError) {
        lock(&self.state).failed.get_or_insert(error);
        self.changed.notify_all();
    }

    /// Returns the first error.
    pub(super) fn finish(self) -> Result<()> {
        let state = unpoison(self.state.into_inner());
        state.failed.map_or(Ok(()), Err)
    }
}
