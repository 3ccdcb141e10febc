use super::*;
use crate::doctor::finding::text;

fn route() -> HostRoute {
    HostRoute {
        interface: "eth0".to_owned(),
        kind: None,
        is_loopback: false,
        gateway: Some([192, 0, 2, 1].into()),
        mtu: 1500,
    }
}

fn card(features: &[(&str, Offload)]) -> Offloads {
    Offloads::new(features.iter().map(|&(name, offload)| (name.to_owned(), offload)).collect())
}

fn rendered(info: &NetworkInfo) -> String {
    text(&findings(info))
}

#[test]
fn findings_about_cards_match_the_snapshots() {
    use Offload::{Absent, Off, On};
    let features = |gather, checksum, tso, gso, tls| {
        card(&[
            ("tx-scatter-gather", gather),
            ("tx-checksum-ip-generic", checksum),
            ("tx-checksum-sctp", On),
            ("tx-tcp-segmentation", tso),
            ("tx-generic-segmentation", gso),
            ("tls-hw-tx-offload", tls),
        ])
    };
    let congestion = Ok(("cubic".to_owned(), "reno cubic".to_owned()));
    let mut all = String::new();
    for card in [
        Ok(features(On, On, On, On, On)),
        Ok(features(Off, Off, Off, On, Off)),
        Ok(features(On, Absent, Absent, Off, Absent)),
        Err(Errno::OPNOTSUPP),
    ] {
        let info = NetworkInfo {
            route: Some(Ok(route())),
            card: Some(card),
            congestion: congestion.clone(),
        };
        all += &rendered(&info);
    }
    assert_eq!(all, include_str!("../snapshots/cards.txt"));
}

#[test]
fn routes_without_a_card_match_the_snapshots() {
    let loopback =
        HostRoute { interface: "lo".to_owned(), is_loopback: true, mtu: 65536, ..route() };
    let tunnel = HostRoute { kind: Some("wireguard".to_owned()), gateway: None, ..route() };
    let bbr = Ok(("bbr".to_owned(), String::new()));
    let mut all = String::new();
    for (route, congestion) in [
        (Some(Ok(loopback)), bbr),
        (Some(Ok(tunnel)), Err(Errno::PERM)),
        (Some(Err(Errno::NETUNREACH)), Err(Errno::PERM)),
        (Some(Err(Errno::PERM)), Err(Errno::PERM)),
        (None, Ok(("cubic".to_owned(), String::new()))),
    ] {
        all += &rendered(&NetworkInfo { route, card: None, congestion });
    }
    assert_eq!(all, include_str!("../snapshots/routes.txt"));
}

#[test]
fn names_are_looked_up_and_numbers_are_not() {
    assert!(look_up("192.0.2.9").is_ok_and(|address| address.is_ipv4()));
    assert!(look_up("localhost").is_ok_and(|address| address.is_loopback()));
    let unknown = look_up("no-such-host.invalid");
    assert!(
        matches!(unknown, Err(DoctorError::Network { action: "looking up", .. })),
        "{unknown:?}"
    );
}
