//! Prevents clients from appending one version of a file to the beginning of another.

use std::net::IpAddr;
use std::time::Instant;

use crate::connection::Link;
use crate::routing::context::RequestContext;
use underpass_protocol::response::plan::{
    PlannedBody, Representation, ResponsePlan, plan, plan_conflict,
};
use underpass_protocol::response::resumption::ResumableDownload;

/// Returns the plan for a file or archive, and the download to remember if it is interrupted.
pub(crate) fn plan_resumable(
    ctx: &RequestContext<'_>,
    facts: &Representation,
) -> (ResponsePlan, Option<ResumableDownload>) {
    let request = &ctx.request;
    if facts.len <= MAX_UNTRACKED && !request.has("range") {
        return (plan(request, facts, ctx.now), None);
    }
    let resumptions = &ctx.shared().resumptions;
    let (client, site) = (client(ctx), ctx.site().scope);
    let download = resumptions.download(client, site, request, facts.etag, facts.len);
    let would_mix = download.is_some_and(|it| resumptions.would_mix(&it, ctx.started));
    let planned = if would_mix { plan_conflict } else { plan };
    let plan = planned(request, facts, ctx.now);
    let is_sent = matches!(plan.body, PlannedBody::Whole | PlannedBody::Range(_));
    (plan, download.filter(|download| is_sent && download.is_to_end()))
}

/// Returns the download to remember for a whole file that is sent unmodified and from its
/// beginning.
pub(crate) fn download(
    ctx: &RequestContext<'_>,
    len: u64,
    etag: &str,
) -> Option<ResumableDownload> {
    if len <= MAX_UNTRACKED {
        return None;
    }
    ctx.shared().resumptions.download(client(ctx), ctx.site().scope, &ctx.request, etag, len)
}

/// Returns the address of the client.
fn client(ctx: &RequestContext<'_>) -> Option<IpAddr> {
    ctx.peer.address().map(|address| address.ip())
}

/// Records that the next response begins, with a head of this length: the client that requested it
/// has received the previous one.
pub(crate) fn begin(
    Link { worker, peer }: Link<'_>,
    download: Option<ResumableDownload>,
    head_len: usize,
) {
    let body_from = peer.written.get() + head_len as u64;
    if let Some((before, _)) = peer.download.replace(download.map(|one| (one, body_from))) {
        worker.shared.resumptions.completed(&before);
    }
}

/// Records that the connection has ended, or that its response was interrupted.
pub(crate) fn end(Link { worker, peer }: Link<'_>, is_whole: bool) {
    let resumptions = &worker.shared.resumptions;
    match peer.download.take() {
        Some((download, _)) if is_whole => resumptions.completed(&download),
        Some((download, body_from)) => {
            let arrived = peer.acknowledged().saturating_sub(body_from);
            resumptions.broken_off(&download, arrived, Instant::now());
        }
        None => {}
    }
}

/// The size up to which a whole file is sent in a call or two, and is hardly ever interrupted.
const MAX_UNTRACKED: u64 = 16 << 10;
