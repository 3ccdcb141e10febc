//! Uploads a file.

use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use underpass_client::Url;
use underpass_client::environment::journal_path;
use underpass_client::upload::{
    Condition, SendOptions, Upload, UploadEvent, is_worth_a_journal, upload,
};
use underpass_engine::{Integrity, Source};
use underpass_protocol::digest::{Algorithm, write_digests};
use underpass_protocol::encode_segment;
use underpass_receipt::{EndKind, Receipt, shown};
use underpass_transport::digest::{Computed, compute};

use crate::callbacks::{Callbacks, Cancel, TransferProgress, run_with};
use crate::http::{HttpOptions, HttpSettings, url};
use crate::options::{parse, policy, rate};
use crate::outcome::Outcome;

/// The options of an upload, as Python passes them.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct PutArgs {
    no_clobber: bool,
    digest: Option<String>,
    resume: bool,
    rate: Option<u64>,
    integrity: String,
    mechanism: Option<String>,
}

/// Uploads a file; returns the receipt, and the failure if there was one.
#[pyfunction]
#[pyo3(signature = (path, url_text, options, http, cancel=None, progress=None))]
pub(crate) fn put(
    py: Python<'_>,
    path: PathBuf,
    url_text: &str,
    options: PutArgs,
    http: HttpOptions,
    cancel: Option<&Cancel>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Outcome> {
    if std::fs::metadata(&path).is_ok_and(|found| !found.is_file()) {
        return Err(PyValueError::new_err(format!("{} is not a file", path.display())));
    }
    let url = beneath(url(url_text)?, &path);
    let policy = policy(options.mechanism.as_deref())?;
    let http = http.settings(&url, policy)?;
    let integrity: Integrity = parse("integrity", &options.integrity)?;
    let algorithm = options.digest.as_deref().map(|name| parse("digest", name)).transpose()?;
    let send = SendOptions { policy, integrity, rate: rate(options.rate)?, ..Default::default() };
    let (no_clobber, resumes) = (options.no_clobber, options.resume);
    let position = TransferProgress::default();
    let callbacks = Callbacks { cancel, progress: progress.as_ref() };
    run_with(py, &callbacks, &|| position.get(), |cancel| {
        let journal = || journal_path(&path, &url).filter(|_| resumes);
        let condition = if no_clobber { Condition::Absent } else { Condition::None };
        let how = UploadSettings { send, condition, algorithm };
        let outcome = transfer(&http, &path, &url, how, journal, cancel, &position);
        outcome.unwrap_or_else(|error| {
            let what = format!("sending {} to {}", path.display(), shown(&url));
            Outcome::not_begun(&what, "reading it", &error)
        })
    })
}

/// The options of an upload.
struct UploadSettings {
    send: SendOptions<'static>,
    condition: Condition<'static>,
    algorithm: Option<Algorithm>,
}

/// Uploads the file.
fn transfer(
    http: &HttpSettings,
    path: &Path,
    url: &Url,
    how: UploadSettings,
    journal: impl FnOnce() -> Option<PathBuf>,
    cancel: &AtomicBool,
    position: &TransferProgress,
) -> io::Result<Outcome> {
    let name = path.display().to_string();
    let file = File::open(path)?;
    let source = Source::of(&file)?;
    let digest = how.algorithm.map(|algorithm| digest(&source, algorithm, cancel)).transpose()?;
    let digests = digest.as_ref().map(|computed| write_digests(&computed.digests));
    let fields: Vec<_> =
        digests.as_deref().map(|value| ("Repr-Digest", value)).into_iter().collect();
    let journal = if is_worth_a_journal(&source) { journal() } else { None };
    let what = Upload {
        source: &source,
        fields: &fields,
        condition: how.condition,
        options: how.send,
        journal: journal.as_deref(),
        retries: http.retries,
    };
    let started = Instant::now();
    let mut on_event = |event: &UploadEvent<'_>| {
        if let UploadEvent::Progress(progress) = event {
            position.set(progress.bytes, progress.expected);
        }
    };
    let outcome = upload(&http.client(cancel), &what, url, None, &mut on_event);
    let elapsed = started.elapsed();
    Ok(match outcome {
        Ok((done, _)) => {
            if let Some(len) = source.promised().filter(|_| !done.was_there) {
                position.set(len, Some(len));
            }
            let from = EndKind::from(source.kind());
            Outcome::of(&Receipt::of_upload(name, from, &done, digest.as_ref(), elapsed))
        }
        Err(failed) => {
            let line = format!("sending {name} to {}: {failed}", shown(url));
            let receipt = Receipt::of_failed_upload(name, Some(source.kind().into()), url, &failed);
            Outcome::failed(&receipt, line, &failed).status(failed.error.status())
        }
    })
}

/// Computes the digest that is sent with the file.
fn digest(
    source: &Source<&File>,
    algorithm: Algorithm,
    cancel: &AtomicBool,
) -> io::Result<Computed> {
    let (at, len) = (source.offset().unwrap_or(0), source.promised().unwrap_or(0));
    let wanted = |_| !cancel.load(Ordering::Relaxed);
    Ok(compute(source.fd(), at..at + len, &[algorithm], wanted)?)
}

/// Returns the URL of the file: this URL or, if it is that of a folder, the name of the file in it.
fn beneath(mut url: Url, path: &Path) -> Url {
    if let Some(name) = path.file_name().filter(|_| url.path().ends_with('/')) {
        url.set_path(&format!("{}{}", url.path(), encode_segment(name.as_bytes())));
    }
    url
}
