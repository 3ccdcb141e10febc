//! The route of packets to a host, queried by rtnetlink(7).

use std::net::IpAddr;

use rustix::io::Errno;
use underpass_sys::{Netlink, leading_u32};

/// The route of packets to a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRoute {
    /// The name of the interface, such as `eth0`.
    pub interface: String,
    /// The kind of an interface without a card of its own: `veth`, `bridge`, `wireguard`.
    pub kind: Option<String>,
    /// Whether the packets stay on this machine.
    pub is_loopback: bool,
    /// The gateway that forwards them; `None` if the host is on the same network.
    pub gateway: Option<IpAddr>,
    /// The largest packet in bytes: of the route if it has a smaller limit than the interface.
    pub mtu: u32,
}

/// Returns the route to a host. No packet is sent.
///
/// # Errors
///
/// `ENETUNREACH` and the like if there is none; as socket(2) for `AF_NETLINK`, which filters of
/// system calls may refuse.
pub(crate) fn route_to(host: IpAddr) -> Result<HostRoute, Errno> {
    let netlink = Netlink::open(None)?;
    let host = host.to_canonical();
    let answer = netlink.query(RTM_GETROUTE, &route_request(host), MAX_ANSWER)?;
    let route = answer.get(ROUTE_HEAD..).ok_or(Errno::BADMSG)?;
    let index = find(route, RTA_OIF).and_then(leading_u32).ok_or(Errno::BADMSG)?;
    let is_local = answer.get(ROUTE_TYPE_AT) == Some(&RTN_LOCAL);
    let gateway = find(route, RTA_GATEWAY).and_then(address);
    let of_route = find(route, RTA_METRICS).and_then(|metrics| find(metrics, RTAX_MTU));

    let answer = netlink.query(RTM_GETLINK, &link_request(index), MAX_ANSWER)?;
    let link = answer.get(LINK_HEAD..).ok_or(Errno::BADMSG)?;
    let interface = find(link, IFLA_IFNAME).map(text).ok_or(Errno::BADMSG)?;
    let mtu = find(link, IFLA_MTU).and_then(leading_u32).ok_or(Errno::BADMSG)?;
    let link_flags = answer.get(LINK_FLAGS_AT..).and_then(leading_u32).unwrap_or(0);
    let kind = find(link, IFLA_LINKINFO).and_then(|info| find(info, IFLA_INFO_KIND)).map(text);
    let mtu =
        of_route.and_then(leading_u32).filter(|&of_route| of_route > 0).unwrap_or(mtu).min(mtu);
    let is_loopback = is_local || link_flags & IFF_LOOPBACK != 0;
    Ok(HostRoute { interface, kind, is_loopback, gateway, mtu })
}

/// Returns an `rtmsg` with the host as its one attribute.
fn route_request(host: IpAddr) -> Vec<u8> {
    let (family, bytes) = match host {
        IpAddr::V4(host) => (libc::AF_INET, host.octets().to_vec()),
        IpAddr::V6(host) => (libc::AF_INET6, host.octets().to_vec()),
    };
    let mut request = vec![family as u8, 8 * bytes.len() as u8];
    request.resize(ROUTE_HEAD, 0);
    request.extend((4 + bytes.len() as u16).to_ne_bytes());
    request.extend(RTA_DST.to_ne_bytes());
    request.extend(bytes);
    request
}

/// Returns an `ifinfomsg` with the number of the interface.
fn link_request(index: u32) -> Vec<u8> {
    let mut request = vec![0; LINK_HEAD];
    request[4..8].copy_from_slice(&index.to_ne_bytes());
    request
}

/// Returns the value of an attribute (`rtattr`) in a sequence of them.
fn find(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let len = usize::from(u16::from_ne_bytes(attributes.get(..2)?.try_into().ok()?));
        let kind = u16::from_ne_bytes(attributes.get(2..4)?.try_into().ok()?);
        let value = attributes.get(4..len)?;
        if kind & ATTRIBUTE == wanted {
            return Some(value);
        }
        attributes = attributes.get(len.next_multiple_of(4)..)?;
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

fn text(bytes: &[u8]) -> String {
    let bytes = bytes.split(|&byte| byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(bytes).into_owned()
}

/// Room for the whole answer about an interface.
const MAX_ANSWER: usize = 32 << 10;

/// The type of an attribute, without its flags (`NLA_TYPE_MASK`).
const ATTRIBUTE: u16 = 0x3fff;

// From linux/rtnetlink.h.
const RTM_GETLINK: u16 = 18;
const RTM_GETROUTE: u16 = 26;
const ROUTE_HEAD: usize = 12;
const ROUTE_TYPE_AT: usize = 7;
const RTN_LOCAL: u8 = 2;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_METRICS: u16 = 8;
const RTAX_MTU: u16 = 2;

// From linux/if_link.h and linux/if.h.
const LINK_HEAD: usize = 16;
const LINK_FLAGS_AT: usize = 8;
const IFF_LOOPBACK: u32 = 8;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_reached_over_loopback() {
        for host in ["127.0.0.1", "::ffff:127.0.0.1"] {
            let route = route_to(host.parse().unwrap()).unwrap();
            assert_eq!((route.interface.as_str(), route.is_loopback), ("lo", true), "{host}");
            assert_eq!(route.gateway, None);
            let mtu = std::fs::read_to_string("/sys/class/net/lo/mtu").unwrap();
            assert_eq!(mtu.trim(), route.mtu.to_string());
        }
    }

    #[test]
    fn attributes_are_found_wherever_they_stand_and_broken_rows_end() {
        let row = [&[5, 0, 9, 0, 7, 0, 0, 0][..], &[8, 0, 4, 0x80, 1, 2, 3, 4]].concat();
        assert_eq!(find(&row, 9), Some(&[7][..]));
        assert_eq!(find(&row, 4), Some(&[1, 2, 3, 4][..]));
        assert_eq!(find(&row, 1), None);
        for broken in [&[0, 0, 9, 0][..], &[3, 0, 9, 0], &[200, 0, 9, 0, 1], &[8]] {
            assert_eq!(find(broken, 1), None, "{broken:?}");
        }
    }
}
