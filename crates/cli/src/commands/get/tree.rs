//! `underpass get -r`: a whole folder.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use indicatif::HumanCount;
use underpass_client::input::list::ListedFile;
use underpass_client::tree::{
    self, PathFilter, TreeEvent, TreeGauge, TreeOptions, TreeOutcome, name_of,
};
use underpass_client::{TlsSetup, Url};
use underpass_copy::ExcludePattern;
use underpass_engine::{Size, atomic_file};

use super::args::GetArgs;
use super::usage::{TreeUsage, UrlUsage};
use super::{print, progress};
use crate::args::ShowArgs;
use crate::failure::{Failure, Result};
use crate::output::{self, ProgressMeter};
use underpass_receipt::{TreeReceipt, shown};

/// Returns the summary: `20,003 files: 1.00 GiB in 1.13 s (906 MiB/s) by splice, read_write`.
fn summary(receipt: &TreeReceipt) -> String {
    let done = &receipt.done;
    if done.files == 0 && done.here > 0 && done.removed == 0 {
        let here = output::counted(done.here, "file is", "files are");
        return format!("nothing to fetch: {here} here already");
    }
    let mut text = output::counted(done.files, "file", "files");
    let mut more = Vec::new();
    if done.here > 0 {
        more.push(format!("{} more were here already", HumanCount(done.here)));
    }
    if done.removed > 0 {
        more.push(format!("{} removed", HumanCount(done.removed)));
    }
    if !more.is_empty() {
        text += &format!(" ({})", more.join(", "));
    }
    format!("{text}: {}", output::summary(&receipt.receipt))
}

/// Refuses options that would remove or replace files that the user cannot have meant, and those of
/// single files.
pub(super) fn check(args: &GetArgs, items: &[ListedFile]) -> Result<()> {
    if let Some(item) = items.iter().find(|item| item.out.is_some() || !item.digests.is_empty()) {
        return Err(TreeUsage::ItemOfFolder(shown(&item.url)).into());
    }
    let mut places = Vec::<PathBuf>::new();
    for ListedFile { url, .. } in items {
        let path = place(args, url)?;
        if !(args.delete || args.force || args.update) {
            continue;
        }
        if !args.delete {
            if places.contains(&path) {
                return Err(TreeUsage::ReplacesShared(path).into());
            }
            places.push(path);
            continue;
        }
        if args.dir.is_none() && path == Path::new(".") {
            return Err(TreeUsage::DeleteHere(shown(url)).into());
        }
        if places.iter().any(|other| path.starts_with(other) || other.starts_with(&path)) {
            return Err(TreeUsage::DeleteShared(path).into());
        }
        places.push(path);
    }
    Ok(())
}

/// Fetches the folder at one URL.
pub(crate) fn fetch(args: &GetArgs, url: &Url, tls: &TlsSetup, cancel: &AtomicBool) -> Result<()> {
    let path = place(args, url)?;
    atomic_file::check_links(atomic_file::folder_of(&path))
        .map_err(Failure::from)
        .inspect_err(|failure| report_not_started(args, url, failure))?;
    let filter = filter(args);
    let remote = args.store.remote(&args.http, url, tls, cancel);
    let remote = remote.inspect_err(|failure| report_not_started(args, url, failure))?;
    let options = TreeOptions {
        connections: args.connections.unwrap_or(TreeOptions::default().connections),
        retries: args.http.retries,
        policy: args.engine.policy(),
        step: args.engine.step(),
        replaces: args.force || args.update,
        // An archive has everything.
        archive: remote.bucket.is_none() && !args.update && filter.is_none(),
        bucket: remote.bucket,
        rate: args.rate.map(|Size(bytes)| bytes),
        filter,
        deletes: args.delete,
        max_delete: args.max_delete,
    };
    let gauge = TreeGauge::default();
    let started = Instant::now();
    let meter = ProgressMeter::new(args.show, &output::short_path(&path));
    let outcome = meter.during(
        || progress::tree(&gauge),
        || {
            let on_event = |event: &TreeEvent<'_>| report(args.show, event);
            tree::fetch(&remote.client, &options, &remote.url, &path, &gauge, &on_event)
        },
    );
    let elapsed = started.elapsed();
    match outcome {
        Ok(done) => {
            let mut receipt = TreeReceipt::new(url, &path, &done, elapsed);
            let reason = if done.left_out > 0 { ": see above" } else { "" };
            receipt.receipt.error = done.shortfall(&path).map(|line| line + reason);
            print::tree(args.show, &summary(&receipt), &receipt.receipt, &receipt);
            receipt.receipt.error.map_or(Ok(()), |line| Err(Failure::line(line)))
        }
        Err(failed) => {
            let mut receipt = TreeReceipt::new(url, &path, &failed.done, elapsed);
            receipt.receipt.error = Some(failed.error.to_string());
            print::tree_receipt(args.show, &receipt.receipt, &receipt);
            let line = format!("fetching {} to {}: {failed}", shown(url), path.display());
            Err(Failure::hinted(line, &failed))
        }
    }
}

/// Prints the receipt of a folder whose transfer failed before it began; none if the usage was wrong.
pub(super) fn report_not_started(args: &GetArgs, url: &Url, failure: &Failure) {
    let Ok(path) = place(args, url) else { return };
    if failure.exit_code() == 1 {
        let mut receipt = TreeReceipt::new(url, &path, &TreeOutcome::default(), Duration::ZERO);
        receipt.receipt.error = Some(failure.to_string());
        output::print_json(args.show, &receipt);
    }
}

/// Returns which paths are fetched: files that an --include matches, if there is one, and nothing
/// that an --exclude matches.
fn filter(args: &GetArgs) -> Option<PathFilter> {
    let (include, exclude) = (args.include.clone(), args.exclude.clone());
    let has_patterns = !include.is_empty() || !exclude.is_empty();
    let wants = move |path: &[u8], is_folder: bool| {
        let matches = |pattern: &ExcludePattern| pattern.matches_path(path, is_folder);
        let is_included = is_folder || include.is_empty() || include.iter().any(matches);
        is_included && !exclude.iter().any(matches)
    };
    has_patterns.then(|| PathFilter::new(wants))
}

/// Returns the folder for a fetched folder; the named one if the server's has no name.
fn place(args: &GetArgs, url: &Url) -> Result<PathBuf> {
    let dir = args.dir.clone().unwrap_or_else(|| PathBuf::from("."));
    match name_of(url) {
        Ok(Some(name)) => Ok(dir.join(OsStr::from_bytes(&name))),
        // A bucket has a name where a server has none.
        Ok(None) if url.scheme() == "s3" => Ok(dir.join(url.host_str().unwrap_or_default())),
        Ok(None) => Ok(dir),
        Err(refusal) => Err(UrlUsage::NotAFolder { url: shown(url), refusal }.into()),
    }
}

fn path_of(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

fn report(show: ShowArgs, event: &TreeEvent<'_>) {
    match event {
        // A missing entry is an error, which is never quiet.
        TreeEvent::LeftOut { path, reason } => {
            // A name from a server can have any length.
            let (path, rest) = path.split_at(path.len().min(MAX_SHOWN));
            let end = if rest.is_empty() { "" } else { "..." };
            output::note(&format!("{}{end} is left out: {reason}", path_of(path).display()));
        }
        TreeEvent::ListingCut { url } => {
            output::note(&format!("{url}: the listing is truncated, so entries may be missing"));
        }
        TreeEvent::NothingRemoved => {
            output::note("nothing is removed, because something was left out");
        }
        _ if show.quiet => {}
        TreeEvent::LinksElsewhere { url, count } => {
            let links = output::counted(*count as u64, "link leads", "links lead");
            output::note(&format!(
                "{url}: no link leads to a file in this folder, {links} elsewhere"
            ));
        }
        TreeEvent::Resuming { have, total } => {
            output::note(&print::resuming(*have, Some(*total)));
        }
        TreeEvent::Retrying { error, after } => output::note_retry(error, *after),
        TreeEvent::Removed { path } => {
            let path = path_of(path).display();
            output::note(&format!("{path} is removed: the server does not list it"));
        }
        TreeEvent::StartingOver => {
            output::note("the folder on the server may have changed: starting over");
        }
        _ => {}
    }
}

/// The maximum length of a path in a line about it: that of a path of the kernel, in bytes.
const MAX_SHOWN: usize = 4096;
