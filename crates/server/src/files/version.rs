//! The two forms of a file's version: the engine's, which is compared, and the protocol's, which
//! validators and archives are derived from.

use rustix::fs::Timespec;
use underpass_engine::Version;
use underpass_protocol::response::validator::etag;
use underpass_protocol::{FileTime, FileVersion};

/// Returns a version of the engine in the protocol's form.
pub(crate) fn facts(version: &Version) -> FileVersion {
    FileVersion {
        device: version.device(),
        inode: version.inode(),
        size: version.size(),
        modified: file_time(version.modified()),
        changed: file_time(version.changed()),
        links: version.links(),
    }
}

/// Returns the entity tag of a file with this time of the last change in place of the version's:
/// storing a digest with the file does not change its tag.
pub(crate) fn etag_since(version: &Version, changed: Timespec) -> String {
    etag(&FileVersion { changed: file_time(changed), ..facts(version) })
}

fn file_time(Timespec { tv_sec, tv_nsec }: Timespec) -> FileTime {
    FileTime { seconds: tv_sec, nanoseconds: tv_nsec as u32 }
}

/// Returns a version of the protocol in the engine's form.
#[must_use]
pub fn engine_version(facts: &FileVersion) -> Version {
    let FileVersion { device, inode, size, modified, changed, links } = *facts;
    let [modified, changed] = [modified, changed]
        .map(|time| Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() });
    Version::from_parts(device, inode, size, modified, changed, links)
}
