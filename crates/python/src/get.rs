//! Fetches a file, or a folder.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use rustix::fs::CWD;
use underpass_client::download::{
    DownloadError, DownloadOptions, Downloader, Gauge, IfExists, PartialInfo, Target, name_of,
};
use underpass_client::tree::{
    self, SourceFolderError, TreeError, TreeEvent, TreeGauge, TreeOptions,
};
use underpass_client::{ClientError, Url};
use underpass_engine::atomic_file::{self, folder_at, folder_of};
use underpass_engine::wait::lock;
use underpass_receipt::{GetReceipt, TreeReceipt, shown};

use crate::callbacks::{Callbacks, Cancel, run_with};
use crate::http::{HttpOptions, url};
use crate::options::{invalid, parse, policy, rate};
use crate::outcome::Outcome;

/// The options of a download, as Python passes them.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct GetArgs {
    connections: Option<u32>,
    digest: Vec<String>,
    digest_print: Vec<String>,
    verify: bool,
    if_exists: String,
    rate: Option<u64>,
    mtime: bool,
    sync: bool,
    mechanism: Option<String>,
}

impl GetArgs {
    /// Converts the arguments to options, which are those of the program.
    fn options(&self, retries: u32) -> PyResult<DownloadOptions> {
        let expected = self.digest.iter().map(|text| parse("digest", text));
        let shown = self.digest_print.iter().map(|text| parse("digest_print", text));
        Ok(DownloadOptions {
            connections: connections(self.connections)?,
            retries,
            rate: rate(self.rate)?,
            policy: policy(self.mechanism.as_deref())?,
            step: None,
            keep_time: self.mtime,
            durable: self.sync,
            expected: expected.collect::<PyResult<_>>()?,
            shown: shown.collect::<PyResult<_>>()?,
            verify: self.verify,
        })
    }

    fn if_exists(&self) -> PyResult<IfExists> {
        match self.if_exists.as_str() {
            "replace" => Ok(IfExists::Replace),
            "same" => Ok(IfExists::SameIsFine),
            "refuse" => Ok(IfExists::Refuse),
            _ => Err(invalid("if_exists", "it is replace, same or refuse")),
        }
    }
}

/// Fetches the file at a URL; returns the receipt, and the failure if there was one.
#[pyfunction]
#[pyo3(signature = (url_text, path, options, http, cancel=None, progress=None))]
pub(crate) fn get(
    py: Python<'_>,
    url_text: &str,
    path: PathBuf,
    options: GetArgs,
    http: HttpOptions,
    cancel: Option<&Cancel>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Outcome> {
    let url = url(url_text)?;
    let http = http.settings(&url, policy(options.mechanism.as_deref())?)?;
    let downloads = options.options(http.retries)?;
    let if_exists = options.if_exists()?;
    let path = place(&path, &url)?;
    let name = path.file_name().map(OsString::from);
    let name = name.ok_or_else(|| invalid("path", "it does not end in a file name"))?;
    let gauge = Gauge::default();
    let callbacks = Callbacks { cancel, progress: progress.as_ref() };
    run_with(py, &callbacks, &|| (gauge.done(), gauge.total()), |cancel| {
        let parent = folder_of(&path);
        let folder = match folder_at(CWD, parent) {
            Ok(folder) => folder,
            Err(errno) => {
                let action = format!("opening {}", parent.display());
                return Outcome::not_begun(
                    &format!("fetching {}", shown(&url)),
                    &action,
                    &errno.into(),
                );
            }
        };
        let target = Target::Named { folder: &folder, name: &name, if_exists };
        let started = Instant::now();
        let downloader = Downloader::new(http.client(cancel), downloads);
        let outcome = downloader.fetch(&url, &target, &gauge, &|_| {});
        let elapsed = started.elapsed();
        match outcome {
            Ok(done) => Outcome::of(&GetReceipt::new(&shown(&url), &path, &done, elapsed)),
            Err(failed) => {
                let mut line = format!("fetching {} to {}: {failed}", shown(&url), path.display());
                if let Some(PartialInfo { name, bytes }) = failed.kept.as_deref() {
                    line += &format!("; {} keeps {bytes} bytes", name.display());
                }
                let receipt = GetReceipt::of_failed(&shown(&url), &path, &failed, elapsed);
                Outcome::failed(&receipt, line, &failed).status(status(&failed.error))
            }
        }
    })
}

/// The options of a folder's download, as Python passes them.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct GetTreeArgs {
    connections: Option<u32>,
    replace: bool,
    mechanism: Option<String>,
}

/// Fetches the folder at a URL into a folder; returns the receipt, and the failure if any.
#[pyfunction]
#[pyo3(signature = (url_text, path, options, http, cancel=None, progress=None))]
pub(crate) fn get_tree(
    py: Python<'_>,
    url_text: &str,
    path: PathBuf,
    options: GetTreeArgs,
    http: HttpOptions,
    cancel: Option<&Cancel>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Outcome> {
    let url = url(url_text)?;
    let policy = policy(options.mechanism.as_deref())?;
    let http = http.settings(&url, policy)?;
    let defaults = TreeOptions::default();
    let options = TreeOptions {
        connections: connections(options.connections)?.unwrap_or(defaults.connections),
        retries: http.retries,
        policy,
        replaces: options.replace,
        ..defaults
    };
    let gauge = TreeGauge::default();
    let callbacks = Callbacks { cancel, progress: progress.as_ref() };
    run_with(py, &callbacks, &|| (gauge.done(), gauge.total()), |cancel| {
        let (started, last) = (Instant::now(), Mutex::default());
        let on_event = |event: &TreeEvent<'_>| {
            if let Some(line) = what_is_missing(event) {
                *lock(&last) = line;
            }
        };
        let client = http.client(cancel);
        let outcome = tree::fetch(&client, &options, &url, &path, &gauge, &on_event);
        match outcome {
            Ok(done) => {
                let mut receipt = TreeReceipt::new(&url, &path, &done, started.elapsed());
                let Some(lacking) = done.shortfall(&path) else { return Outcome::of(&receipt) };
                let last = lock(&last);
                let line = match done.left_out {
                    0 => lacking,
                    1 => format!("{lacking}: {last}"),
                    _ => format!("{lacking}, the last one: {last}"),
                };
                receipt.receipt.error = Some(line.clone());
                Outcome::incomplete(&receipt, line)
            }
            Err(failed) => {
                let mut receipt = TreeReceipt::new(&url, &path, &failed.done, started.elapsed());
                receipt.receipt.error = Some(failed.error.to_string());
                let line = format!("fetching {} to {}: {failed}", shown(&url), path.display());
                let status = match &failed.error {
                    TreeError::Client(ClientError::Status { status, .. }) => Some(*status),
                    // There is no folder with this name.
                    TreeError::Source(SourceFolderError::IsFile | SourceFolderError::NotThere) => {
                        Some(404)
                    }
                    _ => None,
                };
                Outcome::failed(&receipt, line, &failed).status(status)
            }
        }
    })
}

/// Returns what an event of a folder's download says is missing, and why.
fn what_is_missing(event: &TreeEvent<'_>) -> Option<String> {
    match event {
        TreeEvent::LeftOut { path, reason } => {
            // The reason names the option of the program.
            let reason = reason.replace("--force", "replace=True");
            Some(format!("{}: {reason}", String::from_utf8_lossy(path)))
        }
        TreeEvent::ListingCut { url } => Some(format!("the listing of {url} is truncated")),
        _ => None,
    }
}

/// Checks a number of connections.
fn connections(count: Option<u32>) -> PyResult<Option<u32>> {
    match count {
        Some(count) if !(1..=64).contains(&count) => Err(invalid("connections", "must be 1 to 64")),
        count => Ok(count),
    }
}

/// Returns the status with which the server refused the request, if it did.
fn status(error: &DownloadError) -> Option<u16> {
    match error {
        DownloadError::Client(ClientError::Status { status, .. }) => Some(*status),
        _ => None,
    }
}

/// Returns the path of the new file: this path or, if it is a folder, one in it with the last name
/// of the URL. A link is followed, and the file that it leads to is replaced.
fn place(path: &Path, url: &Url) -> PyResult<PathBuf> {
    let path = if path.is_symlink() {
        atomic_file::follow(path).unwrap_or(path.to_owned())
    } else {
        path.to_owned()
    };
    if !path.is_dir() {
        return match fs::metadata(&path) {
            Ok(found) if !found.is_file() => {
                let message = format!("{} is neither a file nor a folder", path.display());
                Err(PyValueError::new_err(message))
            }
            _ => Ok(path),
        };
    }
    match name_of(url) {
        Some(name) => Ok(path.join(name)),
        None => Err(PyValueError::new_err(format!(
            "{} does not end in a possible file name: name a file",
            shown(url)
        ))),
    }
}
