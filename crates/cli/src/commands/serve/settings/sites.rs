//! The sites that the options define, with their open roots, caches and certificates.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use underpass_cache::Cache;
use underpass_copy::ends::is_dash;
use underpass_engine::Integrity;
use underpass_engine::hint::Action;
use underpass_sandbox::User;
use underpass_server::auth::Access;
use underpass_server::{MediaTypes, SiteSettings};
use underpass_transport::tls::{Identity, KeyFiles};

use super::super::args::{ConfigUsage, OriginUsage, ServeArgs, SiteArgs};
use super::super::certificate::{Certificate, Orders, default_files, key_files};
use super::super::origin::CacheOfOrigin;
use super::{limits, responses, site_settings, useless_upload_options};
use crate::failure::{Failure, Result, WithPath};
use crate::open_files;

/// The things that sites keep open. When options are read again, sites that need the same share it.
#[derive(Clone, Debug)]
pub(crate) struct OpenSites {
    of_system: MediaTypes,
    /// The certificate files of the server, if its certificate is in files.
    of_server: Option<KeyFiles>,
    /// The folder of the keys that a certificate authority certifies, if one is used.
    key_folder: Option<PathBuf>,
    /// The user to whom the server switches.
    user: Option<User>,
    /// Users by the rules that name them, so that verified passwords stay cached.
    access: BTreeMap<Vec<String>, Access>,
    caches: Vec<CacheOfOrigin>,
    /// The number of objects that each cache may have in memory.
    max_in_memory: usize,
    /// Certificates, for files that cannot be read again.
    identities: BTreeMap<KeyFiles, Identity>,
    /// Whether the server runs, so that no pipe is read.
    is_running: bool,
}

/// The sites of the options, and the access that they need in a confined process.
#[derive(Debug, Default)]
pub(crate) struct Opened {
    pub(crate) sites: Vec<SiteSettings>,
    /// The ports of origins, and of services that have keys.
    pub(crate) ports: Vec<u16>,
    /// The folders from which files are read again.
    pub(crate) folders: Vec<PathBuf>,
    /// The certificates that could not be read, and why, or that clients may refuse.
    pub(crate) notes: Vec<String>,
}

impl OpenSites {
    /// Creates an empty value for a server with this certificate, these orders and this user.
    pub(crate) fn new(
        certificate: Option<&Certificate>,
        orders: Option<&Orders>,
        user: Option<User>,
    ) -> Self {
        Self {
            of_system: responses::of_system(),
            of_server: certificate.and_then(Certificate::files).cloned(),
            key_folder: orders.map(|orders| orders.folder().to_owned()),
            user,
            access: BTreeMap::new(),
            caches: Vec::new(),
            max_in_memory: 0,
            identities: BTreeMap::new(),
            is_running: false,
        }
    }

    /// Opens the roots, caches and certificates of the sites of the options. A caller that may not
    /// use the sites must keep a copy from before.
    pub(crate) fn open(&mut self, args: &ServeArgs) -> Result<Opened> {
        let mut opened = Opened::default();
        if self.of_server.is_some() {
            self.of_server = default_files(args)?;
        }
        let before = std::mem::take(&mut self.caches);
        let caches = args.each_site().filter(|site| site.origin.cache.is_some()).count();
        self.max_in_memory = limits::cached_objects(open_files::raise_limit(), caches);
        self.open_with(args, &before, &mut opened)?;
        let mut own = own_files(args);
        own.extend(self.key_folder.clone());
        for open in &self.caches {
            own.insert(open.cache.folder().to_owned());
            own.extend(open.key_files.iter().flat_map(|file| paths_of(file)));
        }
        for site in &mut opened.sites {
            own.iter().for_each(|path| site.hide_file(path));
        }
        let rules: Vec<_> = args.each_site().map(|site| &site.access.auth).collect();
        self.access.retain(|known, _| rules.contains(&known));
        let useless = useless_upload_options(args).into_iter();
        opened
            .notes
            .extend(useless.map(|option| format!("{option} has no effect without --allow-upload")));
        opened.folders.sort_unstable();
        opened.folders.dedup();
        opened.ports.sort_unstable();
        opened.ports.dedup();
        self.is_running = true;
        Ok(opened)
    }

    fn open_with(
        &mut self,
        args: &ServeArgs,
        before: &[CacheOfOrigin],
        opened: &mut Opened,
    ) -> Result<()> {
        if args.sites.is_empty() {
            let site = self.site(args, before, opened)?;
            opened.sites.push(SiteSettings { is_default: true, ..site });
        }
        for SiteArgs { place, names, is_default, is_ordered, has_files, args } in &args.sites {
            let at = |failure: Failure| Failure::value(place, failure.to_string());
            let mut site = self.site(args, before, opened).map_err(at)?;
            if !has_files && !args.redirects_all() {
                return Err(Failure::value(place, ConfigUsage::SiteWithoutFiles));
            }
            if !has_files {
                site.root = None;
            }
            let (names, is_default, is_ordered) = (names.clone(), *is_default, *is_ordered);
            opened.sites.push(SiteSettings { names, is_default, is_ordered, ..site });
        }
        for (SiteArgs { place, .. }, site) in args.sites.iter().zip(&opened.sites) {
            self.refuse_cache_as_root(site).map_err(|error| Failure::value(place, error))?;
        }
        Ok(())
    }

    /// Refuses a site whose root is in the folder of a cache, whatever its access rules are.
    fn refuse_cache_as_root(&self, site: &SiteSettings) -> std::result::Result<(), OriginUsage> {
        let root = site.root.as_deref().filter(|_| site.cache.is_none());
        let mut folders = self.caches.iter().map(|open| open.cache.folder());
        match folders.find(|folder| root.is_some_and(|root| root.starts_with(folder))) {
            Some(folder) => Err(OriginUsage::CacheServed(folder.to_owned())),
            None => Ok(()),
        }
    }

    /// Opens what one site needs.
    fn site(
        &mut self,
        args: &ServeArgs,
        before: &[CacheOfOrigin],
        opened: &mut Opened,
    ) -> Result<SiteSettings> {
        let settings = site_settings(args);
        let cache = self.cache(args, before, opened)?;
        let root = match &cache {
            // Files in this folder are served only through the cache.
            Some(cache) => cache.folder().to_owned(),
            None => fs::canonicalize(&args.root).with_path(Action::Serving, &args.root)?,
        };
        // The cache never changes bytes that have arrived.
        let integrity = if cache.is_some() { Integrity::Fast } else { settings.integrity };
        Ok(SiteSettings {
            root: Some(root),
            cache,
            integrity,
            identity: self.identity(args, opened)?,
            access: self.access(&args.access.auth)?,
            media_types: responses::media_types(&self.of_system, &args.pages.mime)?,
            ..settings
        })
    }

    /// Returns the users of some rules.
    fn access(&mut self, rules: &[String]) -> Result<Access> {
        if let Some(known) = self.access.get(rules) {
            return Ok(known.clone());
        }
        let access = access(rules)?;
        self.access.insert(rules.to_vec(), access.clone());
        Ok(access)
    }

    /// Returns the certificate of a site, if it has a separate one.
    fn identity(&mut self, args: &ServeArgs, opened: &mut Opened) -> Result<Option<Identity>> {
        let Some(files) = key_files(&args.tls)? else { return Ok(None) };
        opened.folders.extend(files.folders());
        if self.of_server.as_ref() == Some(&files) {
            return Ok(None);
        }
        let loaded = if self.is_running { files.load_again() } else { files.load() };
        let identity = match (loaded, self.identities.get(&files)) {
            (Ok(identity), _) => {
                // Sites may share a certificate.
                let warning = identity.warning().map(str::to_owned);
                opened.notes.extend(warning.filter(|warning| !opened.notes.contains(warning)));
                identity
            }
            (Err(error), Some(known)) => {
                opened.notes.push(format!("{error}; the previous certificate stays in use"));
                known.clone()
            }
            (Err(error), None) => return Err(error.into()),
        };
        self.identities.insert(files, identity.clone());
        Ok(Some(identity))
    }

    /// Opens the cache of a site, if it has one, unless it is open already.
    fn cache(
        &mut self,
        args: &ServeArgs,
        before: &[CacheOfOrigin],
        opened: &mut Opened,
    ) -> Result<Option<Cache>> {
        let user = self.user.as_ref();
        let opened_now =
            args.origin.open(args, before, self.max_in_memory, user, self.is_running)?;
        let Some(found) = opened_now else {
            return Ok(None);
        };
        opened.ports.extend(&found.ports);
        let folders = found.key_files.iter().filter_map(|file| file.parent());
        opened.folders.extend(folders.filter(|it| it.is_dir()).map(Path::to_owned));
        let cache = found.cache.clone();
        self.caches.push(found);
        Ok(Some(cache))
    }
}

/// Parses the rules of `--auth`. No rule is repeated in the message: it contains a password.
pub(super) fn access(rules: &[String]) -> Result<Access> {
    Access::parse(rules).map_err(|error| Failure::value("--auth", error))
}

/// Returns the paths of the files of the server itself, which no site serves: its configuration,
/// its log, and the certificates with their keys. A file that is named through links has several.
fn own_files(args: &ServeArgs) -> BTreeSet<PathBuf> {
    let log = args.logging.log_file.clone().filter(|path| !is_dash(path));
    reread_files(args).into_iter().chain(log).flat_map(|file| paths_of(&file)).collect()
}

/// Returns the files that are read again on SIGHUP: the configuration, and the certificates with
/// their keys.
pub(crate) fn reread_files(args: &ServeArgs) -> BTreeSet<PathBuf> {
    let sites = args.sites.iter().map(|site| &site.args).chain([args]);
    let keys = sites.filter_map(|site| key_files(&site.tls).ok().flatten());
    keys.flat_map(|files| files.paths()).chain(args.config_file()).collect()
}

/// Returns the paths of a file: the given one, the one with the real folder, and the target of a
/// link. The file need not exist yet.
fn paths_of(file: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let named = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let folder = named.parent().and_then(|folder| folder.canonicalize().ok());
    let in_folder = folder.zip(named.file_name()).map(|(folder, name)| folder.join(name));
    [in_folder, named.canonicalize().ok(), Some(named)].into_iter().flatten()
}
