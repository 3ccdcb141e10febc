//! Checks a change against the locks of other clients and the conditions of `If` (RFC 4918 10.4).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Instant;

use underpass_dav::condition::{IfField, List, State};
use underpass_dav::locks::{Lock, LockTable, Reach, Submitted, parent};

use crate::auth::Right;
use crate::changes::dav::describe::{lock_link, locks};
use crate::changes::dav::lock_paths::LockPaths;
use crate::changes::dav::propfind::rule;
use crate::changes::dav::tags::{TagCondition, TagConditions};
use crate::files::lookup::{ServedEntry, find_current};
use crate::files::open_files::is_missing;
use crate::routing::context::RequestContext;
use crate::routing::response::Response;
use crate::server::sites::site::Site;
use underpass_protocol::request::Method;
use underpass_protocol::request::destination::is_here;
use underpass_protocol::request::target::Target;

/// The content of an `If` field whose conditions hold.
#[derive(Default)]
pub(crate) struct Conditions<'r> {
    /// The tokens of locks in it.
    pub(crate) tokens: Vec<&'r str>,
    /// The entity tags on which the request depends.
    pub(crate) tags: TagConditions,
}

/// Reads the `If` field of a request, and checks that its conditions hold.
///
/// # Errors
///
/// The refusal, if they do not hold, or cannot be parsed.
pub(crate) async fn conditions<'r>(
    ctx: &RequestContext<'r>,
    target: &Target<'_>,
) -> Result<Conditions<'r>, Response> {
    if !ctx.request.has("if") {
        return Ok(Conditions::default());
    }
    let field = ctx.request.single("if").and_then(IfField::parse);
    let Some(field) = field else { return Err(ctx.error(400, "the If field is malformed")) };
    let resources = resources(ctx, target, &field).await?;
    let now = Instant::now();
    let table = locks(ctx.site());
    let is_in = |resource: Option<&str>, state: State<'_>| {
        let Some(Some(resource)) = resources.get(&resource) else { return false };
        let mut covering = resource.locks.iter().flat_map(|path| table.covering(path, now));
        match state {
            State::Locked(token) => covering.any(|lock| &*lock.token == token),
            State::Etag(expected) => resource.etag.as_deref() == Some(expected),
        }
    };
    if !field.holds(is_in) {
        drop(table);
        return Err(ctx.error(412, "the conditions of If do not hold"));
    }
    let lists = field.lists().iter().filter_map(|list| {
        let resource = resources.get(&list.resource).and_then(Option::as_ref);
        let path = resource.map(|resource| &*resource.path);
        tags_of(list, path, |token| is_in(list.resource, State::Locked(token)))
    });
    let mut lists: Vec<_> = lists.collect();
    if lists.iter().any(Vec::is_empty) {
        // Such a list holds whatever the tags are.
        lists.clear();
    }
    let tags = TagConditions { lists, user: ctx.user.clone() };
    Ok(Conditions { tokens: field.tokens(), tags })
}

/// A file or folder of this server that an `If` field names.
struct NamedResource {
    path: Vec<u8>,
    locks: LockPaths,
    etag: Option<String>,
}

/// Looks up all resources that an `If` field names; those of other servers are `None`.
async fn resources<'r>(
    ctx: &RequestContext<'_>,
    target: &Target<'_>,
    field: &IfField<'r>,
) -> Result<HashMap<Option<&'r str>, Option<NamedResource>>, Response> {
    let mut resources = HashMap::new();
    for list in field.lists() {
        if let Entry::Vacant(entry) = resources.entry(list.resource) {
            let resource = match path_of(ctx, target, list.resource) {
                Some(path) => {
                    let locks = LockPaths::find(ctx, &path).await?;
                    Some(NamedResource { path, locks, etag: None })
                }
                None => None,
            };
            entry.insert(resource);
        }
        let has_etag = list.conditions.iter().any(|one| matches!(one.state, State::Etag(_)));
        if let Some(Some(resource)) = resources.get_mut(&list.resource)
            && has_etag
            && resource.etag.is_none()
            && ctx.can(&resource.path, Right::Read)
        {
            resource.etag = etag(ctx, &resource.path).await;
        }
    }
    Ok(resources)
}

/// Returns the conditions on entity tags of a list; `None` if its conditions on locks do not hold.
fn tags_of(
    list: &List<'_>,
    path: Option<&[u8]>,
    is_locked: impl Fn(&str) -> bool,
) -> Option<Vec<TagCondition>> {
    let mut tags = Vec::new();
    for one in &list.conditions {
        match one.state {
            State::Locked(token) if is_locked(token) == one.is_not => return None,
            State::Locked(_) => {}
            State::Etag(tag) => tags.push(TagCondition {
                path: path.map(<[u8]>::to_vec),
                tag: tag.to_owned(),
                is_not: one.is_not,
            }),
        }
    }
    Some(tags)
}

/// Returns the path of a resource in an `If` field; `None` if it is on another server.
fn path_of(ctx: &RequestContext<'_>, own: &Target<'_>, resource: Option<&str>) -> Option<Vec<u8>> {
    let Some(resource) = resource else { return Some(own.path.to_vec()) };
    if !is_here(&ctx.request, resource.as_bytes()) {
        return None;
    }
    let prefix = ctx.settings().path_prefix.as_bytes();
    Target::parse(resource.as_bytes(), prefix).ok().map(|target| target.path.into_owned())
}

async fn etag(ctx: &RequestContext<'_>, path: &[u8]) -> Option<String> {
    match find_current(ctx, path).await {
        Ok(ServedEntry::File(served)) => Some(served.etag.clone()),
        _ => None,
    }
}

/// Returns the tokens that a client has submitted, with its user.
pub(super) fn submitted<'s>(ctx: &'s RequestContext<'_>, tokens: &'s [&'s str]) -> Submitted<'s> {
    Submitted { tokens, user: ctx.user.as_deref(), realm: ctx.site().realm }
}

/// Refuses a change at a path, unless the client has submitted the tokens of all locks on it.
pub(crate) fn check(
    ctx: &RequestContext<'_>,
    tokens: &[&str],
    paths: &LockPaths,
    reach: Reach,
) -> Option<Response> {
    let submitted = submitted(ctx, tokens);
    let checked = check_paths(&locks(ctx.site()), paths, reach, submitted);
    checked.err().map(|lock| locked(ctx, &lock, "lock-token-submitted"))
}

/// Checks the locks that a change meets. A link shows the locks of its target as its own, so they
/// also hold for a change of the link.
fn check_paths(
    table: &LockTable,
    paths: &LockPaths,
    reach: Reach,
    submitted: Submitted<'_>,
) -> Result<(), Box<Lock>> {
    let now = Instant::now();
    table.check(&paths.own, reach, submitted, now)?;
    let stays = Reach { names: false, is_deep: false };
    let target = paths.target.as_deref();
    target.map_or(Ok(()), |target| table.check(target, stays, submitted, now))
}

/// The paths of a change that has begun. No lock is granted at or below them until this is dropped.
pub(crate) struct ChangingPaths {
    site: Arc<Site>,
    paths: Vec<Vec<u8>>,
}

impl ChangingPaths {
    /// Begins a change of all at and below these paths.
    ///
    /// # Errors
    ///
    /// A lock on them whose token the client has not submitted.
    pub(crate) fn begin(
        ctx: &RequestContext<'_>,
        tokens: &[&str],
        paths: Vec<LockPaths>,
    ) -> Result<Self, Box<Lock>> {
        let submitted = submitted(ctx, tokens);
        let whole = Reach { names: true, is_deep: true };
        // A lock is either found here, or not granted until the change has ended.
        let mut table = locks(ctx.site());
        paths.iter().try_for_each(|paths| check_paths(&table, paths, whole, submitted))?;
        paths.iter().for_each(|paths| table.begin_change(&paths.own));
        drop(table);
        let paths = paths.into_iter().map(|paths| paths.own).collect();
        Ok(Self { site: Arc::clone(ctx.site()), paths })
    }
}

impl Drop for ChangingPaths {
    fn drop(&mut self) {
        let mut table = locks(&self.site);
        self.paths.iter().for_each(|path| table.end_change(path));
    }
}

/// Checks the locks for a request that writes one file, or its properties.
pub(crate) async fn check_write(
    ctx: &RequestContext<'_>,
    tokens: &[&str],
    path: &[u8],
) -> Result<(), Response> {
    if locks(ctx.site()).is_empty() {
        return Ok(());
    }
    let names = ctx.request.method != Method::Proppatch && find_current(ctx, path).await.is_err();
    let paths = LockPaths::find(ctx, path).await?;
    if let Some(refusal) = check(ctx, tokens, &paths, Reach { names, is_deep: false }) {
        return Err(refusal);
    }
    match ctx.request.method {
        Method::Put => check_parents(ctx, tokens, path).await,
        _ => Ok(()),
    }
}

/// Checks the locks for the parent folders that would be created for a new entry.
pub(crate) async fn check_parents(
    ctx: &RequestContext<'_>,
    tokens: &[&str],
    path: &[u8],
) -> Result<(), Response> {
    if !ctx.settings().changes.create_parents || locks(ctx.site()).is_empty() {
        return Ok(());
    }
    let (mut highest, mut above) = (None, parent(path));
    while let Some(folder) = above
        && find_current(ctx, folder).await.err().is_some_and(is_missing)
    {
        highest = Some(folder);
        above = parent(folder);
    }
    // If no folder above exists, nothing can be locked.
    let (Some(highest), Some(_)) = (highest, above) else { return Ok(()) };
    let paths = LockPaths::find(ctx, highest).await?;
    check(ctx, tokens, &paths, Reach { names: true, is_deep: false }).map_or(Ok(()), Err)
}

/// Returns the response to a request that meets the lock of another client.
pub(crate) fn locked(ctx: &RequestContext<'_>, lock: &Lock, broken: &str) -> Response {
    rule(423, broken, &[&lock_link(ctx.site(), lock)])
}
