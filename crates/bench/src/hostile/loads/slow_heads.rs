//! Heads of 31 KB, the end of which comes a byte at a time.

use std::io;
use std::sync::OnceLock;

use super::super::load::{Connection, Load};
use crate::serve::Host;

pub(crate) struct SlowHeads;

impl Load for SlowHeads {
    fn fills_server(&self) -> bool {
        true
    }

    fn turns_per_second(&self) -> u32 {
        4000
    }

    fn turn(&self, connection: &mut Connection, _host: &Host) -> io::Result<()> {
        static HEAD: OnceLock<Vec<u8>> = OnceLock::new();
        connection.trickle(HEAD.get_or_init(head))
    }
}

/// Of lines that nginx takes as well.
fn head() -> Vec<u8> {
    let mut head = "GET /small HTTP/1.1\r\nHost: localhost\r\n".to_owned();
    for number in 0..30 {
        head += &format!("X-{number}: {}\r\n", "x".repeat(1000));
    }
    (head + "X-Last: ").into_bytes()
}
