//! A file system in user space with faults, see `mount.py`.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use tempfile::TempDir;
use underpass_testkit::{KilledOnDrop, folder, is_root, skip, wait_until};

/// The file system, unmounted when it is dropped.
pub(crate) struct Fuse {
    _program: KilledOnDrop,
    folder: TempDir,
}

impl Fuse {
    /// Mounts one without faults; `None`, which is told, where that is not possible.
    pub(crate) fn new() -> Option<Self> {
        let has_library = Command::new("/usr/bin/python3").args(["-c", "import fusepy"]).output();
        if !is_root() || !has_library.is_ok_and(|output| output.status.success()) {
            skip("mounting a faulty file system needs root and python3-fusepy");
            return None;
        }
        let folder = folder();
        for name in ["store", "root"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        fs::write(folder.path().join("faults"), "{}").unwrap();
        let mut command = Command::new("/usr/bin/python3");
        command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fuse/mount.py"));
        command.args(["store", "root", "faults"].map(|name| folder.path().join(name)));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let this = Self { _program: KilledOnDrop(command.spawn().unwrap()), folder };
        let is_mounted = || {
            let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
            mounts.contains(this.root().to_str().unwrap())
        };
        wait_until("it is mounted", is_mounted);
        Some(this)
    }

    /// The mount point.
    pub(crate) fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    /// The folder in which its files are.
    pub(crate) fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    /// Sets its faults, as JSON.
    pub(crate) fn fail(&self, faults: &str) {
        let part = self.folder.path().join("faults.part");
        fs::write(&part, faults).unwrap();
        fs::rename(part, self.folder.path().join("faults")).unwrap();
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.root()).status();
    }
}
