use std::net::{IpAddr, SocketAddr};

use underpass_protocol::request::forwarded::{Contradiction, Forwarded, forwarded};

use crate::rig::with_fields;

/// What is read where 10.0.0.0/8 and loopback are trusted.
fn read(fields: &[&str]) -> Result<Forwarded, Contradiction> {
    let is_trusted = |address: IpAddr| match address {
        IpAddr::V4(address) => address.octets()[0] == 10 || address.is_loopback(),
        IpAddr::V6(address) => address.is_loopback(),
    };
    with_fields(fields, |request| forwarded(request, is_trusted))
}

fn client(fields: &[&str]) -> Option<SocketAddr> {
    read(fields).unwrap().client
}

/// An address with a port.
fn at(text: &str) -> Option<SocketAddr> {
    Some(text.parse().unwrap())
}

#[test]
fn the_last_address_that_is_not_trusted_is_the_client() {
    for (fields, expected) in [
        (&[][..], None),
        (&["X-Forwarded-For: 192.0.2.1"], at("192.0.2.1:0")),
        (&["X-Forwarded-For: 198.51.100.9, 192.0.2.1"], at("192.0.2.1:0")),
        (&["X-Forwarded-For: 198.51.100.9, 192.0.2.1, 10.0.0.1,10.0.0.2"], at("192.0.2.1:0")),
        (&["X-Forwarded-For: 198.51.100.9", "X-Forwarded-For: 192.0.2.1"], at("192.0.2.1:0")),
        (&["X-Forwarded-For: 10.0.0.3, 10.0.0.1"], at("10.0.0.3:0")),
        (&["X-Forwarded-For: 192.0.2.1:99"], at("192.0.2.1:99")),
        (&["X-Forwarded-For: 2001:db8::1"], at("[2001:db8::1]:0")),
        (&["X-Forwarded-For: [2001:db8::1]:99"], at("[2001:db8::1]:99")),
        (&["X-Forwarded-For: ::ffff:192.0.2.1"], at("192.0.2.1:0")),
        // At what is not an address, the proxy before it counts.
        (&["X-Forwarded-For: unknown"], None),
        (&["X-Forwarded-For: 192.0.2.1, unknown"], None),
        (&["X-Forwarded-For: 192.0.2.1, garbage, 10.0.0.1"], at("10.0.0.1:0")),
        (&["X-Forwarded-For:"], None),
        (&["Forwarded: for=192.0.2.1"], at("192.0.2.1:0")),
        (&["Forwarded: for=198.51.100.9, For=\"192.0.2.1:80\";proto=http"], at("192.0.2.1:80")),
        (&["Forwarded: for=192.0.2.1;by=10.0.0.9, for=10.0.0.1"], at("192.0.2.1:0")),
        (&["Forwarded: by=10.0.0.9; FOR=\"[2001:db8::1]:4711\""], at("[2001:db8::1]:4711")),
        (&["Forwarded: for=\"[2001:db8::1]:_port\""], at("[2001:db8::1]:0")),
        (&["Forwarded: for=\"192.0.2.\\1\""], at("192.0.2.1:0")),
        (&["Forwarded: for=\"a,b;for=192.0.2.9\", for=192.0.2.1"], at("192.0.2.1:0")),
        (&["Forwarded: for=_hidden"], None),
        (&["Forwarded: for=192.0.2.1, for=unknown, for=10.0.0.1"], at("10.0.0.1:0")),
        (&["Forwarded: by=10.0.0.1"], None),
        (&["Forwarded: host=a;proto=https", "X-Forwarded-For: 192.0.2.1"], at("192.0.2.1:0")),
        (&["Forwarded: for=\"192.0.2.1"], None),
        // A client has opened a quote that it does not close.
        (&["Forwarded: for=\"198.51.100.9, for=192.0.2.1"], at("192.0.2.1:0")),
        (&["Forwarded: for=\"198.51.100.9, for=\"192.0.2.1:80\""], at("192.0.2.1:80")),
        (&["Forwarded: for=\"\\, for=\"192.0.2.1\\\\\", for=10.0.0.1"], at("10.0.0.1:0")),
        (&["Forwarded: for=\"192.0.2.9, \\\"\", for=\"192.0.2.1\""], at("192.0.2.1:0")),
    ] {
        assert_eq!(client(fields), expected, "{fields:?}");
    }
}

#[test]
fn the_scheme_is_that_of_the_proxy_that_met_the_client() {
    for (fields, expected) in [
        (&["X-Forwarded-For: 192.0.2.1", "X-Forwarded-Proto: https"][..], Some(true)),
        (&["X-Forwarded-Proto: HTTPS"], Some(true)),
        (&["X-Forwarded-Proto: https, http"], Some(false)),
        (&["X-Forwarded-Proto: gopher"], None),
        (&["X-Forwarded-For: 192.0.2.1"], None),
        (&["Forwarded: for=192.0.2.1;proto=https"], Some(true)),
        (&["Forwarded: proto=http;for=192.0.2.1;, for=10.0.0.1;proto=https"], Some(false)),
        (&["Forwarded: for=192.0.2.1;proto=\"https\""], Some(true)),
        (&["Forwarded: for=192.0.2.1", "X-Forwarded-Proto: https"], None),
        (&["Forwarded: proto=http", "X-Forwarded-Proto: https"], Some(true)),
    ] {
        assert_eq!(read(fields).unwrap().is_https, expected, "{fields:?}");
    }
}

#[test]
fn fields_that_name_different_clients_are_refused() {
    let both = |one: &str, other: &str| {
        read(&[&format!("Forwarded: for={one}"), &format!("X-Forwarded-For: {other}")])
    };
    assert_eq!(both("192.0.2.1", "192.0.2.2"), Err(Contradiction));
    assert_eq!(both("_hidden", "192.0.2.2"), Err(Contradiction));
    assert_eq!(both("192.0.2.1", "unknown"), Err(Contradiction));
    assert_eq!(both("\"192.0.2.1:80\"", "192.0.2.1").unwrap().client, at("192.0.2.1:80"));
}
