//! Handshakes: each version and suite, and resumption of an earlier session.

use rustls::CipherSuite;

use crate::peer::Peer;
use crate::place::{Place, TlsCounts};
use crate::program::Server;
use crate::{Outcome, Result, pattern, terms};

const SUITES: &[CipherSuite] = &[
    CipherSuite::TLS13_AES_128_GCM_SHA256,
    CipherSuite::TLS13_AES_256_GCM_SHA384,
    CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
];

/// Fetches a small file once with each suite. The metrics report which side encrypted.
pub(super) fn every_suite(place: &Place) -> Result<Outcome> {
    let len = 40_000;
    pattern::file(&place.served().join("small"), len)?;
    let server = Server::start(place, &[])?;
    let counts = TlsCounts::now();
    for suite in SUITES {
        let mut peer = Peer::on(server.port, terms::client(Some(*suite))?)?;
        let fetched = fetch(&mut peer, "/small", len);
        fetched.map_err(|error| format!("{suite:?}: {error}"))?;
    }
    let count = SUITES.len();
    if place.in_kernel() {
        counts.grown("TlsTxSw", count as u64)?;
    }
    // This request makes one more connection, which is included in the count.
    let reason = reasons(&mut Peer::connect(server.port)?, place, count + 1)?;
    server.end()?;
    Ok(Outcome::Ok(format!("{count} suites, {}{reason}", place.wanted.name())))
}

/// Fetches a file and compares it.
fn fetch(peer: &mut Peer, path: &str, len: u64) -> Result<()> {
    peer.get(path, "", 200)?;
    pattern::Arrived::default().read(peer.body(), len)
}

/// Fails unless this number of connections was counted as encrypted on the expected side, all for
/// the same reason, which is returned.
fn reasons(peer: &mut Peer, place: &Place, count: usize) -> Result<String> {
    let page = peer.text("/.underpass/metrics")?;
    let mode = format!("underpass_tls_connections_total{{mode=\"{}\"", place.wanted.receipt());
    let lines: Vec<_> =
        page.lines().filter(|line| line.starts_with("underpass_tls_connections_")).collect();
    let [line] = lines[..] else { return Err(format!("counted as {lines:?}").into()) };
    let reason = line.split("reason=\"").nth(1).and_then(|rest| rest.split('"').next());
    let reason = reason.unwrap_or_default();
    let is_right = line.starts_with(&mode)
        && line.ends_with(&format!(" {count}"))
        && reason.is_empty() == place.in_kernel();
    if !is_right {
        return Err(format!("{count} connections counted as {line}").into());
    }
    Ok(if reason.is_empty() { String::new() } else { format!(" for the reason {reason}") })
}

/// Makes two connections of one client: the second resumes the session of the first.
pub(super) fn resumption(place: &Place) -> Result<Outcome> {
    let len = 40_000;
    pattern::file(&place.served().join("small"), len)?;
    let server = Server::start(place, &[])?;
    let mut seen = Vec::new();
    for suite in [SUITES[0], SUITES[3]] {
        let config = terms::client(Some(suite))?;
        for is_resumed in [false, true] {
            let mut peer = Peer::on(server.port, config.clone())?;
            fetch(&mut peer, "/small", len)?;
            if peer.is_resumed() != is_resumed {
                return Err(format!("{suite:?}: resumed {}", !is_resumed).into());
            }
        }
        seen.push(format!("{suite:?}"));
    }
    server.end()?;
    Ok(Outcome::Ok(seen.join(", ")))
}
