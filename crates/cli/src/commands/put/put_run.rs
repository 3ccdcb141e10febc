//! Carries out the steps of the uploads one after the other, over the same connection.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use underpass_client::tree::listing::RemoteFolders;
use underpass_client::upload::walk::UploadStep;
use underpass_client::upload::{FolderError, TargetFolders, UploadFailed};
use underpass_client::{ClientError, Connection, HttpClient, TlsSetup, Url};
use underpass_engine::{Declined, PipePool, Report};
use underpass_receipt::{EndKind, Receipt, shown};

use super::args::PutArgs;
use super::print;
use crate::args::ShowArgs;
use crate::failure::Failure;
use crate::output::{self, ProgressMeter};

/// The state that all uploads of one command share.
pub(super) struct PutRun<'s> {
    pub(super) args: &'s PutArgs,
    pub(super) cancel: &'s AtomicBool,
    pub(super) client: HttpClient<'s>,
    /// The URL of the bucket, if the server is an object store.
    pub(super) bucket: Option<Url>,
    pub(super) idle: Option<Connection<'s>>,
    pub(super) pipes: PipePool,
    pub(super) meter: ProgressMeter,
    /// The total so far.
    pub(super) total: Report,
    started: Instant,
    /// Whether anything has arrived.
    pub(super) has_sent: bool,
    /// The folders that were created.
    pub(super) folders: TargetFolders,
    /// The files that the server has.
    pub(super) remote: RemoteFolders,
    /// The number of files that the server had already.
    pub(super) there: u64,
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
            bucket: remote.bucket,
            folders: TargetFolders::default(),
            remote: RemoteFolders::default(),
            there: 0,
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
            UploadStep::Folder { path, url } => self.make(path, url),
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
        print::already_there(self.args.show, self.there, self.has_sent);
    }

    /// Creates a folder, unless the server has it.
    fn make(&mut self, path: &Path, url: &Url) -> Result<(), PutStop> {
        self.create_parents(path, url)?;
        // An object store has no folders, only keys.
        if self.bucket.is_some() || self.is_there(path, url)? {
            return Ok(());
        }
        let made = self.folders.create(&self.client, url, &mut self.idle);
        made.map_err(|error| match error {
            FolderError::Client(error) => self.folder_failure(path, url, error),
            FolderError::NoParent(error) => {
                PutStop { is_fatal: true, ..self.folder_failure(path, url, error) }
            }
            error => {
                let file = path.display().to_string();
                let line = format!("sending {file} to {}: {error}", shown(url));
                let receipt = Receipt::of_no_upload(file, url, error.to_string());
                PutStop { receipt: Some(Box::new(receipt)), ..Failure::line(line).into() }
            }
        })
    }

    /// Returns the failure of a request about the folder at `url`, which has no bytes. `path` is
    /// what was to be sent.
    pub(super) fn folder_failure(&self, path: &Path, url: &Url, error: ClientError) -> PutStop {
        let file = path.display().to_string();
        self.failure(file, None, url, UploadFailed::before_sending(error))
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
        let is_fatal = !failed.is_of_this_file();
        let line = format!("sending {file} to {}: {failed}", shown(url));
        let failure = Failure::hinted(line, &failed);
        PutStop { failure, is_fatal, receipt: Some(Box::new(receipt)) }
    }
}
