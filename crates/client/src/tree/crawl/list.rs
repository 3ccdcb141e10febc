//! Lists a folder of the server and queues its entries.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use underpass_engine::wait::lock;
use url::Url;

use super::file::is_elsewhere;
use super::queue::{CrawlTask, FolderChain, contents};
use super::worker::CrawlWorker;
use crate::download::{PARTIAL_ENDS, partial_names};
use crate::s3;
use crate::tree::error::{Result, SourceFolderError, TreeError};
use crate::tree::listing::{self, Listing, ListingEntry, MAX_DEPTH, MAX_NAME_BYTES};
use crate::tree::options::TreeEvent;
use crate::tree::paths::{as_path, joined};
use crate::tree::task::TreeFetch;

impl CrawlWorker<'_, '_, '_, '_> {
    /// Lists a folder, and creates it.
    pub(super) fn list(&mut self, task: &CrawlTask) -> Result<()> {
        let crawl = self.crawl;
        // Several pages may link to a folder. It is fetched once for each path that leads to it.
        let seen = (task.entry.path.clone(), task.entry.url.to_string(), task.is_trusted);
        if !lock(&crawl.seen).insert(seen.clone()) {
            return Ok(());
        }
        if task.depth > MAX_DEPTH {
            self.leave_out(&task.entry.path, "folders are nested too deeply");
            return Ok(());
        }
        let read = self.read_unless_circular(task).inspect_err(|_| {
            lock(&crawl.seen).remove(&seen);
        })?;
        let contents = read.as_ref().and_then(|read| contents(&read.listing.entries));
        let repeats = FolderChain::repeats(task.around.as_ref(), contents);
        let Some(FolderRead { listing, url: answered, is_trusted }) = read.filter(|_| !repeats)
        else {
            self.leave_out(&task.entry.path, if repeats { REPEATED } else { CIRCULAR });
            return Ok(());
        };
        let made = crawl.dest.make_folder(&task.entry.path, task.entry.facts.mode.is_some());
        let made =
            made.map_err(|errno| TreeError::io("creating", as_path(&task.entry.path), errno))?;
        if task.depth > 0 {
            self.done.folders += 1;
            let mut facts = task.entry.facts;
            facts.mode =
                facts.mode.map(|mode| crawl.dest.folder_mode(&task.entry.path, made, mode));
            lock(&crawl.folders).push((task.entry.path.clone(), facts));
        }
        self.report_missing(task, &listing);
        self.count(task, &listing)?;
        if answered != task.entry.url {
            self.count_bytes(answered.as_str().len() as u64)?;
        }
        let around = Arc::new(FolderChain {
            listed: task.entry.url.clone(),
            answered,
            contents,
            around: task.around.clone(),
        });
        let rivals = with_rivals(&listing.entries);
        let tasks = listing.entries.into_iter().map(|mut entry| {
            let has_rival = rivals.contains(&entry.path);
            // A link may lead several folders down.
            let depth = entry.path.split(|byte| *byte == b'/').count() as u32;
            entry.path = joined(&task.entry.path, &entry.path);
            CrawlTask {
                entry,
                depth: task.depth + depth,
                has_rival,
                is_given_back: false,
                is_trusted,
                around: Some(Arc::clone(&around)),
            }
        });
        let (options, known) = (crawl.tree.options, task.entry.path.len());
        let tasks = tasks
            .filter(|CrawlTask { entry, .. }| options.wants(&entry.path, known, entry.is_folder));
        self.queue(tasks);
        Ok(())
    }

    /// Reports what a listing lacks, or may lack.
    fn report_missing(&mut self, task: &CrawlTask, listing: &Listing) {
        for (name, refusal) in &listing.refused {
            self.leave_out(&joined(&task.entry.path, name), &refusal.to_string());
        }
        let (url, on_event) = (TreeFetch::redacted(&task.entry.url), self.crawl.tree.on_event);
        if listing.is_cut {
            self.done.left_out += 1;
            on_event(&TreeEvent::ListingCut { url: &url });
        }
        if listing.links_elsewhere > 0 {
            on_event(&TreeEvent::LinksElsewhere { url: &url, count: listing.links_elsewhere });
        }
    }

    /// Counts and records the entries of a listing; their number and the memory of their names are
    /// limited.
    fn count(&self, task: &CrawlTask, listing: &Listing) -> Result<()> {
        let crawl = self.crawl;
        let count = listing.entries.len() as u64;
        if listing.is_too_long {
            return Err(SourceFolderError::TooMany { limit: MAX_ENTRIES }.into());
        }
        if listing.is_too_large {
            return Err(SourceFolderError::TooManyNames { limit: MAX_NAME_BYTES }.into());
        }
        let bytes = |entry: &ListingEntry| {
            (entry.path.len() + task.entry.path.len() + entry.url.as_str().len()) as u64
        };
        self.count_bytes(listing.entries.iter().map(bytes).sum())?;
        if crawl.found.fetch_add(count, Ordering::Relaxed) + count > MAX_ENTRIES {
            return Err(SourceFolderError::TooMany { limit: MAX_ENTRIES }.into());
        }
        if let Some(prune) = &crawl.prune {
            let limit = MAX_NAME_BYTES;
            let kept =
                prune.record(&task.entry.url, &task.entry.path, task.depth == 0, listing, limit);
            if !kept {
                return Err(SourceFolderError::TooManyNames { limit }.into());
            }
        }
        Ok(())
    }

    /// Counts the memory of names and URLs.
    pub(super) fn count_bytes(&self, bytes: u64) -> Result<()> {
        let before = self.crawl.found_bytes.fetch_add(bytes, Ordering::Relaxed);
        if before + bytes > MAX_NAME_BYTES as u64 {
            return Err(SourceFolderError::TooManyNames { limit: MAX_NAME_BYTES }.into());
        }
        Ok(())
    }

    /// Queues the entries of a listing.
    fn queue(&self, tasks: impl Iterator<Item = CrawlTask>) {
        let (folders, mut files): (Vec<_>, Vec<_>) = tasks.partition(|task| task.entry.is_folder);
        {
            let mut queued = lock(&self.crawl.queued);
            files.retain(|task| queued.insert(task.entry.path.clone()));
        }
        self.crawl.queue.add(files, folders);
    }

    /// Reads the listing of a folder; `None` if the folder contains itself.
    fn read_unless_circular(&mut self, task: &CrawlTask) -> Result<Option<FolderRead>> {
        let (mut url, is_root, around) = (task.entry.url.clone(), task.depth == 0, &task.around);
        if FolderChain::has(around.as_ref(), &url) {
            return Ok(None);
        }
        let first = self.read(&url, is_root, task.is_trusted)?;
        if FolderChain::has(around.as_ref(), &first.url) {
            return Ok(None);
        }
        if !first.listing.is_scripted {
            return Ok(Some(first));
        }
        url.set_query(Some("json"));
        let read = self.read(&url, is_root, task.is_trusted)?;
        // Circles are detected by the URL of the page, without `?json`.
        Ok(Some(FolderRead { url: first.url, ..read }))
    }

    /// Reads a listing.
    fn read(&mut self, url: &Url, is_root: bool, is_trusted: bool) -> Result<FolderRead> {
        if let Some(bucket) = &self.crawl.tree.options.bucket {
            let listing = self.read_bucket(bucket, url)?;
            return Ok(FolderRead { listing, url: url.clone(), is_trusted });
        }
        let answer = self.request("GET", &[("Accept", listing::ACCEPT)], url, is_trusted)?;
        let is_trusted = answer.is_trusted;
        let is_elsewhere = is_elsewhere(&answer.url, url);
        let media_type = answer.response.fields.text("content-type").unwrap_or_default().to_owned();
        let answered = answer.url.clone();
        let (mut listing, idle) = listing::receive(answer)?;
        self.idle = idle;
        // Such as a login or welcome page, which is not an empty folder.
        let is_empty = listing.entries.is_empty() && listing.refused.is_empty();
        let is_page = is_elsewhere && !listing.is_whole || listing.is_other_page;
        let is_excessive = listing.is_too_long || listing.is_too_large;
        if is_page && is_empty && !listing.is_scripted && !is_excessive {
            return Err(SourceFolderError::NotAFolder {
                url: TreeFetch::redacted(&answered),
                media_type,
            }
            .into());
        }
        // Only the listing of the root may be redirected elsewhere.
        listing.is_whole &= is_root || !is_elsewhere;
        Ok(FolderRead { listing, url: answered, is_trusted })
    }

    /// Reads the listing of a folder of a bucket, page by page. Each page counts as an entry, so
    /// that the listing cannot be endless.
    fn read_bucket(&mut self, bucket: &Url, url: &Url) -> Result<Listing> {
        let folder = url.path().strip_prefix(bucket.path()).unwrap_or_default();
        let mut listing = Listing { is_whole: true, ..Listing::default() };
        let (mut has_own, mut bytes, mut count) = (false, 0, 0);
        let mut pages = s3::Pages::new(self.idle.take());
        while let Some(page) = pages.next(self.crawl.tree.client, bucket, folder)? {
            self.crawl.tree.mark_answered();
            has_own |= page.has_own;
            count += 1;
            for listed in page.entries {
                // The name is kept twice: unescaped, and in the URL.
                bytes += url.as_str().len() + 2 * listed.name.len();
                listing.add_object(url, &listed);
            }
            bytes += pages.token_len();
            if bytes > MAX_NAME_BYTES {
                return Err(SourceFolderError::TooManyNames { limit: MAX_NAME_BYTES }.into());
            }
            let count = count + listing.entries.len() + listing.refused.len();
            listing.is_too_long = count as u64 > MAX_ENTRIES;
            if listing.is_too_long {
                break;
            }
        }
        self.idle = pages.idle;
        let is_empty = listing.entries.is_empty() && listing.refused.is_empty();
        let is_named = *url == self.crawl.tree.url && !folder.is_empty();
        if is_empty && is_named && !has_own {
            // An object store has folders only as prefixes of keys.
            Err(SourceFolderError::NotThere.into())
        } else {
            Ok(listing)
        }
    }
}

/// The listing of a folder.
struct FolderRead {
    listing: Listing,
    /// The URL that answered, after redirects.
    url: Url,
    /// Whether its entries may be requested with credentials.
    is_trusted: bool,
}

/// Returns the paths of files whose partial file or journal would have another entry's name.
fn with_rivals(entries: &[ListingEntry]) -> HashSet<Vec<u8>> {
    let ends = |entry: &&ListingEntry| PARTIAL_ENDS.iter().any(|end| entry.path.ends_with(end));
    let rivals: HashSet<&[u8]> =
        entries.iter().filter(ends).map(|entry| entry.path.as_slice()).collect();
    let has_rival = |entry: &&ListingEntry| {
        let slash = entry.path.iter().rposition(|byte| *byte == b'/');
        let (folder, name) = entry.path.split_at(slash.map_or(0, |at| at + 1));
        let names = partial_names(OsStr::from_bytes(name));
        names.iter().any(|name| rivals.contains([folder, name.as_bytes()].concat().as_slice()))
    };
    if rivals.is_empty() {
        HashSet::new()
    } else {
        entries.iter().filter(has_rival).map(|entry| entry.path.clone()).collect()
    }
}

/// The maximum number of files and folders.
const MAX_ENTRIES: u64 = listing::MAX_LINKS as u64;

/// The reason for leaving out a folder whose URL is that of a parent folder.
const CIRCULAR: &str = "it leads back to a folder that it is in";

/// The reason for leaving out a folder whose listing equals those of several parent folders.
const REPEATED: &str = "its listing is that of several folders around it";
