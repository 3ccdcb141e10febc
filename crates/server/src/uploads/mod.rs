//! Files that clients send: checked before their first byte is asked for, moved from the socket
//! into an unnamed file by the engine, and given their name in one moment once they are whole.
//!
//! Each is received by a thread of its own, which may wait for its client and for the disk; the
//! worker, which has all others, is told when it is over.

mod answer;
mod holds;
mod interim;
mod leftovers;
mod part;
mod patch;
mod place;
mod put;
mod range;
mod receive;
mod received;
mod resumable;
mod room;
mod slots;
mod verify;
mod waiting;
mod written;

use std::borrow::Cow;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use tokio::sync::oneshot;
use underpass_engine::PipePool;

use crate::connection::peer::Doing;
use crate::observe::access_entry;
use crate::observe::transfers::TransferFacts;
use crate::request::OwnedRequest;
use crate::routing::context::RequestContext;
use crate::routing::response::Response;
use crate::server::shared::Shared;
use crate::target::Target;
use crate::tls::Session;
use crate::upload::Owner;
use holds::Holds;
use slots::{Slot, SlotGuard, Slots};
use waiting::Waiting;
use written::Written;

pub(crate) use answer::limits;
pub(crate) use leftovers::watch as watch_leftovers;
pub(crate) use received::{BodyState, Received};
pub(crate) use room::has_room;

/// A request for an upload.
#[derive(Debug)]
struct Upload {
    request: OwnedRequest,
    /// The path that is meant, see [`Target::path`].
    path: Vec<u8>,
    /// Whether the target ended in a slash.
    is_folder: bool,
    /// The upload that the request goes on with, as its address says it.
    id: Option<Vec<u8>>,
    /// Who sends it.
    owner: Owner,
    /// Whether the answer is to say which way the bytes took.
    explains: bool,
}

/// What the uploads of all workers have in common.
#[derive(Debug)]
pub(crate) struct Uploads {
    slots: Slots,
    holds: Holds,
    /// Parts that wait for their rest.
    waiting: Waiting,
    /// Held by whoever reserves space.
    reserving: Mutex<()>,
    pipes: PipePool,
    /// What of parts is believed.
    written: Written,
}

impl Uploads {
    /// Nothing is under way yet. To be called before the server is confined.
    pub(crate) fn new() -> Self {
        Self {
            slots: Slots::default(),
            holds: Holds::default(),
            waiting: Waiting::default(),
            reserving: Mutex::default(),
            pipes: PipePool::default(),
            written: Written::new(),
        }
    }
}

/// Looks after uploads as time passes, once a second: ends those that are too slow, and has parts
/// removed that have waited long enough.
pub(crate) fn tick(shared: &Arc<Shared>, now: Instant) {
    shared.uploads.slots.end_slow(&shared.settings, now);
    if shared.uploads.waiting.is_due(shared.settings.changes.expiry) {
        let shared = Arc::clone(shared);
        tokio::task::spawn_blocking(move || leftovers::expire(&shared));
    }
}

/// Answers a request for an upload: receives it on a thread of its own, which may wait for its client
/// and for the disk. The caller must have checked the right to write.
pub(crate) async fn respond(ctx: &RequestContext<'_>, target: &Target<'_>) -> Response {
    let upload = Upload {
        request: OwnedRequest::new(&ctx.request),
        path: target.path.clone(),
        is_folder: target.is_folder,
        id: target.query.get("upload").map(Cow::into_owned),
        owner: Owner::new(ctx.user.as_ref(), ctx.peer.address.map(|address| address.ip())),
        explains: ctx.explains,
    };
    ctx.peer.begins(Doing::Receiving, ctx.started);
    let refused = |response: Response, body| {
        ctx.received.set(Some(Received::nothing(body)));
        response
    };
    let socket = match ctx.peer.socket.as_fd().try_clone_to_owned() {
        Ok(socket) => Arc::new(socket),
        Err(_) => return refused(answer::too_many(), BodyState::Untouched),
    };
    let Some(guard) = SlotGuard::take(ctx.shared(), &upload.owner, socket) else {
        return refused(answer::too_many(), BodyState::Untouched);
    };
    let job = Job {
        upload,
        shared: Arc::clone(ctx.shared()),
        worker: ctx.worker.index,
        slot: Arc::clone(&guard.slot),
        session: ctx.peer.session().cloned(),
        ahead: ctx.ahead.take(),
        facts: TransferFacts { status: 100, ..access_entry::request_facts(ctx) },
    };
    let (told, outcome) = oneshot::channel();
    let work = move || {
        let outcome = job.run();
        drop(guard);
        // The connection may be gone already.
        let _ = told.send(outcome);
    };
    let thread = thread::Builder::new().name("upload".to_owned()).stack_size(STACK);
    // What was read ahead is lost with the closure, and the connection with it.
    if thread.spawn(work).is_err() {
        return refused(answer::too_many(), BodyState::Broken);
    }
    match outcome.await {
        Ok(Outcome { response, ahead, received }) => {
            ctx.ahead.set(ahead);
            ctx.received.set(Some(received));
            response
        }
        Err(_) => refused(ctx.error(500, ""), BodyState::Broken),
    }
}

/// What came of an upload.
#[derive(Debug)]
struct Outcome {
    response: Response,
    /// What was read of the connection and not used.
    ahead: Vec<u8>,
    received: Received,
}

/// What the thread of one upload has.
#[derive(Debug)]
struct Job {
    upload: Upload,
    shared: Arc<Shared>,
    /// The number of the worker, whose counters it uses.
    worker: usize,
    slot: Arc<Slot>,
    /// The TLS over it.
    session: Option<Arc<Session>>,
    ahead: Vec<u8>,
    facts: TransferFacts,
}

/// Bytes for the stack of a thread that receives.
const STACK: usize = 256 << 10;
