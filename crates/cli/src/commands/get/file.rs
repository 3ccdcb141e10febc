//! Fetches one file.

use std::ffi::OsString;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use indicatif::BinaryBytes;
use underpass_client::download::{
    DownloadError, DownloadEvent, DownloadFailed, DownloadOptions, DownloadOutcome, Downloader,
    Gauge, NameError, PartialInfo, RateLimit, TakenNames, name_of,
};
use underpass_client::input::list::ListedFile;
use underpass_client::{HttpClient, TlsSetup, Url};
use underpass_engine::atomic_file::NewFolders;

use super::args::GetArgs;
use super::destination::GetDestination;
use super::sums::ChecksumList;
use super::usage::UrlUsage;
use super::{print, progress};
use crate::failure::{Failure, Result, WithPath};
use crate::output::{self, ProgressMeter};
use underpass_protocol::digest::Digest;
use underpass_receipt::{GetReceipt, shown};

/// The state that all files of one command share.
pub(super) struct GetRun<'f> {
    pub(super) args: &'f GetArgs,
    pub(super) tls: &'f TlsSetup,
    pub(super) cancel: &'f AtomicBool,
    pub(super) rate_limit: Arc<RateLimit>,
    /// The digests that they must have.
    pub(super) sums: Option<ChecksumList>,
    /// Whether the command has several files, so that lines about one have to name it.
    pub(super) has_several: bool,
    /// The number of files at once.
    pub(super) parallel: usize,
    /// The files that this command has fetched, or begun to.
    pub(super) taken: TakenNames,
    /// The folders that this command has created. Those that stay empty are removed at its end:
    /// until then, another of its files may arrive in them.
    pub(super) folders: Mutex<NewFolders>,
}

impl GetRun<'_> {
    /// Gives each URL that ends in no file name the one that its server suggests.
    ///
    /// A URL without any is wrong usage, which is reported before the first file is fetched. One
    /// whose server does not answer fails alone.
    pub(super) fn name_all(&self, items: &mut [ListedFile]) -> Result<()> {
        if items.len() == 1 {
            return Ok(());
        }
        let has_name = |item: &ListedFile| item.out.is_some() || name_of(&item.url).is_some();
        let is_named = self.args.output.is_some();
        for item in items.iter_mut().filter(|item| !is_named && !has_name(item)) {
            // Without its keys or password, the URL fails when it is to be fetched.
            let Ok(remote) =
                self.args.store.remote(&self.args.http, &item.url, self.tls, self.cancel)
            else {
                continue;
            };
            let suggested = self.suggested_name(remote.client, &remote.url, item);
            let Ok(suggested) = suggested else { continue };
            let name = suggested.ok_or_else(|| UrlUsage::Nameless(shown(&item.url)))?;
            item.out = Some(name.into());
        }
        Ok(())
    }

    /// Asks a server for the name of a file.
    fn suggested_name(
        &self,
        client: HttpClient<'_>,
        url: &Url,
        item: &ListedFile,
    ) -> std::result::Result<Option<OsString>, DownloadError> {
        let asked = shown(&item.url);
        let file = self.has_several.then(|| Path::new(&asked));
        let on_event = |event: &DownloadEvent<'_>| print::event(self.args.show, file, event);
        Downloader::new(client, self.options()).suggested_name(url, &on_event)
    }

    /// Fetches one file. `gauge` has its progress, which others show if there are several at once.
    pub(super) fn fetch(&self, item: &ListedFile, gauge: &Gauge) -> Result<()> {
        let args = self.args;
        let prepared = self.prepare(item);
        let prepared =
            prepared.inspect_err(|failure| print::no_transfer(args.show, &item.url, failure))?;
        let Some((downloader, url, destination)) = prepared else { return Ok(()) };
        let file = self.has_several.then(|| destination.path());
        let on_event = |event: &DownloadEvent<'_>| print::event(args.show, file, event);
        let started = Instant::now();
        let work = || downloader.fetch(&url, &destination.target(), gauge, &on_event);
        let outcome = match self.parallel {
            1 => {
                let meter = ProgressMeter::new(args.show, &output::short_path(destination.path()));
                meter.during(|| progress::file(gauge), work)
            }
            _ => work(),
        };
        finish(args, &item.url, destination, outcome, started.elapsed())
    }

    /// Returns what fetches a file, the URL of requests, and the destination; `None` if the file was
    /// named before.
    fn prepare(&self, item: &ListedFile) -> Result<Option<(Downloader<'_>, Url, GetDestination)>> {
        let Self { args, cancel, .. } = *self;
        let remote = args.store.remote(&args.http, &item.url, self.tls, cancel)?;
        let mut options = self.options();
        let suggested =
            || self.suggested_name(remote.client.clone(), &remote.url, item).ok().flatten();
        let destination = GetDestination::of(args, item, suggested, &self.folders, cancel)?;
        if !self.take_name(item, &destination)? {
            return Ok(None);
        }
        options.expected.extend(self.expected(item, &destination)?);
        let downloader = Downloader::new(remote.client, options);
        let mirrors = args.mirror.iter().map(|url| {
            let remote = args.store.remote(&args.http, url, self.tls, cancel)?;
            Ok((remote.client, remote.url))
        });
        let downloader = downloader
            .with_rate_limit(Arc::clone(&self.rate_limit))
            .with_mirrors(mirrors.collect::<Result<_>>()?);
        Ok(Some((downloader, remote.url, destination)))
    }

    /// Takes the name of a file; returns `false` if it was named before.
    fn take_name(&self, item: &ListedFile, destination: &GetDestination) -> Result<bool> {
        let GetDestination::Named { path, folder, name, .. } = destination else { return Ok(true) };
        let url = shown(&item.url);
        match self.taken.take(item, folder, name) {
            Ok(is_new) => {
                if !is_new && !self.args.show.quiet {
                    output::note(&format!("{url} was named twice"));
                }
                Ok(is_new)
            }
            Err(NameError::Folder(error)) => Ok(Err(error).with_path("reading", path)?),
            Err(error) => {
                let is_same =
                    matches!(&error, NameError::Taken { earlier, .. } if *earlier == item.url);
                let hint = if is_same {
                    "give it the same checksum= each time"
                } else {
                    "name another file with -o, or with out= in a list"
                };
                let path = path.display();
                Err(Failure::line(format_args!("fetching {url} to {path}: {error} ({hint})")))
            }
        }
    }

    /// Returns the digests that a list and --check have for a file.
    fn expected(&self, item: &ListedFile, destination: &GetDestination) -> Result<Vec<Digest>> {
        let mut expected = item.digests.clone();
        if let Some(sums) = &self.sums {
            // -o gives a name other than the listed one.
            let name = match (&item.out, &self.args.output) {
                (Some(out), _) => Some(out.clone()),
                (None, Some(_)) => name_of(&item.url).map(PathBuf::from),
                (None, None) => destination.path().file_name().map(PathBuf::from),
            };
            expected.extend_from_slice(sums.of(&name.unwrap_or_default())?);
        }
        Ok(expected)
    }

    /// Converts the arguments to options.
    fn options(&self) -> DownloadOptions {
        let args = self.args;
        DownloadOptions {
            // The other connections fetch other files.
            connections: args.connections.or((self.parallel > 1).then_some(1)),
            retries: args.http.retries,
            rate: None,
            policy: args.engine.policy(),
            step: args.engine.step(),
            keep_time: !args.no_mtime,
            durable: args.sync,
            expected: args.digest.clone(),
            shown: args.digest_print.into_iter().collect(),
            verify: args.verify,
        }
    }
}

/// Reports how a file was fetched, and completes it.
fn finish(
    args: &GetArgs,
    url: &Url,
    destination: GetDestination,
    outcome: std::result::Result<DownloadOutcome, DownloadFailed>,
    elapsed: Duration,
) -> Result<()> {
    match outcome {
        Ok(done) => {
            let mut receipt = GetReceipt::new(&shown(url), destination.path(), &done, elapsed);
            receipt.receipt.to = Some(destination.kind());
            if let Err(failure) = destination.finish(done.report.bytes()) {
                receipt.receipt.error = Some(failure.to_string());
                print::file_receipt(args.show, &receipt);
                return Err(failure);
            }
            print::file(args.show, &receipt);
            if args.digest_print.is_some() && !args.show.json {
                print::digests(&receipt);
            }
            Ok(())
        }
        Err(failed) => {
            let receipt = GetReceipt::of_failed(&shown(url), destination.path(), &failed, elapsed);
            print::file_receipt(args.show, &receipt);
            let to = destination.path().display();
            let mut line = format!("fetching {} to {to}: {failed}", shown(url));
            if let Some(PartialInfo { name, bytes }) = failed.kept.as_deref() {
                // Writing to a string cannot fail.
                let _ = write!(line, "; {} keeps {}", name.display(), BinaryBytes(*bytes));
            }
            Err(Failure::hinted(line, &failed))
        }
    }
}
