//! The cache as a server uses it: objects by their keys, and readers of them.

mod operate;
mod reader;

use std::net::IpAddr;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

use underpass_protocol::caching::{CacheStatus, Forward, Freshness, Use};

use crate::failure::{Failure, OpenError};
use crate::fill::{self, Reply, Wanted};
use crate::generation::Generation;
use crate::key::Key;
use crate::node::{Counts, FillReport, Node, Place};
use crate::object::{Asking, Contact, Object, Offer, Outcome};
use crate::options::CacheOptions;
use crate::store::{Head, replayed};

pub use operate::StoredObject;
pub use reader::Reader;

/// A cache. It is cheap to clone.
#[derive(Clone, Debug)]
pub struct Cache {
    node: Arc<Node>,
}

/// What a client asks for.
#[derive(Clone, Debug, Default)]
pub struct Wish {
    /// The part that is wanted, if it is known before the length is: then this is fetched first.
    pub range: Option<Range<u64>>,
    /// The value of the request's `CDN-Loop`, with which it is passed on.
    pub passed: String,
    /// Whether there is known to be no room for it: it is passed on and not stored.
    pub is_relayed: bool,
    /// The client or its network, whose questions, fills and relays are bounded; `None` without a
    /// bound.
    pub client: Option<IpAddr>,
}

/// What the cache has for a request.
#[derive(Debug)]
pub enum Found {
    /// An object, all of which is here or can be fetched.
    Entry(Box<Entry>),
    /// What the origin says instead of an object: there is none, or it has failed.
    Reply {
        /// What it says.
        reply: Arc<Reply>,
        /// How the cache handled the request.
        cache: CacheStatus,
    },
    /// There is no answer of the origin that could be used.
    Failed {
        /// Why.
        failure: Failure,
        /// When to ask again, if that is known.
        retry_after: Option<Duration>,
        /// How the cache handled the request.
        cache: CacheStatus,
    },
}

/// An object in one version.
#[derive(Debug)]
pub struct Entry {
    node: Arc<Node>,
    object: Arc<Object>,
    generation: Arc<Generation>,
    head: Arc<Head>,
    freshness: Freshness,
    /// How the cache handled the request.
    pub cache: CacheStatus,
    passed: String,
    /// The relay that was begun for this request, if there is no room for the object.
    offer: Option<Offer>,
    client: Option<IpAddr>,
}

impl Cache {
    /// Opens the folder for this process alone. Fills can begin after [`start`](Self::start).
    ///
    /// # Errors
    ///
    /// [`OpenError`].
    pub fn open(options: CacheOptions) -> Result<Self, OpenError> {
        Ok(Self { node: Arc::new(Node::open(options)?) })
    }

    /// Begins to look through the folder and to sync what arrives. `observe` is called with the
    /// report of each fill, by the thread that ran it.
    pub fn start(&self, observe: impl Fn(&FillReport<'_>) + Send + Sync + 'static) {
        self.node.observe(Box::new(observe));
        let node = Arc::downgrade(&self.node);
        // Without this thread, less is known after a power cut and about the room.
        let _ = std::thread::Builder::new().name("cache".to_owned()).spawn(move || keep(&node));
    }

    /// Returns the absolute path of the folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.node.folder.path()
    }

    /// Returns by which name this node recognizes its own requests (RFC 8586).
    #[must_use]
    pub fn id(&self) -> &str {
        &self.node.origins.id
    }

    /// Returns the key of a path; see [`Key::new`]. Object stores have no queries for clients, and
    /// without one they know folders only by listings, which have no key.
    #[must_use]
    pub fn key(&self, path: &[u8], is_folder: bool, query: &[u8]) -> Option<Key> {
        let query = if self.has_stores() { &[][..] } else { query };
        Key::new(path, is_folder, query)
    }

    /// Returns whether an origin is an object store.
    #[must_use]
    pub fn has_stores(&self) -> bool {
        self.node.origins.has_stores()
    }

    /// Returns the names of the fields of clients by which objects vary, in lower case.
    #[must_use]
    pub fn vary_on(&self) -> &[String] {
        &self.node.options.vary_on
    }

    /// Finds an object: here, or at the origin. Of several requests for one object, one asks.
    pub async fn find(&self, key: &Key, wish: &Wish) -> Found {
        self.node.popularity.count(key.as_str());
        let object = self.node.object(key);
        let mut is_collapsed = false;
        for _ in 0..MAX_ATTEMPTS {
            let (contact, is_own) = match self.look(&object, wish) {
                Look::Found(found) => return *found,
                Look::Wait(contact, is_own) => (contact, is_own),
                Look::TooMany => break,
            };
            if !is_own {
                is_collapsed = true;
                Counts::add(&self.node.counters.collapsed, 1);
            }
            let outcome = contact.outcome().await;
            if let Some(found) = self.found(&object, outcome, is_own, is_collapsed, wish) {
                return found;
            }
        }
        let cache = CacheStatus { forward: Some(Forward::UriMiss), ..CacheStatus::default() };
        Found::Failed { failure: Failure::Busy, retry_after: None, cache }
    }

    /// Looks at what is known now, and asks if that is not enough.
    fn look(&self, object: &Arc<Object>, wish: &Wish) -> Look {
        let mut state = object.state();
        let is_fresh = |reply: &&Arc<Reply>| {
            reply.is_fresh() && !self.node.expiry.has(object.key.as_str(), reply.requested)
        };
        if let Some(reply) = state.reply.as_ref().filter(is_fresh) {
            let cache = CacheStatus { detail: Some("negative"), ..CacheStatus::default() };
            return Look::Found(Box::new(Found::Reply { reply: Arc::clone(reply), cache }));
        }
        let current = state.current.clone().filter(|current| current.broken().is_none());
        let usage = current.as_ref().map(|current| self.node.usage(&object.key, current));
        let has_no_room =
            wish.is_relayed || state.no_room_until.is_some_and(|until| Instant::now() < until);
        let is_private = state.private_until.is_some_and(|until| Instant::now() < until);
        match (current, usage) {
            (Some(current), Some(Use::Fresh)) => {
                drop(state);
                let cache = CacheStatus::default();
                return Look::Found(Box::new(self.entry(object, current, cache, wish)));
            }
            (Some(current), Some(Use::WhileRevalidating)) => {
                let place = self.node.clients.enter(wish.client);
                let place = place.filter(|_| state.contact.is_none());
                let begun = place.map(|place| (place, begin(&mut state.contact)));
                drop(state);
                if let Some((place, contact)) = begun {
                    self.ask(object, contact, Wish { range: None, ..wish.clone() }, place);
                }
                let detail = Some("revalidating");
                let cache = CacheStatus { detail, ..CacheStatus::default() };
                return Look::Found(Box::new(self.entry(object, current, cache, wish)));
            }
            (None, _) if has_no_room || is_private && state.contact.is_some() => {
                drop(state);
                let Some(place) = self.node.clients.enter(wish.client) else {
                    return Look::TooMany;
                };
                let contact = Arc::new(Contact::default());
                let wish = Wish { is_relayed: has_no_room, ..wish.clone() };
                self.ask(object, Arc::clone(&contact), wish, place);
                return Look::Wait(contact, true);
            }
            _ => {}
        }
        if let Some(contact) = &state.contact {
            return Look::Wait(Arc::clone(contact), false);
        }
        let Some(place) = self.node.clients.enter(wish.client) else { return Look::TooMany };
        let contact = begin(&mut state.contact);
        let is_loaded = state.is_loaded;
        drop(state);
        if is_loaded {
            self.ask(object, Arc::clone(&contact), wish.clone(), place);
        } else {
            let asking = Asking { object: Arc::clone(object), contact: Arc::clone(&contact) };
            let (node, wanted) = (Arc::clone(&self.node), wanted(wish.clone()));
            self.node.loads.run(move || fill::load(&node, asking, wanted, place));
        }
        Look::Wait(contact, true)
    }

    /// Has a thread ask the origin.
    fn ask(&self, object: &Arc<Object>, contact: Arc<Contact>, wish: Wish, place: Place) {
        let asking = Asking { object: Arc::clone(object), contact };
        let node = Arc::clone(&self.node);
        let wanted = wanted(wish);
        // If there is no place, dropping the question ends it.
        self.node.fills.run(move || {
            fill::fetch(&node, &asking, &wanted);
            drop(place);
        });
    }

    /// Returns what an outcome means for a request; `None` if it has to ask for itself.
    fn found(
        &self,
        object: &Arc<Object>,
        outcome: Outcome,
        is_own: bool,
        is_collapsed: bool,
        wish: &Wish,
    ) -> Option<Found> {
        let asked = |forward, status| CacheStatus {
            forward: Some(forward),
            forward_status: status,
            is_collapsed,
            ..CacheStatus::default()
        };
        Some(match outcome {
            Outcome::Loaded(current) => self.entry(object, current, CacheStatus::default(), wish),
            Outcome::Sent(current, status) => {
                let is_stored = current.is_stored();
                if !is_stored && !is_own {
                    return None;
                }
                let cache = CacheStatus { is_stored, ..asked(Forward::UriMiss, Some(status)) };
                self.entry(object, current, cache, wish)
            }
            Outcome::Relayed(..) if !is_own => return None,
            Outcome::Relayed(current, status, offer) => {
                let cache = asked(Forward::UriMiss, Some(status)).relayed();
                match self.entry(object, current, cache, wish) {
                    Found::Entry(entry) => {
                        Found::Entry(Box::new(Entry { offer: Some(offer), ..*entry }))
                    }
                    other => other,
                }
            }
            Outcome::Valid(current, status) => {
                let cache = CacheStatus { is_stored: true, ..asked(Forward::Stale, Some(status)) };
                self.entry(object, current, cache, wish)
            }
            Outcome::Stale(current, failure) => {
                let cache = CacheStatus { detail: Some(failure.word()), ..CacheStatus::default() };
                self.entry(object, current, cache, wish)
            }
            Outcome::Reply(reply) => {
                let cache = asked(Forward::UriMiss, Some(reply.status));
                Found::Reply { reply, cache }
            }
            Outcome::Failed(failure, retry_after) => {
                let detail = Some(failure.word());
                let cache = CacheStatus { detail, ..asked(Forward::UriMiss, None) };
                Found::Failed { failure, retry_after, cache }
            }
        })
    }

    fn entry(
        &self,
        object: &Arc<Object>,
        generation: Arc<Generation>,
        cache: CacheStatus,
        wish: &Wish,
    ) -> Found {
        self.node.room.touch(object.key.digest());
        let head = generation.head();
        let freshness = head.freshness(&self.node.options.rules);
        let ttl = Some(freshness.remaining(SystemTime::now()));
        Found::Entry(Box::new(Entry {
            node: Arc::clone(&self.node),
            object: Arc::clone(object),
            generation,
            head,
            freshness,
            cache: CacheStatus { ttl, ..cache },
            passed: wish.passed.clone(),
            offer: None,
            client: wish.client,
        }))
    }
}

/// What is to be done about a request.
enum Look {
    Found(Box<Found>),
    /// Wait for a question; `true` if it was begun for this request.
    Wait(Arc<Contact>, bool),
    /// The client has too many questions and fills under way.
    TooMany,
}

fn begin(contact: &mut Option<Arc<Contact>>) -> Arc<Contact> {
    Arc::clone(contact.insert(Arc::default()))
}

/// Returns what to ask for first: whole MiB.
fn wanted(wish: Wish) -> Wanted {
    let range = wish.range.map(|range| {
        let end = range.end.max(range.start.saturating_add(1));
        range.start / UNIT * UNIT..end.checked_next_multiple_of(UNIT).unwrap_or(u64::MAX)
    });
    Wanted { range, passed: wish.passed, is_relayed: wish.is_relayed, client: wish.client }
}

impl Entry {
    /// Returns the length in bytes, once it is known: chunks tell it at their end.
    #[must_use]
    pub fn len(&self) -> Option<u64> {
        self.generation.len()
    }

    /// Returns whether the object is known to have no byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// Returns the value of a field of the origin, whose name is in lower case.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&str> {
        self.head.field(name)
    }

    /// Returns the fields that clients get as the origin has sent them.
    pub fn replayed(&self) -> impl Iterator<Item = (&str, &str)> {
        let fields = self.head.fields.iter().filter(|(name, _)| replayed(name));
        fields.map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns its age in seconds, for `Age`.
    #[must_use]
    pub fn age(&self, now: SystemTime) -> u64 {
        self.freshness.age(now).as_secs()
    }

    /// Returns the time at which the origin has made its answer, for `Date`.
    #[must_use]
    pub fn date(&self) -> SystemTime {
        self.freshness.date()
    }

    /// Returns how many bytes of a range are here already.
    #[must_use]
    pub fn present(&self, range: &Range<u64>) -> u64 {
        self.generation.count_in(range)
    }

    /// Begins to read. Each range that is read is given to [`Reader::arrive`].
    #[must_use]
    pub fn reader(&self) -> Reader {
        let (object, generation) = (Arc::clone(&self.object), Arc::clone(&self.generation));
        let offer = self.offer.as_ref().and_then(|offer| offer.lock().ok()?.take());
        let asker = (self.passed.clone(), self.client);
        Reader::new(Arc::clone(&self.node), object, generation, asker, offer)
    }
}

/// Looks through the folder once, and then brings to the disk what arrives, as long as the cache
/// lives.
fn keep(node: &Weak<Node>) {
    if let Some(node) = node.upgrade() {
        node.folder.scan(&mut |digest, bytes| node.room.found(&digest, bytes));
    }
    loop {
        std::thread::sleep(SAVE_INTERVAL);
        let Some(node) = node.upgrade() else { return };
        let generations = node.generations();
        drop(node);
        generations.iter().for_each(|generation| generation.save());
    }
}

/// How often a request begins anew because the question that it waited for was not for it.
const MAX_ATTEMPTS: u32 = 3;

/// Questions are for whole multiples of this.
const UNIT: u64 = 1 << 20;

/// How often what arrives is brought to the disk: a power cut loses little more.
const SAVE_INTERVAL: Duration = Duration::from_secs(10);
