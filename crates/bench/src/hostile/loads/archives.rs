//! How long the tar of a large folder is, asked again and again.

use std::io;

use super::super::load::{Connection, FOLDER, Load, make_folder};
use crate::error::Result;
use crate::serve::{Host, Kind, Stage};

pub(crate) struct Archives;

impl Load for Archives {
    fn nginx(&self) -> Option<Kind> {
        None
    }

    fn prepare(&self, stage: &mut Stage<'_>) -> Result<()> {
        make_folder(stage)
    }

    fn turns_per_second(&self) -> u32 {
        1000
    }

    fn turn(&self, connection: &mut Connection, _host: &Host) -> io::Result<()> {
        // Each asks for an archive that nobody else asks for.
        let number = connection.index;
        let request =
            format!("HEAD /{FOLDER}/?archive=tar&{number} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        connection.ask_again(request.as_bytes())
    }
}
