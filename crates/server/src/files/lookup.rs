//! Looks up paths: in the open files, by opening them without waiting, or by a helper.

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use rustix::io::Errno;
use tokio::time::sleep;

use crate::auth::Right;
use crate::files::open_files;
use crate::files::open_files::{FoundEntry, ServedFile, is_missing};
use crate::files::root::{DiskWait, LEASE_PAUSE, LEASE_TIME};
use crate::files::writer_checks::{AGAIN_LATER, WriterChecks};
use crate::routing::context::RequestContext;
use crate::server::sites::site::Site;

/// The entry at a path. An open file is shared by its responses.
pub(crate) enum ServedEntry {
    /// A regular file.
    File(Rc<ServedFile>),
    /// A folder.
    Folder(OwnedFd),
    /// A file of procfs or sysfs, whose size is not known before it is read.
    Unsized(OwnedFd),
}

/// Returns the file at a path if this worker has opened it recently. It may have changed since.
///
/// # Errors
///
/// `EACCES` if links led to a path that this client may not read.
pub(crate) fn find_open(
    ctx: &RequestContext<'_>,
    path: &[u8],
) -> Option<Result<Rc<ServedFile>, Errno>> {
    let mut files = ctx.selection.site.files.borrow_mut();
    files.forget_if_changed(ctx.shared().changes());
    let served = files.get(path, ctx.started)?;
    Some(ctx.may_reach(served.reached.as_deref()).map(|()| served))
}

/// Opens a path, or returns a recently opened file.
///
/// # Errors
///
/// The errors of openat2(2) below the root; `EACCES` if links lead to a path that this client may
/// not read.
pub(crate) async fn find(ctx: &RequestContext<'_>, path: &[u8]) -> Result<ServedEntry, Errno> {
    if let Some(found) = find_open(ctx, path) {
        return found.map(ServedEntry::File);
    }
    let changes = ctx.shared().changes();
    let found = match open_at_once(ctx.site(), path) {
        Err(Errno::AGAIN) => open_when_stable(ctx, path).await,
        found => found,
    };
    let found = match found {
        Err(errno) if is_missing(errno) => return Err(refused_or_missing(ctx, path, errno).await),
        found => found?,
    };
    ctx.may_reach(found.reached())?;
    Ok(match found {
        FoundEntry::Folder(folder, _) => ServedEntry::Folder(folder),
        FoundEntry::Unsized(file, _) => ServedEntry::Unsized(file),
        FoundEntry::File(served) => {
            let served: Rc<ServedFile> = Rc::from(served);
            // The version does not show that a link leads elsewhere now, nor that another file has
            // taken the name of an unlinked one.
            let shows_changes = served.reached.is_none() && served.has_name();
            if shows_changes && ctx.shared().changes() == changes {
                ctx.selection.site.files.borrow_mut().put(path, &served, ctx.started);
            }
            ServedEntry::File(served)
        }
    })
}

/// Returns the error for a path that does not exist: `EACCES` if links on the way lead to a folder
/// that the client may not read, whose names it could learn otherwise.
async fn refused_or_missing(ctx: &RequestContext<'_>, path: &[u8], errno: Errno) -> Errno {
    if ctx.settings().access.can_all(ctx.user.as_deref(), b"", Right::Read) {
        return errno;
    }
    let (helper, path) = (Arc::clone(ctx.site()), path.to_vec());
    let client = ctx.peer.client_net();
    let real = ctx.worker.helpers.run(client, move || helper.root.real_path(&path)).await;
    match real {
        Ok(Ok(real)) => ctx.may_reach(real.as_deref()).err().unwrap_or(errno),
        _ => errno,
    }
}

/// Opens a path, or returns a recently opened file if it has not changed since.
///
/// # Errors
///
/// The errors of [`find`]; `ENOENT` for the served folder itself once it was removed, which can
/// still be opened.
pub(crate) async fn find_current(
    ctx: &RequestContext<'_>,
    path: &[u8],
) -> Result<ServedEntry, Errno> {
    let found = find(ctx, path).await;
    if let Ok(ServedEntry::File(served)) = &found
        && !is_current(ctx, served).await
    {
        forget(ctx, path);
        return find(ctx, path).await;
    }
    if path.is_empty() && ctx.site().root.is_removed() {
        return Err(Errno::NOENT);
    }
    found
}

/// Returns whether a file is in its version, as [`ServedFile::is_current`] does for this client.
pub(crate) async fn is_current(ctx: &RequestContext<'_>, served: &ServedFile) -> bool {
    served.is_current(&ctx.worker.helpers, ctx.peer.client_net()).await
}

/// Closes a file that turned out to have changed.
pub(crate) fn forget(ctx: &RequestContext<'_>, path: &[u8]) {
    ctx.selection.site.files.borrow_mut().forget(path);
}

/// Opens the entry at a path without waiting for a disk or a writer.
fn open_at_once(site: &Site, path: &[u8]) -> Result<FoundEntry, Errno> {
    let integrity = site.settings.integrity;
    open_files::open_at_once(&site.root, &site.shared.stable_versions, integrity, path)
}

/// Opens the entry at a path on a helper thread once no program is writing to it.
async fn open_when_stable(ctx: &RequestContext<'_>, path: &[u8]) -> Result<FoundEntry, Errno> {
    let (site, client) = (ctx.site(), ctx.peer.client_net());
    let mut checks = WriterChecks::new(site.settings.integrity);
    let began = Instant::now();
    loop {
        let (helper, path) = (Arc::clone(site), path.to_vec());
        let task = ctx.worker.helpers.run(client, move || {
            let found = open_files::open(
                &helper.root,
                &helper.shared.stable_versions,
                &path,
                DiskWait::Allowed,
                &mut checks,
            );
            if let Ok(FoundEntry::File(served)) = &found {
                helper.shared.remote_files.keep(served);
            }
            (found, checks)
        });
        let (found, looked) = task.await.map_err(|_| Errno::IO)?;
        match found {
            Err(AGAIN_LATER) => sleep(looked.pause).await,
            Err(Errno::AGAIN) if began.elapsed() < LEASE_TIME => sleep(LEASE_PAUSE).await,
            _ => return found,
        }
        checks = looked;
    }
}
