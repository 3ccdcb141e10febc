//! A file system in user space with faults, see `fuse.py`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;
use underpass_testkit::{KilledOnDrop, folder, is_root, skip, wait_until};

use super::Running;

/// The file system, unmounted when it is dropped.
pub(crate) struct Fuse {
    program: KilledOnDrop,
    folder: TempDir,
}

impl Fuse {
    /// Mounts one without faults; `None`, with a message, where that is not possible.
    pub(crate) fn new() -> Option<Self> {
        Self::with("{}")
    }

    /// Mounts one with these faults, as JSON.
    pub(crate) fn with(faults: &str) -> Option<Self> {
        let has_library = Command::new("/usr/bin/python3").args(["-c", "import fusepy"]).output();
        if !is_root() || !has_library.is_ok_and(|output| output.status.success()) {
            skip("mounting a faulty file system needs root and python3-fusepy");
            return None;
        }
        let folder = folder();
        for name in ["store", "root"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        fs::write(folder.path().join("faults"), faults).unwrap();
        let mut command = Command::new("/usr/bin/python3");
        command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/rig/fuse.py"));
        command.args(["store", "root", "faults"].map(|name| folder.path().join(name)));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let this = Self { program: KilledOnDrop(command.spawn().unwrap()), folder };
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

    /// The folder with the mount point and that of its files.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Has its program answer nothing, until the guard is dropped.
    pub(crate) fn stop(&self) -> Stopped {
        let pid = self.program.0.id().to_string();
        assert!(Command::new("kill").args(["-s", "STOP", &pid]).status().unwrap().success());
        Stopped(pid)
    }

    /// Lets the second call of this name, and all after it, hang until the guard is dropped. Until
    /// then, all files are reported as changed long ago.
    pub(crate) fn hang_again(&self, call: &str) -> Hanging<'_> {
        self.fail(&format!(r#"{{"again": "{call}", "changed": 0}}"#));
        Hanging(self)
    }

    /// Sets its faults, as JSON.
    pub(crate) fn fail(&self, faults: &str) {
        let part = self.folder.path().join("faults.part");
        fs::write(&part, faults).unwrap();
        fs::rename(part, self.folder.path().join("faults")).unwrap();
    }
}

/// Whether a thread of this process waits for such a file system.
pub(crate) fn waits_for_fuse(process: &Running) -> bool {
    let tasks = fs::read_dir(format!("/proc/{}/task", process.child.id())).unwrap();
    let calls = |task: fs::DirEntry| fs::read_to_string(task.path().join("stack"));
    tasks.flatten().any(|task| calls(task).is_ok_and(|calls| calls.contains("fuse_")))
}

/// A program that answers nothing.
pub(crate) struct Stopped(String);

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-s", "CONT", &self.0]).status();
    }
}

/// Lets the calls of a file system hang until it is dropped.
pub(crate) struct Hanging<'f>(&'f Fuse);

impl Drop for Hanging<'_> {
    fn drop(&mut self) {
        self.0.fail("{}");
    }
}

impl Drop for Fuse {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.root()).status();
    }
}
