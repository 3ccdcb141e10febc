//! LOCK and UNLOCK (RFC 4918 9.10, 9.11).

use std::sync::Arc;
use std::time::Instant;

use rustix::fs::{FileType, Mode, OFlags, fsync, openat};
use rustix::io::Errno;
use underpass_dav::locks::{Lock, LockError, Reach, timeout, token};
use underpass_dav::multistatus;
use underpass_dav::property::Resource as Properties;
use underpass_dav::request::LockInfo;
use underpass_engine::atomic_file::sync_folder;

use crate::auth::Right;
use crate::changes::answer::refused;
use crate::changes::body;
use crate::changes::checks::hidden;
use crate::changes::dav::describe::{held, locks};
use crate::changes::dav::guard::{check, conditions, locked, submitted};
use crate::changes::dav::lock_paths::LockPaths;
use crate::changes::dav::propfind::{rule, xml};
use crate::changes::refusal::{ChangeRefusal, NAME_HIDDEN, Result};
use crate::changes::tree::kind;
use crate::files::lookup::{ServedEntry, find_current};
use crate::files::open_files::is_missing;
use crate::routing::context::RequestContext;
use crate::routing::response::Response;
use crate::server::sites::site::Site;
use crate::uploads::random_bytes;
use underpass_protocol::request::destination::Depth;
use underpass_protocol::request::target::Target;

/// Answers a LOCK. The caller must have checked the right to write.
pub(crate) async fn respond(ctx: &RequestContext<'_>, target: &Target<'_>) -> Response {
    let body = match body::read(ctx, &body::XML).await {
        Ok(body) => body,
        Err(refusal) => return refusal,
    };
    let tokens = match conditions(ctx, target).await {
        Ok(conditions) => conditions.tokens,
        Err(refusal) => return refusal,
    };
    if body.is_empty() {
        return refresh(ctx, target, &tokens).await.unwrap_or_else(|refusal| refusal);
    }
    match LockInfo::parse(&body) {
        Ok(info) => create(ctx, target, &tokens, info).await.unwrap_or_else(|refusal| refusal),
        Err(fault) => ctx.error(400, &fault.to_string()),
    }
}

/// Refreshes a lock.
async fn refresh(
    ctx: &RequestContext<'_>,
    target: &Target<'_>,
    tokens: &[&str],
) -> Result<Response, Response> {
    let submitted = submitted(ctx, tokens);
    let wanted = timeout(ctx.request.field("timeout"));
    let paths = LockPaths::find(ctx, &target.path).await?;
    let mut table = locks(ctx.site());
    let lock = paths.iter().find_map(|path| table.refresh(path, submitted, wanted, Instant::now()));
    drop(table);
    match lock {
        Some(lock) => Ok(described(ctx, 200, lock)),
        None => Err(ctx.error(412, "If must name a lock of this path; it may have expired")),
    }
}

/// Creates a lock, and an empty file if nothing exists at the path.
async fn create(
    ctx: &RequestContext<'_>,
    target: &Target<'_>,
    tokens: &[&str],
    info: LockInfo,
) -> Result<Response, Response> {
    let (site, path) = (ctx.site(), &*target.path);
    let depth =
        Depth::read(&ctx.request).ok_or_else(|| ctx.error(400, "Depth must be 0 or infinity"))?;
    if site.root.is_file() {
        return Err(ctx.error(403, "only one file is served, and it cannot be changed"));
    }
    for _ in 0..MAX_ATTEMPTS {
        let paths = LockPaths::find(ctx, path).await?;
        if let Some(refusal) = refuse(ctx, &paths, depth) {
            return Err(refusal);
        }
        let present = find(ctx, target).await?;
        let names = Reach { names: true, is_deep: false };
        let is_new = present == Present::Nothing;
        if let Some(refusal) = is_new.then(|| check(ctx, tokens, &paths, names)).flatten() {
            return Err(refusal);
        }
        let lock = lock(ctx, &paths, depth, present, &info).map_err(|_| ctx.error(500, ""))?;
        let added = AddedLock::add(site, lock).map_err(|error| match error {
            LockError::Conflict(other) => locked(ctx, &other, "no-conflicting-lock"),
            LockError::TooMany => ctx.busy(503, "too many locks are held"),
            LockError::Changing => ctx.error(423, "this, or something in it, is being changed"),
        })?;
        // From here on no change begins without the lock's token. One may have ended before.
        if find(ctx, target).await? != present || LockPaths::find(ctx, path).await? != paths {
            continue;
        }
        if is_new {
            make_file(ctx, path).await.map_err(|refusal| refused(ctx, &refusal))?;
        }
        return Ok(granted(ctx, if is_new { 201 } else { 200 }, added.keep()));
    }
    Err(ctx.busy(503, "it keeps changing; try again later"))
}

/// Refuses to lock an entry that the client may not change, at the path itself or where a link
/// leads.
fn refuse(ctx: &RequestContext<'_>, paths: &LockPaths, depth: Depth) -> Option<Response> {
    let (access, user) = (&ctx.settings().access, ctx.user.as_deref());
    for path in paths.served(ctx.site()) {
        if ctx.site().root.hides(path) {
            return Some(ctx.error(403, NAME_HIDDEN));
        }
        if !ctx.can(path, Right::Write) {
            return Some(ctx.error(403, "a link leads to a path where you lack permission"));
        }
        if depth == Depth::Infinity && !access.can_all(user, path, Right::Write) {
            return Some(ctx.error(403, "it contains entries that you may not change"));
        }
    }
    None
}

/// The entry at a path that is to be locked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Present {
    Nothing,
    Folder,
    Other,
}

/// Returns the entry at the path, if it can be locked.
async fn find(ctx: &RequestContext<'_>, target: &Target<'_>) -> Result<Present, Response> {
    let present = match find_current(ctx, &target.path).await {
        Ok(ServedEntry::Folder(_)) => Present::Folder,
        Ok(_) => Present::Other,
        Err(errno) if is_missing(errno) => Present::Nothing,
        Err(errno) => return Err(ctx.refused(errno)),
    };
    match present {
        Present::Nothing | Present::Other if target.is_folder => {
            Err(ctx.error(409, "there is no such folder"))
        }
        present => Ok(present),
    }
}

/// A lock in the table. Dropping this ends the lock unless it was granted.
struct AddedLock<'a> {
    site: &'a Site,
    lock: Lock,
    is_granted: bool,
}

impl<'a> AddedLock<'a> {
    fn add(site: &'a Site, lock: Lock) -> Result<Self, LockError> {
        locks(site).add(lock.clone(), Instant::now())?;
        Ok(Self { site, lock, is_granted: false })
    }

    /// Grants the lock.
    fn keep(mut self) -> Lock {
        self.is_granted = true;
        self.lock.clone()
    }
}

impl Drop for AddedLock<'_> {
    fn drop(&mut self) {
        if !self.is_granted {
            locks(self.site).end(&self.lock.token);
        }
    }
}

/// Returns a new lock.
fn lock(
    ctx: &RequestContext<'_>,
    paths: &LockPaths,
    depth: Depth,
    present: Present,
    info: &LockInfo,
) -> Result<Lock, Errno> {
    let client = match &ctx.user {
        Some(user) => format!("user {user} {:x}", ctx.site().realm),
        None => match ctx.peer.client_net().address() {
            Some(address) => format!("network {address}"),
            None => "Unix socket".to_owned(),
        },
    };
    Ok(Lock {
        token: token(random_bytes()?).into(),
        root: paths.reached().into(),
        link: paths.target.as_ref().map(|_| (*paths.own).into()),
        is_folder: present == Present::Folder,
        is_deep: depth == Depth::Infinity,
        is_exclusive: info.is_exclusive,
        owner: info.owner.as_str().into(),
        user: ctx.user.clone(),
        realm: ctx.site().realm,
        client: client.into(),
        expires: Instant::now() + timeout(ctx.request.field("timeout")),
    })
}

/// Creates an empty file, unless there is one by now.
async fn make_file(ctx: &RequestContext<'_>, path: &[u8]) -> Result<()> {
    let (helper, path) = (Arc::clone(ctx.site()), path.to_vec());
    let made = ctx.worker.helpers.run(ctx.peer.client_net(), move || {
        let parent = helper.root.parent_of(&path).map_err(ChangeRefusal::at_target)?;
        let (folder, name) = parent.ok_or(Errno::ISDIR)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let created = openat(&folder, name, flags, Mode::from_raw_mode(0o666));
        helper.shared.names_changed();
        match created {
            Ok(_) if helper.settings.changes.sync => {
                sync_folder(&folder, fsync).map_err(ChangeRefusal::unsynced)
            }
            Err(Errno::EXIST) if helper.root.hides_entry(&path, false) => Err(hidden()),
            Err(Errno::EXIST) => match helper.root.stat(&path).map(|stat| kind(&stat)) {
                Ok(FileType::RegularFile | FileType::Directory) => Ok(()),
                Ok(_) => Err(ChangeRefusal::new(409, "this is neither a file nor a folder")),
                Err(_) => Err(ChangeRefusal::new(409, "this link's target does not exist here")),
            },
            Ok(_) => Ok(()),
            Err(errno) => Err(ChangeRefusal::at_target(errno)),
        }
    });
    made.await.unwrap_or_else(|_| Err(Errno::IO.into()))
}

/// Returns the response that grants a lock.
fn granted(ctx: &RequestContext<'_>, status: u16, lock: Lock) -> Response {
    let token = format!("<{}>", lock.token);
    let mut response = described(ctx, status, lock);
    response.add_field("Lock-Token", &token);
    response
}

/// Returns the response that describes a lock, without `Lock-Token`, which a refresh does not
/// return (RFC 4918 9.10.2).
fn described(ctx: &RequestContext<'_>, status: u16, lock: Lock) -> Response {
    let held = held(ctx.site(), lock, Instant::now());
    let properties = Properties { locks: vec![held], ..Properties::default() };
    xml(status, multistatus::locked(&properties))
}

/// Answers an UNLOCK. The caller must have checked the right to write.
pub(crate) async fn unlock(ctx: &RequestContext<'_>, target: &Target<'_>) -> Response {
    if let Err(refusal) = conditions(ctx, target).await {
        return refusal;
    }
    let field = ctx.request.single("lock-token").and_then(|value| str::from_utf8(value).ok());
    let token = field.and_then(|value| value.trim().strip_prefix('<')?.strip_suffix('>'));
    let Some(token) = token else {
        return ctx.error(400, "Lock-Token must name the lock in angle brackets");
    };
    let named = [token];
    let submitted = submitted(ctx, &named);
    let paths = match LockPaths::find(ctx, &target.path).await {
        Ok(paths) => paths,
        Err(refusal) => return refusal,
    };
    let (mut table, now) = (locks(ctx.site()), Instant::now());
    if paths.iter().any(|path| table.remove(path, submitted, now)) {
        return Response::empty(204);
    }
    // RFC 4918 9.11.1.
    let mut covering = paths.iter().flat_map(|path| table.covering(path, now));
    let is_anothers = covering.any(|lock| &*lock.token == token);
    drop(covering);
    drop(table);
    if is_anothers {
        ctx.error(403, "this is the lock of another user")
    } else {
        rule(409, "lock-token-matches-request-uri", &[])
    }
}

/// The maximum number of attempts to lock a path that keeps changing.
const MAX_ATTEMPTS: u32 = 8;
