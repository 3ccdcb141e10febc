//! Decides on requests by the rules, and remembers which passwords were right or wrong.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use underpass_engine::wait::lock;
use underpass_protocol::auth::{AccessRules, Decision, Right, RuleError};
use underpass_protocol::request::ClientNet;

use super::secret::{CheckMemory, Secret};

/// Whether a request is allowed.
#[derive(Debug)]
pub enum AccessDecision {
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
    /// Undecided: the password must be checked, in its client's turn and, if it is hashed, off the
    /// event loop.
    Verify(PendingCheck),
    /// 401 with [`CHALLENGE`](super::CHALLENGE), delayed more each time: the name or the password
    /// is wrong.
    Wrong,
}

/// The rules, and the results of recent password checks.
#[derive(Default)]
pub(super) struct Users {
    /// The rules, with an account for each user.
    pub(super) rules: AccessRules<Account>,
    /// The key of the digests; it differs in each process and is never disclosed.
    key: RandomState,
    /// The credentials that were wrong recently.
    refused: Mutex<RejectedPasswords>,
}

/// Digests of wrong names and passwords. Rules never change, so none becomes right.
#[derive(Default)]
struct RejectedPasswords {
    /// All digests.
    digests: HashSet<u128>,
    /// The digests of `digests`, oldest first.
    order: VecDeque<u128>,
}

/// A user's password as the rule gives it, and the last one verified.
pub(super) struct Account {
    /// The stored form of the password.
    pub(super) secret: Secret,
    /// The last verified password. A user has only one, so this is bounded.
    verified: Mutex<Option<VerifiedPassword>>,
}

/// The record of a verified password.
struct VerifiedPassword {
    /// Its hash under the key of the process: the password itself is not kept.
    digest: u128,
    /// The clients that have used it.
    clients: HashSet<ClientNet>,
    /// The time until which the record is valid.
    until: Instant,
}

/// The time for which a right password is not checked again after its last use. The answer cannot
/// change in that time, because rules are read once; it only limits how long the digest is kept.
pub(super) const BELIEVED_FOR: Duration = Duration::from_secs(600);

impl Users {
    /// Parses the rules.
    pub(super) fn parse(rules: &[String]) -> Result<Self, RuleError> {
        let account = |password: &str| {
            Secret::parse(password).map(|secret| Account { secret, verified: Mutex::default() })
        };
        Ok(Self { rules: AccessRules::parse(rules, account)?, ..Self::default() })
    }

    /// Returns the verdict on a client whose password was right, or that gave none.
    pub(super) fn decide(&self, user: Option<usize>, path: &[u8], right: Right) -> AccessDecision {
        let name = || user.map(|user| Arc::clone(self.rules.name(user)));
        match self.rules.decide(user, path, right) {
            Decision::Allowed => AccessDecision::Allowed { user: name() },
            Decision::Challenge => AccessDecision::Challenge,
            Decision::Forbidden => AccessDecision::Forbidden,
            Decision::Partial => AccessDecision::Partial { user: name() },
        }
    }

    /// Returns the verdict on a name and a password.
    ///
    /// Only a password that was verified for this client, or refused for any, is decided here:
    /// otherwise a client that does not wait for refusals could try any number of passwords.
    ///
    /// A refusal takes as long as one check of each hash cost in the rules, whether or not the name
    /// exists, so that timing does not reveal names. If all passwords in the rules are plain, there
    /// is no such wait.
    pub(super) fn check(
        &self,
        shared: &Arc<Self>,
        (name, password): (&[u8], Vec<u8>),
        client: ClientNet,
        path: &[u8],
        right: Right,
    ) -> AccessDecision {
        let user = str::from_utf8(name).ok().and_then(|name| self.rules.position(name));
        let is_known = |user| self.remembers(user, &password, Some(client), Instant::now());
        if user.is_some_and(is_known) {
            return self.decide(user, path, right);
        }
        let refusal = self.digest(&[name, &password]);
        if lock(&self.refused).digests.contains(&refusal) {
            return AccessDecision::Wrong;
        }
        let users = Arc::clone(shared);
        AccessDecision::Verify(PendingCheck {
            users,
            user,
            password,
            client,
            refusal,
            path: path.into(),
            right,
        })
    }

    /// Checks a password against its hash. If it is wrong, it is also checked against one hash of
    /// each other cost.
    pub(super) fn verify(
        &self,
        user: Option<usize>,
        (password, client): (&[u8], ClientNet),
        memory: &mut CheckMemory,
        now: impl FnOnce() -> Instant,
    ) -> bool {
        if let Some(user) = user {
            let (now, secret) = (now(), &self.rules.secret(user).secret);
            if self.remembers(user, password, None, now) || secret.matches(password, memory) {
                self.believe(user, password, client, now);
                return true;
            }
        }
        let plain = self.rules.secrets().find(|account| account.secret.cost() == 0);
        let plain = plain.filter(|_| user.is_none());
        spend_check_time(plain.into_iter().chain(self.decoys(user)), password, memory);
        false
    }

    /// Remembers that a password of a user is right.
    fn believe(&self, user: usize, password: &[u8], client: ClientNet, now: Instant) {
        let digest = self.digest_of(user, password);
        let mut kept = lock(&self.rules.secret(user).verified);
        let kept = match &mut *kept {
            Some(kept) if kept.digest == digest => kept,
            other => other.insert(VerifiedPassword { digest, clients: HashSet::new(), until: now }),
        };
        if kept.clients.len() >= MAX_CLIENTS {
            kept.clients.clear();
        }
        kept.clients.insert(client);
        kept.until = now + BELIEVED_FOR;
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

    /// Returns whether this password of a user was right recently, for this client or any.
    fn remembers(
        &self,
        user: usize,
        password: &[u8],
        client: Option<ClientNet>,
        now: Instant,
    ) -> bool {
        let given = self.digest_of(user, password);
        let mut kept = lock(&self.rules.secret(user).verified);
        if kept.as_ref().is_some_and(|verified| verified.until <= now) {
            *kept = None;
        }
        let is_known = |verified: &&mut VerifiedPassword| {
            verified.digest == given
                && client.is_none_or(|client| verified.clients.contains(&client))
        };
        let Some(verified) = kept.as_mut().filter(is_known) else { return false };
        verified.until = now + BELIEVED_FOR;
        true
    }

    /// Returns the accounts against which a wrong password is also checked: one for each hash cost
    /// in the rules except the user's own.
    pub(super) fn decoys(&self, user: Option<usize>) -> Vec<&Account> {
        let cost = |account: &Account| account.secret.cost();
        let own = user.map_or(0, |user| cost(self.rules.secret(user)));
        let others = self.rules.secrets().filter(|account| ![0, own].contains(&cost(account)));
        let mut decoys: Vec<_> = others.collect();
        decoys.sort_by_key(|account| cost(account));
        decoys.dedup_by_key(|account| cost(account));
        decoys
    }

    /// Returns 128 bits that reveal nothing about the password without the key.
    fn digest_of(&self, user: usize, password: &[u8]) -> u128 {
        self.digest(&[self.rules.name(user).as_bytes(), password])
    }

    /// Returns such a digest of several strings.
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

/// Spends the time that the checks of these accounts take.
fn spend_check_time<'a>(
    accounts: impl IntoIterator<Item = &'a Account>,
    password: &[u8],
    memory: &mut CheckMemory,
) {
    for account in accounts {
        // This keeps the compiler from removing the check.
        std::hint::black_box(account.secret.matches(password, memory));
    }
}

/// A password that has to be checked against a hash.
pub struct PendingCheck {
    /// The users, which remember the result.
    users: Arc<Users>,
    /// The user to authenticate; `None` for an unknown name, which is checked only so that its
    /// refusal takes the same time.
    user: Option<usize>,
    /// The password.
    password: Vec<u8>,
    /// The client that sent it.
    client: ClientNet,
    /// The digest under which a wrong name or password is remembered.
    refusal: u128,
    /// The path of the request.
    path: Vec<u8>,
    /// The right that the request needs.
    right: Right,
}

impl PendingCheck {
    /// Checks the password if that takes no hashing: all passwords in the rules are plain, this one
    /// is, or it was right for another client.
    pub(crate) fn at_once(&self) -> Option<AccessDecision> {
        let users = &self.users;
        let is_quick = users.decoys(None).is_empty()
            || self.user.is_some_and(|user| {
                users.rules.secret(user).secret.is_plain(&self.password)
                    || users.remembers(user, &self.password, None, Instant::now())
            });
        is_quick.then(|| self.run(&mut CheckMemory::default()))
    }

    /// Checks the password. This takes as long as the cost of its hash demands, up to seconds.
    ///
    /// It never returns [`AccessDecision::Verify`].
    #[must_use]
    pub fn run(&self, memory: &mut CheckMemory) -> AccessDecision {
        let given = (&*self.password, self.client);
        if self.users.verify(self.user, given, memory, Instant::now) {
            self.users.decide(self.user, &self.path, self.right)
        } else {
            self.users.refuse(self.refusal);
            AccessDecision::Wrong
        }
    }
}

impl fmt::Debug for PendingCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending").finish_non_exhaustive()
    }
}

/// The maximum number of clients of one user that are remembered.
const MAX_CLIENTS: usize = 1024;

/// The maximum number of wrong names and passwords that are remembered.
const MAX_REFUSED: usize = 4096;
