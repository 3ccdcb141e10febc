//! Checks hashed passwords: one thread with its own memory, and a bounded queue in which client
//! addresses take turns.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::time::sleep;
use underpass_engine::wait::{lock, unpoison};

use crate::auth::{AccessDecision, CheckMemory, PendingCheck};
use crate::connection::peer::Peer;
use crate::server::limits::priority::step_back;
use underpass_protocol::request::ClientNet;

/// Checks the passwords for all workers.
#[derive(Debug, Default)]
pub(crate) struct Passwords {
    queue: Mutex<Queue>,
    /// Notified when there is a password to check.
    filled: Condvar,
}

/// The passwords that wait to be checked, and the history of the addresses they came from.
#[derive(Debug, Default)]
struct Queue {
    /// The checks in order of arrival.
    waiting: Vec<PasswordCheck>,
    clients: HashMap<ClientNet, History>,
    /// The number of checks requested.
    requested: u64,
    /// The number of checks begun.
    started: u64,
    has_thread: bool,
}

/// A password that waits to be checked.
#[derive(Debug)]
struct PasswordCheck {
    number: u64,
    pending: PendingCheck,
    client: ClientNet,
    /// Whether the client has ended its side of the connection.
    has_left: bool,
    /// Closed when the connection has ended.
    answer: oneshot::Sender<AccessDecision>,
}

/// The history of a client.
#[derive(Debug)]
struct History {
    /// The number of passwords that were wrong, or too many, since the last pause.
    refused: u32,
    /// The number of its last check; 0 if there was none.
    last_turn: u64,
    last_seen: Instant,
    /// The moment before which no further password is checked.
    next_check: Instant,
}

impl Passwords {
    /// Has a password checked, and delays the answer if it is wrong. Returns
    /// [`AccessDecision::Busy`] if too many are waiting.
    ///
    /// The passwords of a client with many refusals are checked one at a time, with the delay of a
    /// refusal in between, so a client that leaves instead of waiting learns nothing.
    pub(crate) async fn check(
        self: &Arc<Self>,
        pending: PendingCheck,
        peer: &Peer,
    ) -> AccessDecision {
        let client = peer.client_net();
        let turn = lock(&self.queue).turn(client);
        let Some(turn) = turn else { return AccessDecision::Busy };
        if !turn.is_zero() && peer.while_connected(sleep(turn)).await.is_none() {
            return AccessDecision::Busy;
        }
        let verdict = match pending.at_once() {
            Some(verdict) => Some(verdict),
            None => self.check_hash(pending, client, peer).await,
        };
        match verdict {
            Some(AccessDecision::Wrong) => self.refuse(peer).await,
            Some(verdict) => verdict,
            None => {
                self.delay(peer).await;
                AccessDecision::Busy
            }
        }
    }

    /// Has a password checked by the thread; returns `None` if too many are waiting.
    async fn check_hash(
        self: &Arc<Self>,
        pending: PendingCheck,
        client: ClientNet,
        peer: &Peer,
    ) -> Option<AccessDecision> {
        let (number, mut answer) = self.enqueue(pending, client)?;
        match peer.while_connected(&mut answer).await {
            Some(answered) => answered.ok(),
            None => {
                // The client may be gone, or may only have shut down its side of the connection,
                // which looks the same: its check moves to the end of the queue.
                lock(&self.queue).move_to_end(number);
                answer.await.ok()
            }
        }
    }

    /// Delays the refusal of a client with a wrong password.
    pub(crate) async fn refuse(&self, peer: &Peer) -> AccessDecision {
        self.delay(peer).await;
        AccessDecision::Wrong
    }

    /// Counts a refusal, and waits longer with each further one of this client.
    async fn delay(&self, peer: &Peer) {
        let client = peer.client_net();
        let delay = {
            let mut queue = lock(&self.queue);
            let history = queue.history(client);
            history.refused = history.refused.saturating_add(1);
            queue.delay(client)
        };
        if !delay.is_zero() {
            // The delay ends if the client has left.
            let _ = peer.while_connected(sleep(delay)).await;
        }
    }

    /// Puts a password into the queue, and starts the thread if there is none.
    fn enqueue(
        self: &Arc<Self>,
        pending: PendingCheck,
        client: ClientNet,
    ) -> Option<(u64, oneshot::Receiver<AccessDecision>)> {
        let (answer, answered) = oneshot::channel();
        let mut queue = lock(&self.queue);
        if !queue.make_room(client) {
            return None;
        }
        queue.requested += 1;
        let number = queue.requested;
        queue.waiting.push(PasswordCheck { number, pending, client, has_left: false, answer });
        if queue.has_thread {
            self.filled.notify_one();
            return Some((number, answered));
        }
        let passwords = Arc::clone(self);
        let thread = thread::Builder::new().name("passwords".to_owned());
        queue.has_thread = thread.spawn(move || passwords.work()).is_ok();
        if !queue.has_thread {
            queue.waiting.clear();
        }
        Some((number, answered))
    }

    /// Checks passwords until none has arrived for [`MAX_IDLE`].
    fn work(&self) {
        step_back();
        let mut memory = CheckMemory::default();
        let mut presence = ThreadCount { passwords: self, is_noted: false };
        while let Some(job) = self.next(&mut presence) {
            let verdict = job.pending.run(&mut memory);
            // The client may have left by now.
            let _ = job.answer.send(verdict);
        }
    }

    /// Waits for the next password to check; `None` if the thread is to end.
    fn next(&self, presence: &mut ThreadCount<'_>) -> Option<PasswordCheck> {
        let mut queue = lock(&self.queue);
        loop {
            if let Some(job) = queue.pop() {
                return Some(job);
            }
            let (woken, timeout) = unpoison(self.filled.wait_timeout(queue, MAX_IDLE));
            queue = woken;
            if timeout.timed_out() && queue.waiting.is_empty() {
                queue.has_thread = false;
                presence.is_noted = true;
                return None;
            }
        }
    }
}

/// Notes on drop, even after a panic, that the thread has ended: the next password starts another.
struct ThreadCount<'a> {
    passwords: &'a Passwords,
    is_noted: bool,
}

impl Drop for ThreadCount<'_> {
    fn drop(&mut self) {
        if !self.is_noted {
            let mut queue = lock(&self.passwords.queue);
            queue.has_thread = false;
            queue.waiting.clear();
        }
    }
}

impl Queue {
    /// Makes room for one more password of this client at the expense of the client with the most
    /// in the queue or, among equals, the most refusals. Returns whether there is room.
    fn make_room(&mut self, client: ClientNet) -> bool {
        if self.waiting.len() < MAX_WAITING {
            return true;
        }
        self.waiting.retain(|job| !job.has_left && !job.answer.is_closed());
        if self.waiting.len() < MAX_WAITING {
            return true;
        }
        let mut counts: HashMap<ClientNet, usize> = HashMap::new();
        for job in &self.waiting {
            *counts.entry(job.client).or_default() += 1;
        }
        let weight = |client: ClientNet, count: usize| {
            (count, self.clients.get(&client).map_or(0, |history| history.refused))
        };
        let own = weight(client, counts.get(&client).copied().unwrap_or(0) + 1);
        let greediest = counts.iter().map(|(&each, &count)| (weight(each, count), each)).max();
        let Some((_, greediest)) = greediest.filter(|&(other, _)| other > own) else {
            return false;
        };
        if let Some(last) = self.waiting.iter().rposition(|job| job.client == greediest) {
            // Dropping the sender reports that the password is not checked.
            self.waiting.remove(last);
        }
        true
    }

    /// Moves a password to the end because its client may have left.
    fn move_to_end(&mut self, number: u64) {
        if let Some(job) = self.waiting.iter_mut().find(|job| job.number == number) {
            job.has_left = true;
        }
    }

    /// Takes the first password of the client whose last turn is the longest ago.
    fn pop(&mut self) -> Option<PasswordCheck> {
        self.waiting.retain(|job| !job.answer.is_closed());
        let last_turn = |client| self.clients.get(client).map_or(0, |history| history.last_turn);
        let turns = self.waiting.iter().map(|job| (job.has_left, last_turn(&job.client)));
        let (index, _) = turns.enumerate().min_by_key(|&(_, turn)| turn)?;
        let job = self.waiting.remove(index);
        self.started += 1;
        let started = self.started;
        self.history(job.client).last_turn = started;
        Some(job)
    }

    /// Returns the history of a client.
    fn history(&mut self, client: ClientNet) -> &mut History {
        let now = Instant::now();
        if self.clients.len() >= MAX_CLIENTS && !self.clients.contains_key(&client) {
            self.clients.retain(|_, history| now.duration_since(history.last_seen) < FORGIVEN);
            let oldest = self.clients.iter().min_by_key(|(_, history)| history.last_seen);
            if let Some(oldest) = oldest.map(|(&oldest, _)| oldest)
                && self.clients.len() >= MAX_CLIENTS
            {
                self.clients.remove(&oldest);
            }
        }
        let new = History { refused: 0, last_turn: 0, last_seen: now, next_check: now };
        let history = self.clients.entry(client).or_insert(new);
        if now.duration_since(history.last_seen) >= FORGIVEN {
            history.refused = 0;
        }
        history.last_seen = now;
        history
    }

    /// Returns how long a client waits until its next password is checked, and reserves that turn;
    /// `None` if another of its passwords is waiting already.
    fn turn(&mut self, client: ClientNet) -> Option<Duration> {
        let next_check = self.history(client).next_check;
        let (now, delay) = (Instant::now(), self.delay(client));
        if delay.is_zero() {
            return Some(delay);
        }
        let wait = next_check.saturating_duration_since(now);
        if wait > delay {
            return None;
        }
        self.history(client).next_check = now + wait + delay;
        Some(wait)
    }

    /// Returns by how much the refusals of a client are delayed.
    fn delay(&self, client: ClientNet) -> Duration {
        let refused = self.clients.get(&client).map_or(0, |history| history.refused);
        match refused.checked_sub(FREE_ATTEMPTS) {
            None | Some(0) => Duration::ZERO,
            Some(more) => (FIRST_DELAY * (1 << more.min(8))).min(MAX_DELAY),
        }
    }
}

/// The maximum number of passwords that wait to be checked.
const MAX_WAITING: usize = 64;

/// The maximum number of clients that are remembered.
const MAX_CLIENTS: usize = 4096;

/// The pause after which refusals are forgotten.
const FORGIVEN: Duration = Duration::from_secs(60);

/// The number of refusals without a delay.
const FREE_ATTEMPTS: u32 = 8;

/// Half the first delay; the delay doubles with each further refusal.
const FIRST_DELAY: Duration = Duration::from_millis(50);

/// The maximum delay.
const MAX_DELAY: Duration = Duration::from_secs(4);

/// The idle time after which the thread ends and gives its memory back.
const MAX_IDLE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::auth::{Access, Right};

    /// Returns a waiting password and the receiver of its answer.
    fn pending() -> PendingCheck {
        let hash = "$6$abcdefgh$SWDwEZWRRYiTytOjaHki9le2a6Gb9QWh.kwC8cPkDKnPPbGNob41yZZrWFkkHj/HdGZ5pwS8KeUaKWpI8srgy.";
        let access = Access::parse(&[format!("bob:{hash}@/")]).unwrap();
        match access.check(Some(b"Basic Ym9iOndyb25n"), ClientNet::of(None), b"", Right::Read) {
            AccessDecision::Verify(pending) => pending,
            other => panic!("{other:?}"),
        }
    }

    fn net(last: u8) -> ClientNet {
        ClientNet::of(Some(([10, 0, 0, last], 1).into()))
    }

    fn add(queue: &mut Queue, last: u8) -> Option<oneshot::Receiver<AccessDecision>> {
        let client = net(last);
        let (answer, answered) = oneshot::channel();
        queue.make_room(client).then(|| {
            queue.requested += 1;
            let (number, pending) = (queue.requested, pending());
            queue.waiting.push(PasswordCheck { number, pending, client, has_left: false, answer });
            answered
        })
    }

    #[test]
    fn a_full_queue_takes_a_new_address_and_no_more_of_the_greediest() {
        let mut queue = Queue::default();
        let mut first: Vec<_> = (0..MAX_WAITING).map(|_| add(&mut queue, 1).unwrap()).collect();
        assert!(add(&mut queue, 1).is_none(), "it has all of the queue");
        let mut second = add(&mut queue, 2).unwrap();
        assert_eq!(queue.waiting.len(), MAX_WAITING);
        assert!(first.pop().unwrap().try_recv().is_err(), "its last was given up");
        assert!(second.try_recv().is_err());
        assert_eq!(queue.pop().unwrap().client, net(1));
        assert_eq!(queue.pop().unwrap().client, net(2), "each a turn");
        let len = queue.waiting.len();
        let left = queue.waiting[0].number;
        queue.move_to_end(left);
        let taken = queue.pop().unwrap();
        assert_ne!(taken.number, left, "the one that left comes last");
        drop(first);
        assert!(queue.pop().is_none(), "all {len} clients have left");
    }

    #[test]
    fn among_single_connections_wrong_passwords_are_evicted_first() {
        let mut queue = Queue::default();
        let waiting: Vec<_> =
            (0..MAX_WAITING).map(|last| add(&mut queue, last as u8).unwrap()).collect();
        assert!(add(&mut queue, 200).is_none(), "it is no better than the others");
        queue.history(net(7)).refused = 1;
        assert!(add(&mut queue, 200).is_some());
        assert!(queue.waiting.iter().all(|job| job.client != net(7)));
        drop(waiting);
    }

    #[test]
    fn refusals_come_later_and_later_and_clients_are_bounded() {
        let mut queue = Queue::default();
        let client = net(1);
        let mut last = Duration::ZERO;
        for wrong in 1..40 {
            queue.history(client).refused = wrong;
            let delay = queue.delay(client);
            assert!(delay >= last && delay <= MAX_DELAY, "{wrong}: {delay:?}");
            assert_eq!(delay.is_zero(), wrong <= FREE_ATTEMPTS, "{wrong}");
            last = delay;
        }
        assert_eq!(last, MAX_DELAY);
        for number in 0..2 * MAX_CLIENTS as u32 {
            queue.history(ClientNet::of(Some((Ipv4Addr::from_bits(number), 1).into())));
        }
        assert_eq!(queue.clients.len(), MAX_CLIENTS);
    }

    #[test]
    fn passwords_after_many_wrong_ones_are_checked_one_after_another() {
        let mut queue = Queue::default();
        let client = net(1);
        let mut turn = |refused| {
            queue.history(client).refused = refused;
            queue.turn(client)
        };
        for _ in 0..100 {
            assert_eq!(turn(FREE_ATTEMPTS), Some(Duration::ZERO));
        }
        assert_eq!(turn(100), Some(Duration::ZERO), "the last refusal was waited for");
        let next = turn(100).unwrap();
        assert!(next > MAX_DELAY / 2 && next <= MAX_DELAY, "{next:?}");
        assert_eq!(turn(100), None, "one waits already");
        assert_eq!(queue.turn(net(2)), Some(Duration::ZERO));
    }
}
