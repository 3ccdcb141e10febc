//! Requests without a pause whose answers nobody reads.

use std::io;
use std::sync::OnceLock;

use super::super::load::{Connection, Load};
use crate::serve::Host;

pub(crate) struct Pipelines;

impl Load for Pipelines {
    fn turns_per_second(&self) -> u32 {
        1000
    }

    fn turn(&self, connection: &mut Connection, _host: &Host) -> io::Result<()> {
        static REQUEST: OnceLock<Vec<u8>> = OnceLock::new();
        let request = REQUEST.get_or_init(request);
        connection.look()?;
        // As many as the sockets take, but no more than a few at a turn.
        for _ in 0..4 {
            if !connection.say(request)? {
                break;
            }
            connection.sent = 0;
        }
        Ok(())
    }
}

/// As long as nginx takes it.
fn request() -> Vec<u8> {
    let (query, agent) = ("q".repeat(7500), "u".repeat(7500));
    format!(
        "GET /nothing?{query} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: {agent}\r\n\
        Referer: {agent}\r\n\r\n"
    )
    .into_bytes()
}
