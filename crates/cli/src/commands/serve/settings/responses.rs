//! Media types of responses.

use std::fs::File;
use std::io::Read;

use underpass_server::MediaTypes;

use crate::failure::{Failure, Result};

/// Returns the media types of the options, with those of this system.
pub(super) fn media_types(of_system: &MediaTypes, chosen: &[String]) -> Result<MediaTypes> {
    let mut types = of_system.clone();
    for text in chosen {
        let wrong = |error| Failure::value(format_args!("--mime {text:?}"), error);
        types.choose(text).map_err(wrong)?;
    }
    Ok(types)
}

/// Returns the media types of this system, which a confined process cannot read.
pub(super) fn of_system() -> MediaTypes {
    let mut types = MediaTypes::default();
    types.add_system(&String::from_utf8_lossy(&system_types()));
    types
}

/// Reads the types of this system, up to a limit; many systems have none.
fn system_types() -> Vec<u8> {
    let mut text = Vec::new();
    if let Ok(file) = File::open(SYSTEM_TYPES)
        && file.metadata().is_ok_and(|about| about.is_file())
    {
        // If reading fails, the entries read so far are used.
        let _ = file.take(MAX_SYSTEM_TYPES).read_to_end(&mut text);
    }
    text
}

/// The file that maps extensions to media types, as packages of Debian and others install it.
const SYSTEM_TYPES: &str = "/etc/mime.types";

/// The maximum number of bytes that are read from it; Debian's has 73 KiB.
const MAX_SYSTEM_TYPES: u64 = 1 << 20;
