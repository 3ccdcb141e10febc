//! Uploads of which a byte comes now and then.

use std::io;

use super::super::load::{Connection, Load};
use crate::serve::{Host, Kind};

pub(crate) struct SlowUploads;

impl Load for SlowUploads {
    fn ours(&self) -> Kind {
        Kind::Underpass(&["--allow-upload"])
    }

    fn nginx(&self) -> Option<Kind> {
        Some(Kind::NginxDav)
    }

    fn turns_per_second(&self) -> u32 {
        2000
    }

    fn turn(&self, connection: &mut Connection, _host: &Host) -> io::Result<()> {
        let number = connection.index;
        let head = format!(
            "PUT /upload{number} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n"
        );
        connection.trickle(head.as_bytes())
    }
}
