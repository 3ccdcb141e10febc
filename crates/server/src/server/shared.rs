//! The state that all workers share.

use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use crate::server::limits::change_slots::ChangeSlots;
use underpass_cache::{Cache, CacheError, CacheEvent, FillReport};
use underpass_dav::locks::LockTable;

use crate::archive::Checksums;
use crate::archive::checksum::ChecksumJobs;
use crate::archive::layouts::Layouts;
use crate::auth::passwords::Passwords;
use crate::digest::known::Digests;
use crate::files::open_files::RemoteFiles;
use crate::files::writer_checks::StableVersions;
use crate::listing::jobs::Listings;
use crate::server::limits::admission::Admission;
use crate::server::limits::budget::Budget;
use crate::server::limits::evictions::Evictions;
use crate::server::settings::{ServeError, ServerEvent, Settings};
use crate::uploads::Uploads;
use underpass_observe::access_log::AccessEntry;
use underpass_observe::metrics::Metrics;
use underpass_observe::transfers::Transfers;
use underpass_protocol::response::resumption::Resumptions;

/// The state that all workers share.
pub(crate) struct ServerState {
    /// The settings; the sites in them are taken.
    pub(crate) settings: Settings,
    pub(crate) metrics: Metrics,
    pub(crate) transfers: Transfers,
    /// Files at rest that are open for writing.
    pub(crate) stable_versions: StableVersions,
    pub(crate) remote_files: Arc<RemoteFiles>,
    /// The layouts of recently requested archives.
    pub(crate) layouts: Layouts,
    /// The checksums of members of zips.
    pub(crate) checksums: Arc<Checksums>,
    /// The checksums that are being made.
    pub(crate) checksum_jobs: ChecksumJobs,
    /// The listings in progress.
    pub(crate) listings: Listings,
    /// Downloads that were interrupted.
    pub(crate) resumptions: Resumptions,
    /// Digests that are known, and those in progress.
    pub(crate) digests: Digests,
    /// Passwords that are being checked.
    pub(crate) passwords: Arc<Passwords>,
    /// The uploads in progress.
    pub(crate) uploads: Uploads,
    /// The number of times that requests have changed names.
    changes: AtomicU64,
    /// The locks of WebDAV, by paths on the disk: sites may share folders.
    pub(crate) dav_locks: Mutex<LockTable>,
    /// Limits how many changes to files and folders are in progress.
    pub(crate) changing: Arc<ChangeSlots>,
    /// Limits the connections.
    pub(crate) admission: Admission,
    /// Requests to workers to close idle connections.
    pub(crate) evictions: Evictions,
    /// The memory for requests and handshakes that are not complete.
    pub(crate) requests: Budget,
    /// The memory for lines of the log whose responses have not arrived yet.
    pub(crate) entries: Budget,
    /// `/dev/null`, to which helpers send data that only has to be in the page cache.
    pub(crate) null: OwnedFd,
    /// Takes a line of the access log.
    log: OnceLock<Log>,
    /// Receives the entry of each response, if there is an observer.
    pub(crate) observer: OnceLock<ResponseObserver>,
    on_event: OnceLock<EventHandler>,
    started: Instant,
    /// The time of the last report that connections cannot be accepted, in seconds since the start.
    noted_at: AtomicU64,
}

/// A function that takes lines of the access log.
type Log = Box<dyn Fn(&[u8]) + Send + Sync>;

/// A function that takes the entries of responses.
type ResponseObserver = Box<dyn Fn(&AccessEntry) -> ControlFlow<()> + Send + Sync>;

/// A function that is called with events of the server.
type EventHandler = Box<dyn Fn(ServerEvent) + Send + Sync>;

impl ServerState {
    /// Creates the shared state; [`Self::listen_to`] sets the log and the event handler later.
    pub(crate) fn new(settings: Settings, has_health: bool) -> Result<Self, ServeError> {
        let null = std::fs::File::options()
            .write(true)
            .open("/dev/null")
            .map_err(|source| ServeError::Io { action: "opening /dev/null", source })?;
        Ok(Self {
            metrics: Metrics::new(settings.workers),
            transfers: Transfers::default(),
            stable_versions: StableVersions::default(),
            remote_files: Arc::default(),
            layouts: Layouts::new(settings.max_archive_entries, settings.max_connections),
            checksums: Arc::default(),
            checksum_jobs: ChecksumJobs::default(),
            listings: Listings::default(),
            resumptions: Resumptions::default(),
            digests: Digests::default(),
            passwords: Arc::default(),
            uploads: Uploads::new(),
            changes: AtomicU64::new(0),
            dav_locks: Mutex::default(),
            changing: Arc::default(),
            admission: Admission::new(&settings, has_health),
            evictions: Evictions::new(settings.workers),
            requests: Budget::new(MAX_REQUEST_BYTES, FREE_REQUEST_BYTES),
            entries: Budget::new(MAX_ENTRY_BYTES, FREE_ENTRY_BYTES),
            null: null.into(),
            log: OnceLock::new(),
            observer: OnceLock::new(),
            on_event: OnceLock::new(),
            started: Instant::now(),
            noted_at: AtomicU64::new(0),
            settings,
        })
    }

    /// Starts a cache, unless it is started already.
    pub(crate) fn start_cache(self: &Arc<Self>, cache: Option<&Cache>) {
        let Some(cache) = cache else { return };
        let (shared, folder) = (Arc::downgrade(self), cache.folder().to_owned());
        cache.start(move |event| {
            shared.upgrade().iter().for_each(|shared| shared.cache_event(&folder, event));
        });
    }

    /// Reports what happened in the cache of a folder.
    fn cache_event(&self, folder: &Path, event: &CacheEvent<'_>) {
        match event {
            CacheEvent::Filled(report) => self.filled(report),
            CacheEvent::Emptied | CacheEvent::FolderGone => {
                let is_usable = matches!(event, CacheEvent::Emptied);
                let folder = folder.to_owned();
                self.report(ServerEvent::CacheRemoved { folder, is_usable });
            }
            CacheEvent::CannotStore(error) => {
                let (folder, error) = (folder.to_owned(), error.to_string());
                self.report(ServerEvent::CannotStore { folder, error });
            }
            CacheEvent::Lost { key, error } => {
                let reason = format!("removed from the cache after a disk error: {error}");
                self.report(ServerEvent::Failed { target: (*key).to_owned(), reason });
            }
            CacheEvent::OriginFailed { origin, key, reason } => {
                let [origin, target, reason] = [*origin, *key, *reason].map(str::to_owned);
                self.report(ServerEvent::OriginFailed { target, origin, reason });
            }
            _ => {}
        }
    }

    fn filled(&self, report: &FillReport<'_>) {
        self.report(ServerEvent::Filled {
            target: report.key.to_owned(),
            origin: report.origin.to_owned(),
            report: Box::new(report.report.clone()),
            elapsed: report.elapsed,
            is_relay: report.is_relay,
            failure: report.error.as_ref().map(CacheError::detail),
        });
    }

    /// Sets the receivers of log lines and events.
    pub(crate) fn listen_to(
        &self,
        log: impl Fn(&[u8]) + Send + Sync + 'static,
        on_event: impl Fn(ServerEvent) + Send + Sync + 'static,
    ) {
        // A server runs only once, so neither is set yet.
        let _ = self.log.set(Box::new(log));
        let _ = self.on_event.set(Box::new(on_event));
    }

    /// Writes a line of the access log.
    pub(crate) fn log(&self, line: &[u8]) {
        if let Some(log) = self.log.get() {
            log(line);
        }
    }

    /// Invalidates the names that workers remember, because names were changed.
    pub(crate) fn names_changed(&self) {
        self.layouts.forget_all();
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns the number of times that requests have changed names.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Reports an event.
    pub(crate) fn report(&self, event: ServerEvent) {
        if let Some(on_event) = self.on_event.get() {
            on_event(event);
        }
    }

    /// Reports that connections cannot be accepted, unless that was reported recently.
    pub(crate) fn accept_failed(&self, error: io::Error) {
        let now = self.started.elapsed().as_secs() + NOTE_INTERVAL_SECONDS;
        let last = self.noted_at.load(Ordering::Relaxed);
        if now >= last + NOTE_INTERVAL_SECONDS {
            self.noted_at.store(now, Ordering::Relaxed);
            self.report(ServerEvent::AcceptFailed(error));
        }
    }
}

impl fmt::Debug for ServerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerState").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// The maximum number of bytes of incomplete requests and handshakes, of all connections together.
const MAX_REQUEST_BYTES: usize = 64 << 20;

/// The number of such bytes that each connection may always hold: the size of most requests.
const FREE_REQUEST_BYTES: usize = 1 << 10;

/// The maximum number of bytes kept for the log until responses have arrived, of all connections.
const MAX_ENTRY_BYTES: usize = 32 << 20;

/// The number of such bytes that each connection may always hold: those of one response.
const FREE_ENTRY_BYTES: usize = 4 << 10;

/// The number of seconds between two reports of connections that cannot be accepted.
const NOTE_INTERVAL_SECONDS: u64 = 60;
