//! Fetches a folder file by file, by the listings of a server that has no archives.

mod file;
mod list;
mod prune;
mod queue;
mod state;
mod worker;

use std::sync::mpsc;
use std::thread;

use super::error::{TreeDone, TreeError, TreeMethod};
use super::options::TreeEvent;
use super::task::TreeFetch;
use state::Crawl;

/// Fetches the folder.
pub(super) fn fetch(tree: &mut TreeFetch<'_, '_>) -> Result<(), TreeError> {
    let threads = tree.options.connections.max(1);
    let (outcome, done) = {
        let crawl = Crawl::new(tree)?;
        (tree.on_event)(&TreeEvent::Begun(TreeMethod::Listing));
        let done = thread::scope(|scope| {
            let (running, stop) = mpsc::channel();
            if let Some(log) = crawl.dest.log() {
                scope.spawn(move || log.sync_periodically(&stop));
            }
            let workers: Vec<_> =
                (0..threads).map(|_| scope.spawn(|| worker::work(&crawl))).collect();
            let done = workers.into_iter().map(|worker| worker.join().unwrap_or_default());
            let done = done.fold(TreeDone::default(), sum);
            drop(running);
            done
        });
        crawl.finish(done)
    };
    *tree.done = done;
    tree.done.way = TreeMethod::Listing;
    outcome
}

fn sum(mut all: TreeDone, one: TreeDone) -> TreeDone {
    all.files += one.files;
    all.here += one.here;
    all.folders += one.folders;
    all.left_out += one.left_out;
    all.removed += one.removed;
    all.connections += one.connections;
    all.resumed_at += one.resumed_at;
    all.report.add(&one.report);
    all.tls = one.tls.or(all.tls);
    all
}
