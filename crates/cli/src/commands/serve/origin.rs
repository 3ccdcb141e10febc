//! The options of `--origin`: a cache in front of a server that has the files.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use indicatif::BinaryBytes;
use rustix::fs::statvfs;
use underpass_cache::{Cache, CacheOptions, OpenError, OriginOptions, RedirectHost};
use underpass_client::{Credentials, TlsSetup, Url, input, without_credentials};
use underpass_engine::hint::Action;
use underpass_engine::{MinFree, Size};
use underpass_protocol::caching::FreshnessRules;
use underpass_sandbox::User;
use underpass_transport::tls::Trust;

use super::args::{OriginArgs, OriginUsage, ServeArgs};
use crate::failure::{Failure, Result, WithPath};
use crate::output;

/// The time for which a file of a store is fresh: stores rarely give one.
const FRESH_OF_STORES: Duration = Duration::from_secs(60);

/// The percentage of the disk that a cache leaves free.
const FREE_PERCENT: MinFree = MinFree::Percent(5);

/// The time that a store may take to answer before the server starts without its answer.
const PROBE_TIME: Duration = Duration::from_secs(3);

/// The cache in front of an origin, and the access that it needs in a confined process.
#[derive(Clone, Debug)]
pub(super) struct CacheOfOrigin {
    /// The options that it was opened with.
    options: OriginArgs,
    pub(super) cache: Cache,
    /// The ports of origins, and of services that have keys.
    pub(super) ports: Vec<u16>,
    /// The files of keys.
    pub(super) key_files: Vec<PathBuf>,
}

impl OriginArgs {
    /// Returns the first origin without credentials, for people.
    pub(super) fn first(&self) -> Option<String> {
        let url = Url::parse(self.origin.first()?).ok()?;
        Some(without_credentials(&url).into())
    }

    /// Returns the ports of the origins, and of the hosts to which they may redirect.
    fn ports(&self) -> Vec<u16> {
        let urls = self.origin.iter().filter_map(|text| Url::parse(text).ok());
        let redirects = self.origin_redirect.iter().flat_map(RedirectHost::ports);
        let own = urls.filter_map(|url| url.port_or_known_default());
        let mut ports: Vec<_> = own.chain(redirects).collect();
        ports.sort_unstable();
        ports.dedup();
        ports
    }

    /// Opens the cache, if there is an origin, and returns it with the access that it needs. A
    /// cache that was opened `before` with the same options stays open. Its files belong to `user`,
    /// if there is one. While the server runs, nothing is waited for.
    pub(super) fn open(
        &self,
        args: &ServeArgs,
        before: &[CacheOfOrigin],
        max_in_memory: usize,
        user: Option<&User>,
        is_running: bool,
    ) -> Result<Option<CacheOfOrigin>> {
        let folder = match (&self.cache, self.origin.is_empty()) {
            (Some(folder), false) => folder,
            (None, false) => {
                return Err(OriginUsage::Needs { option: "--origin", other: "--cache DIR" }.into());
            }
            (_, true) => return self.refuse_alone().map(|()| None),
        };
        refuse_others(args)?;
        if let Some(open) = before.iter().find(|open| open.options == *self) {
            return Ok(Some(open.clone()));
        }
        let path = fs::canonicalize(folder).ok();
        if before.iter().any(|open| path.as_deref() == Some(open.cache.folder())) {
            return Err(Failure::value("--cache", OriginUsage::CacheLater(folder.clone())));
        }
        let (mut ports, mut key_files) = (self.ports(), Vec::new());
        let named: Vec<_> = self.origin.iter().map(|text| url(text)).collect::<Result<_>>()?;
        let trust = Trust { authorities: self.origin_cacert.clone(), ..Trust::default() };
        let tls = TlsSetup::new(trust);
        let mut origins = Vec::new();
        for url in named {
            origins.push(match self.store.open(&url, &tls)? {
                None => OriginOptions { url, credentials: Credentials::None, bucket: None },
                Some(store) => {
                    self.store.unsigned_note(&store).iter().for_each(|note| output::note(note));
                    let (of_store, services) = store.needs();
                    key_files.extend(of_store);
                    ports.extend(services);
                    let usable = store.check(&tls, PROBE_TIME);
                    usable.map_err(|error| Failure::line(format!("--origin {url}: {error}")))?;
                    OriginOptions {
                        credentials: store.credentials(),
                        url: store.url,
                        bucket: Some(store.bucket),
                    }
                }
            });
        }
        let is_store = origins.iter().any(|origin| origin.credentials.store().is_some());
        if origins.iter().any(|origin| origin.url.scheme() == "https") {
            self.check_authorities(is_running)?;
            // Later the sandbox prevents reading the files of trusted authorities.
            tls.connector().map_err(Failure::line)?;
        }
        let cache_options = CacheOptions {
            folder: folder.clone(),
            origins,
            tls,
            vary_on: self.vary_on.clone(),
            redirects: self.origin_redirect.clone(),
            size: self.cache_size.map(|Size(bytes)| bytes),
            min_free: self.cache_free.unwrap_or(FREE_PERCENT),
            rules: self.rules(is_store),
            timeout: args.limits.timeout,
            policy: args.engine.policy(),
            max_in_memory,
        };
        let cache = open_cache(user, cache_options)?;
        self.note_small_disk(folder);
        Ok(Some(CacheOfOrigin { options: self.clone(), cache, ports, key_files }))
    }

    /// Returns the defaults for what the origin does not say about freshness.
    fn rules(&self, is_store: bool) -> FreshnessRules {
        FreshnessRules {
            fresh: self.fresh.or(is_store.then_some(FRESH_OF_STORES)),
            stale_if_error: self.stale_if_error.unwrap_or_default(),
        }
    }

    /// Refuses authorities for which the server would wait: a pipe with a name, and while it runs
    /// anything but a regular file. A pipe without one, as of `<(...)`, has its writer already.
    fn check_authorities(&self, is_running: bool) -> Result<()> {
        let Some(file) = &self.origin_cacert else { return Ok(()) };
        // If it is not there, reading it says so.
        let Ok(found) = fs::metadata(file) else { return Ok(()) };
        let is_named_pipe = || found.file_type().is_fifo() && fs::canonicalize(file).is_ok();
        if found.is_file() || !(is_running || is_named_pipe()) {
            return Ok(());
        }
        let place = format!("--origin-cacert {}", file.display());
        let reason = if is_running {
            "not a regular file: others are read only at the start"
        } else {
            "a named pipe, whose writer would be waited for"
        };
        Err(Failure::value(place, reason))
    }

    /// Reports a quota that is larger than the file system of the cache.
    fn note_small_disk(&self, folder: &Path) {
        let (Some(Size(quota)), Ok(found)) = (self.cache_size, statvfs(folder)) else { return };
        let all = found.f_blocks.saturating_mul(found.f_frsize);
        if quota > all {
            output::note(&format!(
                "--cache-size {} is more than the file system of {} has, {}: --cache-free is the limit",
                BinaryBytes(quota),
                folder.display(),
                BinaryBytes(all)
            ));
        }
    }

    /// Refuses options that have a meaning only with an origin.
    fn refuse_alone(&self) -> Result<()> {
        let own = [
            (self.cache.is_some(), "--cache"),
            (self.cache_size.is_some(), "--cache-size"),
            (self.cache_free.is_some(), "--cache-free"),
            (self.fresh.is_some(), "--fresh"),
            (self.stale_if_error.is_some(), "--stale-if-error"),
            (self.origin_cacert.is_some(), "--origin-cacert"),
            (!self.vary_on.is_empty(), "--vary-on"),
            (!self.origin_redirect.is_empty(), "--origin-redirect"),
        ];
        let given = own.into_iter().find_map(|(is_given, option)| is_given.then_some(option));
        match given.or_else(|| self.store.first_given()) {
            Some(option) => Err(OriginUsage::Needs { option, other: "--origin URL" }.into()),
            None => Ok(()),
        }
    }
}

/// Opens a cache. Folders created for it belong to the user that fills it later.
fn open_cache(user: Option<&User>, options: CacheOptions) -> Result<Cache> {
    let folder = options.folder.clone();
    let opened = match user {
        Some(user) => {
            user.create_folder(&folder).with_path(Action::Writing, &folder)?;
            user.run_as(|| Cache::open(options)).with_path(Action::Writing, folder)?
        }
        None => Cache::open(options),
    };
    opened.map_err(|error| match error {
        error @ OpenError::Format(_) => Failure::value("--cache", error),
        error => Failure::line(error),
    })
}

/// Refuses options that have no meaning in front of an origin.
fn refuse_others(args: &ServeArgs) -> Result<()> {
    let changes = &args.changes;
    for (is_given, name) in [
        (args.root.as_os_str() != ".", "a folder to serve"),
        (changes.allow_upload || changes.allow_all, "--allow-upload"),
        (changes.allow_delete, "--allow-delete"),
        (args.pages.render_index, "--render-index"),
        (args.pages.render_spa, "--render-spa"),
        (args.access.allow_symlink, "--allow-symlink"),
    ] {
        if is_given {
            return Err(OriginUsage::WithOrigin(name).into());
        }
    }
    Ok(())
}

/// Returns the URL of an origin. The message about an invalid one leaves out its password.
pub(super) fn url(text: &str) -> Result<Url> {
    let url = input::origin(text).map_err(|why| Failure::value("--origin", why))?;
    // The query of an s3:// URL says where the store is.
    if url.scheme() != "s3" && (url.query().is_some() || url.fragment().is_some()) {
        Err(Failure::value("--origin", "the URL of an origin has no ? and no #"))
    } else {
        Ok(url)
    }
}
