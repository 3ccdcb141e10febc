//! Uploads one after the other over the same connection.

use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use indicatif::BinaryBytes;
use underpass_client::environment::journal_path;
use underpass_client::s3;
use underpass_client::tree::listing::RemoteFolders;
use underpass_client::upload::walk::{LocalPath, UploadStep};
use underpass_client::upload::{
    Condition, MkcolOutcome, RESUMABLE_FROM, SendOptions, Upload, UploadEvent, UploadFailed,
    UploadOutcome, is_file, make_folder, upload,
};
use underpass_client::{ClientError, Connection, HttpClient, TlsSetup, Url};
use underpass_copy::ends::Input;
use underpass_engine::hint::Action;
use underpass_engine::{Declined, Kind, PipePool, Report, Source};
use underpass_protocol::digest::{Algorithm, write_digests};
use underpass_transport::digest::{Computed, compute};

use super::args::PutArgs;
use super::usage::PutError;
use crate::args::ShowArgs;
use crate::failure::{Failure, WithPath};
use crate::output::{self, ProgressMeter};
use crate::signals::opener;
use underpass_engine::Size;
use underpass_receipt::{EndKind, Receipt, shown};

/// The state that all uploads of one command share.
pub(super) struct PutRun<'s> {
    pub(super) args: &'s PutArgs,
    cancel: &'s AtomicBool,
    pub(super) client: HttpClient<'s>,
    /// The URL of the bucket, if the server is an object store.
    pub(super) bucket: Option<Url>,
    pub(super) idle: Option<Connection<'s>>,
    pipes: PipePool,
    meter: ProgressMeter,
    /// The total so far.
    total: Report,
    started: Instant,
    /// Whether anything has arrived.
    has_sent: bool,
    /// Whether the server does not support creating folders.
    makes_no_folders: bool,
    /// Whether the server was asked to create a folder.
    has_asked: bool,
    /// Whether the server has created a folder.
    has_made: bool,
    /// The files that the server has.
    pub(super) remote: RemoteFolders,
    /// The number of files that the server had already.
    pub(super) there: u64,
    /// The folder whose parents were created last.
    pub(super) created: Option<Url>,
}

/// The reason why one of the uploads failed.
pub(super) struct PutStop {
    /// The failure to report.
    pub(super) failure: Failure,
    /// Whether the remaining files would fail, too.
    pub(super) is_fatal: bool,
    /// The receipt of the work done before, once a request was made.
    pub(super) receipt: Option<Box<Receipt>>,
}

impl PutStop {
    /// Prints the receipt, if there is one and it is requested, and returns the failure.
    pub(super) fn with_receipt(self, show: ShowArgs) -> Failure {
        match &self.receipt {
            Some(receipt) => output::print_receipt(show, receipt),
            None => output::print_no_transfer(show, &self.failure),
        }
        self.failure
    }
}

impl From<Failure> for PutStop {
    fn from(failure: Failure) -> Self {
        Self { is_fatal: matches!(failure, Failure::Usage(_)), failure, receipt: None }
    }
}

impl<'s> PutRun<'s> {
    pub(super) fn new(
        args: &'s PutArgs,
        url: &Url,
        tls: &TlsSetup,
        cancel: &'s AtomicBool,
    ) -> Result<Self, Failure> {
        let remote = args.store.remote(&args.http, url, tls, cancel)?;
        Ok(Self {
            args,
            cancel,
            client: remote.client,
            idle: None,
            pipes: PipePool::new(),
            meter: ProgressMeter::new(args.show, ""),
            total: Report::default(),
            started: Instant::now(),
            has_sent: false,
            // An object store has no folders, only keys.
            makes_no_folders: remote.bucket.is_some(),
            has_asked: false,
            has_made: false,
            bucket: remote.bucket,
            remote: RemoteFolders::default(),
            there: 0,
            created: None,
        })
    }

    /// Sends the only file, and reports it.
    pub(super) fn send_alone(&mut self, step: UploadStep) -> Result<(), PutStop> {
        let UploadStep::File { local, url } = step else { return self.run_step(&step) };
        let receipt = self.send(&local, &url)?;
        if self.there > 0 && !self.args.show.quiet {
            output::note(&format!("{}: already there: {}", local.path().display(), shown(&url)));
        }
        if receipt.upload.as_ref().is_some_and(|upload| upload.was_there) {
            // That was already reported.
            output::print_receipt(self.args.show, &receipt)
        } else {
            output::finished(self.args.show, &receipt)
        }
        Ok(())
    }

    /// Carries out one of several steps.
    pub(super) fn run_step(&mut self, step: &UploadStep) -> Result<(), PutStop> {
        match step {
            UploadStep::Skipped { .. } => Ok(()),
            UploadStep::Folder { url } => self.make(url),
            UploadStep::File { local, url } => {
                let receipt = self.send(local, url)?;
                output::print_receipt(self.args.show, &receipt);
                Ok(())
            }
        }
    }

    /// Prints the summary of all uploads.
    pub(super) fn finish(self) {
        let elapsed_s = self.started.elapsed().as_secs_f64();
        let receipt = Receipt { elapsed_s, ..Receipt::of_payload(&self.total) };
        self.meter.clear();
        if self.has_sent {
            output::sum(self.args.show, &receipt);
        }
        if self.there > 0 && !self.args.show.quiet && !self.args.show.json {
            let there = output::counted(self.there, "file was", "files were");
            let what = if self.has_sent { "" } else { ", so nothing was sent" };
            output::error_line(&format!("{there} there already{what}"));
        }
    }

    fn make(&mut self, url: &Url) -> Result<(), PutStop> {
        self.create_parents(url)?;
        if self.is_there(url)? || self.makes_no_folders || url.path() == "/" {
            return Ok(());
        }
        let is_first = !std::mem::replace(&mut self.has_asked, true);
        let made = make_folder(&self.client, url, self.has_made, self.idle.take());
        let (made, idle) = made.map_err(|error| {
            // The folder above all is missing (RFC 4918 9.3.1), so that nothing can be sent into it.
            let has_no_parent = matches!(error, ClientError::Status { status: 409, .. });
            let stop = self.folder_failure(url, error);
            PutStop { is_fatal: stop.is_fatal || (is_first && has_no_parent), ..stop }
        })?;
        self.idle = idle;
        self.has_made |= made == MkcolOutcome::New;
        self.makes_no_folders = made == MkcolOutcome::Unknown;
        if made == MkcolOutcome::Exists {
            let (is_file, idle) = is_file(&self.client, url, self.idle.take());
            self.idle = idle;
            if is_file {
                let line = format!("creating the folder {}: a file has this name", shown(url));
                return Err(Failure::line(line).into());
            }
        }
        Ok(())
    }

    /// Sends a file.
    fn send(&mut self, local: &LocalPath, url: &Url) -> Result<Receipt, PutStop> {
        let input = open(local, self.cancel).map_err(|failure| unopened(local, url, failure))?;
        if let Some(receipt) = self.has(&input, url)? {
            return Ok(receipt);
        }
        self.create_parents(url)?;
        let source = input.source().map_err(Failure::from)?;
        let kind = EndKind::from(source.kind());
        let request_url = self.request_url(url)?;
        let journal = self.journal(&input, &source, &request_url);
        let digest = self.digest(&input, &source)?;
        let values = self.fields(&input, digest.as_ref());
        let fields: Vec<_> = values.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let what = Upload {
            source: &source,
            fields: &fields,
            condition: self.condition(),
            options: SendOptions {
                policy: self.args.engine.policy(),
                step: self.args.engine.step(),
                integrity: self.args.integrity,
                pipes: Some(&self.pipes),
                rate: self.args.rate.map(|Size(bytes)| bytes),
            },
            journal: journal.as_deref(),
            retries: self.args.http.retries,
        };
        self.meter.begin(&output::short_path(input.path()));
        let mut show = self.meter.observer();
        let quiet = self.args.show.quiet;
        let mut before = 0;
        let mut on_event = |event: &UploadEvent<'_>| match event {
            UploadEvent::Progress(progress) => show(progress, before),
            event => {
                if let UploadEvent::Resumed { at } = event {
                    before = *at;
                }
                if let Some(text) = event_line(event)
                    .filter(|_| !quiet || matches!(event, UploadEvent::PartsLeft { .. }))
                {
                    output::note(&text);
                }
            }
        };
        let started = Instant::now();
        let (client, idle) = (&self.client, self.idle.take());
        let outcome = match self.bucket {
            None => upload(client, &what, &request_url, idle, &mut on_event),
            Some(_) => {
                let connections = self.args.connections.unwrap_or(s3::CONNECTIONS);
                s3::upload(client, &what, &request_url, connections, idle, &mut on_event)
            }
        };
        let elapsed = started.elapsed();
        self.meter.clear();
        let name = input.path().display().to_string();
        let (mut done, idle) =
            outcome.map_err(|failed| self.failure(name.clone(), Some(kind), url, failed))?;
        if self.bucket.is_some() {
            done.url = url.clone();
        }
        self.idle = idle;
        self.total.add(&done.report);
        self.has_sent |= !done.was_there;
        self.warn_of_condition(&name, &done);
        let receipt = Receipt::of_upload(name, kind, &done, digest.as_ref(), elapsed);
        input.finish(receipt.bytes);
        Ok(receipt)
    }

    /// Returns the fields that are sent with a file: its digest and its time.
    fn fields(&self, input: &Input, digest: Option<&Computed>) -> Vec<(&'static str, String)> {
        let digest = digest.map(|computed| match self.bucket {
            None => ("Repr-Digest", write_digests(&computed.digests)),
            Some(_) => (s3::CHECKSUM, s3::checksum(&computed.digests)),
        });
        digest.into_iter().chain(self.time(input)).collect()
    }

    /// Returns the URL of requests for this one.
    pub(super) fn request_url(&self, url: &Url) -> Result<Url, Failure> {
        let Some(bucket) = &self.bucket else { return Ok(url.clone()) };
        let key = url.path().strip_prefix('/').unwrap_or_default();
        s3::object_url(bucket, key).map_err(|error| Failure::Usage(error.into()))
    }

    /// Reports the outcome of the condition. A possible loss is reported even if quiet.
    fn warn_of_condition(&self, name: &str, done: &UploadOutcome) {
        let at = shown(&done.url);
        if done.was_there && !self.args.show.quiet {
            output::note(&format!("{name}: already there: {at}"));
        }
        if done.may_have_replaced {
            let (status, word) = match done.status {
                201 => (201, "created, not replaced"),
                status => (status, "replaced"),
            };
            output::note(&format!(
                "{name}: {at} may have been {word}: the server answered {status}, so it may not \
                 check the condition of -n or --if-match"
            ));
        }
    }

    /// Returns the journal of an upload that can be resumed. It is named after the URL of requests:
    /// two stores may have buckets of one name.
    fn journal(&self, input: &Input, source: &Source<&File>, url: &Url) -> Option<PathBuf> {
        let is_long = source.promised().is_some_and(|len| len >= RESUMABLE_FROM);
        let is_lasting = source.kind() == Kind::Regular && input.has_name();
        (is_long && is_lasting && !self.args.no_resume).then(|| journal_path(input.path(), url))?
    }

    /// Returns the digest that is sent with the file, if any.
    fn digest(&self, input: &Input, source: &Source<&File>) -> Result<Option<Computed>, Failure> {
        let Some(algorithm) = self.args.digest else { return Ok(None) };
        let (Some(at), Some(len)) = (source.offset(), source.promised()) else {
            return Err(PutError::DigestOfStream(input.path().to_owned()).into());
        };
        let wanted = |_| !self.client.is_cancelled();
        if self.bucket.is_some() && algorithm != Algorithm::Sha256 {
            return Err(PutError::DigestOfStore.into());
        }
        let computed = compute(source.fd(), at..at + len, &[algorithm], wanted);
        Ok(computed.map(Some).with_path(Action::Reading, input.path())?)
    }

    fn condition(&self) -> Condition<'s> {
        let args: &'s PutArgs = self.args;
        match (&args.if_match, args.no_clobber) {
            (Some(tag), _) => Condition::Version(tag),
            (None, true) => Condition::Absent,
            (None, false) => Condition::None,
        }
    }

    /// Returns the failure of a request about a folder, which has no bytes.
    pub(super) fn folder_failure(&self, url: &Url, error: ClientError) -> PutStop {
        self.failure("a folder".to_owned(), None, url, failed(error))
    }

    /// Returns the failure of an upload whose bytes come from an end of this kind.
    pub(super) fn failure(
        &self,
        file: String,
        from: Option<EndKind>,
        url: &Url,
        failed: UploadFailed,
    ) -> PutStop {
        let mut receipt = Receipt::of_failed_upload(file.clone(), from, url, &failed);
        let declined = failed.report.declined();
        if !declined.iter().any(|decline| matches!(decline.what, Declined::Integrity(_))) {
            // If no transfer succeeded, the report has no integrity level.
            receipt.integrity = self.args.integrity.to_string();
        }
        let is_fatal = match failed.error.status() {
            Some(status) => matches!(status, 401 | 407 | 507),
            None => !failed.is_of_this_file(),
        };
        let line = format!("sending {file} to {}: {failed}", shown(url));
        let failure = Failure::hinted(line, &failed);
        PutStop { failure, is_fatal, receipt: Some(Box::new(receipt)) }
    }
}

/// Opens a file, or standard input.
fn open(local: &LocalPath, cancel: &AtomicBool) -> Result<Input, Failure> {
    match local.open_beneath(cancel)? {
        Some(file) => Ok(Input::of(file, local.path())),
        None => Ok(Input::open(local.path(), &opener(cancel))?),
    }
}

/// Returns the failure of an upload whose file cannot be opened.
fn unopened(local: &LocalPath, url: &Url, failure: Failure) -> PutStop {
    let file = local.path().display().to_string();
    let receipt = Receipt::of_no_upload(file, url, failure.to_string());
    let receipt = (failure.exit_code() == 1).then(|| Box::new(receipt));
    PutStop { receipt, ..failure.into() }
}

/// Returns the failure of an upload that has moved nothing.
pub(super) fn failed(error: ClientError) -> UploadFailed {
    UploadFailed::new(error.into(), Report::default(), 0, false, None)
}

/// Returns the line about an event of an upload, if it is to be shown.
fn event_line(event: &UploadEvent<'_>) -> Option<String> {
    Some(match event {
        UploadEvent::Resumed { at } => {
            format!("the server has {}: resuming there", BinaryBytes(*at))
        }
        UploadEvent::StartedOver { reason } => format!("starting over: {reason}"),
        UploadEvent::Redirected { to } => format!("the server redirects to {}", shown(to)),
        UploadEvent::Again { error, wait, resumes } => {
            let how = if *resumes { "resuming from there" } else { "starting over" };
            format!("{error}; {how} in {:.1} s", wait.as_secs_f64())
        }
        UploadEvent::PartsLeft { upload, error } => format!(
            "the store still has parts of the upload {upload}, which could not be removed: {error}"
        ),
        UploadEvent::Progress(_) => return None,
    })
}
