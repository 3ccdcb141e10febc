//! A worker's view of the sites, so that a request needs no lock and no count that other threads
//! change.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use crate::auth::hosts::Hosts;
use crate::files::open_files::{OpenCount, OpenFiles};
use crate::server::settings::Settings;
use crate::server::sites::published::{Published, Sites};
use crate::server::sites::site::Site;
use underpass_protocol::request::Request;

/// A site with those of its files that a worker has open.
#[derive(Debug)]
pub(crate) struct LocalSite {
    pub(crate) site: Arc<Site>,
    pub(crate) files: RefCell<OpenFiles>,
    /// The last authority whose host was allowed: most requests repeat it.
    last_host: RefCell<Vec<u8>>,
}

impl LocalSite {
    /// Returns whether the host in an authority is allowed at every address of this machine.
    pub(crate) fn allows_host(&self, hosts: &Hosts, authority: &[u8]) -> bool {
        if *self.last_host.borrow() == authority {
            return true;
        }
        let is_allowed = hosts.allows(authority);
        if is_allowed && authority.len() <= MAX_HOST {
            self.last_host.replace(authority.to_vec());
        }
        is_allowed
    }
}

/// The site that a request is for.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    pub(crate) site: Rc<LocalSite>,
    /// Whether the request names the site, instead of falling back to the default one.
    pub(crate) is_named: bool,
    /// Why no site answers the request, if none does.
    pub(crate) misdirected: Option<Misdirected>,
}

/// Why no site answers a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Misdirected {
    /// No site has its name.
    Unknown,
    /// Its connection was made for a site with other protection.
    OtherSite,
}

/// The sites of one worker.
#[derive(Debug)]
pub(crate) struct LocalSites {
    generation: u64,
    by_name: Arc<Sites>,
    all: Vec<Rc<LocalSite>>,
    open: Rc<OpenCount>,
}

impl LocalSites {
    /// Returns the sites that are served now, without any open file.
    pub(crate) fn new(published: &Published, settings: &Settings) -> Self {
        Self::with(published, OpenCount::new(settings))
    }

    fn with(published: &Published, open: Rc<OpenCount>) -> Self {
        // If they are replaced in between, the next request finds another generation.
        let generation = published.generation();
        let by_name = published.get();
        let local = |site: &Arc<Site>| {
            let files = RefCell::new(OpenFiles::new(&open));
            let last_host = RefCell::default();
            Rc::new(LocalSite { site: Arc::clone(site), files, last_host })
        };
        let all = by_name.all.iter().map(local).collect();
        Self { generation, by_name, all, open }
    }

    /// Switches to the sites that are served now, if they were replaced.
    pub(crate) fn keep_up(&mut self, published: &Published) {
        if self.generation != published.generation() {
            self.for_each_files(OpenFiles::forget_all);
            *self = Self::with(published, Rc::clone(&self.open));
        }
    }

    /// Returns the site for requests without a known name.
    pub(crate) fn default(&self) -> &Rc<LocalSite> {
        &self.all[self.by_name.default]
    }

    /// Returns the site of a request on a connection with this server name in its handshake.
    pub(crate) fn select(&self, request: &Request<'_, '_>, sni: Option<&str>) -> Selection {
        let by_name = &self.by_name.by_name;
        if by_name.is_empty() {
            let site = Rc::clone(self.default());
            return Selection { site, is_named: false, misdirected: None };
        }
        let place = |name: &[u8]| by_name.get(name).copied();
        let named = request.authority().and_then(place);
        let site = Rc::clone(&self.all[named.unwrap_or(self.by_name.default)]);
        let is_known = named.is_some() || site.site.settings.is_default;
        let other = sni.map(|name| place(name.as_bytes()).unwrap_or(self.by_name.default));
        let is_elsewhere =
            other.is_some_and(|other| !site.site.is_protected_as(&self.all[other].site));
        let misdirected = match (is_known, is_elsewhere) {
            (false, _) => Some(Misdirected::Unknown),
            (true, true) => Some(Misdirected::OtherSite),
            (true, false) => None,
        };
        Selection { site, is_named: named.is_some(), misdirected }
    }

    /// Calls a function with the open files of each site.
    pub(crate) fn for_each_files(&self, mut act: impl FnMut(&mut OpenFiles)) {
        self.all.iter().for_each(|local| act(&mut local.files.borrow_mut()));
    }
}

/// The maximum length of an authority that is remembered: that of a DNS name and a port.
const MAX_HOST: usize = 260;
