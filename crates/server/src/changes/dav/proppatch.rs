//! PROPPATCH: sets the times of a file, and stores properties with it.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use rustix::fs::{Timespec, Timestamps, fstat, fsync, futimens};
use rustix::io::Errno;
use tokio::task::spawn_blocking;
use underpass_copy::times;
use underpass_dav::multistatus;
use underpass_dav::property::Live;
use underpass_dav::request::Patch;
use underpass_dav::xml::Element;
use underpass_engine::atomic_file::{open_entry, sync_folder};
use underpass_engine::{Version, is_folder};

use crate::changes::answer::refused;
use crate::changes::body;
use crate::changes::dav::dead_properties;
use crate::changes::dav::describe::link;
use crate::changes::dav::guard::{Conditions, check_write};
use crate::changes::dav::propfind::xml;
use crate::changes::dav::tags::TagConditions;
use crate::changes::refusal::{ChangeRefusal, Result};
use crate::files::lookup::{ServedEntry, find_current};
use crate::files::root::{DiskWait, open_unleased};
use crate::routing::context::RequestContext;
use crate::routing::response::{CLIENT_LEFT, Response};
use crate::server::sites::site::Site;
use underpass_protocol::request::target::Target;
use underpass_protocol::response::validator::parse_date;

/// The version of a file, and the entity tags, for which the client's conditions held.
type Expected = (Option<Version>, TagConditions);

/// Answers a PROPPATCH. The caller must have checked the right to write and the conditions, which
/// held for this version.
pub(crate) async fn respond(
    ctx: &RequestContext<'_>,
    target: &Target<'_>,
    version: Option<Version>,
    Conditions { tokens, tags }: Conditions<'_>,
) -> Response {
    let patches = match body::read(ctx, &body::XML).await {
        Ok(body) => Patch::parse(&body),
        Err(refusal) => return refusal,
    };
    let patches = match patches {
        Ok(patches) => patches,
        Err(fault) => return ctx.error(400, &fault.to_string()),
    };
    if ctx.site().root.is_file() {
        return ctx.error(403, "only one file is served, and it cannot be changed");
    }
    let is_folder = match find_current(ctx, &target.path).await {
        Ok(ServedEntry::Folder(_)) => true,
        Ok(_) if target.is_folder => return ctx.error(404, ""),
        Ok(_) => false,
        Err(errno) => return ctx.refused(errno),
    };
    let site = Arc::clone(ctx.site());
    let slot = ctx.peer.while_connected(site.shared.changing.acquire(ctx.owner(), &site)).await;
    let Some(slot) = slot else { return ctx.error(CLIENT_LEFT, "") };
    // A lock may have been granted while the body arrived.
    if let Err(refusal) = check_write(ctx, &tokens, &target.path).await {
        return refusal;
    }
    let expected = (version, tags);
    let (helper, path) = (Arc::clone(&site), target.path.to_vec());
    let work = move || {
        let _slot = slot;
        let changed = change(&helper, &path, &patches, &expected);
        helper.shared.names_changed();
        changed
            .map(|faults| multistatus::patched(&link(&helper, &path, is_folder), &patches, &faults))
    };
    match spawn_blocking(work).await {
        Ok(Ok(body)) => xml(207, body),
        Ok(Err(refusal)) => refused(ctx, &refusal),
        Err(_) => ctx.error(500, ""),
    }
}

/// Makes all changes or none; returns the status of each that cannot be made.
fn change(
    site: &Site,
    path: &[u8],
    patches: &[Patch],
    (expected, tags): &Expected,
) -> Result<Vec<Option<u16>>> {
    // A lease of another program is waited for before the names are locked; the file can have no new
    // one while it is open.
    let _unleased = open(site, path)?;
    // Until this is dropped, no other request changes the properties or gives the name to another
    // file.
    let alone = site.names.hold(true);
    let file = open(site, path)?;
    let is_other = |expected: &Version| Version::of(&file).is_ok_and(|now| now != *expected);
    if expected.as_ref().is_some_and(is_other) || !tags.hold(site) {
        return Err(ChangeRefusal::new(412, "the file was changed meanwhile"));
    }
    // Times can be set even if the stored properties cannot be read.
    let before = if patches.iter().all(is_time) {
        Vec::new()
    } else {
        dead_properties::load_all(&file).map_err(|_| {
            ChangeRefusal::new(409, "the stored properties cannot be read, and are not replaced")
        })?
    };
    let mut change = PropertyChange { stored: before.clone(), ..PropertyChange::default() };
    let mut faults: Vec<_> = patches.iter().map(|patch| change.add(patch).err()).collect();
    if faults.iter().any(Option::is_some) {
        return Ok(faults);
    }
    if change.stored != before
        && let Err(errno) = dead_properties::store(&file, change.stored.clone())
    {
        let is_full = matches!(errno, Errno::NOSPC | Errno::DQUOT);
        let status = Some(if is_full { 507 } else { 403 });
        faults = patches.iter().map(|patch| status.filter(|_| !is_time(patch))).collect();
        return Ok(faults);
    }
    if change.has_times()
        && let Err(_denied) = set_times(&file, &change)
    {
        // Restore the previous properties: all changes are made, or none.
        if change.stored != before {
            dead_properties::store(&file, before)?;
        }
        return Ok(patches.iter().map(|patch| is_time(patch).then_some(403)).collect());
    }
    drop(alone);
    if site.settings.changes.sync {
        sync(&file).map_err(ChangeRefusal::unsynced)?;
    }
    Ok(faults)
}

/// Opens the entry at a path. A link is not followed: its target has its own path.
fn open(site: &Site, path: &[u8]) -> Result<OwnedFd> {
    let Some((folder, name)) = site.root.parent_of(path)? else {
        return Ok(site.root.open(path, DiskWait::Allowed)?);
    };
    let opened = open_unleased(|| open_entry(&folder, name));
    opened.map(OwnedFd::from).map_err(|errno| match errno {
        Errno::LOOP => ChangeRefusal::new(403, "this is a link; change its target instead"),
        errno => errno.into(),
    })
}

/// Syncs the times and properties of a file or folder.
fn sync(file: &OwnedFd) -> Result<(), Errno> {
    if is_folder(&fstat(file)?) { sync_folder(file, fsync) } else { fsync(file) }
}

/// Sets the times of a file. A time that does not change is set to its current value, since many
/// file systems in user space (libfuse 2) ignore a time that is set alone.
fn set_times(file: &OwnedFd, change: &PropertyChange) -> Result<(), Errno> {
    let now = times(&fstat(file)?);
    let times = Timestamps {
        last_access: change.accessed.unwrap_or(now.last_access),
        last_modification: change.modified.unwrap_or(now.last_modification),
    };
    futimens(file, &times)
}

/// The changes of one request.
#[derive(Default)]
struct PropertyChange {
    stored: Vec<Element>,
    modified: Option<Timespec>,
    accessed: Option<Timespec>,
}

impl PropertyChange {
    /// Adds a change.
    ///
    /// # Errors
    ///
    /// The status of one that cannot be made.
    fn add(&mut self, patch: &Patch) -> Result<(), u16> {
        if let (true, Patch::Set(property)) = (is_time(patch), patch) {
            let text = property.text();
            if is_before_1970(&text) {
                return Ok(());
            }
            let time = Some(time(&text).ok_or(409_u16)?);
            match &*property.name.local {
                ACCESSED => self.accessed = time,
                _ => self.modified = time,
            }
            return Ok(());
        }
        if is_time(patch) || Live::of(patch.name()).is_some() {
            return Err(403);
        }
        self.stored.retain(|property| property.name != *patch.name());
        if let Patch::Set(property) = patch {
            self.stored.push(property.clone());
        }
        Ok(())
    }

    fn has_times(&self) -> bool {
        self.modified.is_some() || self.accessed.is_some()
    }
}

/// Returns whether a property is a time of the file, under one of the names that clients use.
fn is_time(patch: &Patch) -> bool {
    let name = patch.name();
    match &*name.space {
        MICROSOFT => [MODIFIED, ACCESSED].contains(&&*name.local),
        // Nextcloud's clients call it `lastmodified`.
        _ => name.is_dav(Live::LastModified.name()) || name.is_dav("lastmodified"),
    }
}

/// Reads a time: an HTTP date, or the number of seconds since 1970.
fn time(text: &str) -> Option<Timespec> {
    let seconds = match text.parse::<u32>() {
        Ok(seconds) => Duration::from_secs(seconds.into()),
        Err(_) => parse_date(text.as_bytes())?.duration_since(UNIX_EPOCH).ok()?,
    };
    Timespec::try_from(seconds).ok()
}

/// Returns whether a date is before 1970: Windows sends 1601 for a time that it does not know. Such
/// a time is left as it is.
fn is_before_1970(date: &str) -> bool {
    let year = date.get(12..16).and_then(|year| year.parse::<u16>().ok());
    date.ends_with(" GMT") && year.is_some_and(|year| year < 1970)
}

/// The namespace of the properties that Windows sets.
const MICROSOFT: &str = "urn:schemas-microsoft-com:";

const MODIFIED: &str = "Win32LastModifiedTime";

const ACCESSED: &str = "Win32LastAccessTime";
