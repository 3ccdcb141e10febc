//! Connections that say nothing.

use std::io;

use super::super::load::{Connection, Load};
use crate::serve::Host;

pub(crate) struct Idle;

impl Load for Idle {
    fn fills_server(&self) -> bool {
        true
    }

    fn turns_per_second(&self) -> u32 {
        4000
    }

    fn turn(&self, connection: &mut Connection, _host: &Host) -> io::Result<()> {
        connection.look()
    }
}
