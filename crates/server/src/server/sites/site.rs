//! One site: its settings, its root, and its caches and state.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::auth::hosts::Hosts;
use crate::files::root::Root;
use crate::routing::path_fields::PathFields;
use crate::server::settings::ServeError;
use crate::server::shared::ServerState;
use crate::server::sites::names_lock::NamesLock;
use crate::server::sites::settings::SiteSettings;
use crate::uploads::{Searches, UnfinishedParts};
use underpass_engine::Version;
use underpass_observe::metrics::SiteCounts;
use underpass_protocol::encode_path;
use underpass_protocol::request::target::Target;
use underpass_protocol::response::head::custom_fields;

/// One site, with the state of the server that all sites share.
pub(crate) struct Site {
    pub(crate) shared: Arc<ServerState>,
    /// A number that no other site has, not even an earlier one of the same name: caches that
    /// several sites share have it in their keys.
    pub(crate) number: u64,
    pub(crate) settings: SiteSettings,
    pub(crate) root: Root,
    /// The file system of the root.
    pub(crate) device: Option<u64>,
    /// Locks the names of files.
    pub(crate) names: NamesLock,
    /// The fields that the settings add to every response, ready to be sent.
    pub(crate) custom_fields: Vec<u8>,
    /// The fields that the settings add to responses about some files.
    pub(crate) path_fields: PathFields,
    /// Whether browsers are asked not to run the scripts of files: these would otherwise act as
    /// pages of this site in the browser of any user that opens them.
    pub(crate) sandboxes: bool,
    /// A number that stays the same when the sites are replaced, if this site continues.
    pub(crate) scope: u64,
    /// Its name in logs and its counts, if it has a name.
    pub(crate) counts: Option<Arc<SiteCounts>>,
    /// The host names that requests without a password may have, if it is the default site.
    pub(crate) hosts: Option<Hosts>,
    /// A number that is the same for sites with the same users.
    pub(crate) realm: u64,
    /// Parts of uploads that wait for their rest.
    pub(crate) unfinished: UnfinishedParts,
    pub(crate) searches: Searches,
}

impl SiteSettings {
    /// Checks headers and patterns, as the start of the site does, without opening anything.
    ///
    /// # Errors
    ///
    /// [`ServeError::Header`] and [`ServeError::Pattern`].
    pub fn check(&self) -> Result<(), ServeError> {
        custom_fields(&self.headers).map_err(ServeError::Header)?;
        PathFields::new(&self.path_headers)?;
        Root::check(self)
    }
}

impl Site {
    /// Opens the root of a site.
    pub(crate) fn new(
        shared: &Arc<ServerState>,
        number: u64,
        settings: SiteSettings,
    ) -> Result<Self, ServeError> {
        let mut custom_fields = custom_fields(&settings.headers).map_err(ServeError::Header)?;
        let is_given =
            |own: &str| settings.headers.iter().any(|(it, _)| it.eq_ignore_ascii_case(own));
        for (name, value) in
            CORS_FIELDS.into_iter().filter(|(own, _)| settings.cors && !is_given(own))
        {
            custom_fields.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
        let changes = &settings.changes;
        let root = Root::new(&settings)?;
        Ok(Self {
            shared: Arc::clone(shared),
            number,
            device: root.stat(b"").ok().map(|stat| Version::from_stat(&stat).device()),
            root,
            names: NamesLock::default(),
            custom_fields,
            path_fields: PathFields::new(&settings.path_headers)?,
            sandboxes: !settings.allows_scripts
                && (changes.upload || changes.delete || settings.access.has_users()),
            scope: scope(&settings),
            realm: number,
            counts: None,
            hosts: settings.is_default.then(|| Hosts::new(&settings.allowed_hosts)),
            unfinished: UnfinishedParts::default(),
            searches: Searches::default(),
            settings,
        })
    }

    /// Returns the status of the redirect of a path, and the address to which it leads.
    pub(crate) fn redirect(&self, target: &Target<'_>) -> Option<(u16, String)> {
        let mut redirects = self.settings.redirects.iter();
        let found = redirects.find_map(|redirect| Some((redirect, redirect.location(target)?)));
        found.map(|(redirect, location)| {
            // Both paths are below the prefix.
            let prefix = location.starts_with('/').then_some(&*self.settings.path_prefix);
            let prefix = encode_path(prefix.unwrap_or_default().as_bytes());
            (redirect.status(), prefix + &location)
        })
    }

    /// Returns whether a client of this site may be sent to the other one without a new connection:
    /// both have the same certificate and the same passwords.
    pub(crate) fn is_protected_as(&self, other: &Self) -> bool {
        let is_ordered = self.settings.is_ordered || other.settings.is_ordered;
        let same_certificate = match (&self.settings.identity, &other.settings.identity) {
            _ if is_ordered => self.number == other.number,
            (Some(own), Some(other)) => own.is_same(other),
            (own, other) => own.is_none() && other.is_none(),
        };
        same_certificate && self.settings.access.is_same(&other.settings.access)
    }
}

/// Returns a number that differs between sites with other roots or other names.
fn scope(settings: &SiteSettings) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&settings.names, &settings.root, settings.is_default).hash(&mut hasher);
    hasher.finish()
}

impl fmt::Debug for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Site").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// Allows scripts of every site to read responses and, among their fields, those for resuming a
/// transfer and those that tell how complete a listing is.
const CORS_FIELDS: [(&str, &str); 2] = [
    ("Access-Control-Allow-Origin", "*"),
    (
        "Access-Control-Expose-Headers",
        "Accept-Ranges, Content-Disposition, Content-Encoding, Content-Length, Content-Range, ETag, \
         Last-Modified, Link, Repr-Digest, Retry-After, Server-Timing, Underpass-Incomplete, \
         Underpass-Top, Underpass-Unsorted",
    ),
];
