//! What all workers have in common.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Instant;

use tokio::sync::Semaphore;

use crate::archive::layouts::Layouts;
use crate::auth::hosts::Hosts;
use crate::auth::passwords::Passwords;
use crate::digest::known::Digests;
use crate::files::root::Root;
use crate::files::settled::AtRest;
use crate::head::custom_fields;
use crate::listing::jobs::Listings;
use crate::observe::metrics::Metrics;
use crate::observe::transfers::Transfers;
use crate::resumption::Resumptions;
use crate::server::limits::admission::Admission;
use crate::server::limits::budget::Budget;
use crate::server::limits::evictions::Evictions;
use crate::server::settings::{Note, ServeError, Settings};
use crate::uploads::Uploads;

/// What all workers have in common.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) root: Root,
    /// The fields that the settings add to every response, ready to be sent.
    pub(crate) custom_fields: Vec<u8>,
    pub(crate) metrics: Metrics,
    pub(crate) transfers: Transfers,
    /// Files at rest that are open for writing.
    pub(crate) at_rest: AtRest,
    /// Archives laid out a moment ago.
    pub(crate) layouts: Layouts,
    /// Listings that are being made.
    pub(crate) listings: Listings,
    /// Downloads that were broken off.
    pub(crate) resumptions: Resumptions,
    /// Digests that were made, and those that are being made.
    pub(crate) digests: Digests,
    /// The names that it goes by.
    pub(crate) hosts: Hosts,
    /// Whether browsers are told not to run the scripts of files: they would act as pages of this
    /// server, for whoever looks at them.
    pub(crate) sandboxes: bool,
    /// Passwords that are being checked.
    pub(crate) passwords: Arc<Passwords>,
    /// Uploads that are under way.
    pub(crate) uploads: Uploads,
    /// Held by whoever gives or takes the name of a file: together with others, or alone if the
    /// change depends on what has the name now.
    pub(crate) names: RwLock<()>,
    /// How often requests have changed which names there are.
    changes: AtomicU64,
    /// Changes to files and folders that may be under way at once.
    pub(crate) changing: Semaphore,
    /// Which connections there may be.
    pub(crate) admission: Admission,
    /// Idle connections that workers are asked to close.
    pub(crate) evictions: Evictions,
    /// Memory for requests and handshakes that are not complete.
    pub(crate) requests: Budget,
    /// Memory for lines of the log whose responses have not arrived yet.
    pub(crate) entries: Budget,
    /// `/dev/null`, where helpers send what only has to be in the page cache.
    pub(crate) null: OwnedFd,
    /// Takes a line of the access log.
    pub(crate) log: Log,
    notes: Notes,
    started: Instant,
    /// Seconds since the start when it was last told that connections cannot be accepted.
    told: AtomicU64,
}

/// Takes lines of the access log.
type Log = Box<dyn Fn(&[u8]) + Send + Sync>;

/// Takes notes.
type Notes = Box<dyn Fn(Note) + Send + Sync>;

impl Shared {
    /// Gathers everything; the log and the notes come later, with [`Self::listen_to`].
    pub(crate) fn new(settings: Settings) -> Result<Self, ServeError> {
        let root = Root::new(&settings)?;
        let null = std::fs::File::options()
            .write(true)
            .open("/dev/null")
            .map_err(|source| ServeError::Io { action: "opening /dev/null", source })?;
        let mut custom_fields = custom_fields(&settings.headers).map_err(ServeError::Header)?;
        if settings.cors {
            custom_fields.extend_from_slice(CORS_FIELDS);
        }
        Ok(Self {
            root,
            custom_fields,
            metrics: Metrics::new(settings.workers),
            transfers: Transfers::default(),
            at_rest: AtRest::default(),
            layouts: Layouts::new(settings.max_archive_entries),
            listings: Listings::default(),
            resumptions: Resumptions::default(),
            digests: Digests::default(),
            hosts: Hosts::new(&settings.allowed_hosts),
            sandboxes: !settings.allows_scripts
                && (settings.changes.upload
                    || settings.changes.delete
                    || settings.access.has_users()),
            passwords: Arc::default(),
            uploads: Uploads::new(),
            names: RwLock::new(()),
            changes: AtomicU64::new(0),
            changing: Semaphore::new(MAX_CHANGES),
            admission: Admission::new(&settings),
            evictions: Evictions::new(settings.workers),
            requests: Budget::new(MAX_REQUEST_BYTES, FREE_REQUEST_BYTES),
            entries: Budget::new(MAX_ENTRY_BYTES, FREE_ENTRY_BYTES),
            null: null.into(),
            log: Box::new(|_| {}),
            notes: Box::new(|_| {}),
            started: Instant::now(),
            told: AtomicU64::new(0),
            settings,
        })
    }

    /// Says where lines and notes go.
    pub(crate) fn listen_to(
        &mut self,
        log: impl Fn(&[u8]) + Send + Sync + 'static,
        notes: impl Fn(Note) + Send + Sync + 'static,
    ) {
        self.log = Box::new(log);
        self.notes = Box::new(notes);
    }

    /// Has no worker answer by what it knew of names before: they were changed.
    pub(crate) fn names_changed(&self) {
        self.layouts.forget_all();
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    /// How often names were changed by requests.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Tells something.
    pub(crate) fn note(&self, note: Note) {
        (self.notes)(note);
    }

    /// Tells that connections cannot be accepted, unless that was told lately.
    pub(crate) fn accept_failed(&self, error: io::Error) {
        let now = self.started.elapsed().as_secs() + NOTE_INTERVAL_SECONDS;
        let told = self.told.load(Ordering::Relaxed);
        if now >= told + NOTE_INTERVAL_SECONDS {
            self.told.store(now, Ordering::Relaxed);
            self.note(Note::AcceptFailed(error));
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// Scripts of every site may read, and see what a transfer needs to be resumed.
const CORS_FIELDS: &[u8] = b"Access-Control-Allow-Origin: *\r\n\
    Access-Control-Expose-Headers: Accept-Ranges, Content-Encoding, Content-Length, Content-Range, \
    ETag, Last-Modified, Link, Repr-Digest, Server-Timing\r\n";

/// Bytes of requests and handshakes that are not complete, of all connections together.
const MAX_REQUEST_BYTES: usize = 64 << 20;

/// Bytes of those that each connection may hold in any case: as much as most requests have.
const FREE_REQUEST_BYTES: usize = 1 << 10;

/// Bytes of what is kept for the log until responses have arrived, of all connections together.
const MAX_ENTRY_BYTES: usize = 32 << 20;

/// Bytes of those that each connection may hold in any case: those of one response.
const FREE_ENTRY_BYTES: usize = 4 << 10;

/// Changes under way at once: removing and copying large folders keeps disks busy, and must leave
/// helpers for those who only read.
const MAX_CHANGES: usize = 16;

/// Seconds between two notes about connections that cannot be accepted.
const NOTE_INTERVAL_SECONDS: u64 = 60;
