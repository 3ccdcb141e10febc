//! Decides on requests by the rules: the users that they name, and what is remembered about their
//! passwords.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::grants::{Grants, Right};
use super::secret::{CheckMemory, Secret};

/// The verdict on one request.
#[derive(Debug)]
pub enum Verdict {
    /// The request is allowed.
    Allowed {
        /// The user; `None` if the client did not have to log in.
        user: Option<Arc<str>>,
    },
    /// 429: too many passwords are waiting to be checked.
    Busy,
    /// 401 with [`CHALLENGE`](super::CHALLENGE): the client must log in.
    Challenge,
    /// 403: the client has logged in and lacks the right, or no client has it.
    Forbidden,
    /// The client may read something below the path, but not the path itself: it may see only the
    /// names that lead there.
    Partial {
        /// The user; `None` if the client did not have to log in.
        user: Option<Arc<str>>,
    },
    /// Undecided: the password must be checked against a hash, away from the event loop.
    Verify(Pending),
    /// 401 with [`CHALLENGE`](super::CHALLENGE), delayed more each time: the name or the password
    /// is wrong.
    Wrong,
}

/// The users that the rules name, and the rights of everyone.
#[derive(Default)]
pub(super) struct Users {
    /// The rights of everyone.
    everyone: Grants,
    /// The users with a name.
    users: Vec<User>,
    /// The position of each name in the list.
    by_name: HashMap<Arc<str>, usize>,
    /// The key of the digests; it differs in each process and is never disclosed.
    key: RandomState,
    /// The credentials that were wrong recently.
    refused: Mutex<Refused>,
}

/// Digests of names with passwords that were wrong. Rules never change, so none becomes right.
#[derive(Default)]
struct Refused {
    /// All digests.
    digests: HashSet<u128>,
    /// The digests of `digests`, oldest first.
    order: VecDeque<u128>,
}

/// A user with a name.
pub(super) struct User {
    /// The name.
    pub(super) name: Arc<str>,
    /// The stored form of the password.
    pub(super) secret: Secret,
    /// The rights of the user.
    pub(super) grants: Grants,
    /// The last password that was right. There can be only one, so this is bounded.
    pub(super) verified: Mutex<Option<Verified>>,
}

/// The record that a password was right.
pub(super) struct Verified {
    /// Its hash under the key of the process: the password itself is not kept.
    digest: u128,
    /// The time until which the record is valid.
    until: Instant,
}

/// The time for which a right password is not checked again after its last use. Nothing can change
/// meanwhile, because rules are read once; it only limits how long the digest is kept.
pub(super) const BELIEVED_FOR: Duration = Duration::from_secs(600);

impl Users {
    /// Returns whether there are no rules: they name no user and open nothing to everyone.
    pub(super) const fn is_empty(&self) -> bool {
        self.users.is_empty() && self.everyone.is_empty()
    }

    /// Returns whether everyone may write to any path.
    pub(super) fn lets_anyone_write(&self) -> bool {
        self.everyone.has(Right::Write)
    }

    /// Returns the names.
    pub(super) fn names(&self) -> Vec<&str> {
        self.users.iter().map(|user| &*user.name).collect()
    }

    /// Returns the rights of everyone, to be extended.
    pub(super) const fn everyone(&mut self) -> &mut Grants {
        &mut self.everyone
    }

    /// Adds a user. The caller must have checked that the name is free.
    pub(super) fn add(&mut self, user: User) {
        self.by_name.insert(Arc::clone(&user.name), self.users.len());
        self.users.push(user);
    }

    /// Returns the position of the user with this name, if there is one.
    pub(super) fn position(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// Returns whether this user, or everyone, has a right. An unknown name counts as everyone.
    pub(super) fn can(&self, user: Option<&str>, path: &[u8], right: Right) -> bool {
        self.allows(user.and_then(|name| self.position(name)), path, right)
    }

    /// Returns whether the right covers everything that may lie below the path, too: a longer path
    /// of a rule may give less.
    pub(super) fn can_all(&self, user: Option<&str>, path: &[u8], right: Right) -> bool {
        let user = user.and_then(|name| self.position(name));
        self.beneath(user, path).chain([path]).all(|path| self.allows(user, path, right))
    }

    /// Returns whether this user, or everyone, may read something below the path.
    pub(super) fn leads(&self, user: Option<&str>, path: &[u8]) -> bool {
        self.beneath(user.and_then(|name| self.position(name)), path).next().is_some()
    }

    /// Returns the paths below this one in a user's own rule and in that for everyone.
    fn beneath<'u>(
        &'u self,
        user: Option<usize>,
        path: &'u [u8],
    ) -> impl Iterator<Item = &'u [u8]> {
        let own = user.map(|user| &self.users[user].grants);
        own.into_iter().chain([&self.everyone]).flat_map(move |grants| grants.beneath(path))
    }

    /// Returns the verdict on a client whose password was right, or that gave none.
    pub(super) fn decide(&self, user: Option<usize>, path: &[u8], right: Right) -> Verdict {
        let name = || user.map(|user| Arc::clone(&self.users[user].name));
        if self.allows(user, path, right) {
            Verdict::Allowed { user: name() }
        } else if right == Right::Read && self.beneath(user, path).next().is_some() {
            Verdict::Partial { user: name() }
        } else if user.is_none() && !self.users.is_empty() {
            Verdict::Challenge
        } else {
            Verdict::Forbidden
        }
    }

    /// Returns the verdict on a name and a password.
    ///
    /// A refusal takes as long as the most costly hash of the rules, whether the name exists or
    /// not, so that the time does not reveal names. If all passwords in the rules are plain, there
    /// is no such wait.
    pub(super) fn check(
        &self,
        shared: &Arc<Self>,
        name: &[u8],
        password: Vec<u8>,
        path: &[u8],
        right: Right,
    ) -> Verdict {
        let mut user = str::from_utf8(name).ok().and_then(|name| self.position(name));
        if let Some(known) = user {
            let is_right = if self.users[known].secret.cost() == 0 {
                self.users[known].secret.matches(&password, &mut CheckMemory::default())
            } else {
                self.remembers(known, &password, Instant::now())
            };
            if is_right {
                return self.decide(user, path, right);
            }
        }
        if self.costly().is_none() {
            if user.is_none() {
                self.pretend(&password, &mut CheckMemory::default());
            }
            return Verdict::Wrong;
        }
        let refusal = self.digest(&[name, &password]);
        if lock(&self.refused).digests.contains(&refusal) {
            return Verdict::Wrong;
        }
        user = user.filter(|&known| self.users[known].secret.cost() > 0);
        let users = Arc::clone(shared);
        Verdict::Verify(Pending { users, user, password, refusal, path: path.into(), right })
    }

    /// Checks a password against its hash, or against any hash if it is wrong anyway.
    pub(super) fn verify(
        &self,
        user: Option<usize>,
        password: &[u8],
        memory: &mut CheckMemory,
        now: impl FnOnce() -> Instant,
    ) -> bool {
        let Some(user) = user else {
            self.pretend(password, memory);
            return false;
        };
        let now = now();
        if self.remembers(user, password, now) {
            return true;
        }
        let is_right = self.users[user].secret.matches(password, memory);
        if is_right {
            let digest = self.digest_of(user, password);
            *lock(&self.users[user].verified) =
                Some(Verified { digest, until: now + BELIEVED_FOR });
        }
        is_right
    }

    /// Remembers that the name and the password with this digest are wrong.
    pub(super) fn refuse(&self, digest: u128) {
        let mut refused = lock(&self.refused);
        if !refused.digests.insert(digest) {
            return;
        }
        refused.order.push_back(digest);
        if refused.order.len() > MAX_REFUSED
            && let Some(oldest) = refused.order.pop_front()
        {
            refused.digests.remove(&oldest);
        }
    }

    /// Returns the number of blocks of memory that the most costly hash needs.
    pub(super) fn blocks(&self) -> usize {
        self.users.iter().map(|user| user.secret.blocks()).max().unwrap_or(0)
    }

    /// Returns whether a user's own rule or that for everyone allows this.
    fn allows(&self, user: Option<usize>, path: &[u8], right: Right) -> bool {
        let own = user.and_then(|user| self.users[user].grants.right_on(path));
        own.max(self.everyone.right_on(path)) >= Some(right)
    }

    /// Returns whether this password of a user was right recently.
    fn remembers(&self, user: usize, password: &[u8], now: Instant) -> bool {
        let given = self.digest_of(user, password);
        let mut kept = lock(&self.users[user].verified);
        if kept.as_ref().is_some_and(|verified| verified.until <= now) {
            *kept = None;
        }
        let Some(verified) = kept.as_mut().filter(|verified| verified.digest == given) else {
            return false;
        };
        verified.until = now + BELIEVED_FOR;
        true
    }

    /// Spends the time that a check of a password takes.
    fn pretend(&self, password: &[u8], memory: &mut CheckMemory) {
        let decoy = self.costly().or(self.users.first());
        // This keeps the compiler from removing the check.
        std::hint::black_box(decoy.is_some_and(|user| user.secret.matches(password, memory)));
    }

    /// Returns the user with the most costly hash, if there are hashes.
    fn costly(&self) -> Option<&User> {
        self.users
            .iter()
            .filter(|user| user.secret.cost() > 0)
            .max_by_key(|user| user.secret.cost())
    }

    /// Returns 128 bits that reveal nothing about the password without the key.
    fn digest_of(&self, user: usize, password: &[u8]) -> u128 {
        self.digest(&[self.users[user].name.as_bytes(), password])
    }

    /// Returns the same for several strings.
    fn digest(&self, strings: &[&[u8]]) -> u128 {
        let half = |which: u8| {
            let mut hasher = self.key.build_hasher();
            hasher.write_u8(which);
            for string in strings {
                hasher.write_usize(string.len());
                hasher.write(string);
            }
            u128::from(hasher.finish())
        };
        half(0) << 64 | half(1)
    }
}

/// Locks even if another thread has panicked: the data in these locks is never half-written.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A password that has to be checked against a hash.
pub struct Pending {
    /// The users, who remember the result.
    users: Arc<Users>,
    /// The user whose password it may be; `None` if it is refused already and only the time of the
    /// refusal must not differ.
    user: Option<usize>,
    /// The password.
    password: Vec<u8>,
    /// The digest under which a wrong name or password is remembered.
    refusal: u128,
    /// The path of the request.
    path: Vec<u8>,
    /// The right that the request needs.
    right: Right,
}

impl Pending {
    /// Checks the password. This takes as long as its hash was made to take, up to seconds.
    ///
    /// It never returns [`Verdict::Verify`].
    #[must_use]
    pub fn run(self, memory: &mut CheckMemory) -> Verdict {
        memory.reserve(self.users.blocks());
        if self.users.verify(self.user, &self.password, memory, Instant::now) {
            self.users.decide(self.user, &self.path, self.right)
        } else {
            self.users.refuse(self.refusal);
            Verdict::Wrong
        }
    }
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").finish_non_exhaustive()
    }
}

/// The maximum number of wrong names and passwords that are remembered.
const MAX_REFUSED: usize = 4096;
