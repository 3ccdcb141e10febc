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
use underpass_engine::{PipePool, Report};

use super::answer::Asking;
use super::peer::Peer;
use super::response::{Body, Response};
use super::shared::Shared;
use crate::target::Target;
use crate::tls::Session;
use crate::transfers::TransferFacts;
use crate::upload::Owner;
use holds::Holds;
use slots::{Slot, SlotGuard, Slots};
use waiting::Waiting;
use written::Written;

pub(super) use answer::limits;
pub(super) use leftovers::watch as watch_leftovers;
pub(super) use receive::Broken;
pub(super) use room::has_room;

/// What is to be received before it can be answered.
#[derive(Debug)]
pub(super) struct Upload {
    /// The head of the request, as it came.
    head: Vec<u8>,
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

/// What came of it.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) response: Response,
    /// How far the body was read.
    pub(super) body: BodyState,
    /// What was read of the connection and not used.
    pub(super) ahead: Vec<u8>,
    /// How the bytes were moved.
    pub(super) report: Report,
    /// Bytes that were written to the connection before the answer.
    pub(super) interim: u64,
    /// Why the body is not whole, if it is not.
    pub(super) broken: Option<Broken>,
}

/// How far the body of a request was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyState {
    /// Not at all.
    Untouched,
    /// To its end: the next request may follow.
    Read,
    /// Somewhere between.
    Broken,
}

/// What the uploads of all workers have in common.
#[derive(Debug)]
pub(super) struct Uploads {
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
    pub(super) fn new() -> Self {
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
pub(super) fn tick(shared: &Arc<Shared>, now: Instant) {
    shared.uploads.slots.end_slow(&shared.settings, now);
    if shared.uploads.waiting.is_due(shared.settings.changes.expiry) {
        let shared = Arc::clone(shared);
        tokio::task::spawn_blocking(move || leftovers::expire(&shared));
    }
}

impl Upload {
    /// What is to be received for a request to `target`, as an answer that is still to come.
    pub(super) fn begin(asking: &Asking<'_, '_, '_>, target: &Target<'_>) -> Response {
        let upload = Self {
            head: asking.head.to_vec(),
            path: target.path.clone(),
            is_folder: target.is_folder,
            id: target.query.get("upload").map(Cow::into_owned),
            owner: Owner::new(
                asking.user.as_ref(),
                asking.peer.address.map(|address| address.ip()),
            ),
            explains: asking.explains,
        };
        let mut response = Response::empty(204);
        response.body = Body::Upload(Box::new(upload));
        response
    }

    /// Receives it on a thread of its own, from a connection of which `ahead` was read already;
    /// `None` if that thread is no more.
    pub(super) async fn receive(
        self,
        shared: &Arc<Shared>,
        worker: usize,
        peer: &Peer,
        ahead: Vec<u8>,
        facts: TransferFacts,
    ) -> Option<Outcome> {
        let socket = match peer.socket.as_fd().try_clone_to_owned() {
            Ok(socket) => Arc::new(socket),
            Err(error) => return Some(Outcome::untouched(answer::failed(&error), ahead)),
        };
        let Some(guard) = SlotGuard::take(shared, &self.owner, socket) else {
            return Some(Outcome::untouched(answer::too_many(), ahead));
        };
        let (told, outcome) = oneshot::channel();
        let (shared, session) = (Arc::clone(shared), peer.session().cloned());
        let slot = Arc::clone(&guard.slot);
        let job = Job { upload: self, shared, worker, slot, session, ahead, facts };
        let work = move || {
            let outcome = job.run();
            drop(guard);
            // The connection may be gone already.
            let _ = told.send(outcome);
        };
        let thread = thread::Builder::new().name("upload".to_owned()).stack_size(STACK);
        match thread.spawn(work) {
            Ok(_) => outcome.await.ok(),
            // What was read ahead is lost with the closure, and the connection with it.
            Err(error) => Some(Outcome {
                body: BodyState::Broken,
                ..Outcome::untouched(answer::failed(&error), Vec::new())
            }),
        }
    }
}

impl Outcome {
    /// An answer that needs nothing of the body.
    fn untouched(response: Response, ahead: Vec<u8>) -> Self {
        Self {
            response,
            body: BodyState::Untouched,
            ahead,
            report: Report::default(),
            interim: 0,
            broken: None,
        }
    }
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
