//! Sends one file.

use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use underpass_client::environment::journal_path;
use underpass_client::upload::walk::LocalPath;
use underpass_client::upload::{
    Condition, SendOptions, Upload, UploadEvent, is_worth_a_journal, upload,
};
use underpass_client::{Url, s3};
use underpass_copy::ends::Input;
use underpass_engine::hint::Action;
use underpass_engine::{Size, Source};
use underpass_protocol::digest::{Algorithm, write_digests};
use underpass_receipt::{EndKind, Receipt};
use underpass_transport::digest::{Computed, compute};

use super::args::PutArgs;
use super::print;
use super::put_run::{PutRun, PutStop};
use super::usage::PutError;
use crate::failure::{Failure, WithPath};
use crate::output;
use crate::signals::opener;

impl<'s> PutRun<'s> {
    /// Sends a file.
    pub(super) fn send(&mut self, local: &LocalPath, url: &Url) -> Result<Receipt, PutStop> {
        let input = open(local, self.cancel).map_err(|failure| unopened(local, url, failure))?;
        if let Some(receipt) = self.has(&input, url)? {
            return Ok(receipt);
        }
        self.create_parents(input.path(), url)?;
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
                print::event(event, quiet);
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
        print::condition(&name, &done, quiet);
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

    /// Returns the journal of an upload that can be resumed. It is named after the URL of requests:
    /// two stores may have buckets of one name.
    fn journal(&self, input: &Input, source: &Source<&File>, url: &Url) -> Option<PathBuf> {
        let is_kept = is_worth_a_journal(source) && input.has_name() && !self.args.no_resume;
        is_kept.then(|| journal_path(input.path(), url))?
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
