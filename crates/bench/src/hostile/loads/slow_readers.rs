//! Downloads of which a little is read now and then.

use std::io;

use super::super::load::{Connection, LARGE, Load, make_large};
use crate::error::Result;
use crate::serve::{Host, Stage};

pub(crate) struct SlowReaders;

impl Load for SlowReaders {
    fn prepare(&self, stage: &mut Stage<'_>) -> Result<()> {
        make_large(stage)
    }

    fn turns_per_second(&self) -> u32 {
        4000
    }

    fn turn(&self, connection: &mut Connection, host: &Host) -> io::Result<()> {
        connection.say(&host.request(&format!("/{LARGE}")))?;
        connection.take(1 << 10).map(drop)
    }
}
