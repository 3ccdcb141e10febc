//! The access that a confined server needs.

use std::fs;
use std::path::{self, Path};

use underpass_engine::Integrity;
use underpass_sandbox::{AllowedAccess, AllowedRoot};

use super::super::args::ServeArgs;
use super::super::certificate::{Orders, key_files};
use super::sites::Opened;
use crate::failure::Result;

/// Returns the access that sites and orders of certificates need.
pub(crate) fn access(
    args: &ServeArgs,
    orders: Option<&Orders>,
    opened: &Opened,
) -> Result<AllowedAccess> {
    let mut access = AllowedAccess::default();
    add_needs(&mut access, args, opened);
    if let Some(orders) = orders {
        let mut roots = opened.sites.iter().filter_map(|site| site.root.as_deref());
        let control = orders.control();
        roots.try_for_each(|root| control.check_root(root))?;
        access.keys = Some(orders.folder().to_owned());
        access.ports.push(orders.port());
    }
    Ok(access)
}

/// Adds the access that sites need in a confined process.
pub(crate) fn add_needs(access: &mut AllowedAccess, args: &ServeArgs, opened: &Opened) {
    for site in &opened.sites {
        let Some(path) = site.root.clone() else { continue };
        access.reads_everywhere |= site.allows_symlinks_outside;
        access.roots.push(AllowedRoot {
            path,
            uploads: site.changes.upload,
            deletes: site.changes.delete,
            caches: site.cache.is_some(),
            clones: site.integrity == Integrity::Snapshot,
        });
    }
    let certificate = key_files(&args.tls).ok().flatten();
    access.reread.extend(certificate.iter().flat_map(|files| files.folders()));
    access.reread.extend(opened.folders.iter().cloned());
    let config = args.config_file().and_then(|file| file.parent().map(Path::to_owned));
    access.reread.extend(config);
    access.reread.sort_unstable();
    access.reread.dedup();
    access.ports.extend(&opened.ports);
}

/// Returns the access that caches need; that of one that does not exist is for the folder above.
pub(crate) fn caches_of(args: &ServeArgs) -> AllowedAccess {
    let existing = |folder: &Path| {
        let folder = path::absolute(folder).ok()?;
        folder.ancestors().find_map(|above| fs::canonicalize(above).ok())
    };
    let sites = args.each_site().filter(|site| !site.origin.origin.is_empty());
    let paths = sites.filter_map(|site| existing(site.origin.cache.as_deref()?));
    let root = |path| AllowedRoot { path, caches: true, ..AllowedRoot::default() };
    AllowedAccess { roots: paths.map(root).collect(), ..AllowedAccess::default() }
}
