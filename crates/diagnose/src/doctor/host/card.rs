//! The route to a host: its network card, and which work that card does.

use std::fs;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::probe::card::{Offload, Offloads};
use crate::probe::route::{HostRoute, route_to};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, socket, sockopt};
use underpass_engine::{errno, socket as streams};

use crate::doctor::error::{DoctorError, Result};
use crate::doctor::finding::Finding;

/// Facts about the network.
#[derive(Clone, Debug)]
pub(crate) struct NetworkInfo {
    /// The route of packets to the host; `None` if no host was named.
    pub(crate) route: Option<std::result::Result<HostRoute, Errno>>,
    /// The offloads of the card; `None` if the route has none.
    pub(crate) card: Option<std::result::Result<Offloads, Errno>>,
    /// The congestion control of new connections, and all that may be used.
    pub(crate) congestion: std::result::Result<(String, String), Errno>,
}

impl NetworkInfo {
    /// Asks the kernel for the route to a host, and the driver of its card for its features.
    pub(crate) fn gather(host: Option<&str>) -> Result<Self> {
        let address = host.map(look_up).transpose()?;
        let route = address.map(route_to);
        let card = match &route {
            Some(Ok(route)) if !route.is_loopback => Some(Offloads::of(&route.interface)),
            _ => None,
        };
        let used = socket(AddressFamily::INET, SocketType::STREAM, None)
            .and_then(|socket| sockopt::tcp_congestion(&socket));
        let all = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
        let all = all.unwrap_or_default().trim().to_owned();
        Ok(Self { route, card, congestion: used.map(|used| (used, all)) })
    }
}

/// Returns the first address of a host, if its name is resolved in time.
fn look_up(host: &str) -> Result<IpAddr> {
    if let Ok(address) = host.parse() {
        return Ok(address);
    }
    let failed =
        |source| DoctorError::Network { action: "looking up", host: host.to_owned(), source };
    let (sender, receiver) = mpsc::channel();
    let name = host.to_owned();
    // A lookup may take many seconds, and cannot be interrupted.
    let spawned = thread::Builder::new().spawn(move || {
        let found = (name.as_str(), 0).to_socket_addrs().map(|mut all| all.next());
        // The receiver may be gone after its timeout.
        let _ = sender.send(found);
    });
    spawned.map_err(failed)?;
    let first = match receiver.recv_timeout(LOOKUP_TIMEOUT) {
        Ok(found) => found.map_err(failed)?.map(|at| at.ip()).ok_or(Errno::HOSTUNREACH),
        Err(_) => Err(Errno::TIMEDOUT),
    };
    first.map_err(|errno| failed(errno.into()))
}

/// Returns the findings for these facts.
pub(crate) fn findings(info: &NetworkInfo) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(route) = &info.route {
        findings.push(of_route(route));
        findings.extend(route.as_ref().ok().map(of_mtu));
        match (&info.card, route) {
            (Some(Ok(card)), Ok(route)) => {
                let at = route.interface.as_str();
                findings.extend([gathers(card, at), cuts(card, at), encrypts(card, at)]);
            }
            (Some(Err(errno)), Ok(route)) => findings.push(silent(*errno, &route.interface)),
            _ => {}
        }
    }
    findings.push(of_congestion(&info.congestion));
    findings
}

fn of_route(route: &std::result::Result<HostRoute, Errno>) -> Finding {
    match route {
        Ok(route) if route.is_loopback => Finding::best("route")
            .finding(format!("over {}", route.interface))
            .consequence("packets stay on this machine: no network card is involved"),
        Ok(HostRoute { interface, kind, gateway, .. }) => {
            let kind = kind.as_ref().map(|kind| format!(" ({kind})")).unwrap_or_default();
            let by = gateway.map(|gateway| format!(" by {gateway}")).unwrap_or_default();
            let consequence = if kind.is_empty() {
                "the findings below are about this card"
            } else {
                "this is a virtual interface: the findings below are about it, not about the card behind it"
            };
            Finding::best("route")
                .finding(format!("over {interface}{kind}{by}"))
                .consequence(consequence)
        }
        Err(errno @ (Errno::PERM | Errno::NOSYS | Errno::ACCESS | Errno::AFNOSUPPORT)) => {
            Finding::limited("route")
                .finding(format!("asking the kernel is not allowed ({})", errno::name(*errno)))
                .consequence("the card and its features are unknown")
                .remedy("let filters (seccomp) allow socket(2) with AF_NETLINK")
        }
        Err(errno) => Finding::closed("route")
            .finding(format!("no route to the host ({})", errno::name(*errno)))
            .consequence("no connection to it can be made")
            .remedy("see: ip route, ip link"),
    }
}

fn of_mtu(route: &HostRoute) -> Finding {
    let HostRoute { mtu, .. } = route;
    Finding::best("mtu")
        .finding(format!("packets have at most {mtu} bytes"))
        .consequence(format!("1 GiB takes {} packets", (1_u64 << 30).div_ceil(segment(*mtu))))
}

/// Returns how many bytes of a file a packet carries, without the headers of IP and TCP and its
/// timestamps.
fn segment(mtu: u32) -> u64 {
    u64::from(mtu.saturating_sub(52).max(1))
}

/// Returns the finding about scatter-gather, the condition of true zero copy as the Linux Journal
/// puts it.
fn gathers(card: &Offloads, at: &str) -> Finding {
    let checksum = |name: &str| {
        name.starts_with("tx-checksum-") && !name.ends_with("sctp") && !name.ends_with("fcoe-crc")
    };
    let both = [card.get("tx-scatter-gather"), card.best(checksum)];
    let what = both.map(|each| match each {
        Offload::On => "on",
        Offload::Off => "off",
        Offload::Absent => "absent",
    });
    let finding = format!("scatter-gather is {}, packet checksums are {}", what[0], what[1]);
    if both == [Offload::On; 2] {
        return Finding::best("card_gathers").finding(finding).consequence(
            "the card can read the file's pages directly from the page cache (true zero copy)",
        );
    }
    let limited = Finding::limited("card_gathers")
        .finding(finding)
        .consequence("the kernel copies the parts of each packet together for the card");
    if both.contains(&Offload::Absent) {
        limited.remedy("another card, or another driver, is needed for true zero copy")
    } else {
        limited.remedy(format!("as root: ethtool -K {at} sg on tx on"))
    }
}

/// Returns the finding about segmentation: whether the card or the kernel splits data into
/// packets.
fn cuts(card: &Offloads, at: &str) -> Finding {
    let tcp = |name: &str| matches!(name, "tx-tcp-segmentation" | "tx-tcp6-segmentation");
    let (tso, gso) = (card.best(tcp), card.get("tx-generic-segmentation"));
    if tso == Offload::On {
        return Finding::best("card_segmentation")
            .finding("the card splits data into packets (TSO)")
            .consequence("the kernel hands over 64 KiB at a time, or more with BIG TCP");
    }
    let limited = Finding::limited("card_segmentation");
    let limited = match gso {
        Offload::On => limited
            .finding("the kernel splits data into packets as the last step (GSO)")
            .consequence("each packet costs processor time, but only in the last step"),
        _ => limited
            .finding("the kernel splits data into packets")
            .consequence("each packet costs processor time in every step"),
    };
    match (tso, gso) {
        (Offload::Off, _) => limited.remedy(format!("as root: ethtool -K {at} tso on gso on")),
        (_, Offload::Off) => limited.remedy(format!("as root: ethtool -K {at} gso on")),
        _ => limited.remedy("use a card that splits data by itself (TSO)"),
    }
}

/// Returns the finding about encryption by the card.
fn encrypts(card: &Offloads, at: &str) -> Finding {
    match card.get("tls-hw-tx-offload") {
        Offload::On => Finding::best("card_tls")
            .finding("the card encrypts TLS (tls-hw-tx-offload)")
            .consequence(
                "with TLS in the kernel the card reads the file's pages directly even for HTTPS",
            ),
        Offload::Off => Finding::limited("card_tls")
            .finding("the card could encrypt TLS, but this is switched off (tls-hw-tx-offload)")
            .consequence("the processor encrypts")
            .remedy(format!("as root: ethtool -K {at} tls-hw-tx-offload on")),
        Offload::Absent => Finding::unneeded("card_tls")
            .finding("the card does not encrypt TLS (tls-hw-tx-offload)")
            .consequence("the processor encrypts, as on nearly every machine"),
    }
}

/// Returns the finding for a card whose driver does not answer.
fn silent(errno: Errno, at: &str) -> Finding {
    Finding::limited("card_gathers")
        .finding(format!("the driver of {at} does not report it ({})", errno::name(errno)))
        .consequence("it is unknown whether the card reads pages directly")
        .remedy(format!("see: ethtool -k {at}; let filters allow ioctl(2) SIOCETHTOOL"))
}

fn of_congestion(congestion: &std::result::Result<(String, String), Errno>) -> Finding {
    match congestion {
        Ok((used, all)) => {
            let all = if all.is_empty() { String::new() } else { format!(" (of {all})") };
            let consequence = if streams::paces(used) {
                "it paces by a timer, which is slow over loopback: another one is used there"
            } else {
                "it does not pace by a timer, so loopback is not slowed"
            };
            Finding::best("congestion").finding(format!("{used}{all}")).consequence(consequence)
        }
        Err(errno) => Finding::unneeded("congestion")
            .finding(format!("it cannot be read ({})", errno::name(*errno)))
            .consequence("the system's default is used"),
    }
}

/// The maximum duration of a name lookup.
const LOOKUP_TIMEOUT: Duration = Duration::from_millis(1_200);

#[cfg(test)]
#[path = "card_tests.rs"]
mod tests;
