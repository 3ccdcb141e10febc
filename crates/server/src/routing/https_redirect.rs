//! Redirects clients from plain HTTP to HTTPS, if HTTPS is enabled, and answers the challenges of
//! certificate authorities, which are sent over plain HTTP.

use percent_encoding::{AsciiSet, CONTROLS, percent_encode};

use crate::routing::context::RequestContext;
use crate::routing::response::Response;
use crate::server::listen::kind::ListenerKind;
use underpass_protocol::request::{Method, Request, host, split_absolute};

/// Returns whether a request came without TLS to a server with TLS.
pub(crate) fn applies(ctx: &RequestContext<'_>) -> bool {
    match ctx.peer.listener {
        ListenerKind::Redirect { .. } => true,
        ListenerKind::Tls => ctx.peer.session().is_none(),
        ListenerKind::Plain => false,
    }
}

/// Returns the response to a request that came without TLS to a server with TLS.
pub(crate) fn response(ctx: &RequestContext<'_>) -> Option<Response> {
    match ctx.peer.listener {
        ListenerKind::Redirect { port } => Some(redirect(ctx, port)),
        _ => applies(ctx).then(|| misdirected(ctx)),
    }
}

/// Returns the answer to a challenge of a certificate authority (RFC 8555 8.3), if the request is
/// for a pending one. It precedes any file, password or redirect.
pub(crate) fn challenge(ctx: &RequestContext<'_>) -> Option<Response> {
    let token = ctx.request.target.strip_prefix(CHALLENGES)?;
    let identities = ctx.shared().settings.tls.as_ref().filter(|_| ctx.peer.session().is_none())?;
    let is_head = match ctx.request.method {
        Method::Get => false,
        Method::Head => true,
        _ => return None,
    };
    let text = identities.identities().http_answer(str::from_utf8(token).ok()?)?;
    let mut response =
        Response::memory(200, "application/octet-stream", text.into_bytes(), is_head);
    response.add_field("Cache-Control", "no-store");
    Some(response)
}

/// Redirects to the same address over TLS.
fn redirect(ctx: &RequestContext<'_>, port: u16) -> Response {
    let Some(location) = location(&ctx.request, port) else {
        return ctx.error(400, "the request does not name a host").closing();
    };
    // RFC 9110 15.4: after a 301 some clients change the method of their request to GET.
    let status = match ctx.request.method {
        Method::Get | Method::Head => 301,
        _ => 308,
    };
    let mut response = ctx.error(status, "");
    response.add_field("Location", &location);
    response
}

/// Answers plain HTTP on an HTTPS port. The client has already sent its request in the clear, so
/// it gets an error instead of a redirect that would hide this.
fn misdirected(ctx: &RequestContext<'_>) -> Response {
    let port = ctx.peer.local_port();
    let detail = match location(&ctx.request, port) {
        Some(location) => format!("this port speaks HTTPS: use {location}"),
        None => "this port speaks HTTPS, and this is plain HTTP".to_owned(),
    };
    ctx.error(400, &detail).closing()
}

/// Returns the same address over TLS; `None` if the request does not name a host.
///
/// The host is the one that the client requested, and is known to be a plain host name.
fn location(request: &Request<'_, '_>, port: u16) -> Option<String> {
    let host = host(request.authority()?);
    if host.is_empty() {
        return None;
    }
    let path = match split_absolute(request.target) {
        Some((_, path)) => path,
        None if request.target.first() == Some(&b'/') => request.target,
        None => b"",
    };
    let slash = if path.first() == Some(&b'/') { "" } else { "/" };
    let port = if port == HTTPS { String::new() } else { format!(":{port}") };
    let (host, path) = (percent_encode(host, UNFIT), percent_encode(path, UNFIT));
    Some(format!("https://{host}{port}{slash}{path}"))
}

/// The characters that a client should have escaped (RFC 3986 2), besides all bytes beyond ASCII.
const UNFIT: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'<')
    .add(b'>')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// The prefix of the paths that certificate authorities request.
const CHALLENGES: &[u8] = b"/.well-known/acme-challenge/";

/// The default port, which is left out of addresses.
const HTTPS: u16 = 443;

#[cfg(test)]
mod tests {
    use super::*;

    fn location_of(head: &str, port: u16) -> Option<String> {
        let mut storage = [httparse::EMPTY_HEADER; 8];
        let head = format!("{head}\r\n\r\n");
        let (request, _) =
            underpass_protocol::request::parse(head.as_bytes(), &mut storage).unwrap().unwrap();
        location(&request, port)
    }

    #[test]
    fn the_same_host_and_path_are_requested_over_tls() {
        for (head, port, location) in [
            ("GET /a?b=c HTTP/1.1\r\nHost: h", 443, "https://h/a?b=c"),
            ("GET /a HTTP/1.1\r\nHost: h:8080", 443, "https://h/a"),
            ("GET /a HTTP/1.1\r\nHost: h:80", 8443, "https://h:8443/a"),
            ("GET / HTTP/1.1\r\nHost: [::1]:80", 8443, "https://[::1]:8443/"),
            ("GET http://h:80/a?b HTTP/1.1\r\nHost: other", 443, "https://h/a?b"),
            ("GET http://h?b HTTP/1.1\r\nHost: h", 443, "https://h/?b"),
            ("OPTIONS * HTTP/1.1\r\nHost: h", 443, "https://h/"),
            ("GET //evil.example/a HTTP/1.1\r\nHost: h", 443, "https://h//evil.example/a"),
            ("GET /%20\u{e4}|a HTTP/1.1\r\nHost: h", 443, "https://h/%20%C3%A4%7Ca"),
        ] {
            assert_eq!(location_of(head, port).as_deref(), Some(location), "{head}");
        }
    }

    #[test]
    fn no_redirect_without_a_host() {
        for head in ["GET /a HTTP/1.0", "GET /a HTTP/1.1\r\nHost: ", "GET /a HTTP/1.1\r\nHost: :80"]
        {
            assert_eq!(location_of(head, 443), None, "{head}");
        }
    }
}
