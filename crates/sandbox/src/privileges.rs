//! Capabilities, of which a server needs none once its sockets are open.
//!
//! Two kinds are kept, because requested features need them. `CAP_LEASE`, if present, only lets
//! integrity levels take leases on files of other users (fcntl(2), `F_SETLEASE`). A server started
//! as root without `--user` keeps those that let root read and write the files of all users: that
//! is the reason to start it as root.

use std::fmt;

use rustix::process::geteuid;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities,
};

use crate::user::User;

/// The user of the process, and the capabilities that it keeps.
#[derive(Debug)]
pub(crate) struct Privileges {
    /// The user that the process switched to, as typed.
    user: Option<String>,
    /// Whether it runs as root.
    is_root: bool,
    /// The capabilities beyond those of ordinary users.
    capabilities: CapabilitySet,
}

/// Removes the capabilities that are not kept from the bounding set, so that no executed program
/// can gain them. This needs `CAP_SETPCAP`, so it is done before changing the user; without it the
/// set is unchanged.
pub(crate) fn limit_bounding_set(user: Option<&User>) {
    for capability in (CapabilitySet::all() - kept(user)).iter() {
        let _ = remove_capability_from_bounding_set(capability);
    }
}

/// Drops all capabilities except those that serving files needs.
pub(crate) fn drop_capabilities(user: Option<&User>) -> Privileges {
    let kept = kept(user);
    let _ = clear_ambient_capability_set();
    if let Ok(held) = capabilities(None) {
        let permitted = held.permitted & kept;
        let none = CapabilitySet::empty();
        let sets = CapabilitySets { effective: permitted, permitted, inheritable: none };
        let _ = set_capabilities(None, sets);
    }
    Privileges::current(user)
}

/// Returns the capabilities of a server that switches to this user, or keeps its own.
fn kept(user: Option<&User>) -> CapabilitySet {
    let is_root = user.map_or_else(|| geteuid().is_root(), User::is_root);
    if is_root { CapabilitySet::LEASE | ROOT } else { CapabilitySet::LEASE }
}

impl Privileges {
    /// Returns the current capabilities, as the kernel reports them.
    pub(crate) fn current(user: Option<&User>) -> Self {
        Self {
            user: user.map(|user| user.name().to_owned()),
            is_root: geteuid().is_root(),
            capabilities: capabilities(None)
                .map_or(CapabilitySet::empty(), |held| held.effective | held.permitted),
        }
    }

    /// Returns a warning about the capabilities, if there is one.
    pub(crate) fn warning(&self) -> Option<String> {
        let reads_everything = self.capabilities.intersects(ROOT);
        (self.is_root && reads_everything).then(|| {
            "serving as root, with access to all files: --user NAME drops these rights".to_owned()
        })
    }
}

impl fmt::Display for Privileges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(user) = &self.user {
            write!(f, "user {user}, ")?;
        }
        if self.capabilities.is_empty() {
            return f.write_str("no capabilities");
        }
        if self.capabilities.bits().count_ones() > MAX_LISTED {
            return f.write_str("all capabilities of root");
        }
        let names = self.capabilities.iter_names().map(|(name, _)| name.to_ascii_lowercase());
        write!(f, "capabilities {}", names.collect::<Vec<_>>().join(" "))
    }
}

/// The capabilities that let root read and write files of other users, and change their modes.
const ROOT: CapabilitySet =
    CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::DAC_READ_SEARCH).union(CapabilitySet::FOWNER);

/// The most capabilities that are listed individually.
const MAX_LISTED: u32 = 8;
