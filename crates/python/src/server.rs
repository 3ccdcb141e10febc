//! Serves a folder from a thread of the Python process.

use std::fs;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::process;
use std::sync::Mutex;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use pyo3::exceptions::{PyOSError, PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use rustix::process::{Resource, getrlimit};
use serde::Serialize;
use underpass_engine::Integrity;
use underpass_engine::hint::in_words;
use underpass_engine::wait::{lock, unpoison};
use underpass_server::auth::Access;
use underpass_server::{
    Address, Changes, Control, ServeError, Server as FileServer, ServerSummary, Settings,
    SiteSettings,
};

use crate::callbacks::{Callbacks, run_with};
use crate::options::{invalid, parse, seconds};

/// The options of a server, as Python passes them.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct ServerArgs {
    host: String,
    port: u16,
    upload: bool,
    delete: bool,
    create_parents: bool,
    auth: Vec<String>,
    hide: Vec<String>,
    show_hidden: bool,
    headers: Vec<(String, String)>,
    cors: bool,
    workers: Option<usize>,
    timeout: f64,
    drain: f64,
    integrity: String,
}

/// The counts of a server when it has stopped.
#[derive(Debug, Serialize)]
struct ServerReceipt {
    /// Requests that were answered.
    requests: u64,
    /// Bytes that were sent, including the heads of responses.
    bytes: u64,
    /// Transfers that were aborted when it stopped.
    cut_off: usize,
    /// How long it served, in seconds.
    elapsed_s: f64,
}

/// A server that runs until it is stopped.
#[pyclass(frozen, module = "underpass._native")]
#[derive(Debug)]
pub(crate) struct Server {
    control: Control,
    #[pyo3(get)]
    addresses: Vec<String>,
    started: Instant,
    /// The process in which it serves: its threads do not exist in forked processes.
    process: u32,
    thread: Mutex<Option<JoinHandle<Result<ServerSummary, ServeError>>>>,
}

#[pymethods]
impl Server {
    /// Listens, and starts to serve.
    #[new]
    fn new(py: Python<'_>, root: PathBuf, options: ServerArgs) -> PyResult<Self> {
        let address = Address::Tcp(py.detach(|| resolved(&options.host, options.port))?);
        let settings = settings(root, options)?;
        let server = FileServer::bind(settings, &[address], Vec::new()).map_err(raised)?;
        let (control, addresses) = (Control::new(), server.addresses());
        let handle = control.clone();
        let work = move || server.run(handle, |_| {}, |_| {});
        let thread = thread::Builder::new().name("underpass-serve".to_owned()).spawn(work)?;
        let thread = Mutex::new(Some(thread));
        Ok(Self { control, addresses, started: Instant::now(), process: process::id(), thread })
    }

    /// Stops the server once running transfers have ended; returns its receipt as JSON, or `None`
    /// if it was already stopped or belongs to the parent from which this process was forked.
    fn stop(&self, py: Python<'_>) -> PyResult<Option<String>> {
        if self.process != process::id() {
            return Ok(None);
        }
        let thread = lock(&self.thread).take();
        let Some(thread) = thread else { return Ok(None) };
        self.control.drain();
        let control = self.control.clone();
        let ended = run_with(py, &Callbacks::default(), &|| (0, None), move |cancel| {
            while !thread.is_finished() {
                thread::sleep(END_INTERVAL);
                if cancel.load(std::sync::atomic::Ordering::Relaxed) {
                    control.stop();
                }
            }
            thread.join()
        })?;
        let summary = ended
            .map_err(|_| PyRuntimeError::new_err("the server panicked: see standard error"))?
            .map_err(raised)?;
        let ServerSummary { requests, bytes, cut_off } = summary;
        let elapsed_s = self.started.elapsed().as_secs_f64();
        let receipt = ServerReceipt { requests, bytes, cut_off, elapsed_s };
        serde_json::to_string(&receipt)
            .map(Some)
            .map_err(|error| PyRuntimeError::new_err(error.to_string()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.process == process::id() {
            self.control.stop();
        } else {
            // In a forked process there is no thread to detach.
            let thread = unpoison(self.thread.get_mut());
            std::mem::forget(thread.take());
        }
    }
}

/// Resolves a host name, preferring IPv4 as clients of `localhost` expect.
fn resolved(host: &str, port: u16) -> PyResult<SocketAddr> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(SocketAddr::new(address, port));
    }
    let wrong =
        |reason| invalid("host", format!("'{host}' is not an address of this machine: {reason}"));
    let found = (host, port).to_socket_addrs().map_err(|error| wrong(in_words(&error)))?;
    let found = found.min_by_key(SocketAddr::is_ipv6);
    found.ok_or_else(|| wrong("it has none".to_owned()))
}

/// Converts the arguments to settings.
fn settings(root: PathBuf, args: ServerArgs) -> PyResult<Settings> {
    let workers = match args.workers {
        Some(workers) if !(1..=MAX_WORKERS).contains(&workers) => {
            return Err(invalid("workers", format!("must be 1 to {MAX_WORKERS}")));
        }
        Some(workers) => workers,
        None => thread::available_parallelism().map_or(1, usize::from),
    };
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    // The rest of the process needs descriptors too, and each connection uses two.
    let max_connections = usize::try_from(descriptors / 4).unwrap_or(1).clamp(1, MAX_CONNECTIONS);
    let root = fs::canonicalize(&root)
        .map_err(|source| raised(ServeError::Root { path: root, source }))?;
    let site = SiteSettings::new(root.clone());
    Ok(Settings {
        workers,
        max_connections,
        timeout: seconds("timeout", args.timeout)?,
        sites: vec![SiteSettings {
            integrity: parse::<Integrity>("integrity", &args.integrity)?,
            access: Access::parse(&args.auth).map_err(|error| invalid("auth", error))?,
            hide: args.hide,
            shows_hidden: args.show_hidden,
            headers: args.headers,
            cors: args.cors,
            changes: Changes {
                upload: args.upload,
                delete: args.delete,
                create_parents: args.create_parents,
                ..site.changes
            },
            ..site
        }],
        drain: match args.drain {
            0.0 => Duration::ZERO,
            drain => seconds("drain", drain)?,
        },
        ..Settings::new(root)
    })
}

/// Creates the exception for a server that cannot serve.
fn raised(error: ServeError) -> PyErr {
    match error {
        ServeError::Header(_) | ServeError::Pattern { .. } => {
            PyValueError::new_err(error.to_string())
        }
        error => PyOSError::new_err(error.to_string()),
    }
}

/// The interval of checking whether the server has ended.
const END_INTERVAL: Duration = Duration::from_millis(5);

/// The most threads of a server, as in the program.
const MAX_WORKERS: usize = 1024;

/// The most connections of a server within another program.
const MAX_CONNECTIONS: usize = 4096;
