//! Reads the list of `--input`.

use std::fs::File;
use std::path::Path;

use underpass_client::input::list::{self, ListError, ListedFile};
use underpass_copy::ends::{is_dash, standard_input};

use crate::failure::{Failure, Result, WithPath};

/// Reads a list from a file, or from standard input for `-`.
pub(super) fn read(path: &Path) -> Result<Vec<ListedFile>> {
    let items = if is_dash(path) {
        list::read(standard_input()?)
    } else {
        list::read(File::open(path).with_path("opening", path)?)
    };
    items.or_else(|error| match error {
        ListError::Line { number, reason } => {
            Err(Failure::value(format_args!("{}:{number}", path.display()), reason))
        }
        ListError::Io(error) => Ok(Err(error).with_path("reading", path)?),
    })
}
