//! What is known of an upload that can be gone on with.

use url::{Origin, Url};

use super::journal::{Journal, JournalEntry, version, version_to_keep};
use super::options::Upload;
use crate::client::http::Response;

/// What is known about going on.
#[derive(Debug, Default)]
pub(super) struct ResumeState {
    /// Where the upload is continued, once the server has said so.
    pub(super) resource: Option<Url>,
    /// Whether the server can do it, once that is known.
    pub(super) is_known: Option<bool>,
    /// Whether earlier processes have been looked for.
    pub(super) is_searched: bool,
    /// What the journal is to say.
    pub(super) target: String,
    pub(super) version: Option<String>,
    version_to_keep: String,
    path: Option<std::path::PathBuf>,
    pub(super) journal: Option<Journal>,
}

impl ResumeState {
    pub(super) fn new(upload: &Upload<'_>, url: &Url) -> Self {
        let version = version(upload.source.fd()).ok();
        let path = upload.journal.map(std::path::Path::to_owned);
        let keep = |version: &String| version_to_keep(upload.source.fd(), version);
        let version_to_keep = version.as_ref().map(keep).unwrap_or_default();
        let target = public(url).to_string();
        Self { target, version, version_to_keep, path, ..Self::default() }
    }

    /// Whether the server keeps what comes.
    pub(super) fn is_resumable(&self) -> bool {
        self.is_known == Some(true)
    }

    /// Whether another process could go on.
    pub(super) fn is_written(&self) -> bool {
        self.journal.is_some() && self.resource.is_some()
    }

    /// Hears an interim answer: 104 names the upload's own resource.
    pub(super) fn hear(&mut self, response: &Response, base: &Url, origin: &Origin) {
        if response.status != 104 || !self.is_resumable() {
            return;
        }
        let location = response.fields.text("location").and_then(|it| base.join(it).ok());
        // It will be asked with the secrets of the server that was named.
        let Some(resource) = location.filter(|it| it.origin() == *origin) else { return };
        if self.resource.as_ref() == Some(&resource) {
            return;
        }
        self.write(&resource);
        self.resource = Some(resource);
    }

    /// Writes down where the upload is continued. Without, this process alone can go on.
    fn write(&mut self, resource: &Url) {
        let (Some(path), Some(_)) = (&self.path, &self.version) else { return };
        let entry =
            JournalEntry::new(&self.target, public(resource).as_str(), &self.version_to_keep);
        self.journal = match self.journal.take() {
            Some(journal) => journal.write(&entry).is_ok().then_some(journal),
            None => Journal::create(path, &entry).ok(),
        };
    }

    /// Nothing can or need be gone on with any more.
    pub(super) fn forget(&mut self) {
        self.resource = None;
        if let Some(journal) = self.journal.take() {
            journal.remove();
        }
    }
}

/// A URL without what nobody else should read.
fn public(url: &Url) -> Url {
    let mut url = url.clone();
    // An http address has a host, so both can be taken away.
    let _ = (url.set_username(""), url.set_password(None));
    url.set_fragment(None);
    url
}
