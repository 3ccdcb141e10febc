//! Connections that shake hands, ask once and leave.

use std::io::{self, ErrorKind};

use super::super::load::{Connection, Load};
use crate::serve::{Host, Wire};

pub(crate) struct Handshakes;

impl Load for Handshakes {
    fn is_encrypted(&self) -> bool {
        true
    }

    fn turns_per_second(&self) -> u32 {
        2000
    }

    fn turn(&self, connection: &mut Connection, host: &Host) -> io::Result<()> {
        let Some(wire) = &mut connection.wire else {
            let mut wire = Wire::new(connection.stream.try_clone()?, host.tls.as_ref())?;
            match wire.ask(&host.request("/small")) {
                // It is not connected yet.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                outcome => outcome?,
            }
            connection.wire = Some(wire);
            return Ok(());
        };
        match wire.read(&mut [0; 16 << 10]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(error),
            Ok(_) => Err(ErrorKind::UnexpectedEof.into()),
        }
    }
}
