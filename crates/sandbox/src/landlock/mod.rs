//! Restricts which files and connections the server can reach, with Landlock.
//!
//! An old kernel restricts less, or nothing; the returned value tells what is in effect.

#[cfg(test)]
mod tests;

use std::env;
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, LandlockStatus, NetPort, RestrictionStatus,
    Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
    path_beneath_rules,
};

use crate::access;

/// The access that the process needs from now on.
#[derive(Clone, Debug, Default)]
pub struct AllowedAccess {
    /// The folders and files that are served.
    pub roots: Vec<AllowedRoot>,
    /// Whether links may lead out of the roots.
    pub reads_everywhere: bool,
    /// The ports of the origins.
    pub ports: Vec<u16>,
    /// The folder in which the log is recreated. A rule cannot name a file that does not exist, so
    /// this one also allows writing other files there and in subfolders.
    pub log: Option<PathBuf>,
    /// The folders from which certificates and the configuration are reloaded.
    pub reread: Vec<PathBuf>,
    /// The folder that holds keys, and certificates issued by a certificate authority.
    pub keys: Option<PathBuf>,
    /// The folders in which sockets are removed at the end; the rule also allows removing other
    /// files there and in subfolders.
    pub sockets: Vec<PathBuf>,
}

/// A folder or file that is served.
#[derive(Clone, Debug, Default)]
#[allow(clippy::struct_excessive_bools)] // each is a separate right
pub struct AllowedRoot {
    /// Its path.
    pub path: PathBuf,
    /// Whether unnamed clones are created in the folders of the files.
    pub clones: bool,
    /// Whether files are uploaded, and folders created.
    pub uploads: bool,
    /// Whether it is a cache filled from origins.
    pub caches: bool,
    /// Whether files and folders are removed or, with uploads, moved.
    pub deletes: bool,
}

impl AllowedRoot {
    /// Returns the access rights other than reading.
    fn changes(&self) -> BitFlags<AccessFs> {
        let mut access = BitFlags::empty();
        if self.clones {
            access |= AccessFs::WriteFile;
        }
        if self.uploads {
            // An unnamed file is linked next to the one it replaces, which is then removed.
            access |= AccessFs::WriteFile | AccessFs::Truncate | AccessFs::MakeReg;
            access |= AccessFs::MakeDir | AccessFs::RemoveFile;
            // Copies of folders contain links, and have temporary names until they are complete.
            access |= AccessFs::MakeSym | AccessFs::RemoveDir;
        }
        if self.caches {
            access |= AccessFs::WriteFile | AccessFs::Truncate | AccessFs::MakeReg;
            access |= AccessFs::MakeDir | AccessFs::RemoveFile;
        }
        if self.deletes {
            access |= AccessFs::RemoveFile | AccessFs::RemoveDir;
            // A folder is renamed before its contents are removed.
            access |= AccessFs::MakeDir;
        }
        if self.uploads && self.deletes {
            // A file moved to another folder keeps its type.
            access |= AccessFs::Refer | AccessFs::MakeFifo | AccessFs::MakeSock;
        }
        access
    }
}

/// Returns whether no restriction keeps this process from opening a file or folder.
fn may_open(path: &Path) -> bool {
    let is_denied = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
    !File::open(path).is_err_and(|error| is_denied(&error) && access::is_readable(path))
}

/// The result of applying the rules.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Landlock {
    /// This kernel, or an outer restriction, does not offer it.
    Refused(String),
    /// Restricted as far as this kernel can; the name of its version tells how far.
    Confined {
        /// The access that the process keeps.
        to: String,
        /// What the kernel cannot restrict, if anything.
        without: Option<String>,
    },
}

impl AllowedAccess {
    /// Restricts this thread, and those that it starts from now on.
    pub(crate) fn confine(&self) -> Landlock {
        match self.restrict() {
            Ok(status) => self.outcome(&status),
            Err(error) => Landlock::Refused(error.to_string()),
        }
    }

    fn restrict(&self) -> Result<RestrictionStatus, RulesetError> {
        let reads = AccessFs::ReadFile | AccessFs::ReadDir;
        let mut handled = AccessFs::from_all(NEWEST);
        if self.reads_everywhere {
            handled.remove(reads);
        }
        let zones = env::var_os("TZDIR").map(PathBuf::from);
        let to_connect = if self.connects() { TO_CONNECT.as_slice() } else { &[] };
        let also_read = ALSO_READ.iter().chain(to_connect).map(PathBuf::from).chain(zones);
        let of_root =
            |root: &AllowedRoot| (vec![root.path.clone()], (reads | root.changes()) & handled);
        let mut rules: Vec<_> = self.roots.iter().map(of_root).collect();
        if !self.reads_everywhere {
            let also_read = also_read.chain(self.reread.iter().cloned());
            rules.push((also_read.collect(), reads));
        }
        if self.connects() && !self.reads_everywhere {
            rules.push((folders_of_names(), AccessFs::ReadFile.into()));
        }
        if self.has_caches() {
            rules.push((vec![PathBuf::from("/dev/null")], AccessFs::WriteFile.into()));
        }
        let replaces = AccessFs::WriteFile | AccessFs::MakeReg | AccessFs::RemoveFile;
        rules.push((self.keys.iter().cloned().collect(), (reads | replaces) & handled));
        rules.push((self.log.iter().cloned().collect(), AccessFs::WriteFile | AccessFs::MakeReg));
        rules.push((self.sockets.clone(), AccessFs::RemoveFile.into()));

        let mut ruleset = Ruleset::default()
            .handle_access(handled)?
            .handle_access(AccessNet::BindTcp | AccessNet::ConnectTcp)?
            .scope(scopes())?
            .create()?;
        let dns = self.connects().then_some(DNS_PORT);
        for port in self.ports.iter().chain(&dns) {
            ruleset = ruleset.add_rule(NetPort::new(*port, AccessNet::ConnectTcp))?;
        }
        for (paths, access) in rules.into_iter().filter(|(_, access)| !access.is_empty()) {
            ruleset = ruleset.add_rules(path_beneath_rules(paths, access))?;
        }
        ruleset.restrict_self()
    }

    /// Returns whether this process makes outgoing connections.
    pub(crate) fn connects(&self) -> bool {
        self.has_caches() || self.keys.is_some()
    }

    /// Returns whether this process changes files other than its log and its sockets.
    pub(crate) fn changes(&self) -> bool {
        self.keys.is_some() || self.roots.iter().any(|root| !root.changes().is_empty())
    }

    /// Returns whether there is a cache.
    fn has_caches(&self) -> bool {
        self.roots.iter().any(|root| root.caches)
    }

    /// Returns the part of the `wanted` access that a process restricted to this one is denied.
    #[must_use]
    pub fn lacks(&self, wanted: &Self) -> Option<String> {
        let is_allowed = |root: &AllowedRoot| {
            let mut above = self.roots.iter().filter(|own| root.path.starts_with(&own.path));
            above.any(|own| own.changes().contains(root.changes()))
                || self.reads_everywhere && root.changes().is_empty()
        };
        if wanted.reads_everywhere && !self.reads_everywhere {
            return Some("reading everywhere, for --allow-symlink".to_owned());
        }
        if let Some(root) = wanted.roots.iter().find(|root| !is_allowed(root)) {
            let path = root.path.display();
            return Some(if root.changes().is_empty() {
                format!("reading {path}")
            } else {
                format!("changes of {path}")
            });
        }
        // The rules apply to the folders at the start, not to those that have their paths now.
        let is_other = |root: &&AllowedRoot| !may_open(&root.path);
        if let Some(root) = wanted.roots.iter().find(is_other) {
            return Some(format!("reading what is now {}", root.path.display()));
        }
        let is_reread = |path: &&PathBuf| !self.reread.iter().any(|own| path.starts_with(own));
        if let Some(path) = wanted.reread.iter().find(is_reread).filter(|_| !self.reads_everywhere)
        {
            return Some(format!("reading {}", path.display()));
        }
        let port = wanted.ports.iter().find(|port| !self.ports.contains(port))?;
        Some(format!("connections to port {port}"))
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
        if self.reads_everywhere {
            f.write_str("reading (everywhere, for --allow-symlink)")?
        } else {
            let paths: Vec<_> = self.roots.iter().map(|root| &root.path).collect();
            write!(f, "reading {}", PathSample(&paths))?;
        }
        if self.has_caches() {
            let ports: Vec<_> = self.ports.iter().map(u16::to_string).collect();
            write!(f, ", filling it from port {}", ports.join(" and "))?;
        }
        let changes: [(&str, IsMeant); 4] = [
            ("uploads to", |root| root.uploads && !root.deletes),
            ("deletions in", |root| root.deletes && !root.uploads),
            ("changes of", |root| root.uploads && root.deletes),
            ("clones in", |root| root.clones),
        ];
        for (what, is_meant) in changes {
            let meant: Vec<_> =
                self.roots.iter().filter(|root| is_meant(root)).map(|root| &root.path).collect();
            if !meant.is_empty() {
                write!(f, ", {what} {}", PathSample(&meant))?;
            }
        }
        if let Some(log) = &self.log {
            write!(f, ", writing below {} for the log", log.display())?;
        }
        if !self.sockets.is_empty() {
            let folders: Vec<_> = self.sockets.iter().collect();
            write!(f, ", removing files below {} for sockets", PathSample(&folders))?;
        }
        for folder in self.reread.iter().take(MAX_LISTED).filter(|_| !self.reads_everywhere) {
            write!(f, ", reloads from {}", folder.display())?;
        }
        if let Some(folder) = &self.keys {
            write!(f, ", ACME keys and certificates in {}", folder.display())?;
        }
        Ok(())
    }
}

/// Whether a description applies to a root.
type IsMeant = fn(&AllowedRoot) -> bool;

/// Some paths, and the number of further ones.
struct PathSample<'a>(&'a [&'a PathBuf]);

impl fmt::Display for PathSample<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts = self.0.iter().take(MAX_LISTED).map(|path| path.display().to_string());
        f.write_str(&texts.collect::<Vec<_>>().join(" and "))?;
        match self.0.len().saturating_sub(MAX_LISTED) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// The number of paths that are listed.
const MAX_LISTED: usize = 3;

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
/// listens on one.
fn scopes() -> BitFlags<Scope> {
    let mut scopes = Scope::from_all(NEWEST);
    if env::var_os("NOTIFY_SOCKET").is_some_and(|name| name.as_bytes().starts_with(b"@")) {
        scopes.remove(Scope::AbstractUnixSocket);
    }
    scopes
}

/// The newest version whose restrictions were tested with underpass.
const NEWEST: ABI = ABI::V6;

/// Files outside the roots that are read after the start: the time zone, which may change
/// meanwhile, and the longest time a lease may be held.
const ALSO_READ: [&str; 3] =
    ["/etc/localtime", "/usr/share/zoneinfo", "/proc/sys/fs/lease-break-time"];

/// Files that are read to connect to an origin or a certificate authority, besides those for name
/// resolution; a cache also needs a sink that discards bytes, and the boot ID, by which it
/// distinguishes a restart of the process from one of the machine.
const TO_CONNECT: [&str; 2] = ["/dev/null", "/proc/sys/kernel/random/boot_id"];

/// Returns the folders of the files for name resolution. Other programs replace these files at any
/// time, and a rule for a file would apply only to the one that existed at the start.
fn folders_of_names() -> Vec<PathBuf> {
    let linked = ["hosts", "nsswitch.conf", "resolv.conf"].iter().filter_map(|name| {
        let target = Path::new("/etc").join(fs::read_link(Path::new("/etc").join(name)).ok()?);
        let folder = fs::canonicalize(target.parent()?).ok()?;
        (folder != Path::new("/")).then_some(folder)
    });
    ["/etc", "/run/systemd/resolve"].map(PathBuf::from).into_iter().chain(linked).collect()
}

/// The port for DNS queries over TCP, used if an answer is too long for UDP.
const DNS_PORT: u16 = 53;
