//! The options of `--origin`: a cache in front of a server that has the files.

use underpass_cache::{Cache, CacheOptions, KeepFree, OpenError, RedirectHost};
use underpass_client::{TlsSetup, Url};
use underpass_engine::Size;
use underpass_protocol::caching::FreshnessRules;
use underpass_protocol::response::head::path_field;
use underpass_server::server::MinFree;
use underpass_transport::tls::{self, Trust};

use super::args::{OriginArgs, ServeArgs};
use crate::failure::{Failure, Result};

impl OriginArgs {
    /// Returns the first origin without credentials, for people.
    pub(super) fn first(&self) -> Option<String> {
        let mut url = Url::parse(self.origin.first()?).ok()?;
        // An http address has a host, so both can be removed.
        let _ = (url.set_username(""), url.set_password(None));
        Some(url.into())
    }

    /// Returns the ports of the origins, and of the hosts to which they may redirect.
    pub(super) fn ports(&self) -> Vec<u16> {
        let urls = self.origin.iter().filter_map(|text| Url::parse(text).ok());
        let redirects = self.origin_redirect.iter().flat_map(RedirectHost::ports);
        let own = urls.filter_map(|url| url.port_or_known_default());
        let mut ports: Vec<_> = own.chain(redirects).collect();
        ports.sort_unstable();
        ports.dedup();
        ports
    }

    /// Opens the cache, if there is an origin.
    pub(super) fn open(&self, args: &ServeArgs) -> Result<Option<Cache>> {
        let folder = match (&self.cache, self.origin.is_empty()) {
            (Some(folder), false) => folder,
            (None, false) => return Err(needs("--origin", "--cache DIR")),
            (_, true) => return self.refuse_alone().map(|()| None),
        };
        refuse_others(args)?;
        let origins: Vec<_> = self.origin.iter().map(|text| url(text)).collect::<Result<_>>()?;
        let trust = Trust { authorities: self.origin_cacert.clone(), ..Trust::default() };
        let tls = TlsSetup::new(trust);
        if origins.iter().any(|url| url.scheme() == "https") {
            // Later the files of the authorities cannot be read.
            tls.connector().map_err(Failure::line)?;
        }
        let options = CacheOptions {
            folder: folder.clone(),
            origins,
            tls,
            vary_on: self.vary_on.iter().map(|name| varying(name)).collect::<Result<_>>()?,
            redirects: self.origin_redirect.clone(),
            size: self.cache_size.map(|Size(bytes)| bytes),
            keep_free: match self.cache_free {
                MinFree::Bytes(bytes) => KeepFree::Bytes(bytes),
                MinFree::Percent(percent) => KeepFree::Percent(percent),
            },
            rules: FreshnessRules { fresh: self.fresh, stale_if_error: self.stale_if_error },
            timeout: args.limits.timeout,
            policy: args.engine.policy(),
        };
        Cache::open(options).map(Some).map_err(|error| match error {
            error @ OpenError::Format(_) => Failure::Usage(format!("--cache: {error}")),
            error => Failure::line(error),
        })
    }

    /// Refuses options that have a meaning only with an origin.
    fn refuse_alone(&self) -> Result<()> {
        for (is_given, name) in [
            (self.cache.is_some(), "--cache"),
            (self.cache_size.is_some(), "--cache-size"),
            (self.fresh.is_some(), "--fresh"),
            (self.origin_cacert.is_some(), "--origin-cacert"),
            (!self.vary_on.is_empty(), "--vary-on"),
            (!self.origin_redirect.is_empty(), "--origin-redirect"),
        ] {
            if is_given {
                return Err(needs(name, "--origin URL"));
            }
        }
        Ok(())
    }
}

fn needs(option: &str, other: &str) -> Failure {
    Failure::Usage(format!("{option} needs {other}"))
}

/// Refuses options that have no meaning in front of an origin.
fn refuse_others(args: &ServeArgs) -> Result<()> {
    let changes = &args.changes;
    for (is_given, name) in [
        (args.root.as_os_str() != ".", "a folder to serve"),
        (changes.allow_upload || changes.allow_all, "--allow-upload"),
        (changes.allow_delete, "--allow-delete"),
        (args.pages.render_index, "--render-index"),
        (args.pages.render_spa, "--render-spa"),
        (args.access.allow_symlink, "--allow-symlink"),
        (!args.access.hide.is_empty(), "--hide"),
    ] {
        if is_given {
            let why =
                format!("{name} cannot be combined with --origin: the files are the origin's");
            return Err(Failure::Usage(why));
        }
    }
    Ok(())
}

/// Returns the name of a field that may be passed on to origins, in lower case.
fn varying(name: &str) -> Result<String> {
    let fail = |why: &str| Err(Failure::Usage(format!("--vary-on {name}: {why}")));
    let lower = name.to_ascii_lowercase();
    if path_field(&lower, "").is_err() {
        return fail("no field of a request that can be passed on");
    }
    match lower.as_str() {
        "authorization" | "cookie" => fail("what is meant for one client is not kept for all"),
        "accept-encoding"
        | "cdn-loop"
        | "expect"
        | "host"
        | "if-match"
        | "if-modified-since"
        | "if-none-match"
        | "if-range"
        | "if-unmodified-since"
        | "proxy-authorization"
        | "range"
        | "te"
        | "via" => fail("this server writes it itself"),
        _ => Ok(lower),
    }
}

/// Returns the URL of an origin. What is wrong with it is said without its password.
fn url(text: &str) -> Result<Url> {
    let fail = |why: &str| Failure::Usage(format!("--origin: {why}"));
    let url = Url::parse(text)
        .map_err(|error| fail(&format!("{error}: write http://HOST/ or https://HOST/")))?;
    if let Some(reason) = tls::MISSING.filter(|_| url.scheme() == "https") {
        return Err(fail(reason));
    }
    match url.scheme() {
        "http" | "https" if url.query().is_none() && url.fragment().is_none() => Ok(url),
        "http" | "https" => Err(fail("the URL of an origin has no ? and no #")),
        scheme => Err(fail(&format!("the scheme {scheme} is not supported, only http and https"))),
    }
}
