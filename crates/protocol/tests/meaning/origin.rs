//! Requests that a browser sends for a page of another site.

use underpass_protocol::request::origin::is_foreign;

use crate::rig::with_fields;

#[test]
fn programs_and_pages_of_this_server_are_accepted_and_no_other_pages() {
    let table: [(&[&str], bool); 18] = [
        (&[], false),
        (&["Origin: http://example.org"], false),
        (&["Origin: http://EXAMPLE.org:80"], false),
        (&["Origin: https://example.org"], false),
        (&["Origin: https://example.org:443"], false),
        (&["Origin: https://example.org:80"], true),
        (&["Origin: http://example.org:8080"], true),
        (&["Origin: http://example.org.evil.net"], true),
        (&["Origin: http://evil.net/example.org"], true),
        (&["Origin: http://example.org/"], true),
        (&["Origin: null"], true),
        (&["Origin: "], true),
        (&["Origin: http://example.org", "Origin: http://evil.net"], true),
        (&["Sec-Fetch-Site: cross-site"], true),
        (&["Sec-Fetch-Site: same-site"], true),
        (&["Sec-Fetch-Site: none"], false),
        // Behind a proxy that changes Host.
        (&["Sec-Fetch-Site: same-origin", "Origin: https://files.example.net"], false),
        (&["Sec-Fetch-Site: same-origin", "Sec-Fetch-Site: cross-site"], true),
    ];
    for (fields, expected) in table {
        let found = with_fields(fields, |request| is_foreign(request, false));
        assert_eq!(found, expected, "{fields:?}");
    }
}

#[test]
fn requests_over_tls_are_refused_from_pages_without_tls() {
    for (fields, expected) in [
        (&["Origin: https://example.org"], false),
        (&["Origin: HTTPS://example.org:443"], false),
        (&["Origin: http://example.org"], true),
        (&["Origin: http://example.org:443"], true),
        (&["Origin: null"], true),
        (&["Sec-Fetch-Site: same-origin"], false),
    ] {
        let found = with_fields(fields, |request| is_foreign(request, true));
        assert_eq!(found, expected, "{fields:?}");
    }
    assert!(!with_fields(&[], |request| is_foreign(request, true)));
}
