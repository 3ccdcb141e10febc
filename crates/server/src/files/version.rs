//! The two forms of a file's version: the engine's, which it compares, and the protocol's, from
//! which validators and archives are made.

use underpass_engine::Version;
use underpass_protocol::FileVersion;

/// Returns a version of the engine as one of the protocol.
pub(crate) fn facts(version: &Version) -> FileVersion {
    FileVersion {
        device: version.device(),
        inode: version.inode(),
        size: version.size(),
        modified: version.modified(),
        changed: version.changed(),
        links: version.links(),
    }
}

/// Returns a version of the protocol as one of the engine.
#[must_use]
pub fn engine_version(facts: &FileVersion) -> Version {
    let FileVersion { device, inode, size, modified, changed, links } = *facts;
    Version::from_parts(device, inode, size, modified, changed, links)
}
