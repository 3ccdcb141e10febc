//! One connection: its socket, its requests and its responses.

pub(crate) mod canned; // answers that are the same for every client
pub(crate) mod discard_body;
pub(crate) mod exchange; // a request with its response
pub(crate) mod handshake; // of TLS
pub(crate) mod outcome; // how a response ended
pub(crate) mod peer; // the connection as its worker sees it
pub(crate) mod proxy_header;
pub(crate) mod send; // moves the bytes of a response
pub(crate) mod serve; // from the first request to the last
pub(crate) mod socket;
pub(crate) mod turn; // how much may be moved before others have theirs
