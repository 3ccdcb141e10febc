//! The version of a local file, for the next [`IfExists::Update`](super::IfExists::Update): the
//! server's validator, in the extended attribute `user.underpass.version` of the file.
//!
//! The attribute is valid as long as the file has the size and time that it had when the attribute
//! was set. It has only a digest of the URL, because other users of the machine may read it.
//! Without it, because the file system has no attributes or the file was copied without them, size
//! and time decide.

use std::fs::File;
use std::os::unix::fs::MetadataExt;

use rustix::fs::{XattrFlags, fgetxattr, fsetxattr};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use underpass_protocol::digest::hex;
use url::Url;

use super::interpret::{StrongValidator, resource};
use crate::http::without_credentials;

/// The content of the attribute, as JSON.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct VersionAttr {
    /// The SHA-256 of the URL without credentials.
    url: String,
    /// The SHA-256 of the resource that answered, if a redirect led to another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    answered: Option<String>,
    version: StrongValidator,
    size: u64,
    /// Its modification time in seconds and nanoseconds since 1970.
    modified: (i64, i64),
}

impl VersionAttr {
    fn of(
        file: &File,
        url: &Url,
        answered: Option<String>,
        version: StrongValidator,
    ) -> Option<Self> {
        let facts = file.metadata().ok().filter(std::fs::Metadata::is_file)?;
        let (size, modified) = (facts.len(), (facts.mtime(), facts.mtime_nsec()));
        Some(Self { url: digest(url), answered, version, size, modified })
    }
}

/// Records that a file is this version of the file at `url`, which `answered` sent. Its size and
/// time must not change after that. Without support for attributes, nothing happens.
pub(crate) fn store(file: &File, url: &Url, answered: &Url, version: &StrongValidator) {
    let is_redirected = digest(url) != digest(answered);
    let other = is_redirected.then(|| digest(&resource(answered)));
    let attr = VersionAttr::of(file, url, other, version.clone());
    let Some(text) = attr.and_then(|attr| serde_json::to_vec(&attr).ok()) else { return };
    if text.len() <= MAX_BYTES {
        // If this fails, the next update compares size and time.
        let _ = fsetxattr(file, NAME, &text, XattrFlags::empty());
    }
}

/// A recorded version, and the digest of the URL or the resource that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordedVersion {
    pub(crate) version: StrongValidator,
    answered: String,
}

impl RecordedVersion {
    /// Returns whether it is a version of the file at this URL, as [`StrongValidator::joins`] does.
    pub(crate) fn is_of(&self, answered: &Url) -> bool {
        self.version.may_be_digest()
            || [answered, &resource(answered)].iter().any(|url| self.answered == digest(url))
    }
}

/// Returns the version of the file at `url` that a local file has, if its attribute is valid.
pub(crate) fn load(file: &File, url: &Url) -> Option<RecordedVersion> {
    let mut bytes = [0; MAX_BYTES];
    let len = fgetxattr(file, NAME, &mut bytes[..]).ok()?;
    let stored: VersionAttr = serde_json::from_slice(bytes.get(..len)?).ok()?;
    let present = VersionAttr::of(file, url, stored.answered.clone(), stored.version.clone())?;
    let is_valid = stored == present;
    let answered = stored.answered.unwrap_or(stored.url);
    is_valid.then_some(RecordedVersion { version: stored.version, answered })
}

/// Returns the digest that identifies a URL.
fn digest(url: &Url) -> String {
    let mut url = without_credentials(url);
    url.set_fragment(None);
    hex(&Sha256::digest(url.as_str()))
}

/// The name of the attribute.
const NAME: &str = "user.underpass.version";

/// The maximum length of the attribute in bytes: file systems limit the space for attributes.
const MAX_BYTES: usize = 1 << 10;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn an_attribute_holds_for_one_url_and_as_long_as_the_file_is_the_same() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        fs::write(&path, "one").expect("written");
        let file = File::open(&path).expect("a file");
        let probe = fsetxattr(&file, "user.probe", b"1", XattrFlags::empty());
        if probe.is_err() {
            return;
        }
        let url = |text: &str| Url::parse(text).expect("a URL");
        let here = url("http://a/b?c");
        assert_eq!(load(&file, &here), None);
        let tag = |tag: &str| StrongValidator::Tag(format!("\"{tag}\""));
        let version = tag("x");
        let recorded = RecordedVersion { version: version.clone(), answered: digest(&here) };
        store(&file, &here, &here, &version);
        assert_eq!(load(&file, &here), Some(recorded.clone()));
        assert_eq!(load(&file, &url("http://user:secret@a/b?c#d")), Some(recorded.clone()));
        assert_eq!(load(&file, &url("http://a/b?d")), None);
        assert!(recorded.is_of(&here) && !recorded.is_of(&url("http://a/c")));
        store(&file, &here, &url("http://a/c"), &version);
        let redirected = load(&file, &here).expect("a version");
        assert!(!redirected.is_of(&here) && redirected.is_of(&url("http://a/c")));
        // The signature differs each time, and several servers may give one file the same digest.
        let moved = [url("http://a/c?signature=2"), url("http://b/c?signature=3")];
        store(&file, &here, &url("http://a/c?signature=1"), &version);
        let signed = load(&file, &here).expect("a version");
        assert_eq!(moved.each_ref().map(|url| signed.is_of(url)), [true, false]);
        store(&file, &here, &url("http://a/c?signature=1"), &tag(&"0".repeat(32)));
        let signed = load(&file, &here).expect("a version");
        assert_eq!(moved.each_ref().map(|url| signed.is_of(url)), [true, true]);
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        File::options().append(true).open(&path).and_then(|it| it.set_modified(time)).expect("set");
        assert_eq!(load(&file, &here), None);
        store(&file, &here, &here, &version);
        assert_eq!(load(&file, &here), Some(recorded.clone()));
        fs::write(&path, "another").expect("written");
        assert_eq!(load(&file, &here), None);
        // Too long to be stored.
        fs::write(&path, "one").expect("written");
        store(&file, &here, &here, &StrongValidator::Tag(format!("\"{}\"", "x".repeat(MAX_BYTES))));
        assert_eq!(load(&file, &here), None);
    }
}
