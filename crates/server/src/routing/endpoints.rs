//! Endpoints about the server itself, under a prefix that no file can have.

use std::time::SystemTime;

use crate::auth::Right;
use crate::files::root::RESERVED;
use crate::routing::context::RequestContext;
use crate::routing::operate;
use crate::routing::response::Response;
use crate::server::credentials::Credentials;
use crate::server::settings::SiteSettings;
use underpass_cache::Cache;
use underpass_observe::metrics::MEDIA_TYPE;
use underpass_observe::transfers::{
    CONTENT_SECURITY_POLICY, TransferFacts, cache_json, cache_page,
};
use underpass_protocol::request::negotiate::wants_json;
use underpass_protocol::request::target::Target;
use underpass_protocol::request::{Method, Request};
use underpass_protocol::response::head::PLAIN_TEXT;

/// An endpoint about the server itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// The health check.
    Health,
    /// Metrics for Prometheus.
    Metrics,
    /// The transfers in progress.
    Transfers,
    /// The objects that are open in the cache.
    Cache,
    /// The paths that were requested most.
    Popular,
}

/// Returns the endpoint of a path, if it is enabled.
pub(crate) fn find(settings: &SiteSettings, target: &Target<'_>) -> Option<Endpoint> {
    let name = target.path.strip_prefix(RESERVED)?.strip_prefix(b"/")?;
    let (endpoint, is_on) = match name {
        b"health" => (Endpoint::Health, settings.health),
        b"metrics" => (Endpoint::Metrics, settings.metrics),
        b"transfers" => (Endpoint::Transfers, settings.transfers),
        b"cache" => (Endpoint::Cache, settings.transfers && settings.cache.is_some()),
        b"popular" => (Endpoint::Popular, settings.transfers && settings.cache.is_some()),
        _ => return None,
    };
    is_on.then_some(endpoint)
}

/// Returns whether a request is for the health check.
pub(crate) fn is_health(settings: &SiteSettings, request: &Request<'_, '_>) -> bool {
    let target = Target::parse(request.target, settings.path_prefix.as_bytes());
    matches!(request.method, Method::Get | Method::Head)
        && target.is_ok_and(|target| find(settings, &target) == Some(Endpoint::Health))
}

impl Endpoint {
    /// Returns whether the endpoint is open to all clients, without a line in the log.
    pub(crate) fn is_open(self) -> bool {
        self == Self::Health
    }

    /// Returns the refusal for a client that may not see the endpoint; `None` if it may.
    ///
    /// If the rules name users, the client must be one of them. Otherwise clients are not
    /// distinguished, and only the operator may see the transfers of all.
    fn refusal(self, ctx: &RequestContext<'_>) -> Option<Response> {
        if ctx.settings().access.has_users() {
            return ctx.user.is_none().then(|| ctx.challenge());
        }
        let is_private = matches!(self, Self::Transfers | Self::Cache | Self::Popular)
            && !ctx.is_from_operator();
        is_private.then(|| ctx.error(403, NOT_OPERATOR))
    }

    /// Returns the response of the endpoint.
    pub(crate) fn respond(self, ctx: &RequestContext<'_>, target: &Target<'_>) -> Response {
        if !self.is_open()
            && let Some(refusal) = self.refusal(ctx)
        {
            return refusal;
        }
        let is_head = match ctx.request.method {
            Method::Get => false,
            Method::Head => true,
            _ => {
                let mut response = ctx.error(405, "");
                response.add_field("Allow", "GET, HEAD");
                return response;
            }
        };
        if self == Self::Health && ctx.site().root.is_removed() {
            return ctx.error(503, "the served folder was removed: restart the server");
        }
        let (media_type, body) = self.content(ctx, target);
        let mut response = Response::memory(200, media_type, body.into_bytes(), is_head);
        response.add_field("Cache-Control", "no-store");
        if media_type.starts_with("text/html") {
            response.add_field("Content-Security-Policy", CONTENT_SECURITY_POLICY);
        }
        response
    }

    /// Returns the text that the endpoint shows this client, and its media type.
    fn content(self, ctx: &RequestContext<'_>, target: &Target<'_>) -> (&'static str, String) {
        let shared = ctx.shared();
        let is_json = target.query.has("json") || wants_json(&ctx.request);
        match self {
            Self::Health => ("application/json", "{\"status\":\"OK\"}\n".to_owned()),
            Self::Metrics => {
                let sites = ctx.worker.published.get();
                let caches = sites.all.iter().filter_map(|site| {
                    let name = site.counts.as_ref().map(|counts| counts.name());
                    Some((name, site.settings.cache.as_ref()?.counters()))
                });
                let caches = operate::metrics(&caches.collect::<Vec<_>>());
                let sites: Vec<_> =
                    sites.all.iter().filter_map(|site| site.counts.clone()).collect();
                let tls = shared.settings.tls.as_ref().map(certificates).unwrap_or_default();
                let text = shared.metrics.render(shared.transfers.len(), &sites);
                (MEDIA_TYPE, text + &tls + &caches)
            }
            Self::Transfers => {
                let of_site = ctx.site().counts.as_ref().map(|counts| counts.name());
                let may_see = |facts: &TransferFacts| {
                    facts.site.as_ref().map(|counts| counts.name()) == of_site
                        && may_see(ctx, &facts.target)
                };
                if is_json {
                    ("application/json", shared.transfers.json(may_see))
                } else {
                    ("text/html; charset=utf-8", shared.transfers.page(may_see))
                }
            }
            Self::Cache | Self::Popular => match &ctx.settings().cache {
                Some(cache) => self.of_cache(ctx, target, cache, is_json),
                None => (PLAIN_TEXT, String::new()),
            },
        }
    }

    /// Returns the text that an endpoint of a cache shows this client.
    fn of_cache(
        self,
        ctx: &RequestContext<'_>,
        target: &Target<'_>,
        cache: &Cache,
        is_json: bool,
    ) -> (&'static str, String) {
        let may_see = |key: &str| {
            Target::parse(key.as_bytes(), b"").is_ok_and(|key| ctx.can(&key.path, Right::Read))
        };
        if self == Self::Popular {
            return (PLAIN_TEXT, operate::popular(cache, target, may_see));
        }
        let (rows, counters) = (operate::rows(cache, may_see), cache.counters());
        if is_json {
            ("application/json", cache_json(&rows))
        } else {
            let page = cache_page(&rows, counters.objects, counters.used_bytes);
            ("text/html; charset=utf-8", page)
        }
    }
}

/// The refusal of an endpoint that names clients and files.
const NOT_OPERATOR: &str =
    "without --auth, only root and the server's user may see this, on the same machine";

/// Returns the metrics of certificates. The default one has no name.
fn certificates(credentials: &Credentials) -> String {
    let mut text =
        "# HELP underpass_certificate_expiry_seconds When a certificate expires, in seconds \
                    since 1970.\n# TYPE underpass_certificate_expiry_seconds gauge\n"
            .to_owned();
    for (name, end) in credentials.identities().expiries() {
        let end = end.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        text += &format!("underpass_certificate_expiry_seconds{{name=\"{name}\"}} {end}\n");
    }
    text
}

/// Returns whether a user may see a transfer, which needs the right to read its file.
fn may_see(ctx: &RequestContext<'_>, target: &[u8]) -> bool {
    let prefix = ctx.settings().path_prefix.as_bytes();
    Target::parse(target, prefix).is_ok_and(|target| ctx.can(&target.path, Right::Read))
}
