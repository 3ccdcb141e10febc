//! Answers requests with objects of an origin, through the cache.

use std::net::IpAddr;
use std::ops::Range;
use std::time::{Duration, Instant, SystemTime};

use tokio::time::sleep;
use underpass_cache::{
    BufferedResponse, Cache, CacheEntry, CacheError, CacheErrorKind, CacheKey, Lookup,
    ObjectRequest, Reader, ResponseContent,
};
use underpass_protocol::caching::{CacheStatus, Forward, has_passed};
use underpass_protocol::encode_path;
use underpass_protocol::request::target::Target;
use underpass_protocol::request::{Method, Request};
use underpass_protocol::response::conditional::{Validators, range_applies};
use underpass_protocol::response::head::{PLAIN_TEXT, push_field, push_number_field};
use underpass_protocol::response::media::is_active;
use underpass_protocol::response::plan::{
    PlannedBody, Representation, ResponsePlan, plan, plan_unmet,
};
use underpass_protocol::response::range::first_of_request;
use underpass_protocol::response::validator::parse_date;

use crate::auth::access;
use crate::files::root::last_name;
use crate::routing::cache_key::{PURGE, key_of};
use crate::routing::cached::{CacheFacts, CachedBody, wait_after, wait_for};
use crate::routing::context::RequestContext;
use crate::routing::operate;
use crate::routing::path_fields::has_field;
use crate::routing::response::{Body, CLIENT_LEFT, Response};
use underpass_protocol::request::ClientNet;

/// Answers an authorized request with an object that is in memory and fresh; `None` if [`respond`]
/// has to answer it.
pub(crate) fn respond_at_once(
    ctx: &RequestContext<'_>,
    cache: &Cache,
    target: &Target<'_>,
) -> Option<Response> {
    if ctx.request.has("cdn-loop") {
        return None;
    }
    let key = key_of(ctx, cache, target).ok()?;
    let request = ObjectRequest { client: client(ctx), ..ObjectRequest::default() };
    let entry = cache.find_open(&key, &request)?;
    let len = entry.len();
    let (mut plan, media_type) = plan_of(ctx, &target.path, &entry, len);
    let body = cached_body(ctx, &mut plan, entry.reader(), len);
    if body.as_ref().is_some_and(|body| !body.has_first()) {
        return None;
    }
    entry.count_request();
    let origin_bytes = body.as_ref().map_or(0, |body| body.missing_bytes(&entry));
    Some(response(ctx, &target.path, (&entry, len), (plan, media_type), body, origin_bytes))
}

/// Answers an authorized request.
pub(crate) async fn respond(
    ctx: &RequestContext<'_>,
    cache: &Cache,
    target: &Target<'_>,
) -> Response {
    if ctx.is_partial {
        return access::denied(ctx);
    }
    let key = match key_of(ctx, cache, target) {
        Ok(key) => key,
        Err((status, why)) => return ctx.error(status, why),
    };
    if ctx.request.verb == PURGE {
        return purge(ctx, cache, target, key).await;
    }
    if !matches!(ctx.request.method, Method::Get | Method::Head) {
        let mut response = ctx.error(405, "");
        response.add_field("Allow", operate::methods(ctx));
        return response;
    }
    if has_passed(&ctx.request, cache.id()) {
        return ctx.error(508, "the origin leads back to this server");
    }
    let cdn_loop = cdn_loop(&ctx.request);
    if cdn_loop.len() > MAX_CDN_LOOP {
        return ctx.error(508, "the request has passed too many caches");
    }
    let mut request = ObjectRequest {
        range: first_range(&ctx.request),
        cdn_loop,
        why_relayed: None,
        client: client(ctx),
    };
    let began = Instant::now();
    for attempt in 0..MAX_ATTEMPTS {
        let found = ctx.peer.while_connected(cache.find(&key, &request, sleep)).await;
        let Some(found) = found else { return ctx.error(CLIENT_LEFT, "") };
        match found {
            Lookup::Response { response, cache } => {
                let response = relay_response(ctx, &response, &cache);
                return waited(response, began, &cache);
            }
            Lookup::Failed { error, retry_after, cache } => {
                return waited(failed(ctx, error, retry_after, &cache), began, &cache);
            }
            Lookup::Entry(entry) => match serve_connected(ctx, &target.path, &entry).await {
                None => return ctx.error(CLIENT_LEFT, ""),
                Some(Ok(response)) => return waited(response, began, &entry.cache),
                Some(Err(error)) => match error.kind() {
                    // Nothing was sent, so the new version can be.
                    CacheErrorKind::Changed => {}
                    // It was dropped, and is fetched again; if the disk fails then, it is relayed.
                    CacheErrorKind::Disk if attempt == 0 => {}
                    why @ (CacheErrorKind::NoRoom | CacheErrorKind::Disk)
                        if request.why_relayed.is_none() =>
                    {
                        request.why_relayed = Some(why);
                    }
                    _ => {
                        let response = failed(ctx, error, None, &entry.cache);
                        return waited(response, began, &entry.cache);
                    }
                },
            },
        }
    }
    let cache = CacheStatus { forward: Some(Forward::UriMiss), ..CacheStatus::default() };
    failed(ctx, CacheErrorKind::Changed.into(), None, &cache)
}

/// Records how long the response waited for the origin, unless that was not needed.
fn waited(mut response: Response, began: Instant, cache: &CacheStatus) -> Response {
    if let Some(facts) = response.cache.as_mut().filter(|_| cache.forward.is_some()) {
        facts.waited = began.elapsed();
    }
    response
}

/// Returns the client or its network, whose fetches are bounded; `None` on this machine.
pub(crate) fn client(ctx: &RequestContext<'_>) -> Option<IpAddr> {
    let client = ctx.peer.address().filter(|it| !it.ip().to_canonical().is_loopback());
    ClientNet::of(client).address()
}

/// Returns the names of the caches that a request has passed (RFC 8586).
fn cdn_loop(request: &Request<'_, '_>) -> String {
    let values = request.fields("cdn-loop").filter_map(|value| str::from_utf8(value).ok());
    values.collect::<Vec<_>>().join(", ")
}

/// Returns the part of an object that is needed first, as far as that can be told before the length
/// of the object is known.
fn first_range(request: &Request<'_, '_>) -> Option<Range<u64>> {
    if request.method == Method::Head {
        return Some(0..1);
    }
    let range = first_of_request(request)?;
    if range.is_empty() || range.start >= MAX_LEN {
        // Its place is only known with the length.
        return Some(0..1);
    }
    match range.end {
        u64::MAX => (range.start > 0).then(|| range.start..range.start + FIRST_PART),
        end => Some(range.start..end.min(MAX_LEN)),
    }
}

/// Answers with an object, unless the client leaves before its length or its first bytes arrive.
async fn serve_connected(
    ctx: &RequestContext<'_>,
    path: &[u8],
    entry: &CacheEntry,
) -> Option<Result<Response, CacheError>> {
    ctx.peer.while_connected(serve(ctx, path, entry)).await
}

/// Answers with an object, as soon as its first bytes have arrived.
async fn serve(
    ctx: &RequestContext<'_>,
    path: &[u8],
    entry: &CacheEntry,
) -> Result<Response, CacheError> {
    let reader = entry.reader();
    let mut at = 0;
    let waits_for_len = entry.len().is_none() && needs_len(ctx, entry);
    while waits_for_len && entry.len().is_none() {
        if let Some(why) = reader.why_relayed() {
            // The length of a relayed object is only known when it has all been sent.
            return Err(why.into());
        }
        at = wait_for(&reader, at, u64::MAX).await?;
    }
    // The length may become known at any moment, but head and body must agree on whether it is.
    let len = entry.len();
    let (mut plan, media_type) = plan_of(ctx, path, entry, len);
    let body = cached_body(ctx, &mut plan, reader, len);
    let mut origin_bytes = 0;
    if let Some(body) = &body {
        origin_bytes = if entry.cache.is_new() { u64::MAX } else { body.missing_bytes(entry) };
        body.first_byte(&ctx.worker.helpers, ctx.peer.client_net()).await?;
    }
    Ok(response(ctx, path, (entry, len), (plan, media_type), body, origin_bytes))
}

/// Returns whether the answer depends on the length of an object: a range is requested that is not
/// the whole object whatever its length is.
fn needs_len(ctx: &RequestContext<'_>, entry: &CacheEntry) -> bool {
    ctx.request.method == Method::Get
        && first_of_request(&ctx.request).is_some_and(|first| first != (0..u64::MAX))
        && {
            let current = validators(ctx, entry);
            let modified = current.modified.filter(|_| entry.has_strong_date());
            range_applies(&ctx.request, Validators { modified, ..current }, ctx.now)
        }
}

/// Returns the validators of an object. A date in the future is left out: only the origin itself
/// may replace it. A fetch takes time, so a date after that of the request may be in the past.
fn validators<'e>(ctx: &RequestContext<'_>, entry: &'e CacheEntry) -> Validators<'e> {
    let date = entry.field("last-modified").and_then(|it| parse_date(it.as_bytes()));
    Validators {
        etag: entry.field("etag").unwrap_or_default(),
        modified: date.filter(|it| *it <= ctx.now || *it <= SystemTime::now()),
        changed: None,
    }
}

/// Returns the plan for an object of this length, if it is known, and its media type.
fn plan_of<'e>(
    ctx: &RequestContext<'e>,
    path: &[u8],
    entry: &'e CacheEntry,
    len: Option<u64>,
) -> (ResponsePlan, &'e str) {
    let site = ctx.site();
    let by_name = || site.root.chosen_media_type(last_name(path));
    let chosen = site.path_fields.media_type(path).or_else(by_name);
    let media_type = chosen.or(entry.field("content-type")).unwrap_or(UNKNOWN_TYPE);
    let Validators { etag, modified, changed } = validators(ctx, entry);
    let facts = Representation {
        len: len.unwrap_or(0),
        etag,
        modified,
        changed,
        has_weak_date: !entry.has_strong_date(),
        media_type,
        coding: None,
        is_coded: entry.field("content-encoding").is_some(),
        varies: false,
        file_name: None,
        is_download: false,
    };
    let planned = match len {
        Some(_) => plan(&ctx.request, &facts, ctx.now),
        None => plan_unmet(&ctx.request, &facts, ctx.now)
            .unwrap_or_else(|| unknown_length(ctx, entry, media_type)),
    };
    (planned, media_type)
}

/// Returns the body of a plan, if it is one from the cache.
fn cached_body(
    ctx: &RequestContext<'_>,
    plan: &mut ResponsePlan,
    reader: Reader,
    len: Option<u64>,
) -> Option<CachedBody> {
    if matches!(plan.body, PlannedBody::Nothing | PlannedBody::Message(_)) {
        return None;
    }
    let content = std::mem::replace(&mut plan.body, PlannedBody::Nothing);
    let has_chunks = ctx.request.minor_version > 0;
    Some(CachedBody::new(reader, content, len, has_chunks))
}

/// Returns the response with an object of this length, if it is known, of whose body `origin_bytes`
/// come from the origin.
fn response(
    ctx: &RequestContext<'_>,
    path: &[u8],
    (entry, len): (&CacheEntry, Option<u64>),
    (mut plan, media_type): (ResponsePlan, &str),
    body: Option<CachedBody>,
    origin_bytes: u64,
) -> Response {
    let why_relayed = body.as_ref().and_then(CachedBody::why_relayed);
    let cache = why_relayed.map_or(entry.cache, |why| entry.cache.relayed(why.label()));
    let (mut custom, mut of_path) = (None, Vec::new());
    if matches!(plan.status, 200 | 206 | 304) {
        let site = ctx.site();
        custom = site.path_fields.push(path, &site.custom_fields, &mut of_path);
    }
    push_fields(ctx, (entry, &cache), &of_path, &mut plan);
    if matches!(plan.status, 200 | 206 | 304) && ctx.site().sandboxes && is_active(media_type) {
        push_field(&mut plan.fields, "Content-Security-Policy", b"sandbox");
    }
    let len = (len.is_some() || body.is_none()).then_some(plan.body_len);
    let body = match (body, plan.body) {
        (Some(body), _) => Body::Cached(Box::new(body)),
        (None, PlannedBody::Message(text)) => Body::Memory(text.into_bytes().into()),
        (None, _) => Body::Nothing,
    };
    let mut response = Response::new(plan.status, plan.fields, body, len);
    response.date = Some(entry.freshness.date());
    response.custom = custom;
    response.cache = Some(Box::new(facts(&cache, origin_bytes)));
    response
}

/// Returns the plan for an object whose length is unknown: the last chunk marks its end, or the end
/// of an HTTP/1.0 connection.
fn unknown_length(ctx: &RequestContext<'_>, entry: &CacheEntry, media_type: &str) -> ResponsePlan {
    let mut fields = Vec::with_capacity(256);
    push_field(&mut fields, "Content-Type", media_type.as_bytes());
    let is_head = ctx.request.method == Method::Head;
    if ctx.request.minor_version > 0 && !is_head {
        push_field(&mut fields, "Transfer-Encoding", b"chunked");
    }
    let Validators { etag, modified, .. } = validators(ctx, entry);
    if !etag.is_empty() {
        push_field(&mut fields, "ETag", etag.as_bytes());
    }
    if let Some(date) = entry.field("last-modified").filter(|_| modified.is_some()) {
        push_field(&mut fields, "Last-Modified", date.as_bytes());
    }
    let body = if is_head { PlannedBody::Nothing } else { PlannedBody::Whole };
    ResponsePlan { status: 200, fields, body, body_len: 0 }
}

/// Adds the fields of the origin's response, those that the operator has set for the path, and the
/// ones that describe what the cache did.
fn push_fields(
    ctx: &RequestContext<'_>,
    (entry, cache): (&CacheEntry, &CacheStatus),
    of_path: &[u8],
    plan: &mut ResponsePlan,
) {
    let fields = &mut plan.fields;
    if matches!(plan.status, 200 | 206 | 304) {
        let own = ctx.settings().cache_control.as_deref();
        let is_controlled_by_path = has_field(of_path, "cache-control");
        let is_controlled = own.is_some() || is_controlled_by_path;
        let is_of_body = matches!(plan.status, 200 | 206);
        let replayed = entry.forwarded_fields(plan.status == 206).filter(|(name, _)| {
            let is_known =
                matches!(*name, "cache-control" | "content-location" | "expires" | "vary");
            let is_replaced = is_controlled && matches!(*name, "cache-control" | "expires");
            (is_of_body || is_known) && !is_replaced && !has_field(of_path, name)
        });
        push_replayed(ctx, fields, replayed);
        if let Some(value) = own.filter(|_| !is_controlled_by_path) {
            push_field(fields, "Cache-Control", value.as_bytes());
        }
        fields.extend_from_slice(of_path);
        push_number_field(fields, "Age", entry.freshness.age(ctx.now).as_secs());
    }
    push_field(fields, "Via", b"1.1 underpass");
    push_field(fields, "Cache-Status", cache.to_string().as_bytes());
}

/// Adds fields of the origin, unless the operator has configured others of their names.
fn push_replayed<'f>(
    ctx: &RequestContext<'_>,
    out: &mut Vec<u8>,
    fields: impl Iterator<Item = (&'f str, &'f str)>,
) {
    for (name, value) in fields.filter(|(name, _)| !has_field(&ctx.site().custom_fields, name)) {
        push_field(out, &title(name), value.as_bytes());
    }
}

/// Passes on the origin's response if that is not an object. It has none of the fields that the
/// operator has set for files.
fn relay_response(
    ctx: &RequestContext<'_>,
    received: &BufferedResponse,
    cache: &CacheStatus,
) -> Response {
    let Some(ResponseContent { fields: known, body: text }) = &received.content else {
        return refused(ctx, received.status, "", received.retry_after, cache);
    };
    let mut fields = Vec::with_capacity(512);
    let is_local = |name: &str, value: &str| name == "location" && value.starts_with('/');
    let lines = known.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    push_replayed(ctx, &mut fields, lines.clone().filter(|(name, value)| !is_local(name, value)));
    if let Some((_, path)) = lines.clone().find(|(name, value)| is_local(name, value)) {
        let path = encode_path(ctx.settings().path_prefix.as_bytes()) + path;
        push_field(&mut fields, "Location", path.as_bytes());
    }
    let media_type = lines.clone().find(|(name, _)| *name == "content-type");
    if ctx.site().sandboxes && media_type.is_some_and(|(_, it)| is_active(it)) {
        push_field(&mut fields, "Content-Security-Policy", b"sandbox");
    }
    // A 205 has no content either, but without a length it would last until the connection ends.
    let text: &[u8] = if received.status == 205 { b"" } else { text };
    let has_body = received.status != 204;
    if has_body {
        push_number_field(&mut fields, "Content-Length", text.len() as u64);
    }
    push_number_field(&mut fields, "Age", received.freshness.age(ctx.now).as_secs());
    let is_sent = has_body && ctx.request.method != Method::Head;
    let body = if is_sent { Body::Memory(text.to_vec().into()) } else { Body::Nothing };
    let mut response = Response::new(received.status, fields, body, Some(text.len() as u64));
    response.date = Some(received.freshness.date());
    add_cache_fields(response, cache)
}

/// Returns the name of a field in its usual spelling.
fn title(name: &str) -> String {
    let mut is_first = true;
    let letters = name.chars().map(|letter| {
        let letter = if is_first { letter.to_ascii_uppercase() } else { letter };
        is_first = letter == '-';
        letter
    });
    letters.collect()
}

/// Answers with a failure.
fn failed(
    ctx: &RequestContext<'_>,
    error: CacheError,
    retry_after: Option<Duration>,
    cache: &CacheStatus,
) -> Response {
    let kind = error.kind();
    let cache = CacheStatus { detail: Some(kind.label()), ..*cache };
    refused(ctx, kind.status(), &kind.to_string(), wait_after(&error, retry_after), &cache)
}

/// Answers with a status and an explanation.
pub(crate) fn refused(
    ctx: &RequestContext<'_>,
    status: u16,
    detail: &str,
    retry_after: Option<Duration>,
    cache: &CacheStatus,
) -> Response {
    add_cache_fields(ctx.error_until(status, detail, retry_after), cache)
}

/// Adds the fields about the cache to a response without an object.
pub(crate) fn add_cache_fields(mut response: Response, cache: &CacheStatus) -> Response {
    response.add_field("Via", "1.1 underpass");
    response.add_field("Cache-Status", &cache.to_string());
    response.cache = Some(Box::new(facts(cache, 0)));
    response
}

/// Returns what the log says about a response.
fn facts(cache: &CacheStatus, origin_bytes: u64) -> CacheFacts {
    CacheFacts { status: *cache, origin_bytes, waited: Duration::ZERO }
}

/// Removes an object from the cache, which needs the right to write.
async fn purge(
    ctx: &RequestContext<'_>,
    cache: &Cache,
    target: &Target<'_>,
    key: CacheKey,
) -> Response {
    if !operate::may_change(ctx, &target.path) {
        return access::denied(ctx);
    }
    let cache = cache.clone();
    let purge = move || {
        let was_folder = cache.forget_folder(&key);
        cache.purge(&key).map(|was_file| was_folder || was_file)
    };
    let purged = ctx.worker.helpers.run(ctx.peer.client_net(), purge).await;
    let (status, text) = match purged {
        Ok(Ok(true)) => (200, "removed from the cache\n"),
        Ok(Ok(false)) => (404, "not in the cache\n"),
        _ => (500, "removing it from the disk failed: it may come back after a restart\n"),
    };
    Response::memory(status, PLAIN_TEXT, text.as_bytes(), false)
}

/// The maximum number of times that a request starts over because the object has changed.
const MAX_ATTEMPTS: u32 = 4;

/// The maximum length of the list of caches that a request has passed.
const MAX_CDN_LOOP: usize = 1 << 10;

/// An offset in bytes that no file reaches.
const MAX_LEN: u64 = 1 << 63;

/// The number of bytes that are requested first of a range without an end.
const FIRST_PART: u64 = 1 << 20;

/// The media type of objects without one.
const UNKNOWN_TYPE: &str = "application/octet-stream";
