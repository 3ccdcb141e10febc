//! Decides which connections the server accepts: a limit for all, a limit for each address, and a
//! small reserve beyond these limits that answers only the health check.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use underpass_engine::wait::lock;
use underpass_protocol::request::ClientNet;

use crate::server::settings::Settings;

/// Counts the connections of all workers.
#[derive(Debug)]
pub(crate) struct Admission {
    limit: usize,
    address_limit: Option<usize>,
    /// The number of places in the reserve.
    reserve: usize,
    open: AtomicUsize,
    /// The clients that have places of the reserve.
    reserved: Mutex<Vec<ClientNet>>,
    /// The number of connections by address; an address without any has no entry.
    addresses: Mutex<HashMap<ClientNet, usize>>,
}

/// The place of one connection, to be returned with [`Admission::leave`].
#[derive(Debug)]
pub(crate) struct Ticket {
    client: ClientNet,
    /// Whether it counts towards the limit of its client.
    is_counted: bool,
    is_for_health: bool,
}

impl Ticket {
    /// Returns whether it is a place of the reserve.
    pub(crate) fn is_for_health(&self) -> bool {
        self.is_for_health
    }
}

impl Admission {
    pub(crate) fn new(settings: &Settings, has_health: bool) -> Self {
        Self {
            limit: settings.max_connections,
            address_limit: settings.max_connections_per_address,
            reserve: if has_health { RESERVE } else { 0 },
            open: AtomicUsize::new(0),
            reserved: Mutex::default(),
            addresses: Mutex::default(),
        }
    }

    /// Finds a place for a connection, if there is one. `make_room` closes the connection that has
    /// been idle the longest, of an address or of all, and returns whether there was one; it is
    /// called if the address has reached its limit or the server is full.
    pub(crate) fn enter(
        &self,
        address: Option<SocketAddr>,
        make_room: impl Fn(Option<ClientNet>) -> bool,
    ) -> Option<Ticket> {
        // A connection without an address came over a Unix socket.
        let limit = self.address_limit.filter(|_| address.is_some());
        let client = ClientNet::of(address);
        let ticket = Ticket { client, is_counted: limit.is_some(), is_for_health: false };
        if let Some(limit) = limit
            && !self.count(client, limit)
            && !(make_room(Some(client)) && self.count(client, limit.saturating_add(CLOSING)))
        {
            // One place of the reserve for each address: the others must remain for a full server.
            let is_counted = self.count(client, limit.saturating_add(1));
            return if is_counted { self.reserved(ticket, address) } else { None };
        }
        let open = self.open.fetch_add(1, Ordering::Relaxed);
        // A connection that is asked to close takes a moment to do so.
        if open < self.limit || (open < self.limit.saturating_add(CLOSING) && make_room(None)) {
            return Some(ticket);
        }
        self.open.fetch_sub(1, Ordering::Relaxed);
        self.reserved(ticket, address)
    }

    /// Finds a place in the reserve for a connection that is counted for its address.
    fn reserved(&self, ticket: Ticket, address: Option<SocketAddr>) -> Option<Ticket> {
        let client = ticket.client;
        {
            let mut reserved = lock(&self.reserved);
            let own = reserved.iter().filter(|other| **other == client).count();
            // All clients of Unix sockets look alike.
            let may_have_more = own < MAX_RESERVED || address.is_none();
            if reserved.len() < self.reserve && may_have_more {
                reserved.push(client);
                return Some(Ticket { is_for_health: true, ..ticket });
            }
        }
        self.uncount(&ticket);
        None
    }

    /// Counts a connection, which has a place already, for the address of its client, once that is
    /// known; returns false if the address has reached its limit. `make_room` is as for
    /// [`enter`](Self::enter).
    pub(crate) fn attribute(
        &self,
        ticket: &mut Ticket,
        address: SocketAddr,
        make_room: impl Fn(Option<ClientNet>) -> bool,
    ) -> bool {
        let Some(limit) = self.address_limit.filter(|_| !ticket.is_for_health()) else {
            return true;
        };
        let client = ClientNet::of(Some(address));
        let is_counted = self.count(client, limit)
            || (make_room(Some(client)) && self.count(client, limit.saturating_add(CLOSING)));
        if is_counted {
            self.uncount(ticket);
            *ticket = Ticket { client, is_counted, is_for_health: false };
        }
        is_counted
    }

    /// Takes a place back.
    pub(crate) fn leave(&self, ticket: &Ticket) {
        if ticket.is_for_health {
            let mut reserved = lock(&self.reserved);
            let place = reserved.iter().position(|other| *other == ticket.client);
            place.map(|place| reserved.swap_remove(place));
        } else {
            self.open.fetch_sub(1, Ordering::Relaxed);
        }
        self.uncount(ticket);
    }

    /// Counts one more connection of an address, unless it has reached its limit.
    fn count(&self, client: ClientNet, limit: usize) -> bool {
        let mut addresses = lock(&self.addresses);
        let count = addresses.entry(client).or_default();
        let is_allowed = *count < limit;
        *count += usize::from(is_allowed);
        is_allowed
    }

    fn uncount(&self, ticket: &Ticket) {
        if !ticket.is_counted {
            return;
        }
        let mut addresses = lock(&self.addresses);
        if let Some(count) = addresses.get_mut(&ticket.client) {
            *count -= 1;
            if *count == 0 {
                addresses.remove(&ticket.client);
            }
        }
        // The map shrinks once many connections have left.
        if addresses.capacity() > 64 && addresses.len() < addresses.capacity() / 8 {
            addresses.shrink_to_fit();
        }
    }
}

/// The number of connections beyond the limit, which answer the health check.
const RESERVE: usize = 16;

/// The maximum number of these for one client: a client that connects to a full server gets one, and
/// keeps it for two seconds without a request.
const MAX_RESERVED: usize = 2;

/// The number of closing connections that may exist while others take their places.
const CLOSING: usize = 64;

/// Returns how many connections a server with this number of workers can have in a process that may
/// open `descriptors` files, if each has only its socket; at least one.
///
/// While it sends a file, a connection needs a second descriptor. Archives, uploads and files that
/// workers keep open take half as much again.
#[must_use]
pub fn max_connections(descriptors: u64, workers: usize) -> u64 {
    let workers = u64::try_from(workers).unwrap_or(u64::MAX);
    let others = BASE.saturating_add(workers.saturating_mul(PER_WORKER));
    descriptors.saturating_sub(others).max(1)
}

/// The descriptors of a worker: an epoll set, listeners, a pipe, and files that it keeps open.
const PER_WORKER: u64 = 32;

/// The other descriptors: standard streams, the log, the root, and connections beyond the limit.
const BASE: u64 = 64 + (RESERVE + CLOSING) as u64;

#[cfg(test)]
mod tests {
    use super::*;

    fn admission(limit: usize, address_limit: Option<usize>, reserve: usize) -> Admission {
        Admission {
            limit,
            address_limit,
            reserve,
            open: AtomicUsize::new(0),
            reserved: Mutex::default(),
            addresses: Mutex::default(),
        }
    }

    fn address(text: &str) -> Option<SocketAddr> {
        text.parse().ok().map(|ip| SocketAddr::new(ip, 1))
    }

    #[test]
    fn places_are_given_out_once_and_come_back() {
        let admission = admission(2, None, 1);
        let mut tickets: Vec<_> = (0..3).filter_map(|_| admission.enter(None, |_| false)).collect();
        let are_reserve: Vec<_> = tickets.iter().map(|ticket| ticket.is_for_health()).collect();
        assert_eq!(are_reserve, [false, false, true]);
        assert!(admission.enter(None, |_| false).is_none());
        assert!(admission.enter(None, |_| true).is_some_and(|ticket| !ticket.is_for_health()));
        let reserve = tickets.pop();
        reserve.iter().for_each(|ticket| admission.leave(ticket));
        assert!(admission.enter(None, |_| false).is_some_and(|ticket| ticket.is_for_health()));
    }

    #[test]
    fn an_address_has_its_limit_and_leaves_no_trace() {
        let admission = admission(100, Some(2), 0);
        let one = address("192.0.2.1");
        let tickets: Vec<_> = (0..2).filter_map(|_| admission.enter(one, |_| false)).collect();
        assert!(tickets.len() == 2 && admission.enter(one, |of| of.is_none()).is_none());
        let third = admission.enter(one, |of| of.is_some());
        third.iter().for_each(|ticket| admission.leave(ticket));
        assert!(third.is_some() && admission.enter(one, |_| false).is_none());
        assert!(admission.enter(address("192.0.2.2"), |_| false).is_some());
        assert!((0..9).all(|_| admission.enter(None, |_| false).is_some()));
        tickets.iter().for_each(|ticket| admission.leave(ticket));
        assert_eq!(lock(&admission.addresses).len(), 1);
        assert!(admission.enter(one, |_| false).is_some());
    }

    #[test]
    fn an_address_at_its_limit_has_one_place_of_the_reserve() {
        let admission = admission(100, Some(2), 4);
        let one = address("192.0.2.1");
        let mut tickets: Vec<_> = (0..4).filter_map(|_| admission.enter(one, |_| false)).collect();
        let are_reserve: Vec<_> = tickets.iter().map(|ticket| ticket.is_for_health()).collect();
        assert_eq!(are_reserve, [false, false, true]);
        tickets.extend(admission.enter(address("192.0.2.2"), |_| false));
        assert!(tickets.pop().is_some_and(|ticket| !ticket.is_for_health()));
        tickets.pop().iter().for_each(|ticket| admission.leave(ticket));
        assert!(admission.enter(one, |_| false).is_some_and(|ticket| ticket.is_for_health()));
    }

    #[test]
    fn one_client_cannot_have_the_whole_reserve() {
        let admission = admission(0, None, 16);
        let one = address("192.0.2.1");
        let tickets: Vec<_> = (0..16).filter_map(|_| admission.enter(one, |_| false)).collect();
        assert_eq!(tickets.len(), MAX_RESERVED);
        assert!(admission.enter(address("192.0.2.2"), |_| false).is_some());
        tickets.iter().for_each(|ticket| admission.leave(ticket));
        assert!(admission.enter(one, |_| false).is_some());
    }

    #[test]
    fn a_connection_of_a_proxy_counts_for_its_client() {
        let admission = admission(100, Some(1), 0);
        let (mut one, mut two) =
            (admission.enter(None, |_| false), admission.enter(None, |_| false));
        let client = address("192.0.2.1");
        let (Some(one), Some(two), Some(client)) = (&mut one, &mut two, client) else { return };
        assert!(admission.attribute(one, client, |_| false));
        assert!(!admission.attribute(two, client, |of| of.is_none()));
        assert!(admission.enter(Some(client), |_| false).is_none());
        admission.leave(one);
        assert!(admission.attribute(two, client, |_| false));
        admission.leave(two);
        assert!(lock(&admission.addresses).is_empty());
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let admission = admission(100, Some(1), 0);
        assert!(admission.enter(address("2001:db8:0:1::1"), |_| false).is_some());
        assert!(admission.enter(address("2001:db8:0:1:ffff::2"), |_| false).is_none());
        assert!(admission.enter(address("2001:db8:0:2::1"), |_| false).is_some());
    }
}
