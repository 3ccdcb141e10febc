//! Runs one upload on its thread, from the request to the response.

use std::sync::Arc;

use crate::files::links::{self, LinkRefusal};
use crate::routing::response::Response;
use crate::server::sites::site::Site;
use crate::uploads::active_upload::ActiveUpload;
use crate::uploads::methods::{patch, put, range, resumable};
use crate::uploads::received::ReceivedUpload;
use crate::uploads::refusal::{self, Result, UploadRefusal};
use crate::uploads::request::UploadRequest;
use crate::uploads::state::slots::UploadSlot;
use underpass_observe::transfers::TransferFacts;
use underpass_protocol::request::Method;
use underpass_protocol::upload::{ContentRange, UploadFields};
use underpass_transport::incoming::Incoming;
use underpass_transport::tls::Session;

/// The result of an upload.
#[derive(Debug)]
pub(crate) struct ReceiveOutcome {
    pub(crate) response: Response,
    /// The bytes that were read from the connection and not used.
    pub(crate) ahead: Vec<u8>,
    pub(crate) received: ReceivedUpload,
}

/// The input of an upload's thread.
#[derive(Debug)]
pub(crate) struct UploadJob {
    pub(crate) upload: UploadRequest,
    pub(crate) site: Arc<Site>,
    /// The number of the worker whose counters it uses.
    pub(crate) worker: usize,
    pub(crate) slot: Arc<UploadSlot>,
    /// The TLS session of the connection.
    pub(crate) session: Option<Arc<Session>>,
    pub(crate) ahead: Vec<u8>,
    pub(crate) facts: TransferFacts,
}

impl UploadJob {
    /// Receives the upload and answers it.
    pub(crate) fn run(self) -> ReceiveOutcome {
        let Self { upload: mut params, site, worker, slot, session, ahead, facts } = self;
        let mut storage = Vec::new();
        let request = params.request.request(&mut storage);
        // DELETE removes links themselves, not their targets, but cancels an upload to the target.
        let is_followed = request.method != Method::Delete || params.id.is_some();
        let user = params.owner.user();
        let followed = links::follow(&site, user, request.method, &params.path, is_followed)
            .map(|resolved| params.path = resolved.path)
            .map_err(|refusal| match refusal {
                LinkRefusal::Refused(status, detail) => UploadRefusal::new(status, detail),
                LinkRefusal::Unknown(errno) => UploadRefusal::from(errno),
            });
        let timeout = Some(site.shared.settings.timeout);
        let mut incoming = Incoming::new(Arc::clone(&slot.connection), ahead, timeout, None);
        if let Some(session) = session {
            incoming.set_session(session);
        }
        let mut upload = ActiveUpload::new(&site, &params, request, &slot, incoming, facts);
        if !upload.is_small() {
            underpass_transport::limit_loopback_buffer(&slot.connection);
        }
        let mut response = match followed.and_then(|()| answer(&mut upload)) {
            Ok(response) => response,
            Err(refusal) => refusal.response(&upload.request, &site.settings.changes),
        };
        if params.explains {
            let timing = format!("path;desc=\"{}\"", refusal::mechanism_names(upload.report()));
            response.add_field("Server-Timing", &timing);
        }
        site.shared.metrics.worker(worker).received(upload.report());
        let (ahead, received) = upload.end();
        ReceiveOutcome { response, ahead, received }
    }
}

/// Answers the request by its method and the fields about its body.
fn answer(upload: &mut ActiveUpload<'_>) -> Result<Response> {
    upload.check_has_length()?;
    upload.check_representation()?;
    upload.offer(true)?;
    upload.check_size(upload.expected().unwrap_or(0))?;

    if let Some(id) = &upload.params.id {
        return resumable::resume(upload, id);
    }
    match upload.request.method {
        Method::Head => range::respond(upload),
        Method::Patch => patch::patch(upload),
        _ => answer_put(upload),
    }
}

fn answer_put(upload: &mut ActiveUpload<'_>) -> Result<Response> {
    if upload.request.single("upload-incomplete") == Some(b"?1") {
        let detail = "Upload-Incomplete is of an older draft: send Upload-Complete";
        return Err(UploadRefusal::new(400, detail));
    }
    let range = ContentRange::of(&upload.request)
        .map_err(|fault| UploadRefusal::new(400, fault.to_string()))?;
    match (UploadFields::of(&upload.request).complete, range) {
        (None, None) => put::put(upload),
        (None, Some(range)) => range::put(upload, range),
        (Some(is_complete), None) => resumable::create(upload, is_complete),
        (Some(_), Some(_)) => {
            Err(UploadRefusal::new(400, "Content-Range and Upload-Complete cannot be combined"))
        }
    }
}
