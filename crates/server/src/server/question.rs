//! What has to be found out before a request can be answered, and may take its time: helpers do
//! that, and then the request is looked at again with what is known.

use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::io::Errno;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use super::archives::{self, LayoutKey};
use super::changes::{Change, Changed, Refusal};
use super::digests::{self, Digests, Undigested};
use super::disk_queue::ClientNet;
use super::files::{self, Found};
use super::listings::{self, ListTask, ListingHead};
use super::peer::Peer;
use super::reach::Reached;
use super::response::Body;
use super::root::Patience;
use super::settled::{AGAIN_LATER, Checks};
use super::shared::Shared;
use super::worker::Worker;
use crate::auth::{Pending, Verdict};

/// Something to be found out.
#[derive(Debug)]
pub(super) enum Question {
    /// How a folder is laid out as an archive.
    Archive(LayoutKey, OwnedFd),
    /// What the digest of a file is.
    Digest(digests::Request),
    /// What comes of a change.
    Change(Box<Change>),
    /// What a folder holds.
    List(Box<ListTask>),
    /// What is at a path.
    Open(Vec<u8>),
    /// Where links lead a change to.
    Reach(Vec<u8>),
    /// What a file of procfs says.
    Read(OwnedFd),
    /// Whether a password is right.
    Verify(Pending),
    /// Nothing: the password is wrong, and it is time to say so.
    Wrong,
}

/// What was found out about one request.
#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) layout: Option<archives::Outcome>,
    pub(super) listing: Option<io::Result<(ListingHead, Body)>>,
    pub(super) changed: Option<Result<Changed, Refusal>>,
    pub(super) opened: Vec<Opened>,
    /// Where links lead to.
    pub(super) reached: Vec<Reached>,
    pub(super) text: Option<io::Result<Vec<u8>>>,
    /// How often a digest was asked for.
    pub(super) asked_digests: u32,
    /// Why there was none, the last time.
    pub(super) undigested: Option<Undigested>,
    pub(super) verdict: Option<Verdict>,
    /// How often what was opened had changed before it could be sent.
    pub(super) outdated: u32,
}

/// What was found at a path.
#[derive(Debug)]
pub(super) struct Opened {
    path: Vec<u8>,
    pub(super) found: Result<Found, Errno>,
    /// How often names had been changed before it was looked for.
    pub(super) changes: u64,
}

impl Known {
    /// What was found at a path.
    pub(super) fn take(&mut self, path: &[u8]) -> Option<Opened> {
        let index = self.opened.iter().position(|opened| opened.path == path)?;
        Some(self.opened.swap_remove(index))
    }
}

impl Question {
    /// Has a helper find it out.
    pub(super) async fn ask(self, worker: &Worker, peer: &Peer, known: &mut Known) {
        let shared = Arc::clone(&worker.shared);
        match self {
            Self::Archive(key, folder) => {
                let client = ClientNet::of(peer.address);
                known.layout = Some(archives::ask(shared, client, key, folder).await);
            }
            Self::Digest(request) => {
                // Minutes, for a large file: nobody reads it for a client that has left.
                let made = peer.unless_left(Digests::make(&shared, request)).await;
                known.undigested = made.unwrap_or(Err(Undigested::Busy)).err();
            }
            Self::Change(change) => {
                // It is never closed.
                let _turn = worker.shared.changing.acquire().await;
                known.changed = spawn_blocking(move || change.run(&shared)).await.ok();
            }
            Self::List(task) => {
                let client = ClientNet::of(peer.address);
                known.listing = Some(listings::ask(shared, client, *task).await);
            }
            Self::Open(path) => known.opened.extend(open(path, shared).await),
            Self::Reach(path) => {
                let task = spawn_blocking(move || Reached::find(&shared.root, path));
                known.reached.extend(task.await.ok());
            }
            Self::Read(file) => known.text = spawn_blocking(move || read(file)).await.ok(),
            Self::Verify(pending) => {
                known.verdict = Some(shared.passwords.check(pending, peer).await);
            }
            Self::Wrong => known.verdict = Some(shared.passwords.refuse(peer).await),
        }
    }
}

/// Opens what is at a path, as soon as whoever may be writing to it leaves it alone.
async fn open(path: Vec<u8>, shared: Arc<Shared>) -> Option<Opened> {
    let mut checks = Checks::new(shared.settings.integrity);
    loop {
        let (shared, again) = (Arc::clone(&shared), path.clone());
        let task = spawn_blocking(move || {
            let changes = shared.changes();
            let found = files::open(&shared, &again, Patience::Disk, &mut checks);
            (Opened { path: again, found, changes }, checks)
        });
        let (opened, looked) = task.await.ok()?;
        match opened.found {
            Err(AGAIN_LATER) => sleep(looked.pause).await,
            _ => return Some(opened),
        }
        checks = looked;
    }
}

/// Reads a file whose size nobody knows.
fn read(file: OwnedFd) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    std::fs::File::from(file).take(MOST_TEXT + 1).read_to_end(&mut text)?;
    if text.len() as u64 > MOST_TEXT {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(text)
}

/// Bytes of a file of procfs at the most; the endless ones have no end here either.
const MOST_TEXT: u64 = 4 << 20;
