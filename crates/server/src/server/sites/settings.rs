//! The settings of one site.

use std::path::{Path, PathBuf};
use std::time::Duration;

use underpass_cache::Cache;
use underpass_engine::{Integrity, MinFree};

use crate::auth::Access;
use underpass_protocol::request::host_map::HostPattern;
use underpass_protocol::response::media_types::MediaTypes;
use underpass_protocol::response::redirect::Redirect;
use underpass_transport::tls::Identity;

/// The settings of one site.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools)] // each is a separate switch that users set
pub struct SiteSettings {
    /// The names for which it answers.
    pub names: Vec<HostPattern>,
    /// Whether it also answers requests without a host name, or with one that no site has.
    pub is_default: bool,
    /// The folder whose files are served, or a single file; `None` if there are none, as for a
    /// site that redirects everything.
    pub root: Option<PathBuf>,
    /// The cache from which every request is answered, if the site stands before an origin.
    pub cache: Option<Cache>,
    /// The certificate for its names, instead of the server's.
    pub identity: Option<Identity>,
    /// Whether its certificates are ordered from a certificate authority, one for each name.
    pub is_ordered: bool,
    /// The paths that are redirected; the first that matches counts.
    pub redirects: Vec<Redirect>,
    /// The level of protection against mixing two versions of a file in a response.
    pub integrity: Integrity,
    /// The access rules for users and paths.
    pub access: Access,
    /// The names that requests without a password may use as the host, besides `localhost`,
    /// addresses and those of this machine; `*` for any. Names are checked at addresses that only
    /// this machine can reach, and at all addresses if any names are set here.
    pub allowed_hosts: Vec<String>,
    /// Patterns of names that are not served; a pattern with a slash is matched with the whole
    /// path.
    pub hide: Vec<String>,
    /// Files and folders of the server itself outside the root, see [`hide_file`](Self::hide_file).
    pub own_files: Vec<PathBuf>,
    /// Whether names that begin with a dot are served.
    pub shows_hidden: bool,
    /// Whether symbolic links may lead out of the root.
    pub allows_symlinks_outside: bool,
    /// The value of `Cache-Control` for files.
    pub cache_control: Option<String>,
    /// Fields added to every response.
    pub headers: Vec<(String, String)>,
    /// Fields added to the responses about some files.
    pub path_headers: Vec<PathHeader>,
    /// The media types of files by their extensions.
    pub media_types: MediaTypes,
    /// Whether scripts of other sites may read the responses.
    pub cors: bool,
    /// Whether scripts in served files run as pages of the site even if users may change files
    /// or have passwords.
    pub allows_scripts: bool,
    /// Whether a request for a folder is answered with its `index.html`.
    pub renders_index: bool,
    /// Whether a request for a missing path is answered with the root's `index.html`.
    pub renders_spa: bool,
    /// The prefix of all request paths: empty, or `/a/b`.
    pub path_prefix: String,
    /// The changes that clients may make.
    pub changes: Changes,
    /// Whether folders are listed.
    pub listing: bool,
    /// Whether folders can be downloaded as tar or zip archives.
    pub archive: bool,
    /// Whether `/.underpass/health` answers.
    pub health: bool,
    /// Whether `/.underpass/metrics` answers.
    pub metrics: bool,
    /// Whether `/.underpass/transfers` answers.
    pub transfers: bool,
}

impl SiteSettings {
    /// Returns the settings of the default site: it shows a folder or a file, and allows no
    /// changes. All other settings have the defaults of `underpass serve`.
    #[must_use]
    pub fn new(root: PathBuf) -> Self {
        Self { root: Some(root), is_default: true, ..Self::nowhere() }
    }

    /// Hides a file or a folder of the server itself if it lies below the root, such as its key,
    /// its log or a cache, as a pattern of [`hide`](Self::hide) does. It need not exist yet. It is
    /// hidden at this absolute path only, which may not lead through links. Where links may lead out
    /// of the root, it is not found through them either.
    pub fn hide_file(&mut self, path: &Path) {
        // With a cache, no file of the folder itself is served.
        let Some(root) = self.root.as_deref().filter(|_| self.cache.is_none()) else { return };
        let Ok(inside) = path.strip_prefix(root) else {
            self.own_files.push(path.to_owned());
            return;
        };
        let pattern = pattern_of(inside);
        if !inside.as_os_str().is_empty() && !self.hide.contains(&pattern) {
            self.hide.push(pattern);
        }
    }

    /// Returns whether folders are listed: an origin has to be an object store for that.
    pub(crate) fn lists_folders(&self) -> bool {
        self.listing && self.cache.as_ref().is_none_or(Cache::has_stores)
    }

    /// Returns the settings of a site without names and without files.
    pub(crate) fn nowhere() -> Self {
        Self {
            names: Vec::new(),
            is_default: false,
            root: None,
            cache: None,
            identity: None,
            is_ordered: false,
            redirects: Vec::new(),
            integrity: Integrity::Detect,
            access: Access::default(),
            allowed_hosts: Vec::new(),
            hide: Vec::new(),
            own_files: Vec::new(),
            shows_hidden: false,
            allows_symlinks_outside: false,
            cache_control: None,
            headers: Vec::new(),
            path_headers: Vec::new(),
            media_types: MediaTypes::default(),
            cors: false,
            allows_scripts: false,
            renders_index: false,
            renders_spa: false,
            path_prefix: String::new(),
            changes: Changes { min_rate: 500, ..Changes::default() },
            listing: true,
            archive: true,
            health: true,
            metrics: true,
            transfers: true,
        }
    }
}

/// Returns the pattern that matches a path below the root.
fn pattern_of(path: &Path) -> String {
    let mut pattern = "/".to_owned();
    for char in path.to_string_lossy().chars() {
        match char {
            // Bytes that a pattern cannot have.
            char::REPLACEMENT_CHARACTER => pattern.push('*'),
            char if char.is_ascii_punctuation() && char != '/' => pattern.extend(['\\', char]),
            char => pattern.push(char),
        }
    }
    pattern
}

/// A field for the files whose path below the root matches a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathHeader {
    /// The pattern; one without a slash is matched with the name alone.
    pub pattern: String,
    /// The name of the field. `Content-Type` replaces the media type of the file.
    pub name: String,
    /// The value of the field.
    pub value: String,
}

/// The changes that clients with the right to write may make.
#[derive(Clone, Copy, Debug)]
pub struct Changes {
    /// Whether files may be uploaded and folders be created. Existing files may be replaced, too.
    pub upload: bool,
    /// Whether files and folders may be removed, or moved away.
    pub delete: bool,
    /// The maximum size of one file in bytes.
    pub limit: Option<u64>,
    /// Whether missing parent folders of an uploaded file are created.
    pub create_parents: bool,
    /// Whether a change is on the disk before the client gets the response.
    pub sync: bool,
    /// The time during which an interrupted upload can be resumed.
    pub expiry: Duration,
    /// The rate in bytes per second that the body of an upload must reach on average over
    /// [`timeout`](super::super::settings::Settings::timeout); 0 for no such limit.
    pub min_rate: u64,
    /// The space that uploads and copies leave free on the disk.
    pub min_free: MinFree,
}

impl Default for Changes {
    /// Returns a value that leaves nothing free.
    fn default() -> Self {
        let expiry = Duration::from_secs(24 * 60 * 60);
        Self {
            upload: false,
            delete: false,
            limit: None,
            create_parents: false,
            sync: true,
            expiry,
            min_rate: 0,
            min_free: MinFree::Bytes(0),
        }
    }
}
