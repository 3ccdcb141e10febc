//! The write locks of clients (RFC 4918 6 and 7).
//!
//! A lock covers a path, at which no file need exist: a client that changes it submits the token of
//! a lock there. Locks are kept in memory and end with the server.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::xml::{close, escape, open};

/// A lock.
#[derive(Clone, Debug)]
pub struct Lock {
    /// The URN by which its client refers to it.
    pub token: Arc<str>,
    /// The locked path.
    pub root: Arc<[u8]>,
    /// A second locked path: that of the link by which the client named the first.
    pub link: Option<Arc<[u8]>>,
    /// Whether the path was a folder when it was locked.
    pub is_folder: bool,
    /// Whether everything below the path is locked, too.
    pub is_deep: bool,
    /// Whether no other client can have a lock there.
    pub is_exclusive: bool,
    /// The client's description of itself, as XML.
    pub owner: Arc<str>,
    /// The user that holds it; `None` if everyone who knows the token can use it.
    pub user: Option<Arc<str>>,
    /// A number that distinguishes users of the same name with different passwords.
    pub realm: u64,
    /// The client whose share of the table it uses.
    pub client: Arc<str>,
    /// When it expires.
    pub expires: Instant,
}

/// The reason why a lock cannot be granted.
#[derive(Clone, Debug)]
pub enum LockError {
    /// Another lock is in the way.
    Conflict(Box<Lock>),
    /// The client has too many locks, all clients together have, or the path has.
    TooMany,
    /// A change of a path that the lock would cover is in progress.
    Changing,
}

/// What a change of a path affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// Whether the name is added to its folder or removed from it.
    pub names: bool,
    /// Whether everything below the path changes, too.
    pub is_deep: bool,
}

/// The tokens that a client has submitted, and its user.
#[derive(Clone, Copy, Debug)]
pub struct Submitted<'a> {
    /// The tokens.
    pub tokens: &'a [&'a str],
    /// The user.
    pub user: Option<&'a str>,
    /// The number of the passwords by which the user is known.
    pub realm: u64,
}

impl Submitted<'_> {
    fn opens(&self, lock: &Lock) -> bool {
        let is_same = lock.user.as_deref() == self.user && lock.realm == self.realm;
        let is_user = lock.user.is_none() || is_same;
        is_user && self.tokens.contains(&&*lock.token)
    }
}

/// The locks of all clients.
#[derive(Debug, Default)]
pub struct LockTable {
    /// The locks of each path; none of the lists is empty.
    by_path: BTreeMap<Arc<[u8]>, Vec<Lock>>,
    count: usize,
    /// The paths of the changes in progress.
    changing: Vec<Arc<[u8]>>,
}

impl LockTable {
    /// Adds a lock.
    ///
    /// # Errors
    ///
    /// See [`LockError`].
    pub fn add(&mut self, lock: Lock, now: Instant) -> Result<(), LockError> {
        let at_link = lock.link.clone().map(|link| {
            let target = Some(Arc::clone(&lock.root));
            Lock { root: link, link: target, ..lock.clone() }
        });
        let added: Vec<_> = [Some(lock), at_link].into_iter().flatten().collect();
        added.iter().try_for_each(|lock| self.check_new(lock, now))?;
        if !self.has_room(&added) {
            self.retain(|lock| lock.expires > now);
            if !self.has_room(&added) {
                return Err(LockError::TooMany);
            }
        }
        self.count += added.len();
        for lock in added {
            self.by_path.entry(Arc::clone(&lock.root)).or_default().push(lock);
        }
        Ok(())
    }

    /// Checks that no change or lock at a path or below it conflicts with a new lock.
    fn check_new(&self, lock: &Lock, now: Instant) -> Result<(), LockError> {
        // A lock of a folder also covers the names in it (RFC 4918 7.4).
        let meets = |path: &[u8]| {
            is_beneath(&lock.root, path)
                || parent(path) == Some(&*lock.root)
                || lock.is_deep && is_beneath(path, &lock.root)
        };
        if self.changing.iter().any(|path| meets(path)) {
            return Err(LockError::Changing);
        }
        let conflicts = |other: &&Lock| lock.is_exclusive || other.is_exclusive;
        let below = self.below(&lock.root, now).filter(|_| lock.is_deep);
        if let Some(other) = self.covering(&lock.root, now).chain(below).find(conflicts) {
            return Err(LockError::Conflict(Box::new(other.clone())));
        }
        if self.covering(&lock.root, now).count() >= MAX_COVERING {
            return Err(LockError::TooMany);
        }
        Ok(())
    }

    /// Returns the locks that cover a path, some of which may be at a folder above it.
    pub fn covering<'t>(
        &'t self,
        path: &'t [u8],
        now: Instant,
    ) -> impl Iterator<Item = &'t Lock> + 't {
        let above = std::iter::successors(Some(path), |path| parent(path));
        let locks = above.filter(|_| self.count > 0).filter_map(|path| self.by_path.get(path));
        let covers =
            move |lock: &&Lock| lock.expires > now && (lock.is_deep || *lock.root == *path);
        locks.flatten().filter(covers)
    }

    /// Checks that the client has submitted the token of a lock at each locked place that a change
    /// affects; where several clients share a lock, one token is enough.
    ///
    /// # Errors
    ///
    /// A lock at the first place for which no token was submitted.
    pub fn check(
        &self,
        path: &[u8],
        reach: Reach,
        submitted: Submitted<'_>,
        now: Instant,
    ) -> Result<(), Box<Lock>> {
        if self.count == 0 {
            return Ok(());
        }
        let open = |locks: Vec<&Lock>| match locks.first() {
            Some(first) if !locks.iter().any(|lock| submitted.opens(lock)) => {
                Err(Box::new((*first).clone()))
            }
            _ => Ok(()),
        };
        open(self.covering(path, now).collect())?;
        if let Some(parent) = parent(path).filter(|_| reach.names) {
            open(self.covering(parent, now).collect())?;
        }
        if reach.is_deep {
            let mut below: Vec<_> = self.below(path, now).collect();
            while let Some(root) = below.first().map(|lock| Arc::clone(&lock.root)) {
                let (here, rest) = below.into_iter().partition(|lock| lock.root == root);
                open(here)?;
                below = rest;
            }
        }
        Ok(())
    }

    /// Begins a change at a path and below: until [`LockTable::end_change`] no lock is granted
    /// there, or above if it would cover the path.
    pub fn begin_change(&mut self, path: &[u8]) {
        self.changing.push(path.into());
    }

    /// Ends one change of a path.
    pub fn end_change(&mut self, path: &[u8]) {
        if let Some(at) = self.changing.iter().position(|changing| **changing == *path) {
            self.changing.swap_remove(at);
        }
    }

    /// Extends a lock that covers a path; returns it if the client may use it.
    pub fn refresh(
        &mut self,
        path: &[u8],
        submitted: Submitted<'_>,
        timeout: Duration,
        now: Instant,
    ) -> Option<Lock> {
        let found = self.covering(path, now).find(|lock| submitted.opens(lock))?.clone();
        let expires = now + timeout;
        for path in [Some(&found.root), found.link.as_ref()].into_iter().flatten() {
            let locks = self.by_path.get_mut(path).into_iter().flatten();
            let same = locks.filter(|lock| lock.token == found.token);
            same.for_each(|lock| lock.expires = expires);
        }
        Some(Lock { expires, ..found })
    }

    /// Ends a lock that covers a path; returns whether there was one that the client may use.
    pub fn remove(&mut self, path: &[u8], submitted: Submitted<'_>, now: Instant) -> bool {
        let found = self.covering(path, now).find(|lock| submitted.opens(lock));
        let Some(token) = found.map(|lock| Arc::clone(&lock.token)) else { return false };
        self.end(&token);
        true
    }

    /// Ends the lock with this token.
    pub fn end(&mut self, token: &str) {
        self.retain(|lock| &*lock.token != token);
    }

    /// Returns whether there are no locks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Ends all locks at a path and below it, because nothing exists there any more.
    pub fn forget(&mut self, path: &[u8]) {
        self.retain(|lock| !lock.paths().any(|locked| is_beneath(locked, path)));
    }

    /// Ends all locks below a path, but not those at the path itself.
    pub fn forget_below(&mut self, path: &[u8]) {
        let is_below = |locked: &[u8]| locked != path && is_beneath(locked, path);
        self.retain(|lock| !lock.paths().any(is_below));
    }

    /// Returns the locked paths at and below this one.
    #[must_use]
    pub fn locked_within(&self, path: &[u8]) -> Vec<Vec<u8>> {
        let within = self.by_path.keys().filter(|locked| is_beneath(locked, path));
        within.map(|locked| locked.to_vec()).collect()
    }

    fn retain(&mut self, keeps: impl Fn(&Lock) -> bool) {
        if self.count > 0 {
            self.by_path.values_mut().for_each(|locks| locks.retain(&keeps));
            self.by_path.retain(|_, locks| !locks.is_empty());
            self.count = self.by_path.values().map(Vec::len).sum();
        }
    }

    /// Returns whether this client may have more locks.
    fn has_room(&self, added: &[Lock]) -> bool {
        let is_own = |lock: &&Lock| added.iter().any(|new| new.client == lock.client);
        let own = self.by_path.values().flatten().filter(is_own);
        // A few clients cannot fill the table: once it is half full, each may have only a few.
        let max = if self.count < MAX_LOCKS / 2 { MAX_OWN_LOCKS } else { OWNER_SHARE };
        self.count + added.len() <= MAX_LOCKS && own.count() + added.len() <= max
    }

    /// Returns the locks at paths below this one.
    fn below<'t>(&'t self, path: &'t [u8], now: Instant) -> impl Iterator<Item = &'t Lock> + 't {
        let from: (Bound<&[u8]>, Bound<&[u8]>) = (Bound::Excluded(path), Bound::Unbounded);
        let after = self.by_path.range::<[u8], _>(from);
        let after = after.take_while(move |(root, _)| root.starts_with(path));
        let after = after.filter(move |(root, _)| is_beneath(root, path));
        after.flat_map(|(_, locks)| locks).filter(move |lock| lock.expires > now)
    }
}

impl Lock {
    /// Returns the paths that it locks.
    fn paths(&self) -> impl Iterator<Item = &[u8]> {
        [Some(&*self.root), self.link.as_deref()].into_iter().flatten()
    }

    /// Writes the lock as an `activelock` (RFC 4918 14.1).
    pub(crate) fn write(&self, root: &str, seconds: u64, out: &mut Vec<u8>) {
        let scope = if self.is_exclusive { "exclusive" } else { "shared" };
        let depth = if self.is_deep { "infinity" } else { "0" };
        let begin = format!(
            "<D:activelock><D:lockscope><D:{scope}/></D:lockscope><D:locktype><D:write/></D:locktype>\
             <D:depth>{depth}</D:depth>{}<D:timeout>Second-{seconds}</D:timeout>",
            self.owner
        );
        out.extend_from_slice(begin.as_bytes());
        for (element, link) in [("locktoken", &*self.token), ("lockroot", root)] {
            open(out, element);
            open(out, "href");
            escape(out, link);
            close(out, "href");
            close(out, element);
        }
        close(out, "activelock");
    }
}

/// Returns a lock token made from these random bytes (RFC 9562 5.4).
#[must_use]
pub fn token(mut random: [u8; 16]) -> String {
    random[6] = random[6] & 0x0f | 0x40;
    random[8] = random[8] & 0x3f | 0x80;
    let number = u128::from_be_bytes(random);
    let (a, b, c) = (number >> 96, number >> 80 & 0xffff, number >> 64 & 0xffff);
    let (d, e) = (number >> 48 & 0xffff, number & 0xffff_ffff_ffff);
    format!("urn:uuid:{a:08x}-{b:04x}-{c:04x}-{d:04x}-{e:012x}")
}

/// Returns how long a lock lasts for this `Timeout` field (RFC 4918 10.7): the first time in it, at
/// most [`MAX_TIMEOUT`].
#[must_use]
pub fn timeout(field: Option<&[u8]>) -> Duration {
    let first = field.and_then(|value| str::from_utf8(value).ok()).unwrap_or_default();
    let first = first.split(',').next().unwrap_or_default().trim();
    let seconds = first.strip_prefix("Second-").and_then(|seconds| seconds.parse::<u32>().ok());
    seconds.map_or(MAX_TIMEOUT, |seconds| {
        Duration::from_secs(seconds.into()).clamp(MIN_TIMEOUT, MAX_TIMEOUT)
    })
}

/// Returns the folder of a path; `None` for the root.
#[must_use]
pub fn parent(path: &[u8]) -> Option<&[u8]> {
    if path.is_empty() {
        return None;
    }
    Some(path.iter().rposition(|&byte| byte == b'/').map_or(b"", |slash| &path[..slash]))
}

/// Returns whether a path is `above` or below it.
fn is_beneath(path: &[u8], above: &[u8]) -> bool {
    let rest = path.strip_prefix(above);
    above.is_empty() || rest.is_some_and(|rest| matches!(rest, [] | [b'/', ..]))
}

/// The maximum number of locks.
const MAX_LOCKS: usize = 4096;

/// The maximum number of locks of one client.
const MAX_OWN_LOCKS: usize = 256;

/// The maximum number of locks of one client while the table is more than half full.
const OWNER_SHARE: usize = 16;

/// The maximum number of locks that cover a path when one of it is granted, and of those that are
/// described: a response repeats them for each entry of a folder.
pub const MAX_COVERING: usize = 32;

/// The longest time that a lock lasts without a refresh.
pub const MAX_TIMEOUT: Duration = Duration::from_secs(60 * 60);

const MIN_TIMEOUT: Duration = Duration::from_secs(1);
