//! The options of `underpass get`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use underpass_client::{Url, input};
use underpass_copy::ExcludePattern;
use underpass_engine::Size;
use underpass_protocol::digest::{Algorithm, Digest};

use super::sums::ChecksumSource;
use crate::args::{EngineArgs, ShowArgs, algorithm, pattern, rate};
use crate::connection::{HttpClientArgs, StoreArgs};

/// The options of `get`.
#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// The URLs to fetch; http:// may be left out
    #[arg(value_name = "URL", required_unless_present = "input",
        value_parser = input::url_or_object)]
    pub(crate) urls: Vec<Url>,

    /// Also fetch the URLs in this file, one per line; - is standard input. Indented lines after a
    /// URL can set out=FILE and checksum=ALG=HEX, as for aria2
    #[arg(short, long = "input-file", value_name = "LIST", conflicts_with = "output")]
    pub(crate) input: Option<PathBuf>,

    /// Also fetch parts of the file from this URL, which must have the same strong entity tag
    /// unless a digest is given; with one URL only, can be repeated
    #[arg(long, value_name = "URL", value_parser = input::url_or_object,
        conflicts_with_all = ["recursive", "input"])]
    pub(crate) mirror: Vec<Url>,

    /// Fetch up to N files at once [default: 4 with -i, otherwise 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64),
        conflicts_with = "recursive")]
    pub(crate) parallel: Option<u32>,

    /// Write to this file; - is standard output [default: the last part of the URL, in the current
    /// folder]
    #[arg(short, long, value_name = "FILE", conflicts_with = "dir")]
    pub(crate) output: Option<PathBuf>,

    /// Write files into this folder
    #[arg(short, long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,

    /// Fetch whole folders: from underpass as one archive, from other servers by their listings
    #[arg(short, long, conflicts_with = "output")]
    pub(crate) recursive: bool,

    /// Replace a file that exists
    #[arg(short, long)]
    pub(crate) force: bool,

    /// Fetch only what has changed: replace a file if the server has another version of it; with
    /// -r, according to the listings
    #[arg(short = 'N', long, conflicts_with = "force")]
    pub(crate) update: bool,

    /// With -r --update, remove what the server does not list, once all listings have been read
    #[arg(long, requires = "recursive", requires = "update")]
    pub(crate) delete: bool,

    /// Remove nothing if more than N files and folders would be removed
    #[arg(long, value_name = "N", requires = "delete")]
    pub(crate) max_delete: Option<u64>,

    /// With -r, fetch only files that match; a pattern without a slash is compared with names, any
    /// other with paths below the folder
    #[arg(long, value_name = "GLOB", value_parser = pattern(), requires = "recursive")]
    pub(crate) include: Vec<ExcludePattern>,

    /// With -r, leave out files and folders that match, even if --include matches them; a pattern
    /// that ends in a slash matches only folders
    #[arg(long, value_name = "GLOB", value_parser = pattern(), requires = "recursive")]
    pub(crate) exclude: Vec<ExcludePattern>,

    /// Use up to N connections [default: by size; 1 for servers on this machine]
    #[arg(short = 'j', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) connections: Option<u32>,

    /// Limit the download to SIZE bytes per second, such as 10M
    #[arg(long, value_name = "SIZE", value_parser = rate)]
    pub(crate) rate: Option<Size>,

    /// Do not set the file's modification time to the one on the server
    #[arg(long, conflicts_with = "recursive")]
    pub(crate) no_mtime: bool,

    /// Sync the file to disk before it gets its name
    #[arg(long, conflicts_with = "recursive")]
    pub(crate) sync: bool,

    /// Fail unless the file has this digest: sha-256: or sha-512:, followed by hexadecimal digits
    /// or Base64
    #[arg(long, value_name = "ALG:VALUE", conflicts_with = "recursive",
        value_hint = ValueHint::Other)]
    pub(crate) digest: Vec<Digest>,

    /// Fail unless each file has its digest in SUMS, a file, a URL or - for standard input, in the
    /// format of sha256sum and sha512sum, with or without --tag
    #[arg(long, value_name = "SUMS", conflicts_with = "recursive",
        value_hint = ValueHint::AnyPath, value_parser = ChecksumSource::parse)]
    pub(crate) check: Option<ChecksumSource>,

    /// Print the digest of the file and its path, as sha256sum does
    #[arg(long, value_name = "ALG", num_args = 0..=1, require_equals = true,
        default_missing_value = "sha-256", conflicts_with = "recursive",
        value_parser = algorithm(), ignore_case = true, hide_possible_values = true)]
    pub(crate) digest_print: Option<Algorithm>,

    /// Request a digest from the server, and fail if it sends none; one that it sends is always
    /// checked
    #[arg(long, conflicts_with = "recursive")]
    pub(crate) verify: bool,

    #[command(flatten)]
    pub(crate) http: HttpClientArgs,

    #[command(flatten)]
    pub(crate) store: StoreArgs,

    #[command(flatten)]
    pub(crate) engine: EngineArgs,

    #[command(flatten)]
    pub(crate) show: ShowArgs,
}
