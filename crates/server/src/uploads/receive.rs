//! Runs one upload on its thread, from the request to the response.

use std::sync::Arc;

use crate::routing::response::Response;
use crate::server::shared::Shared;
use crate::uploads::methods::{patch, put, range, resumable};
use crate::uploads::received::Received;
use crate::uploads::reception::ActiveUpload;
use crate::uploads::refusal::{self, Refusal};
use crate::uploads::request::UploadRequest;
use crate::uploads::state::slots::Slot;
use underpass_observe::transfers::TransferFacts;
use underpass_protocol::request::Method;
use underpass_protocol::upload::{ContentRange, UploadFields};
use underpass_transport::incoming::Incoming;
use underpass_transport::tls::Session;

/// The result of an upload.
#[derive(Debug)]
pub(crate) struct UploadOutcome {
    pub(crate) response: Response,
    /// The bytes that were read from the connection and not used.
    pub(crate) ahead: Vec<u8>,
    pub(crate) received: Received,
}

/// The input of an upload's thread.
#[derive(Debug)]
pub(crate) struct UploadJob {
    pub(crate) upload: UploadRequest,
    pub(crate) shared: Arc<Shared>,
    /// The number of the worker whose counters it uses.
    pub(crate) worker: usize,
    pub(crate) slot: Arc<Slot>,
    /// The TLS session of the connection.
    pub(crate) session: Option<Arc<Session>>,
    pub(crate) ahead: Vec<u8>,
    pub(crate) facts: TransferFacts,
}

impl UploadJob {
    /// Receives the upload and answers it.
    pub(crate) fn run(self) -> UploadOutcome {
        let Self { upload, shared, worker, slot, session, ahead, facts } = self;
        let mut storage = Vec::new();
        let request = upload.request.request(&mut storage);
        let timeout = Some(shared.settings.timeout);
        underpass_transport::hold_little_on_loopback(&slot.connection);
        let mut incoming = Incoming::new(Arc::clone(&slot.connection), ahead, timeout, None);
        if let Some(session) = session {
            incoming.set_session(session);
        }
        let mut reception = ActiveUpload::new(&shared, &upload, request, &slot, incoming, facts);
        let mut response = match answer(&mut reception) {
            Ok(response) => response,
            Err(refusal) => refusal.response(&reception.request),
        };
        if upload.explains {
            let timing = format!("path;desc=\"{}\"", refusal::way(reception.report()));
            response.add_field("Server-Timing", &timing);
        }
        shared.metrics.worker(worker).received(reception.report());
        let (ahead, received) = reception.end();
        UploadOutcome { response, ahead, received }
    }
}

/// Answers the request by its method and the fields about its body.
fn answer(reception: &mut ActiveUpload<'_>) -> Result<Response, Refusal> {
    reception.check_representation()?;
    reception.offer()?;
    reception.check_size(reception.expected().unwrap_or(0))?;
    let upload = reception.upload;
    if let Some(id) = &upload.id {
        return resumable::go_on(reception, id);
    }
    match reception.request.method {
        Method::Head => range::respond(reception),
        Method::Patch => patch::patch(reception),
        _ => answer_put(reception),
    }
}

fn answer_put(reception: &mut ActiveUpload<'_>) -> Result<Response, Refusal> {
    let range = ContentRange::of(&reception.request)
        .map_err(|fault| Refusal::new(400, fault.to_string()))?;
    match (UploadFields::of(&reception.request).complete, range) {
        (None, None) => put::put(reception),
        (None, Some(range)) => range::put(reception, range),
        (Some(is_complete), None) => resumable::create(reception, is_complete),
        (Some(_), Some(_)) => {
            Err(Refusal::new(400, "a Content-Range and Upload-Complete exclude each other"))
        }
    }
}
