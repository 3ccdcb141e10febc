//! The settings of the server from its arguments; invalid ones are reported here.

mod limits;
mod responses;
mod sites;

pub(super) use sites::{OpenSites, Opened};

use std::thread;

use underpass_engine::{Mechanism, Policy};
use underpass_server::access_log::LogFormat;
use underpass_server::auth::RuleError;
use underpass_server::server::{Changes, Credentials, Settings, SiteSettings, TrustedProxies};

use super::args::{ChangeArgs, PlaceArgs, ServeArgs};
use crate::failure::{Failure, Result};
use underpass_engine::Size;

/// Returns the settings that these arguments ask for, with these sites. Raises the limit of open files
/// on the way.
pub(super) fn settings(
    args: &ServeArgs,
    tls: Option<Credentials>,
    sites: Vec<SiteSettings>,
) -> Result<Settings> {
    let ServeArgs { place, limits, logging, engine, .. } = args;
    refuse_mechanism(engine.policy())?;
    let workers = limits.workers.map_or_else(processors, Into::into);
    // Each site has a root open.
    let descriptors = limits::raise_descriptors().saturating_sub(sites.len() as u64);
    let max_connections = limits::connections(limits.max_connections, descriptors, workers)?;
    Ok(Settings {
        sites,
        tls,
        trusted_proxies: trusted_proxies(place)?,
        proxy_protocol: place.proxy_protocol,
        redirect_http: args.redirect_http(),
        workers,
        max_connections,
        max_connections_per_address: limits::per_address(limits.max_per_address, max_connections),
        timeout: limits.timeout,
        rate: limits.rate.map(|Size(bytes)| bytes),
        drops_behind: limits.drop_behind,
        policy: engine.policy(),
        step: engine.step(),
        max_archive_entries: limits.max_archive_entries.get(),
        log: (!logging.quiet || logging.log_file.is_some())
            .then(|| log_format(&logging.log_format))
            .transpose()?,
        drain: limits.drain,
    })
}

/// Returns the settings of a site without names, and without what it opens: the cache, the
/// certificate, the users and the media types of the system.
fn site_settings(args: &ServeArgs) -> Result<SiteSettings> {
    let ServeArgs { root, place, access, changes, pages, integrity, .. } = args;
    let (headers, path_headers) = responses::headers(&pages.header)?;
    Ok(SiteSettings {
        redirects: pages.redirect.clone(),
        integrity: *integrity,
        allowed_hosts: access.allow_host.iter().map(|name| host(name)).collect::<Result<_>>()?,
        hide: access.hide.clone(),
        shows_hidden: access.show_hidden,
        allows_symlinks_outside: access.allow_symlink,
        cache_control: pages.cache_control.as_deref().map(cache_control).transpose()?,
        headers,
        path_headers,
        cors: pages.enable_cors,
        allows_scripts: pages.allow_scripts,
        renders_index: pages.render_index,
        renders_spa: pages.render_spa,
        path_prefix: path_prefix(&place.path_prefix)?,
        changes: self::changes(changes),
        listing: !pages.no_listing,
        archive: !pages.no_archive,
        health: !pages.no_health,
        metrics: !pages.no_metrics,
        transfers: !pages.no_transfers,
        ..SiteSettings::new(root.clone())
    })
}

/// Returns the number of processors this process may run on.
fn processors() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

fn trusted_proxies(args: &PlaceArgs) -> Result<TrustedProxies> {
    let mut proxies = TrustedProxies::default();
    for text in &args.trusted_proxy {
        proxies.add(text).map_err(|error| usage(format!("--trusted-proxy {text:?}: {error}")))?;
    }
    if args.proxy_protocol && proxies.is_empty() {
        let why = "--proxy-protocol: name the proxies that send the header by --trusted-proxy";
        return Err(usage(why.to_owned()));
    }
    Ok(proxies)
}

/// Refuses a mechanism that moves bytes between files only: it can answer no request.
fn refuse_mechanism(policy: Policy) -> Result<()> {
    match policy {
        Policy::Require(mechanism @ (Mechanism::Reflink | Mechanism::CopyFileRange)) => {
            Err(usage(format!(
                "--mechanism {mechanism} works between files only, and clients are behind sockets: \
                 choose sendfile, splice, mmap or read_write, or --prefer"
            )))
        }
        _ => Ok(()),
    }
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

fn auth(error: RuleError) -> Failure {
    usage(format!("--auth: {error}"))
}

fn log_format(text: &str) -> Result<LogFormat> {
    LogFormat::parse(text).map_err(|error| usage(format!("--log-format: {error}")))
}

fn cache_control(text: &str) -> Result<String> {
    // RFC 9110, section 5.5: a line end would begin another header.
    match text.is_empty() || text.chars().any(char::is_control) {
        false => Ok(text.to_owned()),
        true => Err(usage(format!("--cache-control {text:?} is no value of a header"))),
    }
}

/// Returns a name of --allow-host, with a port or without.
fn host(text: &str) -> Result<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
    match text == "*" || (!text.is_empty() && text.chars().all(is_part)) {
        true => Ok(text.to_owned()),
        false => Err(usage(format!(
            "--allow-host {text:?} is no host: write a name such as files.example.org, or *"
        ))),
    }
}

/// Returns the prefix as the server takes it: nothing, or `/a/b`.
fn path_prefix(text: &str) -> Result<String> {
    let path = text.trim_matches('/');
    let is_plain = |c: char| !c.is_control() && !" ?#%\\\"<>".contains(c);
    let is_part = |part: &str| !matches!(part, "" | "." | "..") && part.chars().all(is_plain);
    match path {
        "" => Ok(String::new()),
        path if path.split('/').all(is_part) => Ok(format!("/{path}")),
        _ => Err(usage(format!("--path-prefix '{text}' is no path of a URL, such as /files"))),
    }
}

fn usage(message: String) -> Failure {
    Failure::Usage(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_name_or_an_asterisk() {
        for text in ["files.example.org", "nas:8080", "*", "xn--nxasmq6b"] {
            assert_eq!(host(text).ok().as_deref(), Some(text));
        }
        for text in ["", "http://files.example.org", "a b", "*.example.org", "a/b"] {
            assert!(host(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_prefix_begins_with_a_slash_and_does_not_end_with_one() {
        for (text, prefix) in [("", ""), ("/", ""), ("a", "/a"), ("/a/b/", "/a/b")] {
            assert_eq!(path_prefix(text).ok().as_deref(), Some(prefix), "{text}");
        }
        for text in ["/a//b", "/../a", "/a?b", "/a#b", "/a b", "/a%20b", "/a\nb"] {
            assert!(path_prefix(text).is_err(), "{text:?}");
        }
    }
}
