//! Lays out folders as archives, with one walk for all requests that wait for the same folder.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use crate::archive::error::Result;
use crate::archive::layouts::{ChosenNames, FolderLayout, LayoutKey, LayoutResult, LayoutUse};
use crate::archive::{ArchiveError, WalkOptions, walk};
use crate::files::root::last_name;
use crate::server::limits::batches::answer_all;
use crate::server::sites::link_targets::LinkTargets;
use crate::server::sites::site::Site;
use underpass_protocol::request::ClientNet;

/// Lays out the archive of a folder, with one walk for all requests that wait for it.
pub(crate) async fn lay_out(
    site: Arc<Site>,
    client: ClientNet,
    key: LayoutKey,
    folder: OwnedFd,
) -> LayoutResult {
    let busy = || Err(Arc::new(ArchiveError::Busy));
    let layouts = &site.shared.layouts;
    let submit = || {
        let (site, key) = (Arc::clone(&site), key.clone());
        layouts.queue.submit(client, move || {
            let waiters = site.shared.layouts.batches.begin(&key);
            if !waiters.is_empty() {
                let laid_out = walk_folder(&site, client, &key, folder);
                answer_all(waiters, &laid_out.map_err(Arc::new));
            }
        })
    };
    match layouts.batches.join(&key, client, submit) {
        Ok(answer) => answer.await.unwrap_or_else(|_| busy()),
        Err(_) => busy(),
    }
}

/// Walks a folder and lays out its archive. It may wait for the disk.
fn walk_folder(
    site: &Site,
    client: ClientNet,
    key: &LayoutKey,
    folder: OwnedFd,
) -> Result<Arc<FolderLayout>> {
    let layouts = &site.shared.layouts;
    if let Some(kept) = layouts.get(key, LayoutUse::Either) {
        return Ok(kept);
    }
    let (changes, began) = (layouts.changes(), Instant::now());
    let place = site.root.place_of(&folder).ok();
    let only = key.only.as_ref().map(ChosenNames::to_vec);
    let targets = LinkTargets { site, user: key.user.as_deref() };
    let options = WalkOptions {
        format: key.format,
        top: last_name(&key.path),
        base: &key.path,
        only: only.as_deref(),
        shows_hidden: site.settings.shows_hidden,
        hides: &|inside, is_folder| {
            site.root.hides_reached(inside, is_folder, &key.path, place.as_ref())
        },
        shows_link: &|inside, link| targets.may_tell(inside, link),
        max_members: site.shared.settings.max_archive_entries,
        ..WalkOptions::default()
    };
    let layout = walk(&folder, &options)?;
    site.shared.metrics.folder_walk();
    let mut held = layouts.memory.reserve(client);
    if !held.resize((layout.memory() + key.memory()) as u64) {
        return Err(ArchiveError::Busy);
    }
    Ok(layouts.keep(key, layouts.of(layout, folder, held), changes, began))
}
