//! Downloads that are reset in their midst.

use std::io::{self, ErrorKind};

use super::super::load::{Connection, LARGE, Load, make_large};
use crate::error::Result;
use crate::serve::{Host, Stage};

pub(crate) struct Resets;

impl Load for Resets {
    fn prepare(&self, stage: &mut Stage<'_>) -> Result<()> {
        make_large(stage)
    }

    fn turns_per_second(&self) -> u32 {
        2000
    }

    fn turn(&self, connection: &mut Connection, host: &Host) -> io::Result<()> {
        connection.say(&host.request(&format!("/{LARGE}")))?;
        match connection.take(1 << 10)? {
            0 => Ok(()),
            // It is closed, with what was not read.
            _ => Err(ErrorKind::ConnectionReset.into()),
        }
    }
}
