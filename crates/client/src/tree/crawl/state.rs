//! The state shared by the workers that fetch a folder file by file.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::OFlags;
use underpass_engine::PipePool;
use underpass_engine::atomic_file::NewFolders;
use underpass_engine::wait::lock;

use super::prune::{IfOtherKind, Prune};
use super::queue::{CrawlQueue, CrawlTask};
use crate::tree::dest::{DestFolder, ExistingEntry, open_root};
use crate::tree::error::{Result, TreeError, TreeOutcome, explain};
use crate::tree::listing::{EntryFacts, ListingEntry};
use crate::tree::options::TreeEvent;
use crate::tree::task::TreeFetch;

/// The state that the workers share.
pub(super) struct Crawl<'c, 'j, 'a> {
    pub(super) tree: &'c TreeFetch<'j, 'a>,
    pub(super) dest: DestFolder,
    /// The folders that this run created for the destination.
    created: NewFolders,
    pub(super) queue: CrawlQueue,
    /// Paths and URLs of listed folders, and whether they were requested with credentials.
    pub(super) seen: Mutex<HashSet<(Vec<u8>, String, bool)>>,
    /// Paths of the files that were queued: several pages may link to one.
    pub(super) queued: Mutex<HashSet<Vec<u8>>>,
    /// Folders whose permissions and times are set at the end.
    pub(super) folders: Mutex<Vec<(Vec<u8>, EntryFacts)>>,
    pub(super) found: AtomicU64,
    /// Bytes of names and URLs.
    pub(super) found_bytes: AtomicU64,
    pub(super) pipes: PipePool,
    /// Whether the last entry was left out because its connections broke off.
    pub(super) has_given_up: AtomicBool,
    /// The entries that are removed at the end, if any.
    pub(super) prune: Option<Prune>,
}

impl<'c, 'j, 'a> Crawl<'c, 'j, 'a> {
    pub(super) fn new(tree: &'c TreeFetch<'j, 'a>, if_other_kind: IfOtherKind) -> Result<Self> {
        let (url, facts) = (tree.url.clone(), EntryFacts::default());
        let entry = ListingEntry { path: Vec::new(), url, is_folder: true, facts };
        let queue = CrawlQueue::new(CrawlTask {
            entry,
            depth: 0,
            has_rival: false,
            is_given_back: false,
            is_trusted: true,
            around: None,
        });
        let failed = |error| TreeError::io("creating", tree.path, error);
        let mut created = NewFolders::default();
        let if_exists =
            if tree.options.replaces { ExistingEntry::Replaced } else { ExistingEntry::Stays };
        let opened = created
            .create(tree.path)
            .map_err(failed)
            .and_then(|()| open_root(tree.path))
            .and_then(|root| DestFolder::with_log(root, if_exists, tree.path));
        let dest = opened.inspect_err(|_| created.remove_empty())?;
        Ok(Self {
            tree,
            dest,
            created,
            queue,
            seen: Mutex::default(),
            queued: Mutex::default(),
            folders: Mutex::default(),
            found: AtomicU64::new(0),
            found_bytes: AtomicU64::new(0),
            pipes: PipePool::default(),
            has_given_up: AtomicBool::new(false),
            prune: tree.options.deletes.then(|| Prune::new(if_other_kind)),
        })
    }

    /// Removes unlisted entries, and then sets permissions and times of the folders, deepest first.
    /// Returns whether an entry of another kind was removed that was in the way.
    pub(super) fn finish(mut self, mut done: TreeOutcome) -> (Result<()>, TreeOutcome, bool) {
        let fetched = self.queue.finish();
        let pruned = match &self.prune {
            Some(prune) if fetched.is_ok() => prune.run(self.tree, &self.dest, &mut done),
            _ => Ok(()),
        };
        let has_made_room = self.prune.as_ref().is_some_and(Prune::has_made_room);
        let mut folders = std::mem::take(&mut *lock(&self.folders));
        folders.sort_by_key(|(path, _)| {
            std::cmp::Reverse(path.iter().filter(|byte| **byte == b'/').count())
        });
        for (path, facts) in folders {
            let (how, mode, modified) = (OFlags::DIRECTORY, facts.mode, facts.modified);
            if let Err(errno) = self.dest.set_opened_attributes(&path, how, mode, modified) {
                done.left_out += 1;
                (self.tree.on_event)(&TreeEvent::LeftOut { path: &path, reason: &explain(errno) });
            }
        }
        done.refused = self.dest.refused();
        let outcome = fetched.and_then(|()| {
            let finished = self.dest.finish(done.left_out > 0);
            finished.map_err(|errno| TreeError::io("removing the log of", self.tree.path, errno))
        });
        let outcome = outcome.and(pruned);
        if outcome.is_err() && self.found.load(Ordering::Relaxed) == 0 {
            self.dest.abandon();
            self.created.remove_empty();
        }
        (outcome, done, has_made_room)
    }
}
