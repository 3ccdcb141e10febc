//! Handshakes of which the first message is long and does not end.

use std::io;
use std::sync::OnceLock;

use super::super::load::{Connection, Load};
use crate::serve::Host;

pub(crate) struct PartialHellos;

impl Load for PartialHellos {
    fn is_encrypted(&self) -> bool {
        true
    }

    fn fills_server(&self) -> bool {
        true
    }

    fn turns_per_second(&self) -> u32 {
        4000
    }

    fn turn(&self, connection: &mut Connection, _host: &Host) -> io::Result<()> {
        static HELLO: OnceLock<Vec<u8>> = OnceLock::new();
        connection.trickle(HELLO.get_or_init(hello))
    }
}

/// Four records of a message of 64 KiB, without the end of the last one.
fn hello() -> Vec<u8> {
    let mut hello = Vec::new();
    for number in 0..4 {
        let record = hello.len();
        hello.extend([22, 3, 1, 0x40, 0]);
        if number == 0 {
            hello.extend([1, 0, 0xff, 0xf0]);
        }
        hello.resize(record + 5 + (16 << 10), 3);
    }
    hello.truncate(hello.len() - 4000);
    hello
}
