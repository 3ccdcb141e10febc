//! Requests of operators: filling a cache, declaring parts of it stale, and inspecting it.

use std::fmt::Write;
use std::time::Duration;

use tokio::time::sleep;
use underpass_cache::{
    Cache, CacheEntry, CacheError, CacheErrorKind, CacheStats, Lookup, ObjectRequest,
};
use underpass_observe::transfers::CacheRow;
use underpass_protocol::request::target::{Target, TargetError, TargetFault};
use underpass_protocol::response::head::PLAIN_TEXT;

use crate::auth::{Right, access};
use crate::files::root::{is_reserved, split};
use crate::routing::cache_key::key_of;
use crate::routing::cached::{wait_after, wait_for};
use crate::routing::context::RequestContext;
use crate::routing::response::{CLIENT_LEFT, Response};

/// Answers a POST to one of the endpoints of a cache.
pub(crate) async fn respond(
    ctx: &RequestContext<'_>,
    cache: &Cache,
    target: &Target<'_>,
) -> Response {
    // A page of another site can send this without a preflight request.
    if ctx.request.has("origin") || ctx.request.has("sec-fetch-site") {
        return ctx.error(403, "requests from web pages are refused");
    }
    match &*target.path {
        b".underpass/expire" => expire(ctx, cache, target).await,
        b".underpass/fill" => fill(ctx, cache, target).await,
        _ => ctx.error(403, ""),
    }
}

/// Returns whether a client may change the cached objects below a path, which needs the right to
/// write.
pub(crate) fn may_change(ctx: &RequestContext<'_>, path: &[u8]) -> bool {
    if ctx.settings().access.has_users() {
        ctx.user.is_some() && ctx.can(path, Right::Write)
    } else {
        // Without users, clients cannot be distinguished.
        ctx.is_from_operator()
    }
}

/// Returns the methods allowed for objects of an origin. The user may not be known yet.
pub(crate) fn methods(ctx: &RequestContext<'_>) -> &'static str {
    if ctx.settings().access.has_users() || ctx.is_from_operator() {
        "GET, HEAD, OPTIONS, PURGE"
    } else {
        "GET, HEAD, OPTIONS"
    }
}

/// Declares everything below a path stale.
async fn expire(ctx: &RequestContext<'_>, cache: &Cache, target: &Target<'_>) -> Response {
    let prefix = target.query.get_path("prefix").unwrap_or_default();
    let below = match Target::parse(&prefix, b"") {
        Ok(below) => below,
        Err(fault) => return not_a_path(ctx, "prefix", fault),
    };
    let Some(key) = cache.key(&below) else {
        return ctx.error(414, "");
    };
    // The prefix may end within a name: the entries with such names are in this folder.
    let folder = if below.is_folder { &below.path } else { split(&below.path).0 };
    if !may_change(ctx, folder) {
        return access::denied(ctx);
    }
    let cache = cache.clone();
    let client = ctx.peer.client_net();
    match ctx.worker.helpers.run(client, move || cache.expire(&key)).await {
        Ok(Ok(())) => {
            let text = "stale: validated before it is used again\n";
            Response::memory(200, PLAIN_TEXT, text.as_bytes(), false)
        }
        _ => ctx.error(500, "saving this failed: it holds only until the server is restarted"),
    }
}

/// Fetches the missing bytes of a range of an object, and answers when the whole range is in the
/// cache.
async fn fill(ctx: &RequestContext<'_>, cache: &Cache, target: &Target<'_>) -> Response {
    let path = target.query.get_path("path").unwrap_or_default();
    let number = |name: &str, default: u64| match target.query.get(name) {
        Some(text) => str::from_utf8(&text).ok().and_then(|text| text.parse().ok()),
        None => Some(default),
    };
    let wanted = match Target::parse(&path, b"") {
        Ok(wanted) => wanted,
        Err(fault) => return not_a_path(ctx, "path", fault),
    };
    let (Some(from), Some(to)) = (number("from", 0), number("to", u64::MAX)) else {
        return ctx.error(400, "from= and to= are numbers of bytes");
    };
    let key = match key_of(ctx, cache, &wanted) {
        Ok(key) => key,
        Err((status, why)) => return ctx.error(status, why),
    };
    if !may_change(ctx, &wanted.path) {
        return access::denied(ctx);
    }
    if is_reserved(&wanted.path) || ctx.site().root.hides_of_origin(&wanted.path, wanted.is_folder)
    {
        return ctx.error(404, "this path is not served");
    }
    let range = (to < u64::MAX && from < to).then_some(from..to);
    let request = ObjectRequest { range, ..ObjectRequest::default() };
    // What is fresh in memory would be said to be stored. Without a helper, the disk is not asked.
    let checked = cache.clone();
    let client = ctx.peer.client_net();
    let _ = ctx.worker.helpers.run(client, move || checked.check_folder()).await;
    // No client reads the file, however often parts of it are filled.
    let Some(found) = ctx.peer.while_connected(cache.find_uncounted(&key, &request, sleep)).await
    else {
        return ctx.error(CLIENT_LEFT, "");
    };
    let entry = match found {
        Lookup::Entry(entry) => entry,
        Lookup::Response { response, .. } => {
            return match response.status {
                // The origin's status says nothing about this request.
                200..=299 => ctx.error(404, "the origin has no file there"),
                status => ctx.error_until(status, "", response.retry_after),
            };
        }
        Lookup::Failed { error, retry_after, .. } => return not_filled(ctx, &error, retry_after),
    };
    if let Some(refusal) = refuse_fill(ctx, cache, &entry) {
        return refusal;
    }
    match ctx.peer.while_connected(fetch(&entry, from, to)).await {
        Some(Ok(fetched)) => {
            let (cache, len) = (cache.clone(), entry.len());
            let capacity = ctx.worker.helpers.run(client, move || cache.capacity()).await;
            let capacity = capacity.unwrap_or_default();
            let takes = Cache::space_of(len.unwrap_or(0));
            let number = |it: Option<u64>| it.map_or("null".to_owned(), |it| it.to_string());
            let (length, capacity) = (number(len), number(capacity));
            let text = format!(
                "{{\"length\":{length},\"fetched\":{fetched},\"takes\":{takes},\
                 \"capacity\":{capacity},\"version\":\"{}\"}}\n",
                entry.version_name()
            );
            Response::memory(200, "application/json", text.into_bytes(), false)
        }
        Some(Err(error)) => not_filled(ctx, &error, None),
        None => ctx.error(CLIENT_LEFT, ""),
    }
}

/// Returns the refusal of a parameter that is not a path.
fn not_a_path(ctx: &RequestContext<'_>, name: &str, fault: TargetError) -> Response {
    let why = match fault {
        TargetError::Malformed(TargetFault::Form) => "write a path such as /a/b".to_owned(),
        fault => fault.to_string(),
    };
    ctx.error(400, &format!("?{name}=: {why}"))
}

/// Returns the refusal to fill what is not stored; `None` if it is stored, or if reading
/// it tells why it is not.
fn refuse_fill(ctx: &RequestContext<'_>, cache: &Cache, entry: &CacheEntry) -> Option<Response> {
    if entry.is_stored() {
        return None;
    }
    // What the origin forbids stays so, whatever else keeps the cache from storing it now.
    if !entry.may_be_stored() {
        return Some(ctx.error(409, NOT_KEPT));
    }
    if cache.is_gone() {
        return Some(not_filled(ctx, &CacheErrorKind::Disk.into(), None));
    }
    // Reading a relayed object fails with the reason why it cannot be stored.
    (!entry.cache.is_relayed).then(|| ctx.error(409, NOT_KEPT))
}

/// Returns the response to a fill that has failed.
fn not_filled(
    ctx: &RequestContext<'_>,
    error: &CacheError,
    retry_after: Option<Duration>,
) -> Response {
    let wait = wait_after(error, retry_after);
    ctx.error_until(error.kind().status(), &error.to_string(), wait)
}

/// Waits until a range of an object is cached; returns how many bytes of it were not.
async fn fetch(entry: &CacheEntry, from: u64, to: u64) -> Result<u64, CacheError> {
    let reader = entry.reader();
    if let Some(len) = entry.len() {
        reader.narrow(&(from..to.min(len)));
    }
    // A response that has just begun was begun for this request.
    let present = if entry.cache.is_new() { 0 } else { entry.present(&(from..to)) };
    let mut at = from;
    let stored = || reader.why_relayed().map_or(Ok(()), |why| Err(CacheError::from(why)));
    // What is relayed is not stored.
    stored()?;
    while at < to {
        let arrived = wait_for(&reader, at, to).await?;
        stored()?;
        if arrived == at {
            break;
        }
        at = arrived;
    }
    Ok((at - from).saturating_sub(present))
}

/// Returns the paths that were requested most, each with the number of requests and the fields by
/// which it varies: a list for `underpass fill`.
pub(crate) fn popular(
    cache: &Cache,
    target: &Target<'_>,
    may_see: impl Fn(&str) -> bool,
) -> String {
    let number = target.query.get("n");
    let number = number.and_then(|text| str::from_utf8(&text).ok()?.parse().ok());
    let all = cache.popular(usize::MAX);
    let mut text = String::new();
    let mut left = number.unwrap_or(MAX_POPULAR);
    for (key, count) in &all {
        let mut lines = key.lines();
        let Some(path) = lines.next().filter(|path| left > 0 && may_see(path)) else { continue };
        left -= 1;
        // Writing to a string does not fail.
        let _ = writeln!(text, "{path} {count}");
        for field in lines {
            let _ = writeln!(text, "  {field}");
        }
    }
    text
}

/// Returns the open objects of the cache, for the page about it.
pub(crate) fn rows(cache: &Cache, may_see: impl Fn(&str) -> bool) -> Vec<CacheRow> {
    let stored = cache.stored().into_iter().filter(|object| may_see(&object.key));
    let row = stored.map(|object| CacheRow {
        path: object.key,
        length: object.len,
        present: object.present,
        readers: object.readers,
        is_filling: object.is_filling,
    });
    row.collect()
}

/// Returns the metrics of caches in the format of Prometheus; each has the name of its site, if there
/// are several sites.
pub(crate) fn metrics(caches: &[(Option<&str>, CacheStats)]) -> String {
    let mut text = String::new();
    if caches.is_empty() {
        return text;
    }
    // Writing to a string does not fail.
    for (name, kind, help, value) in METRICS {
        let _ = writeln!(text, "# HELP underpass_cache_{name} {help}");
        let _ = writeln!(text, "# TYPE underpass_cache_{name} {kind}");
        for (site, stats) in caches {
            let site = site.map(|site| format!("{{site=\"{site}\"}}")).unwrap_or_default();
            let _ = writeln!(text, "underpass_cache_{name}{site} {}", value(stats));
        }
    }
    let name = "underpass_cache_responses_total";
    let _ = writeln!(text, "# HELP {name} Responses by cache status.");
    let _ = writeln!(text, "# TYPE {name} counter");
    for (site, stats) in caches {
        let site = site.map(|site| format!("site=\"{site}\",")).unwrap_or_default();
        for (status, count) in [("hit", stats.hits), ("miss", stats.misses), ("stale", stats.stale)]
        {
            let _ = writeln!(text, "{name}{{{site}status=\"{status}\"}} {count}");
        }
    }
    text
}

/// A metric: its name, kind, help and value.
type CacheMetric = (&'static str, &'static str, &'static str, fn(&CacheStats) -> u64);

/// The metrics of a cache that have no label but the site.
const METRICS: [CacheMetric; 12] = [
    ("requests_total", "counter", "Requests to origins.", |it| it.requests),
    ("fills_failed_total", "counter", "Fills that were abandoned.", |it| it.failed),
    ("collapsed_total", "counter", "Requests collapsed into another request's fetch.", |it| {
        it.collapsed
    }),
    ("origin_bytes_total", "counter", "Bytes received from origins.", |it| it.origin_bytes),
    ("relayed_bytes_total", "counter", "Bytes relayed to clients without being stored.", |it| {
        it.relayed_bytes
    }),
    ("evicted_total", "counter", "Objects and extents removed to make room.", |it| it.evicted),
    ("changed_total", "counter", "Objects found changed at the origin.", |it| it.changed),
    ("damaged_total", "counter", "Objects the disk failed to read.", |it| it.damaged),
    ("read_only", "gauge", "Whether nothing is stored.", |it| it.is_read_only.into()),
    ("used_bytes", "gauge", "Bytes of all stored objects.", |it| it.used_bytes),
    ("objects", "gauge", "Stored objects.", |it| it.objects),
    ("reserved_bytes", "gauge", "Bytes reserved for fills in progress.", |it| it.reserved_bytes),
];

/// The refusal of a fill that would store nothing.
const NOT_KEPT: &str = "not cached: the origin forbids it, or sends no length";

/// The number of paths that are listed if the request names none.
const MAX_POPULAR: usize = 1000;
