//! Copies files and trees.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use pyo3::prelude::*;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use underpass_copy::{
    CopyObserver, CopyOptions, CopyProgress, CopyTarget, ExcludePattern, ExistingFiles, Follow,
    Preserve, Verify, When, copy as copy_paths,
};
use underpass_engine::atomic_file;
use underpass_receipt::{CopyReceipt, Receipt};

use crate::callbacks::{Callbacks, Cancel, TransferProgress, run_with};
use crate::options::{invalid, parse, policy};
use crate::outcome::Outcome;

/// The options of a copy, as Python passes them.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct CopyArgs {
    /// Whether the source is a folder, and the target its new name.
    tree: bool,
    archive: bool,
    preserve: bool,
    follow_symlinks: bool,
    no_clobber: bool,
    update: bool,
    resume: bool,
    one_file_system: bool,
    exclude: Vec<OsString>,
    reflink: String,
    sparse: String,
    verify: Option<String>,
    sync: bool,
    jobs: Option<usize>,
    integrity: String,
    mechanism: Option<String>,
}

impl CopyArgs {
    /// Converts the arguments to options, which are those of the program.
    fn options(&self) -> PyResult<CopyOptions> {
        let policy = policy(self.mechanism.as_deref())?;
        let pattern = |glob: &OsString| {
            let wrong = |error| invalid("exclude", format!("'{}': {error}", glob.display()));
            ExcludePattern::new(glob).map_err(wrong)
        };
        let exclude = self.exclude.iter().map(pattern).collect::<PyResult<_>>();
        let defaults = CopyOptions::default();
        Ok(CopyOptions {
            recursive: self.tree,
            follow: if self.follow_symlinks { Follow::Always } else { Follow::Never },
            preserve: if self.preserve || self.archive {
                Preserve::ALL
            } else {
                Preserve::default()
            },
            hard_links: self.archive,
            existing: match (self.no_clobber, self.update) {
                (true, _) => ExistingFiles::Keep,
                (_, true) => ExistingFiles::ReplaceOlder,
                _ => ExistingFiles::Replace,
            },
            resume: self.resume,
            one_file_system: self.one_file_system,
            exclude: exclude?,
            reflink: when("reflink", &self.reflink)?,
            sparse: when("sparse", &self.sparse)?,
            verify: self.verify.as_deref().map(verify).transpose()?,
            sync: self.sync,
            jobs: match self.jobs {
                Some(0) => return Err(invalid("jobs", "must be at least 1")),
                Some(jobs) => jobs,
                None => defaults.jobs,
            },
            policy,
            integrity: parse("integrity", &self.integrity)?,
            umask: atomic_file::umask().unwrap_or(0o022),
            // Leave descriptors for the rest of the process.
            max_open_files: getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX) / 2,
            ..defaults
        })
    }
}

/// Copies a file, or a folder with everything in it; returns the receipt, and the failure if there
/// was one.
#[pyfunction]
#[pyo3(signature = (source, target, options, cancel=None, progress=None))]
pub(crate) fn copy(
    py: Python<'_>,
    source: PathBuf,
    target: PathBuf,
    options: CopyArgs,
    cancel: Option<&Cancel>,
    progress: Option<Py<PyAny>>,
) -> PyResult<Outcome> {
    let is_tree = options.tree;
    let options = options.options()?;
    if !is_tree && fs::metadata(&source).is_ok_and(|found| !found.is_file()) {
        let message = format!("{} is not a file: copytree copies folders", source.display());
        return Err(pyo3::exceptions::PyValueError::new_err(message));
    }
    // A link to a folder is copied as the link that it is.
    if is_tree && fs::metadata(&source).is_ok_and(|found| !found.is_dir()) {
        let what = (Errno::NOTDIR.raw_os_error(), "Not a directory (copy copies files)");
        let error = (what.0, what.1, source.into_os_string());
        return Err(pyo3::exceptions::PyNotADirectoryError::new_err(error));
    }
    let observer = PythonObserver::default();
    let callbacks = Callbacks { cancel, progress: progress.as_ref() };
    run_with(py, &callbacks, &|| observer.0.get(), |cancel| {
        let target =
            if is_tree { CopyTarget::NewName(&target) } else { CopyTarget::Either(&target) };
        transfer(&options, source, target, &observer, cancel)
    })
}

/// Performs the copy that the arguments describe.
fn transfer(
    options: &CopyOptions,
    source: PathBuf,
    target: CopyTarget<'_>,
    observer: &PythonObserver,
    cancel: &AtomicBool,
) -> Outcome {
    let started = Instant::now();
    let mut outcome = match copy_paths(options, &[source], target, observer, cancel) {
        Ok(outcome) => outcome,
        Err(error) => {
            let receipt = Receipt { error: Some(error.to_string()), ..Receipt::default() };
            return Outcome::failed(&receipt, error.to_string(), &error);
        }
    };
    let mut receipt = CopyReceipt::new(options, &outcome, started.elapsed().as_secs_f64());
    match (outcome.problem_count, outcome.problems.pop()) {
        (0, _) => {
            let bytes = receipt.receipt.bytes;
            observer.0.set(bytes, Some(bytes));
            Outcome::of(&receipt)
        }
        (1, Some(error)) => Outcome::failed(&receipt, error.to_string(), &error),
        (count, last) => {
            let last = last.map(|error| format!(", the last one: {error}")).unwrap_or_default();
            let line = format!("{count} problems{last}");
            receipt.receipt.error = Some(line.clone());
            Outcome::incomplete(&receipt, line)
        }
    }
}

/// Receives the progress of a copy.
#[derive(Debug, Default)]
struct PythonObserver(TransferProgress);

impl CopyObserver for PythonObserver {
    fn progress(&self, progress: &CopyProgress) {
        self.0.set(progress.bytes, progress.expected);
    }
}

/// Parses a value of [`When`].
fn when(name: &str, text: &str) -> PyResult<When> {
    match text {
        "auto" => Ok(When::Auto),
        "always" => Ok(When::Always),
        "never" => Ok(When::Never),
        _ => Err(invalid(name, "it is auto, always or never")),
    }
}

/// Parses a value of [`Verify`]: where a copy is read from for comparison.
fn verify(text: &str) -> PyResult<Verify> {
    match text {
        "cache" => Ok(Verify::Cache),
        "direct" => Ok(Verify::Direct),
        _ => Err(invalid("verify", "it is cache or direct")),
    }
}
