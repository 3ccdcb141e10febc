//! One connection: its socket, its requests and its responses.

pub(crate) mod canned;
pub(crate) mod discard_body;
pub(crate) mod exchange;
pub(crate) mod handshake;
pub(crate) mod outcome;
pub(crate) mod peer;
pub(crate) mod proxy_header;
pub(crate) mod send;
pub(crate) mod serve;
pub(crate) mod socket;
pub(crate) mod turn;

#[cfg(test)]
mod tests {
    use super::peer::Peer;
    use super::proxy_header::RefusedHeader;
    use super::serve::serve;
    use crate::server::worker::Worker;

    #[test]
    fn a_waiting_connection_is_small() {
        const fn size<'a, F>(
            _: fn(&'a Worker, &'a Peer, Option<Box<RefusedHeader>>) -> F,
        ) -> usize {
            size_of::<F>()
        }
        // The runtime aligns the memory of a task to 128 bytes. With these it takes 384.
        assert!(size(serve) <= 224, "{}", size(serve));
        // What glibc puts between that and the next one, which is aligned as well, is 128 bytes less.
        assert!(size_of::<Peer>() <= 216, "{}", size_of::<Peer>());
    }
}
