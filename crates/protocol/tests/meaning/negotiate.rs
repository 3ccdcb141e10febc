use underpass_protocol::request::negotiate::{Coding, acceptable, prefers, wants_html, wants_json};

use crate::rig::with_fields;

#[test]
fn codings_are_offered_in_the_order_that_the_client_likes() {
    use Coding::{Br, Gzip, Zstd};
    for (fields, expected) in [
        (&[][..], &[][..]),
        (&["Accept-Encoding:"], &[]),
        (&["Accept-Encoding: gzip, deflate, br, zstd"], &[Br, Zstd, Gzip]), // browsers
        (&["Accept-Encoding: gzip", "Accept-Encoding: br"], &[Br, Gzip]),
        (&["Accept-Encoding: GZIP"], &[Gzip]),
        (&["Accept-Encoding: x-gzip"], &[Gzip]),
        (&["Accept-Encoding: br;q=0.1, gzip;q=0.2"], &[Gzip, Br]),
        (&["Accept-Encoding: br ; q=0.123 , gzip; Q=0.12"], &[Br, Gzip]),
        (&["Accept-Encoding: br;q=0, gzip;q=0.000"], &[]),
        (&["Accept-Encoding: *"], &[Br, Zstd, Gzip]),
        (&["Accept-Encoding: *;q=0"], &[]),
        (&["Accept-Encoding: br;q=0, *"], &[Zstd, Gzip]),
        (&["Accept-Encoding: *;q=0, gzip"], &[Gzip]),
        (&["Accept-Encoding: identity"], &[]),
        (&["Accept-Encoding: identity, gzip;q=0.5"], &[]),
        (&["Accept-Encoding: identity;q=0.5, gzip;q=0.4, br"], &[Br]),
        (&["Accept-Encoding: identity;q=0, gzip;q=0.4"], &[Gzip]),
        (&["Accept-Encoding: gzip;q=2, br;q=x, zstd;q=0.1234"], &[]), // no weights
        (&["Accept-Encoding: gzip;q=1.001, br;q=1.5, zstd;q=1.000"], &[Zstd]),
        (&["Accept-Encoding: gzipped"], &[]),
    ] {
        let found: Vec<Coding> = with_fields(fields, |request| acceptable(request).collect());
        assert_eq!(found, expected, "{fields:?}");
    }
}

#[test]
fn json_is_sent_to_clients_that_prefer_it_to_html() {
    for (accept, expected) in [
        ("application/json", true),
        ("Application/JSON; charset=utf-8", true),
        ("application/json, text/plain, */*", true), // axios
        ("application/json, text/html", true),
        ("text/html, application/json", false),
        ("text/html;q=0.9, application/json", true),
        ("application/json;q=0.9, text/html", false),
        ("application/json;q=0.9, */*", false),
        ("application/json;q=0", false),
        ("*/*", false),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", false), // browsers
        ("", false),
    ] {
        let field = format!("Accept: {accept}");
        assert_eq!(with_fields(&[&field], wants_json), expected, "{accept}");
    }
    assert!(!with_fields(&[], wants_json));
    assert!(with_fields(&["Accept: application/x-ndjson"], |request| {
        prefers(request, "application/x-ndjson")
    }));
}

#[test]
fn listings_are_pages_only_for_clients_that_name_html() {
    for (accept, expected) in [
        ("text/html,application/xhtml+xml,*/*;q=0.8", true),
        ("*/*", false),
        ("text/html;q=0", false),
        ("text/plain", false),
    ] {
        let field = format!("Accept: {accept}");
        assert_eq!(with_fields(&[&field], wants_html), expected, "{accept}");
    }
}

#[test]
fn a_coding_has_one_name_on_the_wire_and_one_on_disk() {
    let names = Coding::ALL.map(|coding| (coding.token(), coding.extension()));
    assert_eq!(names, [("br", ".br"), ("zstd", ".zst"), ("gzip", ".gz")]);
}
