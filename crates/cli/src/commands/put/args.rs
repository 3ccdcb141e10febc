//! The options of `underpass put`.

use std::ffi::OsString;

use clap::Args;
use underpass_engine::Integrity;
use underpass_protocol::digest::Algorithm;

use crate::args::{EngineArgs, ShowArgs, algorithm, integrity, rate};
use crate::connection::{HttpClientArgs, StoreArgs};
use underpass_engine::Size;

/// The options of `put`.
#[derive(Debug, Args)]
#[command(override_usage = "underpass put [OPTIONS] <FILE>... <URL>")]
pub(crate) struct PutArgs {
    /// The files to upload (- is standard input), then the URL to upload to: a folder if it ends in
    /// /, otherwise the new URL of the file. http:// may be left out
    #[arg(value_name = "FILE... URL", num_args = 1.., required = true)]
    pub(crate) words: Vec<OsString>,

    /// Send folders with their contents
    #[arg(short, long)]
    pub(crate) recursive: bool,

    /// Follow symbolic links in folders, instead of leaving them out
    #[arg(short = 'L', long, requires = "recursive")]
    pub(crate) follow_links: bool,

    /// Do not replace files that exist on the server
    #[arg(short, long, visible_alias = "if-none-match", conflicts_with = "if_match")]
    pub(crate) no_clobber: bool,

    /// Replace only the version that has this entity tag, such as '"5f3-1a"'
    #[arg(long, value_name = "ETAG", value_parser = entity_tag)]
    pub(crate) if_match: Option<String>,

    /// Send only what the server lacks: skip a file that has the same size and the same or a later
    /// time there. Also sends the time of each file
    #[arg(short = 'N', long, conflicts_with_all = ["no_clobber", "if_match"])]
    pub(crate) update: bool,

    /// Create the folders of the URL, if the server supports it (MKCOL)
    #[arg(long)]
    pub(crate) create_parents: bool,

    /// Send the digest of each file for the server to check: sha-256 or sha-512. Reads each file
    /// once more, before it is sent
    #[arg(long, value_name = "ALGORITHM", value_parser = algorithm(), ignore_case = true,
        hide_possible_values = true)]
    pub(crate) digest: Option<Algorithm>,

    /// Do not resume an earlier upload, and keep no journal to resume this one
    #[arg(long)]
    pub(crate) no_resume: bool,

    /// Send parts of a file over up to N connections, to s3:// only [default: 4]
    #[arg(short = 'j', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) connections: Option<u32>,

    /// Limit the upload to SIZE bytes per second, such as 10M
    #[arg(long, value_name = "SIZE", value_parser = rate)]
    pub(crate) rate: Option<Size>,

    /// Guard against changes of the file while it is sent: fast (no check), detect (fail if it
    /// changed), lease (make writers wait) or snapshot (send a clone)
    #[arg(long, value_name = "LEVEL", default_value = "detect", value_parser = integrity(),
        hide_possible_values = true)]
    pub(crate) integrity: Integrity,

    #[command(flatten)]
    pub(crate) http: HttpClientArgs,

    #[command(flatten)]
    pub(crate) store: StoreArgs,

    #[command(flatten)]
    pub(crate) engine: EngineArgs,

    #[command(flatten)]
    pub(crate) show: ShowArgs,
}

/// Parses an entity tag (RFC 9110 8.8.3); the quotes may be left out because shells remove them.
pub(crate) fn entity_tag(text: &str) -> Result<String, String> {
    if text == "*" {
        return Ok(text.to_owned());
    }
    if text.starts_with("W/") {
        // RFC 9110 13.1.1: a weak one never matches.
        return Err("only a strong entity tag can match".to_owned());
    }
    let opaque = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    if opaque.bytes().all(|byte| matches!(byte, 0x21 | 0x23..=0x7e)) && !opaque.is_empty() {
        Ok(format!("\"{opaque}\""))
    } else {
        Err("an entity tag has neither spaces nor quotes inside".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entity_tags_get_their_quotes() {
        let quoted = "\"5f3-1a\"";
        assert_eq!(entity_tag("5f3-1a").as_deref(), Ok(quoted));
        assert_eq!(entity_tag(quoted).as_deref(), Ok(quoted));
        assert_eq!(entity_tag("*").as_deref(), Ok("*"));
        for wrong in ["", "\"", "a b", "a\"b", "W/\"a\"", "a\r\nb"] {
            assert!(entity_tag(wrong).is_err(), "{wrong}");
        }
    }
}
