//! The options of `underpass get`.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use underpass_client::{Url, input};
use underpass_copy::ExcludePattern;
use underpass_engine::Size;
use underpass_protocol::digest::{Algorithm, Digest};

use crate::args::{EngineArgs, ShowArgs, algorithm, pattern, rate};
use crate::connection::HttpClientArgs;

/// The options of `get`.
#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// Fetch these; http:// may be left out
    #[arg(value_name = "URL", required_unless_present = "input",
        value_parser = input::url_or_object)]
    pub(crate) urls: Vec<Url>,

    /// Fetch the URLs of this file too, one on each line, - for standard input; the lines below a URL
    /// may be indented and say out=FILE and checksum=ALG=HEX, as for aria2
    #[arg(short, long = "input-file", value_name = "LIST", conflicts_with = "output")]
    pub(crate) input: Option<PathBuf>,

    /// Fetch parts of the file from this URL too, which must have the same strong entity tag unless
    /// a digest is given; for one URL
    #[arg(long, value_name = "URL", value_parser = input::url_or_object,
        conflicts_with_all = ["recursive", "input"])]
    pub(crate) mirror: Vec<Url>,

    /// Fetch up to N files at once [default: 4 with -i, otherwise 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64),
        conflicts_with = "recursive")]
    pub(crate) parallel: Option<u32>,

    /// Write to this file, - for standard output [default: the last part of the URL, here]
    #[arg(short, long, value_name = "FILE", conflicts_with = "dir")]
    pub(crate) output: Option<PathBuf>,

    /// Write files to this folder
    #[arg(short, long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,

    /// Fetch whole folders: from underpass as one archive, from other servers by their listings
    #[arg(short, long, conflicts_with = "output")]
    pub(crate) recursive: bool,

    /// Replace a file that exists
    #[arg(short, long)]
    pub(crate) force: bool,

    /// Fetch only what has changed: replace a file if the server has another version of it; with -r
    /// by the listings
    #[arg(short = 'N', long, conflicts_with = "force")]
    pub(crate) update: bool,

    /// With -r --update, remove what the server does not list, after all listings were read
    #[arg(long, requires = "recursive", requires = "update")]
    pub(crate) delete: bool,

    /// Remove nothing if it would be more than N files and folders
    #[arg(long, value_name = "N", requires = "delete")]
    pub(crate) max_delete: Option<u64>,

    /// With -r, fetch only files that match; without a slash the name is compared, otherwise the
    /// path below the folder
    #[arg(long, value_name = "GLOB", value_parser = pattern(), requires = "recursive")]
    pub(crate) include: Vec<ExcludePattern>,

    /// With -r, leave out files and folders that match, also what --include matches; a slash at
    /// the end matches folders alone
    #[arg(long, value_name = "GLOB", value_parser = pattern(), requires = "recursive")]
    pub(crate) exclude: Vec<ExcludePattern>,

    /// Use up to N connections [default: by size; 1 for servers on this machine]
    #[arg(short = 'j', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) connections: Option<u32>,

    /// Limit the download to SIZE bytes per second, such as 10M
    #[arg(long, value_name = "SIZE", value_parser = rate)]
    pub(crate) rate: Option<Size>,

    /// Do not set the file's time to that of its last change on the server
    #[arg(long, conflicts_with = "recursive")]
    pub(crate) no_mtime: bool,

    /// Write the file to the disk before it gets its name
    #[arg(long, conflicts_with = "recursive")]
    pub(crate) sync: bool,

    /// Fail unless the file has this digest: sha-256: or sha-512: and hexadecimal digits or Base64
    #[arg(long, value_name = "ALG:VALUE", conflicts_with = "recursive",
        value_hint = ValueHint::Other)]
    pub(crate) digest: Vec<Digest>,

    /// Fail unless each file has its digest in SUMS: a file or URL of lines as sha256sum and
    /// sha512sum write them, also with --tag
    #[arg(long, value_name = "SUMS", conflicts_with = "recursive",
        value_hint = ValueHint::AnyPath)]
    pub(crate) check: Option<String>,

    /// Print the digest of the file, and its path, as sha256sum does
    #[arg(long, value_name = "ALG", num_args = 0..=1, require_equals = true,
        default_missing_value = "sha-256", conflicts_with = "recursive",
        value_parser = algorithm(), ignore_case = true, hide_possible_values = true)]
    pub(crate) digest_print: Option<Algorithm>,

    /// Request a digest from the server, and fail without one; a digest it sends is always checked
    #[arg(long, conflicts_with = "recursive")]
    pub(crate) verify: bool,

    #[command(flatten)]
    pub(crate) http: HttpClientArgs,

    #[command(flatten)]
    pub(crate) engine: EngineArgs,

    #[command(flatten)]
    pub(crate) show: ShowArgs,
}
