//! The lines that `underpass serve` prints.

use std::net::SocketAddr;
use std::time::Duration;

use indicatif::{BinaryBytes, HumanDuration};
use qrcode::QrCode;
use qrcode::render::unicode::Dense1x2;
use rustix::system::uname;
use underpass_engine::Mechanism;
use underpass_sandbox::Confinement;
use underpass_server::{ServerEvent, ServerSummary};
use underpass_transport::ReachableAddress;

use super::certificate::Certificate;
use crate::failure::plain;
use crate::output::{counted, error_line, note};

/// The facts that are printed when a server starts.
#[derive(Debug)]
pub(crate) struct StartupFacts<'a> {
    /// The folder, the file, the origin, or the number of sites.
    pub(crate) what: &'a str,
    /// The addresses: `127.0.0.1:5000`, `unix:/run/socket`.
    pub(crate) addresses: &'a [String],
    /// The addresses for other devices, the best one first.
    pub(crate) reachable: &'a [ReachableAddress],
    /// Whether the best one is printed as a QR code.
    pub(crate) prints_qr: bool,
    /// The addresses without TLS that redirect there.
    pub(crate) redirects: &'a [String],
    /// The certificate, if there is TLS.
    pub(crate) certificate: Option<&'a Certificate>,
    /// The URL path of the served folder or file: `/`, `/files/` or `/film.mkv`.
    pub(crate) url_path: &'a str,
    /// Whether no client needs a password.
    pub(crate) is_open: bool,
    /// Whether every client may change files.
    pub(crate) allows_anonymous_writes: bool,
    /// The confinement in effect.
    pub(crate) confinement: &'a Confinement,
    /// Whether an integrity level needs to know what local peers have read, and the kernel refuses
    /// to tell.
    pub(crate) misses_local_readers: bool,
    /// Whether only the addresses are printed.
    pub(crate) quiet: bool,
}

/// Prints the addresses of a server, even with `--quiet`: the port may be unknown otherwise.
/// Without `--quiet`, also how to open it to the network, and what confines it.
pub(crate) fn started(served: &StartupFacts<'_>) {
    let what = served.what;
    let scheme = if served.certificate.is_some() { "https" } else { "http" };
    for address in served.addresses {
        let at = served_at(scheme, address, served.url_path);
        error_line(&format!("serving {what} at {at}"));
    }
    reachable(scheme, served);
    for address in served.redirects {
        error_line(&format!("redirecting http://{address}/ to it"));
    }
    if let Some(made) = served.certificate.and_then(Certificate::made) {
        // Printed even if quiet: clients cannot learn them otherwise.
        error_line(&format!("the certificate is self-signed; SHA-256 {}", made.fingerprint));
        let address =
            served.addresses.iter().find_map(|address| url(scheme, address, served.url_path));
        let (pin, url) = (made.pin, address.unwrap_or_default());
        error_line(&format!("clients can verify its key: underpass get --pin {pin} {url}"));
        error_line(&format!("                            curl -k --pinnedpubkey {pin} {url}"));
    }
    if let Some(warning) = served.certificate.and_then(Certificate::warning) {
        note(warning);
    }
    let is_local = served.addresses.iter().all(|address| is_local(address));
    if served.allows_anonymous_writes && !is_local {
        note(
            "WARNING: anyone on the network may change files here without a password; \
             --auth user:password@/:rw asks for one",
        );
    }
    if served.quiet {
        return;
    }
    if is_local {
        let password =
            if served.is_open { "; --auth user:password@/ requires a password" } else { "" };
        error_line(&format!(
            "only this machine can reach it: --bind 0.0.0.0 opens it to the network{password}"
        ));
    }
    error_line(&served.confinement.to_string());
    for warning in served.confinement.warnings() {
        note(warning);
    }
    if served.misses_local_readers {
        note(
            "this process may not open netlink sockets: a proxy or another reader on this machine \
             may receive old and new bytes of a file that changes while it reads (add AF_NETLINK \
             to RestrictAddressFamilies= of the unit)",
        );
    }
}

/// Prints the addresses for other devices.
fn reachable(scheme: &str, served: &StartupFacts<'_>) {
    let url = |each: &ReachableAddress| format!("{scheme}://{}{}", each.address, served.url_path);
    for each in served.reachable {
        error_line(&format!("on other devices: {} ({})", url(each), each.interface));
    }
    let Some(best) = served.reachable.first().filter(|_| served.prints_qr) else { return };
    // An address is much shorter than what fits into one.
    if let Ok(code) = QrCode::new(url(best)) {
        let mut blocks = code.render::<Dense1x2>();
        // Most terminals are dark, so the light parts are drawn.
        let blocks = blocks.dark_color(Dense1x2::Light).light_color(Dense1x2::Dark).build();
        blocks.lines().for_each(error_line);
    }
}

/// Prints an event of a running server.
pub(crate) fn event(event: &ServerEvent, is_quiet: bool) {
    match event {
        // The summary, which follows, has the transfers that were cut off.
        ServerEvent::Drained { .. } | ServerEvent::Draining { open: 0 } => {}
        ServerEvent::Draining { open } => note(&format!(
            "{open} {} still running; new connections are refused, and a second signal stops at once",
            if *open == 1 { "transfer is" } else { "transfers are" }
        )),
        ServerEvent::AcceptFailed(error) => {
            note(&format!("accepting a connection: {}", plain(error)))
        }
        ServerEvent::Filled { .. } if is_quiet => {}
        ServerEvent::Filled { target, origin, report, elapsed, is_relay, failure } => {
            let did = if *is_relay { "relayed" } else { "filled" };
            let amount = BinaryBytes(report.bytes());
            let by = report.main_mechanism().map_or("nothing", Mechanism::name);
            let seconds = elapsed.as_secs_f64();
            let end = match failure {
                Some(failure) => format!("; failed: {failure}"),
                None => String::new(),
            };
            error_line(&format!(
                "{did} {target}: {amount} from {origin} by {by} in {seconds:.3} s, \
                 {} bytes in user space{end}",
                report.user_space_bytes()
            ));
        }
        ServerEvent::CacheRemoved { folder, is_usable: true } => {
            let folder = folder.display();
            note(&format!("the contents of {folder} were removed: the cache starts empty"))
        }
        ServerEvent::CacheRemoved { folder, is_usable: false } => note(&format!(
            "{} was removed: nothing is stored until this server is restarted",
            folder.display()
        )),
        ServerEvent::CannotStore { folder, error } => note(&format!(
            "{}: {error}: nothing new is stored until this is fixed",
            folder.display()
        )),
        ServerEvent::Failed { target, reason } => note(&format!("{target}: {reason}")),
        ServerEvent::OriginFailed { target, origin, reason } => {
            note(&format!("{target} from {origin}: {reason}"))
        }
        // Every event for people has a message above.
        _ => {}
    }
}

/// Prints the summary of a server.
pub(crate) fn ended(summary: &ServerSummary, time: Duration) {
    let requests = counted(summary.requests, "request", "requests");
    let bytes = BinaryBytes(summary.bytes);
    let cut_off = match summary.cut_off {
        0 => String::new(),
        1 => "; 1 transfer was cut off".to_owned(),
        left => format!("; {left} transfers were cut off"),
    };
    let time = HumanDuration(time);
    error_line(&format!("served {requests}, {bytes} in {time}{cut_off}"));
}

/// Formats where the server listens: `http://127.0.0.1:5000/files/`, or the path of a socket.
fn served_at(scheme: &str, address: &str, path: &str) -> String {
    let (Ok(at), Some(url)) = (address.parse::<SocketAddr>(), url(scheme, address, path)) else {
        return address.to_owned();
    };
    if !at.ip().is_unspecified() {
        return url;
    }
    format!("{scheme}://{at}{path} (every address, such as {url})")
}

/// Returns an address that can be typed at a client; `None` for a socket in the file system.
fn url(scheme: &str, address: &str, path: &str) -> Option<String> {
    let at = address.parse::<SocketAddr>().ok()?;
    if !at.ip().is_unspecified() {
        return Some(format!("{scheme}://{at}{path}"));
    }
    let host = uname().nodename().to_string_lossy().into_owned();
    Some(format!("{scheme}://{host}:{}{path}", at.port()))
}

/// Returns whether the address can be reached only from this machine.
fn is_local(address: &str) -> bool {
    address.parse::<SocketAddr>().map_or(true, |at| at.ip().is_loopback())
}
