//! How much each client has under way: questions and fills, or relays.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The number of jobs of each client, with a bound.
#[derive(Clone, Debug)]
pub(crate) struct Clients {
    counts: Arc<Mutex<HashMap<IpAddr, usize>>>,
    max: usize,
}

/// A job of a client. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Place(Option<(Clients, IpAddr)>);

impl Clients {
    /// Lets each client have at most this many jobs that run or wait.
    pub(crate) fn new(max: usize) -> Self {
        Self { counts: Arc::default(), max }
    }

    /// Counts one more for a client; `None` if it has too many. What has no client has no bound.
    pub(crate) fn enter(&self, client: Option<IpAddr>) -> Option<Place> {
        let Some(client) = client else { return Some(Place(None)) };
        let mut counts = self.lock();
        let count = counts.entry(client).or_default();
        if *count >= self.max {
            return None;
        }
        *count += 1;
        Some(Place(Some((self.clone(), client))))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some((clients, client)) = &self.0 else { return };
        let mut counts = clients.lock();
        if let Some(count) = counts.get_mut(client) {
            *count -= 1;
            if *count == 0 {
                counts.remove(client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_a_bound_and_others_have_their_own() {
        let clients = Clients::new(3);
        let (one, two) = (Some(IpAddr::from([192, 0, 2, 1])), Some(IpAddr::from([192, 0, 2, 2])));
        let mut places: Vec<_> = (0..3).map(|_| clients.enter(one)).collect();
        assert!(places.iter().all(Option::is_some));
        assert!(clients.enter(one).is_none() && clients.enter(two).is_some());
        assert!(clients.enter(None).is_some());
        places.pop();
        assert!(clients.enter(one).is_some());
        drop(places);
        assert!(clients.lock().is_empty());
    }
}
