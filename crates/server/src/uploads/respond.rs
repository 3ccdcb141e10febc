//! Answers requests for uploads, each on its own thread.

use std::borrow::Cow;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::oneshot;

use crate::changes::dav::tags::TagConditions;
use crate::connection::peer::Activity;
use crate::observe::access_entry;
use crate::routing::context::RequestContext;
use crate::routing::response::Response;
use crate::server::shared::ServerState;
use crate::server::sites::published::Sites;
use crate::uploads::parts::stale_uploads;
use crate::uploads::receive::{ReceiveOutcome, UploadJob};
use crate::uploads::received::{BodyState, ReceivedUpload};
use crate::uploads::refusal;
use crate::uploads::request::UploadRequest;
use crate::uploads::state::slots::SlotGuard;
use underpass_observe::transfers::TransferFacts;
use underpass_protocol::request::OwnedRequest;
use underpass_protocol::request::target::Target;

/// Maintains the uploads once a second: ends those that are too slow, and has parts removed that
/// have waited too long.
pub(crate) fn tick(shared: &ServerState, sites: &Sites, now: Instant) {
    shared.uploads.slots.end_slow(shared.settings.timeout, now);
    sites.all.iter().for_each(stale_uploads::expire);
}

/// Answers a request for an upload: receives it on a thread that may wait for its client and for
/// the disk. The caller must have checked the right to write.
pub(crate) async fn respond(
    ctx: &RequestContext<'_>,
    target: &Target<'_>,
    tags: TagConditions,
) -> Response {
    let upload = UploadRequest {
        request: OwnedRequest::new(&ctx.request),
        path: target.path.to_vec(),
        is_folder: target.is_folder,
        id: target.query.get("upload").map(Cow::into_owned),
        owner: ctx.owner(),
        tags,
        explains: ctx.explains,
    };
    ctx.peer.set_activity(Activity::Receiving, ctx.started);
    let refused = |response: Response, body| {
        ctx.received.set(Some(Box::new(ReceivedUpload::nothing(body))));
        response
    };
    let socket = match ctx.peer.socket.as_fd().try_clone_to_owned() {
        Ok(socket) => Arc::new(socket),
        Err(_) => return refused(refusal::too_many(), BodyState::Untouched),
    };
    let (slots, min_rate) = (&ctx.shared().uploads.slots, ctx.settings().changes.min_rate);
    let Some(guard) = SlotGuard::acquire(slots, &upload.owner, socket, min_rate) else {
        return refused(refusal::too_many(), BodyState::Untouched);
    };
    let job = UploadJob {
        upload,
        site: Arc::clone(ctx.site()),
        worker: ctx.worker.index,
        slot: Arc::clone(&guard.slot),
        session: ctx.peer.session().cloned(),
        ahead: ctx.ahead.take(),
        facts: TransferFacts { status: 100, ..access_entry::request_facts(ctx) },
    };
    let (sender, outcome) = oneshot::channel();
    let work = move || {
        let outcome = job.run();
        drop(guard);
        // The connection may be gone already.
        let _ = sender.send(outcome);
    };
    // The bytes that were read ahead are lost with the closure, and the connection with them.
    if !ctx.shared().uploads.threads.run(work) {
        return refused(refusal::too_many(), BodyState::Incomplete);
    }
    match outcome.await {
        Ok(ReceiveOutcome { response, ahead, received }) => {
            ctx.ahead.set(ahead);
            ctx.received.set(Some(Box::new(received)));
            response
        }
        Err(_) => refused(ctx.error(500, ""), BodyState::Incomplete),
    }
}
