//! The file systems of both ends: known facts that no trial shows.

use std::os::fd::AsFd;

use rustix::fs::CWD;

use crate::doctor::ends::sample::TrialFile;
use crate::doctor::ends::target::TrialTarget;
use crate::doctor::finding::Finding;
use underpass_copy::file_system_name;
use underpass_engine::atomic_file::folder_at;

/// The names of both file systems, as far as there are any.
#[derive(Clone, Debug)]
pub(crate) struct FileSystems {
    from: &'static str,
    to: Option<&'static str>,
}

impl FileSystems {
    /// Asks for the file systems of both ends.
    pub(crate) fn gather(sample: &TrialFile, target: &TrialTarget) -> Self {
        let folder = target.folder().and_then(|path| folder_at(CWD, path).ok());
        let to = folder.map(|folder| file_system_name(folder.as_fd()));
        Self { from: file_system_name(sample.file()), to }
    }
}

/// Returns the findings for these file systems.
pub(crate) fn findings(systems: &FileSystems) -> Vec<Finding> {
    let to = systems.to.map(|name| of("to_file_system", name));
    [of("from_file_system", systems.from)].into_iter().chain(to).collect()
}

fn of(name: &'static str, system: &'static str) -> Finding {
    match KNOWN.iter().find(|known| known.0 == system) {
        Some(&(_, consequence, "")) => Finding::best(name).finding(system).consequence(consequence),
        Some(&(_, consequence, remedy)) => {
            Finding::limited(name).finding(system).consequence(consequence).remedy(remedy)
        }
        None => Finding::best(name).finding(system).consequence("no problems are known"),
    }
}

/// Known facts about file systems; and what to do, for those that are known to cause trouble.
const KNOWN: [(&str, &str, &str); 16] = [
    (
        "9p",
        "pages of this machine may be older than the file on its host",
        "use --no-zero-copy or cp --verify while the host writes to it, or virtiofs",
    ),
    ("btrfs", "copies can share the blocks of their originals", ""),
    (
        "ceph",
        "the file may change on its servers while its pages are cached here",
        "send files that no program writes to, or use --integrity detect",
    ),
    (
        "cifs",
        "pages of this machine may be older than the file on its server",
        "use --no-zero-copy or cp --verify if others write to it, or mount it with cache=none",
    ),
    (
        "fuse",
        "each page comes from a program, on which its freshness and speed depend",
        "use --no-zero-copy if bytes are wrong; prefer the file system below it",
    ),
    (
        "nfs",
        "the file may change on its server while its pages are cached here; leases are local",
        "send files that no program writes to, or use --integrity detect",
    ),
    (
        "ntfs",
        "it has no leases, no shared blocks, and other rules for names",
        "keep what is served on ext4, XFS or btrfs",
    ),
    ("overlay", "bytes come from the lower layer, and a copy goes to the upper one", ""),
    ("proc", "files are generated as they are read: they have no size and no pages", ""),
    ("ramfs", "files are in memory, without a limit", ""),
    (
        "smb",
        "pages of this machine may be older than the file on its server",
        "use --no-zero-copy or cp --verify if others write to it, or mount it with cache=none",
    ),
    ("sysfs", "files are generated as they are read: their sizes mean nothing", ""),
    ("tmpfs", "files are in memory, or in swap", ""),
    (
        "vboxsf",
        "sendfile is known to deliver stale bytes from shared folders of VirtualBox",
        "use --no-zero-copy, or copy to a disk of the machine itself first",
    ),
    ("xfs", "copies can share the blocks of their originals, if it was created with reflink=1", ""),
    (
        "zfs",
        "files are cached twice, and some versions corrupt clones",
        "use OpenZFS 2.2.2 or newer",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::{count_closed, text};

    #[test]
    fn known_file_systems_have_the_findings_of_the_snapshot() {
        let names = KNOWN.map(|(name, ..)| name);
        assert!(names.is_sorted());
        let mut rendered = String::new();
        for (from, to) in [("ext4", None), ("fuse", Some("vboxsf")), ("xfs", Some("unknown"))] {
            let found = findings(&FileSystems { from, to });
            assert_eq!(count_closed(&found), 0);
            rendered += &text(&found);
        }
        assert_eq!(rendered, include_str!("../snapshots/file_systems.txt"));
    }
}
