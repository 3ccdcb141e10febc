//! Fetches a folder file by file, by the listings of a server that has no archives.

mod file;
mod list;
mod prune;
mod queue;
mod state;
mod worker;

use std::sync::mpsc;
use std::thread;

use super::error::{Result, TreeDone, TreeMethod};
use super::options::TreeEvent;
use super::task::TreeFetch;
use state::Crawl;

/// Fetches the folder.
pub(super) fn fetch(tree: &mut TreeFetch<'_, '_>) -> Result<()> {
    let threads = tree.options.connections.max(1);
    let (outcome, done) = {
        let crawl = Crawl::new(tree)?;
        (tree.on_event)(&TreeEvent::Begun(TreeMethod::Listing));
        let done = thread::scope(|scope| {
            let (running, stop) = mpsc::channel();
            if let Some(log) = crawl.dest.log() {
                // Without it nothing is known to be on the disk.
                let _ = thread::Builder::new()
                    .spawn_scoped(scope, move || log.sync_periodically(&stop));
            }
            // Where no more threads are allowed, there are fewer.
            let start =
                |_| thread::Builder::new().spawn_scoped(scope, || worker::work(&crawl)).ok();
            let workers: Vec<_> = (0..threads).map_while(start).collect();
            let alone = if workers.is_empty() { worker::work(&crawl) } else { TreeDone::default() };
            let done = workers.into_iter().map(|worker| worker.join().unwrap_or_default());
            let done = done.fold(alone, sum);
            drop(running);
            done
        });
        crawl.finish(done)
    };
    *tree.done = done;
    tree.done.method = TreeMethod::Listing;
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
