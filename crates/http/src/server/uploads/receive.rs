//! One upload on its thread: what is asked, what was read, what is answered.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::time::SystemTime;

use underpass_engine::{Mechanism, Policy, Report};

use super::super::response::Response;
use super::super::shared::Shared;
pub(in super::super) use super::answer::Broken;
use super::answer::{self, Refusal};
use super::place::{Place, check};
use super::{BodyState, Job, Outcome, Upload, interim, put};
use crate::incoming::{Extent, Incoming, Manner};
use crate::request::{self, BodyLength, Method, Request};
use crate::transfers::TransferFacts;

/// One upload on its thread.
#[derive(Debug)]
pub(super) struct Reception<'a> {
    pub(super) shared: &'a Shared,
    pub(super) upload: &'a Upload,
    pub(super) request: Request<'a, 'a>,
    worker: usize,
    incoming: Incoming<'a, OwnedFd>,
    /// What comes; nothing if there is no body.
    extent: Option<Extent>,
    facts: TransferFacts,
    state: BodyState,
    report: Report,
    interim: u64,
    broken: Option<Broken>,
}

impl Job {
    /// Receives it and answers.
    pub(super) fn run(self) -> Outcome {
        let Self { upload, shared, worker, socket, ahead, facts } = self;
        let mut storage = [httparse::EMPTY_HEADER; super::super::connection::MOST_FIELDS];
        // The head was understood before.
        let Ok(Some((request, _))) = request::parse(&upload.head, &mut storage) else {
            return Outcome::untouched(Response::error(400, "", false, false), ahead);
        };
        let extent = match request.body() {
            Ok(BodyLength::Length(len)) => Some(Extent::Length(len)),
            Ok(BodyLength::Chunked) => Some(Extent::Chunked),
            Ok(BodyLength::None) | Err(_) => None,
        };
        let timeout = Some(shared.settings.timeout);
        let mut reception = Reception {
            shared: &shared,
            upload: &upload,
            request,
            worker,
            incoming: Incoming::new(socket, ahead, timeout, None),
            extent,
            facts,
            state: if extent.is_some() { BodyState::Untouched } else { BodyState::Read },
            report: Report::default(),
            interim: 0,
            broken: None,
        };
        let response = match reception.answer() {
            Ok(response) => response,
            Err(refusal) => refusal.response(&reception.request),
        };
        reception.end(response)
    }
}

impl<'a> Reception<'a> {
    fn answer(&mut self) -> Result<Response, Refusal> {
        self.check_representation()?;
        if let (Some(len), Some(limit)) = (self.expected(), self.shared.settings.changes.limit)
            && len > limit
        {
            return Err(Refusal::too_long(Some(limit)));
        }
        match self.request.method {
            Method::Put => put::put(self),
            _ => Err(Refusal::new(501, "")),
        }
    }

    /// What is sent is stored as it is: nothing that would have to be undone first.
    fn check_representation(&self) -> Result<(), Refusal> {
        let codings = self
            .request
            .fields("content-encoding")
            .flat_map(|value| value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii));
        if codings.into_iter().any(|coding| !coding.eq_ignore_ascii_case(b"identity")) {
            // RFC 9110 15.5.16, with what would do instead (12.5.3).
            let detail = "files are stored as they are sent: send it without a Content-Encoding";
            return Err(Refusal::new(415, detail).with("Accept-Encoding", "identity"));
        }
        Ok(())
    }

    /// How many bytes the body has, if that is known.
    pub(super) fn expected(&self) -> Option<u64> {
        match self.extent {
            None => Some(0),
            Some(Extent::Length(len)) => Some(len),
            Some(_) => None,
        }
    }

    /// Where the file is to be, if the request may change what is there.
    pub(super) fn place(&self) -> Result<Place, Refusal> {
        let (root, changes) = (&self.shared.root, &self.shared.settings.changes);
        let place = Place::find(root, self.upload, changes)?;
        check(&self.request, place.present.as_ref())?;
        Ok(place)
    }

    /// Tells a client that waits for it that it may send its body (RFC 9110 10.1.1).
    pub(super) fn invite(&mut self) -> Result<(), Refusal> {
        let waits = self.request.expects_continue() && self.extent.is_some();
        if waits && self.incoming.is_ahead_empty() {
            self.say(interim::CONTINUE)?;
        }
        Ok(())
    }

    /// Says something before the answer.
    pub(super) fn say(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        let timeout = self.shared.settings.timeout;
        self.interim += bytes.len() as u64;
        interim::write(self.incoming.stream(), bytes, timeout).map_err(|error| {
            self.state = BodyState::Broken;
            let (broken, refusal) = Broken::of(&error.into(), None);
            self.broken = Some(broken);
            refusal
        })
    }

    /// Moves the body into `file` from `at` on, at the most `limit` bytes; how many there were.
    pub(super) fn body(
        &mut self,
        file: &File,
        at: u64,
        limit: Option<u64>,
    ) -> Result<u64, Refusal> {
        let Some(extent) = self.extent else { return Ok(0) };
        let settings = &self.shared.settings;
        let manner = Manner {
            policy: policy(settings.policy),
            step: settings.step,
            pipes: Some(&self.shared.uploads.pipes),
            limit,
            ..Manner::default()
        };
        let handle = self.shared.transfers.register(self.facts.clone());
        let by = match manner.policy {
            Policy::Require(Mechanism::ReadWrite) => Mechanism::ReadWrite,
            _ => Mechanism::Splice,
        };
        let mut tell =
            |progress: &underpass_engine::Progress| handle.progress(progress.bytes, Some(by));
        let received = self.incoming.body(extent, file, at, &manner, &mut tell);
        self.report.add(&received.report);
        match received.outcome {
            Ok(()) => {
                self.state = BodyState::Read;
                Ok(received.report.bytes())
            }
            Err(error) => {
                self.state = BodyState::Broken;
                let (broken, refusal) = Broken::of(&error, limit);
                self.broken = Some(broken);
                Err(refusal)
            }
        }
    }

    /// The time now, for dates.
    pub(super) fn now(&self) -> SystemTime {
        SystemTime::now()
    }

    fn end(self, mut response: Response) -> Outcome {
        if self.upload.explains {
            let timing = format!("path;desc=\"{}\"", answer::way(&self.report));
            response.add_field("Server-Timing", &timing);
        }
        let metrics = self.shared.metrics.worker(self.worker);
        metrics.received(&self.report);
        Outcome {
            response,
            body: self.state,
            ahead: self.incoming.into_ahead(),
            report: self.report,
            interim: self.interim,
            broken: self.broken,
        }
    }
}

/// What the operator wishes for, as far as it can be between a socket and a file: that files are to
/// be sent by sendfile(2) says nothing about how they come.
fn policy(wished: Policy) -> Policy {
    match wished {
        Policy::Require(Mechanism::Splice | Mechanism::ReadWrite) | Policy::Prefer(_) => wished,
        _ => Policy::Auto,
    }
}
