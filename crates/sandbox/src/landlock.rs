//! Restricts with Landlock which files and connections the server can reach.
//!
//! An old kernel confines less, or not at all; the returned value says what is in effect.

use std::env;
use std::fmt;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, LandlockStatus, NetPort, RestrictionStatus,
    Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
    path_beneath_rules,
};

/// The access that the process needs from now on.
#[derive(Clone, Debug, Default)]
pub struct AllowedAccess {
    /// The folder or file that is served.
    pub root: PathBuf,
    /// Whether links may lead out of it.
    pub reads_everywhere: bool,
    /// Whether unnamed clones are created in the folders of the files.
    pub clones: bool,
    /// Whether files are uploaded, and folders created.
    pub uploads: bool,
    /// Whether a cache is kept in the root, and filled from origins.
    pub caches: bool,
    /// The ports of the origins.
    pub ports: Vec<u16>,
    /// Whether files and folders are removed, or with uploads moved.
    pub deletes: bool,
    /// The folder in which the log is created again.
    pub log: Option<PathBuf>,
    /// The folders from which certificates are read again.
    pub certificates: Vec<PathBuf>,
    /// The folder in which keys and certificates are kept that an authority issues.
    pub keys: Option<PathBuf>,
    /// The folders in which sockets are removed at the end.
    pub sockets: Vec<PathBuf>,
}

/// The result of applying the rules.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Landlock {
    /// This kernel, or an outer confinement, does not offer it.
    Refused(String),
    /// Confined as far as this kernel can; the name of its version says how far.
    Confined {
        /// The access that is left to the process.
        to: String,
        /// The restrictions that the kernel does not support, if any.
        without: Option<String>,
    },
}

impl AllowedAccess {
    /// Confines this thread, and those that it starts from now on.
    pub(crate) fn confine(&self) -> Landlock {
        match self.restrict() {
            Ok(status) => self.outcome(&status),
            Err(error) => Landlock::Refused(error.to_string()),
        }
    }

    fn restrict(&self) -> Result<RestrictionStatus, RulesetError> {
        let reads = AccessFs::ReadFile | AccessFs::ReadDir;
        let mut handled = AccessFs::from_all(NEWEST);
        let mut root = reads | self.changes();
        if self.reads_everywhere {
            handled.remove(reads);
            root.remove(reads);
        }
        if self.clones {
            root |= AccessFs::WriteFile;
        }
        let zones = env::var_os("TZDIR").map(PathBuf::from);
        let to_connect = if self.connects() { TO_CONNECT.as_slice() } else { &[] };
        let also_read = ALSO_READ.iter().chain(to_connect).map(PathBuf::from).chain(zones);
        let mut rules = vec![(vec![self.root.clone()], root)];
        if !self.reads_everywhere {
            let also_read = also_read.chain(self.certificates.iter().cloned());
            rules.push((also_read.collect(), reads));
        }
        if self.caches {
            rules.push((vec![PathBuf::from("/dev/null")], AccessFs::WriteFile.into()));
        }
        rules.push((self.log.iter().cloned().collect(), AccessFs::WriteFile | AccessFs::MakeReg));
        rules.push((self.sockets.clone(), AccessFs::RemoveFile.into()));
        let replaces = AccessFs::WriteFile | AccessFs::MakeReg | AccessFs::RemoveFile;
        rules.push((self.keys.iter().cloned().collect(), root & reads | replaces));

        let mut ruleset = Ruleset::default()
            .handle_access(handled)?
            .handle_access(AccessNet::BindTcp | AccessNet::ConnectTcp)?
            .scope(scopes())?
            .create()?;
        for port in &self.ports {
            ruleset = ruleset.add_rule(NetPort::new(*port, AccessNet::ConnectTcp))?;
        }
        for (paths, access) in rules.into_iter().filter(|(_, access)| !access.is_empty()) {
            ruleset = ruleset.add_rules(path_beneath_rules(paths, access))?;
        }
        ruleset.restrict_self()
    }

    /// Returns whether this process makes connections of its own.
    pub(crate) fn connects(&self) -> bool {
        self.caches || self.keys.is_some()
    }

    /// Returns the access needed for changes beneath the root.
    fn changes(&self) -> BitFlags<AccessFs> {
        let mut access = BitFlags::empty();
        if self.uploads {
            // An unnamed file is linked next to the one it replaces, which is then removed.
            access |= AccessFs::WriteFile | AccessFs::Truncate | AccessFs::MakeReg;
            access |= AccessFs::MakeDir | AccessFs::RemoveFile;
            // Copies of folders contain links, and have other names until they are complete.
            access |= AccessFs::MakeSym | AccessFs::RemoveDir;
        }
        if self.caches {
            access |= AccessFs::WriteFile | AccessFs::Truncate | AccessFs::MakeReg;
            access |= AccessFs::MakeDir | AccessFs::RemoveFile;
        }
        if self.deletes {
            access |= AccessFs::RemoveFile | AccessFs::RemoveDir;
        }
        if self.uploads && self.deletes {
            // A file moved to another folder keeps its type.
            access |= AccessFs::Refer | AccessFs::MakeFifo | AccessFs::MakeSock;
        }
        access
    }

    /// Returns the outcome that the kernel reported.
    fn outcome(&self, status: &RestrictionStatus) -> Landlock {
        let LandlockStatus::Available { effective_abi, .. } = status.landlock else {
            let why = match status.landlock {
                LandlockStatus::NotEnabled => "Landlock is switched off on this machine (lsm=)",
                _ => "this kernel has no Landlock",
            };
            return Landlock::Refused(why.to_owned());
        };
        if status.ruleset == RulesetStatus::NotEnforced {
            return Landlock::Refused("this kernel enforced none of it".to_owned());
        }
        let without = match effective_abi {
            _ if status.ruleset == RulesetStatus::FullyEnforced => None,
            abi if abi < ABI::V4 => Some("TCP connections and signals".to_owned()),
            abi if abi < ABI::V6 => Some("signals".to_owned()),
            _ => Some("the newest restrictions".to_owned()),
        };
        Landlock::Confined { to: self.to_string(), without }
    }
}

impl fmt::Display for AllowedAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reads_everywhere {
            true => f.write_str("reading (everywhere, for --allow-symlink)")?,
            false => write!(f, "reading {}", self.root.display())?,
        }
        let changes = match (self.uploads, self.deletes) {
            (false, false) => None,
            (true, false) => Some("uploads to"),
            (false, true) => Some("deletions in"),
            (true, true) => Some("changes of"),
        };
        if self.caches {
            let ports: Vec<_> = self.ports.iter().map(u16::to_string).collect();
            write!(f, ", filling it from port {}", ports.join(" and "))?;
        }
        if let Some(changes) = changes {
            write!(f, ", {changes} {}", self.root.display())?;
        }
        if self.clones {
            write!(f, ", clones in {}", self.root.display())?;
        }
        if let Some(log) = &self.log {
            write!(f, ", the log in {}", log.display())?;
        }
        for folder in self.certificates.iter().filter(|_| !self.reads_everywhere) {
            write!(f, ", certificates in {}", folder.display())?;
        }
        if let Some(folder) = &self.keys {
            write!(f, ", keys and certificates of an authority in {}", folder.display())?;
        }
        Ok(())
    }
}

impl fmt::Display for Landlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(why) => write!(f, "not confined: {why}"),
            Self::Confined { to, without: None } => write!(f, "confined by Landlock to {to}"),
            Self::Confined { to, without: Some(without) } => {
                write!(f, "confined by Landlock to {to}; this kernel cannot restrict {without}")
            }
        }
    }
}

/// Returns the scopes: no signals to other processes, and no abstract sockets, unless systemd
/// listens at one.
fn scopes() -> BitFlags<Scope> {
    let mut scopes = Scope::from_all(NEWEST);
    if env::var_os("NOTIFY_SOCKET").is_some_and(|socket| Path::new(&socket).starts_with("@")) {
        scopes.remove(Scope::AbstractUnixSocket);
    }
    scopes
}

/// The newest version whose restrictions were tested with this program.
const NEWEST: ABI = ABI::V6;

/// Files outside the root that are read after the start: the time zone, which may change
/// meanwhile, and how long a lease may be held.
const ALSO_READ: [&str; 3] =
    ["/etc/localtime", "/usr/share/zoneinfo", "/proc/sys/fs/lease-break-time"];

/// Files that are read to connect, to an origin or an authority: those by which names are looked up;
/// for a cache also what discards bytes, and what tells a restart of the process from one of the
/// machine.
const TO_CONNECT: [&str; 8] = [
    "/dev/null",
    "/etc/gai.conf",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/resolv.conf",
    "/proc/sys/kernel/random/boot_id",
    "/run/systemd/resolve",
];

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::fs::{self, File};
    use std::io::ErrorKind;
    use std::net::{TcpListener, TcpStream};
    use std::thread;

    use underpass_engine::atomic_file::{AtomicFile, Existing};

    use super::*;

    /// Runs a test in a thread of its own, to which the rules are limited.
    fn confined(bounds: AllowedAccess, test: impl FnOnce() + Send + 'static) {
        let thread = thread::spawn(move || match bounds.confine() {
            Landlock::Confined { .. } => test(),
            other => {
                assert!(env::var_os("CI").is_none(), "{other}");
                eprintln!("skipped: {other}");
            }
        });
        thread.join().unwrap();
    }

    fn bounds(root: &Path) -> AllowedAccess {
        let root = root.to_owned();
        AllowedAccess {
            root,
            reads_everywhere: false,
            clones: false,
            uploads: false,
            deletes: false,
            caches: false,
            ports: Vec::new(),
            log: None,
            certificates: Vec::new(),
            keys: None,
            sockets: Vec::new(),
        }
    }

    fn is_denied<T>(outcome: std::io::Result<T>) -> bool {
        outcome.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
    }

    #[test]
    fn a_confined_process_reads_beneath_the_root_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let (inside, outside) = (folder.path().join("inside"), folder.path().join("outside"));
        fs::create_dir(&inside).unwrap();
        fs::write(inside.join("file"), "x").unwrap();
        fs::write(&outside, "x").unwrap();
        confined(bounds(&inside), move || {
            assert!(File::open(inside.join("file")).is_ok());
            assert!(fs::read_dir(&inside).is_ok());
            assert!(is_denied(File::open(&outside)));
            assert!(is_denied(fs::read_dir(inside.parent().unwrap())));
            assert!(is_denied(File::create(inside.join("new"))));
            assert!(is_denied(fs::remove_file(inside.join("file"))));
        });
    }

    #[test]
    fn a_confined_process_serves_a_single_file() {
        let folder = tempfile::tempdir().unwrap();
        let (file, other) = (folder.path().join("file"), folder.path().join("other"));
        fs::write(&file, "x").unwrap();
        fs::write(&other, "x").unwrap();
        confined(bounds(&file), move || {
            assert!(File::open(file).is_ok());
            assert!(is_denied(File::open(other)));
        });
    }

    #[test]
    fn links_that_lead_out_can_be_followed_if_that_was_allowed() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        fs::create_dir(&root).unwrap();
        let outside = folder.path().join("outside");
        fs::write(&outside, "x").unwrap();
        confined(AllowedAccess { reads_everywhere: true, ..bounds(&root) }, move || {
            assert!(File::open(&outside).is_ok());
            assert!(is_denied(File::create(root.join("new"))));
            assert!(is_denied(fs::write(&outside, "y")));
        });
    }

    #[test]
    fn the_log_can_be_reopened_and_the_socket_removed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| {
            let path = folder.path().join(name);
            fs::create_dir(&path).unwrap();
            path
        };
        let (root, log, run) = (at("root"), at("log"), at("run"));
        fs::write(run.join("socket"), "").unwrap();
        let bounds =
            AllowedAccess { log: Some(log.clone()), sockets: vec![run.clone()], ..bounds(&root) };
        confined(bounds, move || {
            let open = || File::options().append(true).create(true).open(log.join("access"));
            assert!(open().is_ok());
            assert!(open().is_ok());
            assert!(is_denied(fs::remove_file(log.join("access"))));
            assert!(fs::remove_file(run.join("socket")).is_ok());
        });
    }

    #[test]
    fn certificates_can_be_renewed_where_they_are_and_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let (root, keys) = (folder.path().join("root"), folder.path().join("keys"));
        fs::create_dir(&root).unwrap();
        fs::create_dir(&keys).unwrap();
        fs::write(keys.join("old"), "old").unwrap();
        fs::write(folder.path().join("outside"), "x").unwrap();
        // As a program that renews certificates does, from outside.
        let (ready, renewed) = (std::sync::mpsc::channel(), std::sync::mpsc::channel());
        let thread = thread::spawn({
            let keys = keys.clone();
            move || {
                if ready.1.recv().is_ok() {
                    fs::write(keys.join("new"), "new").unwrap();
                    fs::rename(keys.join("new"), keys.join("old")).unwrap();
                }
                let _ = renewed.0.send(());
            }
        });
        let bounds = AllowedAccess { certificates: vec![keys.clone()], ..bounds(&root) };
        confined(bounds, move || {
            ready.0.send(()).unwrap();
            renewed.1.recv().unwrap();
            assert_eq!(fs::read(keys.join("old")).unwrap(), b"new");
            assert!(is_denied(fs::write(keys.join("old"), "mine")));
            assert!(is_denied(fs::read(keys.parent().unwrap().join("outside"))));
        });
        thread.join().unwrap();
    }

    #[test]
    fn clones_without_a_name_can_be_made_where_snapshots_need_them() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_owned();
        confined(AllowedAccess { clones: true, ..bounds(&root) }, move || {
            use rustix::fs::{Mode, OFlags};
            let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
            let clone = rustix::fs::open(&root, flags, Mode::RUSR | Mode::WUSR);
            assert!(!matches!(clone, Err(rustix::io::Errno::ACCESS)), "{clone:?}");
            assert!(is_denied(File::create(root.join("new"))));
        });
    }

    /// Creates a file that gets its name at the end, as uploads do.
    fn land(folder: &Path, name: &str) -> std::io::Result<()> {
        use rustix::fs::{CWD, Mode, OFlags, openat};
        use std::io::Write;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(CWD, folder, flags, Mode::empty())?;
        let atomic = AtomicFile::create_in(folder, name.as_ref(), 0o666)?;
        atomic.file().write_all(b"new")?;
        atomic.commit(Existing::Replace)
    }

    #[test]
    fn uploads_can_be_named_and_replace_and_folders_be_copied_beneath_the_root_alone() {
        let folder = tempfile::tempdir().unwrap();
        let (root, outside) = (folder.path().join("root"), folder.path().join("outside"));
        fs::create_dir(&root).unwrap();
        fs::create_dir_all(outside.join("empty")).unwrap();
        fs::create_dir(root.join("empty")).unwrap();
        confined(AllowedAccess { uploads: true, ..bounds(&root) }, move || {
            land(&root, "file").unwrap();
            land(&root, "file").unwrap();
            assert_eq!(fs::read(root.join("file")).unwrap(), b"new");
            fs::create_dir(root.join("made")).unwrap();
            let partial = File::options().write(true).open(root.join("file")).unwrap();
            partial.set_len(1).unwrap();
            // As a copy of a folder gets its name once it is complete.
            fs::rename(root.join("made"), root.join("copy")).unwrap();
            assert!(fs::rename(root.join("copy"), root.join("empty/copy")).is_err(), "EXDEV");
            assert!(is_denied(fs::remove_dir(outside.join("empty"))));
            assert!(is_denied(land(&outside, "file")));
            assert!(is_denied(fs::create_dir(outside.join("made"))));
        });
    }

    #[test]
    fn what_may_be_changed_can_be_moved_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_owned();
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("a/b/file"), "x").unwrap();
        confined(AllowedAccess { uploads: true, deletes: true, ..bounds(&root) }, move || {
            fs::rename(root.join("a/b/file"), root.join("a/file")).unwrap();
            fs::rename(root.join("a/b"), root.join("b")).unwrap();
            fs::remove_file(root.join("a/file")).unwrap();
            fs::remove_dir(root.join("b")).unwrap();
        });
    }

    #[test]
    fn where_only_removing_is_allowed_nothing_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().to_owned();
        fs::write(root.join("file"), "x").unwrap();
        fs::create_dir(root.join("empty")).unwrap();
        confined(AllowedAccess { deletes: true, ..bounds(&root) }, move || {
            assert!(is_denied(land(&root, "new")));
            assert!(is_denied(fs::write(root.join("file"), "y")));
            fs::remove_file(root.join("file")).unwrap();
            fs::remove_dir(root.join("empty")).unwrap();
        });
    }

    #[test]
    fn a_confined_process_accepts_but_does_not_connect() {
        let folder = tempfile::tempdir().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let peer = TcpStream::connect(address).unwrap();
        confined(bounds(folder.path()), move || {
            assert!(listener.accept().is_ok());
            assert!(is_denied(TcpStream::connect(address)));
            assert!(is_denied(TcpListener::bind("127.0.0.1:0")));
        });
        drop(peer);
    }
}
