//! File systems in image files, mounted for one test and unmounted after it, even if it panics.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::{is_root, skip, test_root};

/// A file system that can be mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystem {
    /// btrfs, which shares blocks.
    Btrfs,
    /// ext4, which does not.
    Ext4,
    /// NTFS by FUSE that ignores the case of names, and lists them in lower case.
    NoCase,
    /// ext4 whose listings do not have the types of entries.
    NoTypes,
    /// overlayfs over a tmpfs.
    Overlay,
    /// ramfs, which has no extended attributes and no size limit.
    Ramfs,
    /// tmpfs.
    Tmpfs,
    /// ext4 with inodes so small that times are whole seconds.
    WholeSeconds,
    /// XFS, which shares blocks.
    Xfs,
}

/// A mounted file system, unmounted when it is dropped.
#[derive(Debug)]
pub struct Mounted {
    /// Holds the image and the mount point.
    folder: PathBuf,
    /// The file system that contains an overlay's layers.
    below: Option<Box<Mounted>>,
}

impl Mounted {
    /// Mounts a file system of about this size; XFS, which has a minimum, gets at least 300 MiB.
    /// Returns `None` and prints why if mounting is not allowed or a tool is missing.
    ///
    /// # Panics
    ///
    /// In CI, where neither happens.
    #[must_use]
    pub fn new(kind: FileSystem, mebibytes: u64) -> Option<Self> {
        match Self::mount(kind, mebibytes) {
            Ok(mounted) => Some(mounted),
            Err(reason) => {
                skip(&reason);
                None
            }
        }
    }

    /// Returns the mount point.
    #[must_use]
    pub fn root(&self) -> PathBuf {
        self.folder.join("root")
    }

    /// Returns the lower layer of an overlay. Add names to it before they are first looked up.
    ///
    /// # Panics
    ///
    /// For other file systems.
    #[must_use]
    pub fn lower(&self) -> PathBuf {
        self.below.as_ref().expect("it is an overlay").root().join("lower")
    }

    fn mount(kind: FileSystem, mebibytes: u64) -> Result<Self, String> {
        if !is_root() {
            return Err("only root may mount file systems".to_owned());
        }
        let below = match kind {
            FileSystem::Overlay => Some(Box::new(Self::mount(FileSystem::Tmpfs, mebibytes)?)),
            _ => None,
        };
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("mount-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = test_root().join(name);
        let mounted = Self { folder, below };
        let (root, image) = (mounted.root(), mounted.folder.join("image"));
        fs::create_dir_all(&root).unwrap();
        let make = match kind {
            FileSystem::Btrfs => Some(("mkfs.btrfs", ["-q", "-M"].as_slice())),
            FileSystem::Ext4 => Some(("mkfs.ext4", ["-q", "-F"].as_slice())),
            FileSystem::NoCase => Some(("mkfs.ntfs", ["-q", "-F", "-Q"].as_slice())),
            FileSystem::NoTypes => Some(("mkfs.ext4", ["-q", "-F", "-O", "^filetype"].as_slice())),
            FileSystem::WholeSeconds => Some(("mkfs.ext4", ["-q", "-F", "-I", "128"].as_slice())),
            FileSystem::Xfs => Some(("mkfs.xfs", ["-q", "-m", "reflink=1"].as_slice())),
            FileSystem::Overlay | FileSystem::Ramfs | FileSystem::Tmpfs => None,
        };
        if let Some((tool, arguments)) = make {
            let min = if kind == FileSystem::Xfs { 300 } else { 1 };
            File::create(&image).unwrap().set_len(mebibytes.max(min) << 20).unwrap();
            call(Command::new(tool).args(arguments).arg(&image))?;
        }
        let mut command =
            Command::new(if kind == FileSystem::NoCase { "lowntfs-3g" } else { "mount" });
        match (kind, &mounted.below) {
            (FileSystem::Tmpfs, _) => {
                let size = format!("size={mebibytes}m");
                command.args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            }
            (FileSystem::Ramfs, _) => command.args(["-t", "ramfs", "ramfs"]),
            (FileSystem::Overlay, Some(below)) => {
                let layer = |name: &str| {
                    let path = below.root().join(name);
                    fs::create_dir(&path).unwrap();
                    path.into_os_string().into_string().unwrap()
                };
                let (lower, upper, work) = (layer("lower"), layer("upper"), layer("work"));
                let layers = format!("lowerdir={lower},upperdir={upper},workdir={work}");
                command.args(["-t", "overlay", "-o", &layers, "overlay"])
            }
            (FileSystem::NoCase, _) => command.args(["-o", "ignore_case"]).arg(&image),
            _ => command.args(["-o", "loop"]).arg(&image),
        };
        call(command.arg(&root))?;
        Ok(mounted)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // A thread that has just ended may still be closing its files: then unmount lazily.
        let gone = call(Command::new("umount").arg(self.root()))
            .or_else(|_| call(Command::new("umount").arg("-l").arg(self.root())));
        if gone.is_ok() {
            let _ = fs::remove_dir_all(&self.folder);
        } else {
            // It was never mounted: only empty folders and an image may be removed.
            let _ = fs::remove_file(self.folder.join("image"));
            let _ = fs::remove_dir(self.root());
            let _ = fs::remove_dir(&self.folder);
        }
    }
}

fn call(command: &mut Command) -> Result<(), String> {
    let tool = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().map_err(|why| format!("{tool}: {why}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{tool}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}
