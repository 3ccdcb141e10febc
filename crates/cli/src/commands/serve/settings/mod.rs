//! The settings of the server from its arguments; invalid ones are reported here.

mod limits;
mod needs;
mod responses;
mod sites;

pub(super) use needs::{access, add_needs, caches_of};
pub(super) use sites::{OpenSites, reread_files};

use std::thread;

use underpass_engine::{Mechanism, Policy, ktls};
use underpass_server::{
    Changes, Credentials, MediaTypes, PathHeader, Settings, SiteSettings, TrustedProxies,
};

use super::args::{ChangeArgs, Header, OptionsError, PlaceArgs, ServeArgs};
use super::{origin, sockets};
use crate::failure::{Failure, Result};
use crate::open_files;
use underpass_engine::Size;

/// Returns the settings that these arguments request, with these sites. Also raises the limit of
/// open files.
pub(super) fn settings(
    args: &ServeArgs,
    tls: Option<Credentials>,
    sites: Vec<SiteSettings>,
) -> Result<Settings> {
    let ServeArgs { place, limits, logging, engine, .. } = args;
    refuse_mechanism(engine.policy(), tls.is_some())?;
    let workers = limits.workers.map_or_else(processors, Into::into);
    // Each site has a root open.
    let descriptors = open_files::raise_limit().saturating_sub(sites.len() as u64);
    let max_connections = limits::connections(limits.max_connections, descriptors, workers)?;
    Ok(Settings {
        sites,
        tls,
        trusted_proxies: trusted_proxies(place)?,
        proxy_protocol: place.proxy_protocol,
        redirect_http: args.redirect_http(),
        socket_mode: place.socket_mode,
        workers,
        max_connections,
        max_connections_per_address: limits::per_address(limits.max_per_address, max_connections),
        timeout: limits.timeout,
        rate: limits.rate.map(|Size(bytes)| bytes),
        drops_behind: limits.drop_behind,
        policy: engine.policy(),
        step: engine.step(),
        max_archive_entries: limits.max_archive_entries.get(),
        log: (!logging.quiet || logging.log_file.is_some()).then(|| logging.log_format.clone()),
        drain: limits.drain,
    })
}

/// Returns the settings of a site without its names, and without what is opened for it: the cache,
/// the certificate, the users and the media types of the system.
fn site_settings(args: &ServeArgs) -> SiteSettings {
    let ServeArgs { root, place, access, changes, pages, integrity, .. } = args;
    let (mut headers, mut path_headers) = (Vec::new(), Vec::new());
    for Header { pattern, name, value } in pages.header.iter().cloned() {
        match pattern {
            None => {
                // This header matches every file, and the last one that matches counts.
                path_headers.retain(|it: &PathHeader| !it.name.eq_ignore_ascii_case(&name));
                headers.push((name, value));
            }
            Some(pattern) => path_headers.push(PathHeader { pattern, name, value }),
        }
    }
    let has_cache_control =
        headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("Cache-Control"));
    SiteSettings {
        redirects: pages.redirect.clone(),
        integrity: *integrity,
        allowed_hosts: access.allow_host.clone(),
        hide: access.hide.clone(),
        shows_hidden: access.show_hidden,
        allows_symlinks_outside: access.allow_symlink,
        cache_control: pages.cache_control.clone().filter(|_| !has_cache_control),
        headers,
        path_headers,
        cors: pages.enable_cors,
        allows_scripts: pages.allow_scripts,
        renders_index: pages.render_index,
        renders_spa: pages.render_spa,
        path_prefix: place.path_prefix.clone(),
        changes: self::changes(changes),
        listing: !pages.no_listing,
        archive: !pages.no_archive,
        health: !pages.no_health,
        metrics: !pages.no_metrics,
        transfers: !pages.no_transfers,
        ..SiteSettings::new(root.clone())
    }
}

/// Returns the number of processors this process may run on.
fn processors() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Checks the option values that the parser of arguments takes as texts.
pub(super) fn check(args: &ServeArgs) -> Result<()> {
    args.place.bind.iter().try_for_each(|bind| sockets::check(bind))?;
    args.origin.origin.iter().try_for_each(|text| origin::url(text).map(drop))?;
    networks(&args.place)?;
    sites::access(&args.access.auth)?;
    responses::media_types(&MediaTypes::default(), &args.pages.mime)?;
    Ok(site_settings(args).check()?)
}

fn networks(args: &PlaceArgs) -> Result<TrustedProxies> {
    let mut proxies = TrustedProxies::default();
    for text in &args.trusted_proxy {
        let wrong = |error| Failure::value(format_args!("--trusted-proxy {text:?}"), error);
        proxies.add(text).map_err(wrong)?;
    }
    Ok(proxies)
}

fn trusted_proxies(args: &PlaceArgs) -> Result<TrustedProxies> {
    let proxies = networks(args)?;
    if args.proxy_protocol && proxies.is_empty() {
        return Err(OptionsError::UnnamedProxies.into());
    }
    Ok(proxies)
}

/// Refuses a mechanism that can answer no request: one between files only, or one that needs the
/// kernel to encrypt where it does not.
fn refuse_mechanism(policy: Policy, has_tls: bool) -> Result<()> {
    let encrypts = || ktls::probe().is_ok_and(|support| support.module.is_ok());
    match policy {
        Policy::Require(mechanism @ (Mechanism::Reflink | Mechanism::CopyFileRange)) => {
            Err(OptionsError::MechanismOfFiles(mechanism).into())
        }
        Policy::Require(mechanism) if has_tls && policy.allows_kernel_tls() && !encrypts() => {
            Err(OptionsError::MechanismWithoutKernelTls(mechanism).into())
        }
        _ => Ok(()),
    }
}

/// Returns the options that have no effect: they need uploads, and there are none on any site. Where
/// some sites have them, others may have an option of the whole server.
fn useless_upload_options(args: &ServeArgs) -> Vec<&'static str> {
    let sites: Vec<_> = args.each_site().map(|site| changes(&site.changes)).collect();
    if sites.iter().any(|changes| changes.upload) {
        return Vec::new();
    }
    let is_given = |test: fn(&Changes) -> bool| sites.iter().any(test);
    let options = [
        (is_given(|changes| changes.limit.is_some()), "--upload-limit"),
        (is_given(|changes| changes.create_parents), "--create-parents"),
        (is_given(|changes| changes.min_free != Changes::default().min_free), "--min-free"),
    ];
    options.into_iter().filter_map(|(is_given, option)| is_given.then_some(option)).collect()
}

fn changes(args: &ChangeArgs) -> Changes {
    Changes {
        upload: args.allow_upload || args.allow_all,
        delete: args.allow_delete || args.allow_all,
        limit: args.upload_limit.map(|Size(bytes)| bytes),
        create_parents: args.create_parents,
        sync: args.sync,
        expiry: args.upload_expiry,
        min_rate: args.upload_min_rate.0,
        min_free: args.min_free,
    }
}
