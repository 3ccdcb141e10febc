//! Fetches a folder file by file from its listings, if the server offers no archive.

mod file;
mod list;
mod prune;
mod queue;
mod state;
mod worker;

use std::sync::mpsc;
use std::thread;

use super::error::{Result, TreeError, TreeMethod, TreeOutcome};
use super::task::TreeFetch;
use prune::IfOtherKind;
use state::Crawl;

/// Fetches the folder. Files in the place of folders, and vice versa, are removed together with
/// unlisted entries; a second pass then fetches the listed ones.
pub(super) fn fetch(tree: &mut TreeFetch<'_, '_>) -> Result<()> {
    let (mut outcome, mut done, has_made_room) = fetch_once(tree, IfOtherKind::IsRemoved)?;
    if outcome.is_ok() && has_made_room {
        let (again, mut more, _) = fetch_once(tree, IfOtherKind::IsLeftOut)?;
        // The second pass finds everything that the first one found or fetched.
        more.here = more.here.saturating_sub(done.files + done.here);
        more.folders = more.folders.saturating_sub(done.folders);
        (outcome, done) = (again, sum(done, more));
    }
    *tree.done = done;
    tree.done.method = TreeMethod::Listing;
    outcome
}

/// Fetches the missing entries; returns whether an entry of another kind was removed.
fn fetch_once(
    tree: &TreeFetch<'_, '_>,
    if_other_kind: IfOtherKind,
) -> Result<(Result<()>, TreeOutcome, bool)> {
    let threads = tree.options.connections.max(1);
    let crawl = Crawl::new(tree, if_other_kind)?;
    let done = thread::scope(|scope| {
        let (running, stop) = mpsc::channel();
        if let Some(log) = crawl.dest.log() {
            let (queue, path) = (&crawl.queue, tree.path);
            let sync = move || {
                if let Err(errno) = log.sync_periodically(&stop) {
                    queue.fail(TreeError::io("syncing", path, errno));
                }
            };
            // Without this thread, nothing is known to be on the disk.
            let _ = thread::Builder::new().spawn_scoped(scope, sync);
        }
        // If a thread cannot be started, the others do its work.
        let start = |_| thread::Builder::new().spawn_scoped(scope, || worker::work(&crawl)).ok();
        let workers: Vec<_> = (0..threads).map_while(start).collect();
        let alone = if workers.is_empty() { worker::work(&crawl) } else { TreeOutcome::default() };
        let done = workers.into_iter().map(|worker| worker.join().unwrap_or_default());
        let done = done.fold(alone, sum);
        drop(running);
        done
    });
    Ok(crawl.finish(done))
}

fn sum(mut all: TreeOutcome, one: TreeOutcome) -> TreeOutcome {
    all.files += one.files;
    all.here += one.here;
    all.folders += one.folders;
    all.left_out += one.left_out;
    all.removed += one.removed;
    all.connections += one.connections;
    all.resumed_at += one.resumed_at;
    all.report.add(&one.report);
    all.refused = all.refused.or(one.refused);
    all.tls = one.tls.or(all.tls);
    all
}
