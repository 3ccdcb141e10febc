//! What the server tells about itself, under a prefix that no file can have.

use super::answer::Asking;
use super::response::Response;
use super::settings::Settings;
use crate::metrics::MEDIA_TYPE;
use crate::request::{Method, Request};
use crate::target::Target;

/// Something that the server tells about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    /// That it is there.
    Health,
    /// What it has done, for Prometheus.
    Metrics,
    /// What it is doing.
    Transfers,
}

/// The endpoint that a path means, if it is switched on.
pub(super) fn find(settings: &Settings, target: &Target<'_>) -> Option<Endpoint> {
    let name = target.path.strip_prefix(PREFIX)?.strip_prefix(b"/")?;
    let (endpoint, is_on) = match name {
        b"health" => (Endpoint::Health, settings.health),
        b"metrics" => (Endpoint::Metrics, settings.metrics),
        b"transfers" => (Endpoint::Transfers, settings.transfers),
        _ => return None,
    };
    is_on.then_some(endpoint)
}

/// Whether a request asks for the health check.
pub(super) fn is_health(settings: &Settings, request: &Request<'_, '_>) -> bool {
    let target = Target::parse(request.target, settings.path_prefix.as_bytes());
    matches!(request.method, Method::Get | Method::Head)
        && target.is_ok_and(|target| find(settings, &target) == Some(Endpoint::Health))
}

impl Endpoint {
    /// Whether everybody may ask, without a line in the log.
    pub(super) fn is_open(self) -> bool {
        self == Self::Health
    }

    /// What it tells.
    pub(super) fn answer(self, asking: &Asking<'_, '_, '_>, target: &Target<'_>) -> Response {
        let is_head = match asking.request.method {
            Method::Get => false,
            Method::Head => true,
            _ => {
                let mut response = asking.error(405, "");
                response.add_field("Allow", "GET, HEAD");
                return response;
            }
        };
        let shared = &asking.worker.shared;
        let (media_type, body) = match self {
            Self::Health => ("application/json", "{\"status\":\"OK\"}\n".to_owned()),
            Self::Metrics => (MEDIA_TYPE, shared.metrics.render(shared.transfers.len())),
            Self::Transfers => {
                let is_json =
                    target.query.has("json") || crate::negotiate::wants_json(asking.request);
                if is_json {
                    ("application/json", shared.transfers.json())
                } else {
                    ("text/html; charset=utf-8", shared.transfers.page())
                }
            }
        };
        let mut response = Response::memory(200, media_type, body.into_bytes(), is_head);
        response.add_field("Cache-Control", "no-store");
        response
    }
}

/// The first name of every such path.
pub(super) const PREFIX: &[u8] = b".underpass";
