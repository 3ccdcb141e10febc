//! Pages of a large folder that nobody reads.

use std::io;

use super::super::load::{Connection, FOLDER, Load, make_folder};
use crate::error::Result;
use crate::serve::{Host, Kind, Stage};

pub(crate) struct Listings;

impl Load for Listings {
    fn nginx(&self) -> Option<Kind> {
        None
    }

    fn prepare(&self, stage: &mut Stage<'_>) -> Result<()> {
        make_folder(stage)
    }

    fn turns_per_second(&self) -> u32 {
        1000
    }

    fn turn(&self, connection: &mut Connection, host: &Host) -> io::Result<()> {
        connection.look()?;
        connection.say(&host.request(&format!("/{FOLDER}/"))).map(drop)
    }
}
