//! The environment of this process, as far as a remedy depends on it.

use std::fs;
use std::path::Path;

/// The source from which the TLS module could come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Module {
    /// It is among the kernel's other modules, and only has to be loaded.
    Installed,
    /// The kernel was built without it.
    NotBuilt,
    /// Nothing shows whether there is one.
    Unknown,
}

/// The origin of the kernel, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KernelOrigin {
    /// The source from which the module could come.
    pub(crate) module: Module,
    /// Whether this is a container, whose kernel belongs to the host.
    pub(crate) is_container: bool,
}

impl KernelOrigin {
    /// Reads the files that show it.
    pub(crate) fn detect() -> Self {
        let release = super::machine::release();
        let modules = fs::read_to_string(format!("/lib/modules/{release}/modules.dep"));
        let config = fs::read_to_string(format!("/boot/config-{release}"));
        let marks = ["/.dockerenv", "/run/.containerenv", "/run/systemd/container"];
        Self {
            module: module(modules.ok().as_deref(), config.ok().as_deref()),
            is_container: marks.iter().any(|mark| Path::new(mark).exists()),
        }
    }
}

/// Returns what the list of modules (modules.dep(5)) and the kernel's own configuration say.
fn module(modules: Option<&str>, config: Option<&str>) -> Module {
    let is_it = |line: &str| line.split(':').next().is_some_and(|path| path.contains(PATH));
    let is_listed = |list: &str| list.lines().any(is_it);
    if modules.is_some_and(is_listed) {
        return Module::Installed;
    }
    let says = |what: &str| config.is_some_and(|config| config.lines().any(|line| line == what));
    match (says("CONFIG_TLS=m"), says("# CONFIG_TLS is not set")) {
        (true, _) => Module::Installed,
        (_, true) => Module::NotBuilt,
        _ => Module::Unknown,
    }
}

/// The part of the module's path before the suffix of its compression.
const PATH: &str = "/net/tls/tls.ko";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn module_lists_show_whether_ktls_is_installed() {
        let deps = "kernel/net/ipv4/x.ko:\nkernel/net/tls/tls.ko.xz: kernel/y.ko\n";
        assert_eq!(module(Some(deps), None), Module::Installed);
        // Another module may need it.
        let other = "kernel/drivers/nic.ko: kernel/net/tls/tls.ko\n";
        assert_eq!(module(Some(other), None), Module::Unknown);
        let unset = "CONFIG_NET=y\n# CONFIG_TLS is not set\n";
        assert_eq!(module(None, Some(unset)), Module::NotBuilt);
        assert_eq!(module(None, Some("CONFIG_TLS_DEVICE=y\nCONFIG_TLS=m")), Module::Installed);
        assert_eq!(module(None, Some("# CONFIG_TLS_TOE is not set")), Module::Unknown);
        assert_eq!(module(None, None), Module::Unknown);
    }
}
