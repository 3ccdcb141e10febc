//! Requests for as many ranges of a byte as fit into a head, all of which overlap.

use std::io;
use std::sync::OnceLock;

use super::super::load::{Connection, LARGE, Load, make_large};
use crate::error::Result;
use crate::serve::{Host, Stage};

pub(crate) struct Ranges;

impl Load for Ranges {
    fn prepare(&self, stage: &mut Stage<'_>) -> Result<()> {
        make_large(stage)
    }

    fn turns_per_second(&self) -> u32 {
        2000
    }

    fn turn(&self, connection: &mut Connection, _host: &Host) -> io::Result<()> {
        static REQUEST: OnceLock<Vec<u8>> = OnceLock::new();
        connection.ask_again(REQUEST.get_or_init(request))
    }
}

fn request() -> Vec<u8> {
    let ranges: Vec<_> = (0..700).map(|from| format!("{from}-{}", 5000 - from)).collect();
    let ranges = ranges.join(",");
    format!("GET /{LARGE} HTTP/1.1\r\nHost: localhost\r\nRange: bytes={ranges}\r\n\r\n").into()
}
