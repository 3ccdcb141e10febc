//! Lists a folder to standard output, as a server would for a client.
//!
//! ```sh
//! cargo run -p underpass-listing --example list_folder -- ROOT [PATH [QUERY]]
//! ```
//!
//! PATH is the path of the folder below ROOT, QUERY for example `sort=size&order=desc` or
//! `json&limit=100`. The link to the next page, if there is one, is written to standard error.

use std::borrow::Cow;
use std::env;
use std::error::Error;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStringExt;

use percent_encoding::percent_decode;
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::fs::{Mode, OFlags, ResolveFlags, fstat, openat2};
use underpass_listing::{
    Attributes, ChangeRights, Entries, Format, Listing, ListingQuery, Resolve,
};

/// A folder that no path leads out of.
struct Root(File);

impl Root {
    /// Opens a path below the folder, or the folder itself.
    fn open(&self, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
        let path = if path.is_empty() { b"." } else { path };
        let flags = flags | OFlags::CLOEXEC;
        Ok(openat2(&self.0, path, flags, Mode::empty(), ResolveFlags::BENEATH)?)
    }
}

impl Resolve for Root {
    fn resolve(&self, path_below_root: &[u8]) -> io::Result<Attributes> {
        Ok(Attributes::from(&fstat(self.open(path_below_root, OFlags::PATH)?)?))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args_os().skip(1).map(OsStringExt::into_vec);
    let root = String::from_utf8(args.next().ok_or("usage: list_folder ROOT [PATH [QUERY]]")?)?;
    let path = args.next().unwrap_or_default();
    let query = String::from_utf8(args.next().unwrap_or_default())?;

    let root = Root(File::open(root)?);
    let folder = root.open(&path, OFlags::RDONLY | OFlags::DIRECTORY)?;
    let listing = Listing {
        entries: Entries::Folder { folder: folder.as_fd(), root: &root },
        path: &path,
        query: ListingQuery::read(|key| value(&query, key), Format::default())?,
        is_browser: value(&query, "browser").is_some(),
        shows_hidden: false,
        hides: &|_, _| false,
        shows_times: &|_| true,
        may_read: &|_| true,
        may: ChangeRights::default(),
        archive: true,
        walks: true,
        is_wanted: &|| true,
        describe: None,
    };
    let prepared = listing.prepare()?;
    if let Some(next) = prepared.next_page() {
        eprintln!("next: {next}");
    }
    prepared.write(&mut |piece| io::stdout().write_all(&piece))?;
    Ok(())
}

/// Returns the decoded value of a key in the query.
fn value<'q>(query: &'q str, key: &str) -> Option<Cow<'q, [u8]>> {
    let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let (_, value) = pairs.into_iter().find(|(name, _)| *name == key)?;
    Some(percent_decode(value.as_bytes()).into())
}
