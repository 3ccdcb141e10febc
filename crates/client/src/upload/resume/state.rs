//! The state of an upload that can be resumed.

use std::io;

use url::Url;

use crate::http::{Response, joined, without_credentials};
use crate::upload::error::UploadError;
use crate::upload::journal::{JournalEntry, UploadJournal, is_version, version, version_to_keep};
use crate::upload::options::Upload;

/// An upload that an earlier process began.
pub(crate) struct EarlierUpload {
    /// Whether it is of the same version of the file, and to the same target.
    pub(crate) is_same: bool,
    /// The number and the entity tag of each part that a store has acknowledged.
    pub(crate) parts: Vec<(usize, String)>,
}

/// The facts that are needed to resume an upload.
#[derive(Debug, Default)]
pub(crate) struct ResumeState {
    /// The URL of the upload, once the server has sent it.
    pub(crate) resource: Option<Url>,
    /// Whether the server can resume uploads; `None` until it is known.
    pub(crate) supports_resumption: Option<bool>,
    /// Whether a 104 has arrived for this upload, now or in an earlier process.
    pub(crate) is_104_known: bool,
    /// Whether the journal of an earlier process has been looked for.
    pub(crate) has_searched_journal: bool,
    /// The URL of the target for the journal.
    pub(crate) target: String,
    pub(crate) version: Option<String>,
    version_to_keep: String,
    path: Option<std::path::PathBuf>,
    pub(crate) journal: Option<UploadJournal>,
}

impl ResumeState {
    pub(crate) fn new(upload: &Upload<'_>, url: &Url) -> Self {
        let version = version(upload.source.fd()).ok();
        let path = upload.journal.map(std::path::Path::to_owned);
        let keep = |version: &String| version_to_keep(upload.source.fd(), version);
        let version_to_keep = version.as_ref().map(keep).unwrap_or_default();
        let target = public(url).to_string();
        Self { target, version, version_to_keep, path, ..Self::default() }
    }

    /// Looks for the journal of an earlier process, whose upload becomes the resource with the
    /// credentials of `given`. A journal that is damaged or of another server is removed.
    ///
    /// # Errors
    ///
    /// [`UploadError::UnderWay`] if another process is using the journal.
    pub(crate) fn find_earlier(
        &mut self,
        given: &Url,
    ) -> Result<Option<EarlierUpload>, UploadError> {
        let Some(path) = &self.path else { return Ok(None) };
        let (journal, entry) = match UploadJournal::find(path) {
            Ok(Some(found)) => found,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(UploadError::UnderWay);
            }
            // If the journal cannot be read, the upload starts over.
            Ok(None) | Err(_) => return Ok(None),
        };
        self.journal = Some(journal);
        let resource = entry.as_ref().and_then(|entry| Url::parse(&entry.resource).ok());
        let resource = resource.filter(|resource| resource.origin() == given.origin());
        let (Some(entry), Some(mut resource)) = (entry, resource) else {
            self.forget();
            return Ok(None);
        };
        // This cannot fail, as every http URL has a host.
        let _ = resource.set_username(given.username());
        let _ = resource.set_password(given.password());
        self.is_104_known = true;
        self.resource = Some(resource);
        let is_file = |version: &String| is_version(&entry.file, version);
        let is_same = self.version.as_ref().is_some_and(is_file) && entry.target == self.target;
        Ok(Some(EarlierUpload { is_same, parts: entry.parts }))
    }

    /// Returns whether the server keeps incomplete uploads.
    pub(crate) fn is_resumable(&self) -> bool {
        self.supports_resumption == Some(true)
    }

    /// Returns whether another process could resume the upload.
    pub(crate) fn is_written(&self) -> bool {
        self.journal.is_some() && self.resource.is_some()
    }

    /// Records that the server failed, or fell silent, after `sent` bytes of a new upload. If no 104
    /// has ever named the upload, a proxy that does not know 104, such as Varnish, may have failed
    /// in its place: the next attempt does without resumption.
    pub(crate) fn record_failure(&mut self, sent: Option<u64>) {
        if sent > Some(0) && !self.is_104_known && self.resource.is_none() {
            self.supports_resumption = Some(false);
        }
    }

    /// Handles an interim response: 104 has the URL of the upload.
    pub(crate) fn receive_interim(&mut self, response: &Response, base: &Url) {
        if response.status != 104 {
            return;
        }
        self.is_104_known = true;
        let location = response.fields.text("location").and_then(|it| joined(base, it).ok());
        // It will receive the server's credentials, so it must have the same origin.
        let Some(resource) = location.filter(|it| it.origin() == base.origin()) else { return };
        if self.resource.as_ref() == Some(&resource) {
            return;
        }
        self.write(&resource);
        self.resource = Some(resource);
    }

    /// Writes the journal. Without one, only this process can resume the upload.
    pub(crate) fn write(&mut self, resource: &Url) {
        let (Some(path), Some(_)) = (&self.path, &self.version) else { return };
        let entry =
            JournalEntry::new(&self.target, public(resource).as_str(), &self.version_to_keep);
        self.journal = match self.journal.take() {
            Some(journal) => journal.write(&entry).is_ok().then_some(journal),
            None => UploadJournal::create(path, &entry).ok(),
        };
    }

    /// Forgets the upload and removes the journal.
    pub(crate) fn forget(&mut self) {
        self.resource = None;
        if let Some(journal) = self.journal.take() {
            journal.remove();
        }
    }
}

/// Returns a URL without credentials and fragment.
fn public(url: &Url) -> Url {
    let mut url = without_credentials(url);
    url.set_fragment(None);
    url
}
