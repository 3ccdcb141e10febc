//! What the rules say to a request: everybody that they name, and what is remembered about their passwords.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::grants::{Grants, Right};
use super::secret::{CheckMemory, Secret};

/// What the rules say to one request.
#[derive(Debug)]
pub enum Verdict {
    /// It may go on.
    Allowed {
        /// Who asks; nobody in particular if there was no need to tell.
        user: Option<Arc<str>>,
    },
    /// 429: too many passwords are waiting to be checked.
    Busy,
    /// 401 with [`CHALLENGE`](super::CHALLENGE): tell who you are.
    Challenge,
    /// 403: it is known who asks, and he may not; or nobody may.
    Forbidden,
    /// The client may read something beneath the path, but not the path itself: it may be shown which
    /// names lead there, and nothing else.
    Partial {
        /// Who asks; nobody in particular if there was no need to tell.
        user: Option<Arc<str>>,
    },
    /// Not known yet: the password must be checked against a hash, away from the event loop.
    Verify(Pending),
    /// 401 with [`CHALLENGE`](super::CHALLENGE), and later each time: the name or the password is wrong.
    Wrong,
}

/// Everybody that the rules name.
#[derive(Default)]
pub(super) struct Users {
    /// What everybody may do.
    everybody: Grants,
    /// Those with a name.
    users: Vec<User>,
    /// Where they are in the list.
    by_name: HashMap<Arc<str>, usize>,
    /// The key of what is remembered: another one in each process, and never told.
    key: RandomState,
    /// What was wrong lately.
    refused: Mutex<Refused>,
}

/// Digests of names with passwords that were wrong. Rules never change, so none becomes right.
#[derive(Default)]
struct Refused {
    /// All of them.
    digests: HashSet<u128>,
    /// The same, oldest first.
    order: VecDeque<u128>,
}

/// Somebody with a name.
pub(super) struct User {
    /// The name.
    pub(super) name: Arc<str>,
    /// What the password is compared with.
    pub(super) secret: Secret,
    /// What the user may do.
    pub(super) grants: Grants,
    /// The password that was right not long ago. There can be only one, so this is bounded.
    pub(super) verified: Mutex<Option<Verified>>,
}

/// That a password was right.
pub(super) struct Verified {
    /// Its hash under the key of the process: the password itself is not kept.
    digest: u128,
    /// Until when this is believed.
    until: Instant,
}

/// How long a password that was right is not checked again after it was last used. Nothing can
/// change meanwhile, for rules are read once; it only limits how long its digest is kept.
pub(super) const BELIEVED_FOR: Duration = Duration::from_secs(600);

impl Users {
    /// Whether nobody is named and nothing is open to everybody: there are no rules.
    pub(super) const fn is_empty(&self) -> bool {
        self.users.is_empty() && self.everybody.is_empty()
    }

    /// Whether everybody may write somewhere.
    pub(super) fn lets_everybody_write(&self) -> bool {
        self.everybody.has(Right::Write)
    }

    /// The names.
    pub(super) fn names(&self) -> Vec<&str> {
        self.users.iter().map(|user| &*user.name).collect()
    }

    /// Opens paths to everybody.
    pub(super) const fn everybody(&mut self) -> &mut Grants {
        &mut self.everybody
    }

    /// Adds a user. Whether there is one of that name already is for the caller to ask.
    pub(super) fn add(&mut self, user: User) {
        self.by_name.insert(Arc::clone(&user.name), self.users.len());
        self.users.push(user);
    }

    /// Whether there is a user of this name.
    pub(super) fn position(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// Whether this user, or everybody, may do this. A name that nobody has counts as everybody.
    pub(super) fn can(&self, user: Option<&str>, path: &[u8], right: Right) -> bool {
        self.allows(user.and_then(|name| self.position(name)), path, right)
    }

    /// The same with all that may lie beneath the path: a longer path of a rule may give less.
    pub(super) fn can_all(&self, user: Option<&str>, path: &[u8], right: Right) -> bool {
        let user = user.and_then(|name| self.position(name));
        self.beneath(user, path).chain([path]).all(|path| self.allows(user, path, right))
    }

    /// Whether this user, or everybody, may read something beneath the path.
    pub(super) fn leads(&self, user: Option<&str>, path: &[u8]) -> bool {
        self.beneath(user.and_then(|name| self.position(name)), path).next().is_some()
    }

    /// The paths beneath this one of a user's own rule and of that for everybody.
    fn beneath<'u>(
        &'u self,
        user: Option<usize>,
        path: &'u [u8],
    ) -> impl Iterator<Item = &'u [u8]> {
        let own = user.map(|user| &self.users[user].grants);
        own.into_iter().chain([&self.everybody]).flat_map(move |grants| grants.beneath(path))
    }

    /// The verdict on somebody whose password was right, or who gave none.
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

    /// The verdict on a name and a password.
    ///
    /// Whoever is refused has waited as long as for the most costly hash of the rules, whether the
    /// name exists or not, so that the time does not tell names. Rules in which all passwords are
    /// plain never wait.
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

    /// Remembers that a name and a password, of which this is the digest, are wrong.
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

    /// The number of blocks of memory that the most costly hash needs.
    pub(super) fn blocks(&self) -> usize {
        self.users.iter().map(|user| user.secret.blocks()).max().unwrap_or(0)
    }

    /// Whether somebody's own rule or that for everybody allows this.
    fn allows(&self, user: Option<usize>, path: &[u8], right: Right) -> bool {
        let own = user.and_then(|user| self.users[user].grants.right_on(path));
        own.max(self.everybody.right_on(path)) >= Some(right)
    }

    /// Whether this password of a user was right not long ago.
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

    /// Takes the time that the check of a password takes.
    fn pretend(&self, password: &[u8], memory: &mut CheckMemory) {
        let decoy = self.costly().or(self.users.first());
        // The answer must not be thrown away before it is made.
        std::hint::black_box(decoy.is_some_and(|user| user.secret.matches(password, memory)));
    }

    /// The user whose hash costs most, if there are hashes.
    fn costly(&self) -> Option<&User> {
        self.users
            .iter()
            .filter(|user| user.secret.cost() > 0)
            .max_by_key(|user| user.secret.cost())
    }

    /// 128 bits that tell nothing about the password to who does not have the key.
    fn digest_of(&self, user: usize, password: &[u8]) -> u128 {
        self.digest(&[self.users[user].name.as_bytes(), password])
    }

    /// The same of several strings.
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

/// Locks even if another thread has panicked: what is behind these locks is never half-written.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A password that has to be checked against a hash.
pub struct Pending {
    /// Where the answer comes from and is remembered.
    users: Arc<Users>,
    /// Whose password it may be; `None` if the answer is no already, and only the time it takes to
    /// say so must not differ.
    user: Option<usize>,
    /// The password.
    password: Vec<u8>,
    /// The digest under which it is remembered that they are wrong.
    refusal: u128,
    /// What is to be done if it is right,
    path: Vec<u8>,
    /// and with which right.
    right: Right,
}

impl Pending {
    /// Checks the password. Takes as long as its hash was made to take, up to seconds.
    ///
    /// Never answers [`Verdict::Verify`].
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

/// The most names with wrong passwords that are remembered.
const MAX_REFUSED: usize = 4096;
