//! The sites that are served now, by name. They are replaced all at once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::server::credentials::Credentials;
use crate::server::settings::{ServeError, SitesError};
use crate::server::shared::ServerState;
use crate::server::sites::settings::SiteSettings;
use crate::server::sites::site::Site;
use underpass_engine::wait::lock;
use underpass_observe::metrics::SiteCounts;
use underpass_protocol::request::host_map::HostMap;

/// The sites of one moment.
#[derive(Debug)]
pub(crate) struct Sites {
    pub(crate) all: Vec<Arc<Site>>,
    /// The places of sites in `all`, by their names.
    pub(crate) by_name: HostMap<usize>,
    /// The place of the site for other names; one without files if there is no default site.
    pub(crate) default: usize,
}

impl Sites {
    fn new(
        shared: &Arc<ServerState>,
        mut settings: Vec<SiteSettings>,
        before: &[Arc<Site>],
    ) -> Result<Self, ServeError> {
        let first = before.last().map_or(0, |site| site.number + 1);
        let mut by_name = HostMap::default();
        for (place, site) in settings.iter().enumerate() {
            for name in &site.names {
                if by_name.insert(name, place).is_some() {
                    return Err(SitesError::SameName(name.clone()).into());
                }
            }
        }
        let defaults = settings.iter().filter(|site| site.is_default).count();
        if defaults > 1 {
            return Err(SitesError::Defaults.into());
        }
        let default = settings.iter().position(|site| site.is_default);
        let default = default.unwrap_or(settings.len());
        // Metrics cover the whole server, so only one site serves them.
        let metered = if default < settings.len() { default } else { 0 };
        let others = settings.iter_mut().enumerate().filter(|(place, _)| *place != metered);
        others.for_each(|(_, site)| site.metrics = false);
        let nowhere = (default == settings.len()).then(SiteSettings::nowhere);
        let numbered = (first..).zip(settings.into_iter().chain(nowhere));
        let mut left: Vec<_> = before.iter().collect();
        let all = numbered.map(|(number, settings)| {
            let counts = (!by_name.is_empty()).then(|| counts(&settings, before));
            let site = Site::new(shared, number, settings)?;
            let same = left.iter().position(|old| is_continued(&old.settings, &site.settings));
            let old = same.map(|same| left.swap_remove(same));
            let scope = old.map_or(site.scope, |old| old.scope);
            Ok((Site { counts, scope, ..site }, old.map(|old| old.realm)))
        });
        let all = all.collect::<Result<Vec<_>, ServeError>>()?;
        let (mut all, realms): (Vec<_>, Vec<_>) = all.into_iter().unzip();
        set_realms(&mut all, &realms);
        share_names(&mut all, before);
        Ok(Self { all: all.into_iter().map(Arc::new).collect(), by_name, default })
    }
}

/// Gives sites with the same users the same realm: the one that a site among them had before,
/// unless other users have it by now.
fn set_realms(sites: &mut [Site], before: &[Option<u64>]) {
    let mut taken = Vec::new();
    for place in 0..sites.len() {
        let access = &sites[place].settings.access;
        let mut same = (0..sites.len()).filter(|at| sites[*at].settings.access.is_same(access));
        let realm = match same.next() {
            Some(first) if first < place => sites[first].realm,
            first => {
                let mut known = first.into_iter().chain(same).filter_map(|at| before[at]);
                let known = known.find(|realm| !taken.contains(realm));
                let realm = known.unwrap_or(sites[place].number);
                taken.push(realm);
                realm
            }
        };
        sites[place].realm = realm;
    }
}

/// Gives sites that may serve the same files the same lock: that of a site `before` them, requests
/// to which may be under way. An unresponsive disk thus delays only sites that use it.
fn share_names(sites: &mut [Site], before: &[Arc<Site>]) {
    for place in 0..sites.len() {
        let site = &sites[place];
        if let Some(old) = before.iter().find(|old| may_share_files(old, site)) {
            sites[place].names = old.names.clone();
        }
        for earlier in 0..place {
            let (kept, replaced) = (sites[earlier].names.clone(), sites[place].names.clone());
            if !kept.is_same(&replaced) && may_share_files(&sites[earlier], &sites[place]) {
                let known = sites[..=place].iter_mut();
                known
                    .filter(|it| it.names.is_same(&replaced))
                    .for_each(|it| it.names = kept.clone());
            }
        }
    }
}

/// Returns whether two sites are on one file system, or one's folder is in that of the other.
fn may_share_files(one: &Site, other: &Site) -> bool {
    one.device == other.device || one.root.overlaps(&other.root)
}

/// Returns whether a site continues as another: it serves the same folder under one of its names.
fn is_continued(before: &SiteSettings, after: &SiteSettings) -> bool {
    let is_same_name = before.names.iter().any(|name| after.names.contains(name));
    before.root == after.root && (is_same_name || (before.is_default && after.is_default))
}

/// Returns the counts of a site: those of the site that had its name `before`, if there was one.
fn counts(settings: &SiteSettings, before: &[Arc<Site>]) -> Arc<SiteCounts> {
    let name = settings.names.first().map_or_else(|| "-".to_owned(), ToString::to_string);
    let mut known = before.iter().filter_map(|site| site.counts.as_ref());
    let known = known.find(|counts| counts.name() == name).map(Arc::clone);
    known.unwrap_or_else(|| Arc::new(SiteCounts::new(&name)))
}

/// The sites that are served now.
#[derive(Debug)]
pub(crate) struct Published {
    /// The number of times that they were replaced.
    generation: AtomicU64,
    /// They are locked for a moment only: workers wait for it.
    sites: Mutex<Arc<Sites>>,
    /// Held while new sites are opened, which may wait for a disk.
    replacing: Mutex<()>,
}

impl Published {
    /// Opens the first sites.
    pub(crate) fn new(
        shared: &Arc<ServerState>,
        settings: Vec<SiteSettings>,
    ) -> Result<Self, ServeError> {
        let sites = Sites::new(shared, settings, &[])?;
        show_certificates(shared.settings.tls.as_ref(), &sites);
        let sites = Mutex::new(Arc::new(sites));
        Ok(Self { generation: AtomicU64::new(0), sites, replacing: Mutex::new(()) })
    }

    /// Returns the number of times that the sites were replaced.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns the sites.
    pub(crate) fn get(&self) -> Arc<Sites> {
        Arc::clone(&lock(&self.sites))
    }
}

/// Replaces the sites of a server while it runs. All clones belong to the same server.
#[derive(Clone, Debug)]
pub struct SiteControl {
    pub(crate) shared: Arc<ServerState>,
    pub(crate) published: Arc<Published>,
}

impl SiteControl {
    /// Serves these sites from the next request of each connection on. Requests in progress end
    /// with the previous sites.
    ///
    /// # Errors
    ///
    /// [`ServeError`] for the first site that cannot be served; then nothing changes.
    pub fn replace(&self, settings: Vec<SiteSettings>) -> Result<(), ServeError> {
        let _replacing = lock(&self.published.replacing);
        let present = self.published.get();
        let sites = Arc::new(Sites::new(&self.shared, settings, &present.all)?);
        show_certificates(self.shared.settings.tls.as_ref(), &sites);
        for site in &sites.all {
            self.shared.start_cache(site.settings.cache.as_ref());
        }
        *lock(&self.published.sites) = sites;
        self.published.generation.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }
}

/// Installs the certificates of sites for the clients that request their names.
fn show_certificates(credentials: Option<&Credentials>, sites: &Sites) {
    let Some(credentials) = credentials else { return };
    let mut identities = HostMap::default();
    for site in &sites.all {
        for name in &site.settings.names {
            identities.insert(name, site.settings.identity.clone());
        }
    }
    credentials.show(identities);
}
