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
    /// Its depth.
    pub(super) depth: u32,
    /// Whether its folder has something with a name that it would have until it is complete.
    pub(super) has_rival: bool,
    /// Whether a worker that the server refused has left it to the other workers.
    pub(super) is_given_back: bool,
    /// Whether it may get credentials: only servers that got them themselves have named it.
    pub(super) is_trusted: bool,
    /// The folders that it is in; `None` for the whole folder.
    pub(super) around: Option<Arc<FolderChain>>,
}

/// A folder, and those that it is in. A folder that is one of those around it leads in circles: the
/// same files would come again and again, each time one folder further down.
#[derive(Debug)]
pub(super) struct FolderChain {
    /// Its URL in the listing.
    pub(super) listed: Url,
    /// The URL that answered, to which redirects may have led.
    pub(super) answered: Url,
    /// The [`contents`] of its listing.
    pub(super) contents: Option<ListingContents>,
    /// The folder that it is in.
    pub(super) around: Option<Arc<FolderChain>>,
}

impl FolderChain {
    /// Returns whether one of these folders has this URL.
    pub(super) fn has(innermost: Option<&Arc<Self>>, url: &Url) -> bool {
        std::iter::successors(innermost, |folder| folder.around.as_ref())
            .any(|folder| folder.listed == *url || folder.answered == *url)
    }

    /// Returns whether several of these folders have this listing. A link on the server to a folder
    /// above it has no URL that tells, and neither has a page that is shown for every path.
    pub(super) fn repeats(
        innermost: Option<&Arc<Self>>,
        contents: Option<ListingContents>,
    ) -> bool {
        let around = std::iter::successors(innermost, |folder| folder.around.as_ref());
        let same = around.filter(|folder| folder.contents == contents).count();
        contents.is_some_and(|contents| same >= contents.max_repeats)
    }
}

/// What a listing says about its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ListingContents {
    hash: u64,
    /// The number of folders within each other that may have it.
    max_repeats: usize,
}

/// Returns what a listing says about its entries; `None` if it has no file, as folders that sort
/// others by the digits of a number have the same names at each level.
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

/// The number of folders within each other that may have the same listing.
const MAX_REPEATS: usize = 3;

/// The same if it has names alone, as pages do, which different folders have more often.
const MAX_REPEATS_OF_NAMES: usize = 5;

/// A work queue, to which its workers add.
#[derive(Debug)]
pub(super) struct CrawlQueue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Debug)]
struct QueueState {
    waiting: VecDeque<CrawlTask>,
    /// Busy workers, each of which may find more.
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

    /// Takes the next task; waits while another worker may find one. `None` once everything is done
    /// or has failed.
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

    /// Adds tasks: `first` before all that wait, `last` after them.
    pub(super) fn add(&self, first: Vec<CrawlTask>, last: Vec<CrawlTask>) {
        let mut state = lock(&self.state);
        first.into_iter().rev().for_each(|each| state.waiting.push_front(each));
        state.waiting.extend(last);
        self.changed.notify_all();
    }

    /// Gives a task back for the other workers, because this one ends; returns it if there are
    /// none, or if nothing was fetched yet.
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

    /// Notes that a task is done, or failed and stops all workers.
    pub(super) fn done(&self, outcome: Result<()>) {
        lock(&self.state).at_work -= 1;
        match outcome {
            Ok(()) => self.changed.notify_all(),
            Err(error) => self.fail(error),
        }
    }

    /// Stops all workers after their tasks; the first error counts.
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
