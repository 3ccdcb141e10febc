//! Which responses a shared cache may store, for how long, and how `Cache-Status` reports it.

use std::time::{Duration, SystemTime};

use underpass_protocol::caching::{
    CacheStatus, Directives, Forward, Freshness, FreshnessRules, NotStored, ResponseTimes, Use,
    has_passed, may_store,
};

use crate::rig::{NOVEMBER, at, with_fields};

/// The date of the responses.
const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

fn fields(lines: &[&str]) -> Vec<(String, String)> {
    let split = |line: &&str| {
        let (name, value) = line.split_once(": ").unwrap();
        (name.to_ascii_lowercase(), value.to_owned())
    };
    lines.iter().map(split).collect()
}

fn freshness(lines: &[&str], rules: FreshnessRules) -> Freshness {
    let lines: Vec<_> =
        lines.iter().copied().chain(["Date: Sun, 06 Nov 1994 08:49:37 GMT"]).collect();
    let times = ResponseTimes { requested: at(NOVEMBER), received: at(NOVEMBER) };
    Freshness::of(&fields(&lines), times, &rules)
}

fn after(seconds: u64) -> SystemTime {
    at(NOVEMBER + seconds)
}

#[test]
fn directives_are_read_as_the_standard_has_it() {
    let none = Directives::default();
    for (lines, expected) in [
        (&[][..], none),
        (&["Cache-Control: max-age=60"], Directives { max_age: Some(60), ..none }),
        (
            &["Cache-Control: MAX-AGE=\"60\", Public"],
            Directives { max_age: Some(60), public: true, ..none },
        ),
        (&["Cache-Control: max-age=60, max-age=5"], Directives { max_age: Some(60), ..none }),
        (&["Cache-Control: max-age=x"], Directives { max_age: Some(0), ..none }),
        (&["Cache-Control: max-age"], Directives { max_age: Some(0), ..none }),
        (&["Cache-Control: max-age=-1"], Directives { max_age: Some(0), ..none }),
        (
            &["Cache-Control: max-age=99999999999999999999"],
            Directives { max_age: Some(1 << 31), ..none },
        ),
        (&["Cache-Control: private=\"a, no-store\""], Directives { private: true, ..none }),
        (&["Cache-Control: x=\"a\\\"b, public\", no-store"], Directives { no_store: true, ..none }),
        // A quote without an end hides nothing.
        (&["Cache-Control: x=\"a, private", "Cache-Control: no-cache, y=\""], {
            Directives { private: true, no_cache: true, ..none }
        }),
        (&["Cache-Control: no-store", "Cache-Control: no-cache"], {
            Directives { no_store: true, no_cache: true, ..none }
        }),
        (&["Cache-Control: proxy-revalidate"], Directives { must_revalidate: true, ..none }),
        (&["Cache-Control: immutable,,"], Directives { immutable: true, ..none }),
        (&["Cache-Control: stale-while-revalidate=5, stale-if-error=6"], {
            let (revalidating, on_error) = (Some(5), Some(6));
            Directives { stale_while_revalidate: revalidating, stale_if_error: on_error, ..none }
        }),
        (&["Cache-Control: no-store", "CDN-Cache-Control: max-age=9"], {
            Directives { max_age: Some(9), is_targeted: true, ..none }
        }),
        (&["Cache-Control: max-age=1", "CDN-Cache-Control: no-store"], {
            Directives { no_store: true, is_targeted: true, ..none }
        }),
        (&["CDN-Cache-Control: private=\"set-cookie\", no-cache=\"x\", max-age=\"9\""], {
            Directives { private: true, no_cache: true, is_targeted: true, ..none }
        }),
        // An invalid or empty field for caches is as none.
        (&["Cache-Control: max-age=1", "CDN-Cache-Control: max-age=\""], {
            Directives { max_age: Some(1), ..none }
        }),
        (&["Cache-Control: max-age=1", "CDN-Cache-Control: "], {
            Directives { max_age: Some(1), ..none }
        }),
    ] {
        assert_eq!(Directives::of(&fields(lines)), expected, "{lines:?}");
    }
}

#[test]
fn responses_for_one_client_are_not_stored() {
    for (lines, expected) in [
        (&[][..], Ok(())),
        (&["Cache-Control: public"], Ok(())),
        (&["Cache-Control: no-store"], Err(NotStored::NoStore)),
        (&["Cache-Control: private"], Err(NotStored::Private)),
        (&["Set-Cookie: a=b"], Err(NotStored::Cookie)),
        (&["Vary: *"], Err(NotStored::Varies)),
        (&["Vary: Accept-Encoding, Cookie"], Err(NotStored::Varies)),
        (&["Vary: Accept-Encoding, origin,", "Vary: Access-Control-Request-Method"], Ok(())),
    ] {
        assert_eq!(may_store(200, &fields(lines), &[]), expected, "{lines:?}");
    }
    let known = ["cookie".to_owned()];
    assert_eq!(may_store(200, &fields(&["Vary: Accept-Encoding, Cookie"]), &known), Ok(()));
}

#[test]
fn must_understand_requires_a_known_status() {
    let no_store = Err(NotStored::NoStore);
    for (status, line, expected) in [
        (200, "Cache-Control: no-store, must-understand", Ok(())),
        (599, "Cache-Control: no-store, must-understand", no_store),
        (599, "Cache-Control: max-age=9, must-understand", no_store),
        (599, "Cache-Control: max-age=9", Ok(())),
        (200, "Cache-Control: no-store", no_store),
    ] {
        assert_eq!(may_store(status, &fields(&[line]), &[]), expected, "{status} {line}");
    }
}

#[test]
fn only_some_statuses_are_fresh_without_saying_so() {
    let modified = "Last-Modified: Sun, 06 Nov 1994 08:47:57 GMT";
    for (status, lines, lifetime) in [
        (404, &[modified][..], 10),
        (403, &[modified], 0),
        (403, &[modified, "Cache-Control: public"], 10),
        (403, &[modified, "Cache-Control: max-age=5"], 5),
    ] {
        let times = ResponseTimes { requested: at(NOVEMBER), received: at(NOVEMBER) };
        let date = format!("Date: {DATE}");
        let lines: Vec<_> = lines.iter().copied().chain([date.as_str()]).collect();
        let rules = FreshnessRules::default();
        let freshness = Freshness::of_status(status, &fields(&lines), times, &rules);
        assert_eq!(freshness.remaining(after(0)), lifetime, "{status} {lines:?}");
    }
}

#[test]
fn lifetimes_come_from_the_first_of_their_sources() {
    let none = FreshnessRules::default();
    let minute = FreshnessRules { fresh: Some(Duration::from_secs(60)), ..none };
    let day = 24 * 60 * 60;
    for (lines, rules, lifetime) in [
        (&["Cache-Control: max-age=10, s-maxage=20"][..], none, 20),
        (&["Cache-Control: max-age=10", "Expires: Sun, 06 Nov 1994 09:49:37 GMT"], none, 10),
        (&["Expires: Sun, 06 Nov 1994 08:50:37 GMT"], none, 60),
        (&["Expires: 0"], minute, 0),
        (&["Expires: Sun, 06 Nov 1994 08:48:37 GMT"], minute, 0),
        (&["Last-Modified: Sun, 06 Nov 1994 08:47:57 GMT"], none, 10),
        (&["Last-Modified: Sun, 06 Nov 1954 08:47:57 GMT"], none, 0),
        (&["Last-Modified: Sun, 06 Nov 1983 08:47:57 GMT"], none, day),
        (&["Last-Modified: Sun, 06 Nov 1994 08:47:57 GMT"], minute, 60),
        (&["Cache-Control: no-cache, max-age=10"], none, 0),
        (&[], none, 0),
        (&[], minute, 60),
        (&["CDN-Cache-Control: max-age=7", "Cache-Control: s-maxage=100"], none, 7),
    ] {
        let freshness = freshness(lines, rules);
        assert_eq!(freshness.remaining(after(0)), lifetime, "{lines:?}");
        let is_fresh = |seconds| freshness.usage(after(seconds)) == Use::Fresh;
        let lifetime = u64::try_from(lifetime).unwrap();
        assert!(!is_fresh(lifetime), "{lines:?}");
        assert!(lifetime == 0 || is_fresh(lifetime - 1), "{lines:?}");
    }
}

#[test]
fn the_age_counts_from_the_origin_on() {
    let of = |lines: &[&str], requested, received| {
        let times = ResponseTimes { requested: after(requested), received: after(received) };
        Freshness::of(&fields(lines), times, &FreshnessRules::default()).age(after(100))
    };
    let date = format!("Date: {DATE}");
    // By the date of the response, by its age with the time it was on the way, or neither.
    assert_eq!(of(&[&date], 40, 50).as_secs(), 100);
    assert_eq!(of(&[&date, "Age: 500"], 40, 50).as_secs(), 560);
    assert_eq!(of(&["Age: x"], 40, 50).as_secs(), 60);
    assert_eq!(of(&["Age: 500, 0"], 40, 50).as_secs(), 560);
    // As much as a cache has to be able to count (RFC 9111 1.2.2).
    assert_eq!(of(&["Age: 18446744073709551615"], 40, 50).as_secs(), (1 << 31) + 60);
    // A clock that was set back: never younger than it was.
    assert_eq!(of(&["Age: 5"], 200, 200).as_secs(), 5);
    let future = ResponseTimes { requested: after(200), received: after(200) };
    let rules = FreshnessRules { fresh: Some(Duration::from_secs(1000)), ..Default::default() };
    let freshness = Freshness::of(&fields(&[]), future, &rules);
    assert_eq!(freshness.usage(after(100)), Use::AfterValidation);
    assert_eq!(freshness.usage(after(199)), Use::Fresh);
    assert!(freshness.is_usable_on_error(after(199)) && !freshness.is_usable_on_error(after(100)));
    let rules = FreshnessRules { stale_if_error: Duration::from_secs(1), ..rules };
    let usable =
        |line| Freshness::of(&fields(&[line]), future, &rules).is_usable_on_error(after(100));
    assert!(usable("X: y") && !usable("Cache-Control: max-age=10, must-revalidate"));
}

#[test]
fn stale_responses_are_used_only_where_that_is_allowed() {
    let rules = FreshnessRules { fresh: None, stale_if_error: Duration::from_secs(100) };
    for (line, while_revalidating, on_error) in [
        ("Cache-Control: max-age=10", false, true),
        ("Cache-Control: max-age=10, stale-while-revalidate=5", true, true),
        ("Cache-Control: max-age=10, stale-while-revalidate=2", false, true),
        ("Cache-Control: max-age=10, stale-if-error=1", false, false),
        ("Cache-Control: max-age=10, stale-while-revalidate=5, must-revalidate", false, false),
        ("Cache-Control: max-age=10, proxy-revalidate", false, false),
        ("Cache-Control: s-maxage=10, stale-while-revalidate=5", false, false),
        ("Cache-Control: no-cache, stale-while-revalidate=50", false, false),
    ] {
        let freshness = freshness(&[line], rules);
        let expected =
            if while_revalidating { Use::WhileRevalidating } else { Use::AfterValidation };
        assert_eq!(freshness.usage(after(13)), expected, "{line}");
        assert_eq!(freshness.is_usable_on_error(after(13)), on_error, "{line}");
    }
}

#[test]
fn cache_status_describes_hits_and_misses() {
    let hit = CacheStatus { ttl: Some(30), ..CacheStatus::default() };
    assert_eq!(hit.to_string(), "underpass; hit; ttl=30");
    assert_eq!(hit.label(), "hit");
    let miss = CacheStatus {
        forward: Some(Forward::UriMiss),
        forward_status: Some(200),
        is_stored: true,
        is_confirmed: false,
        is_relayed: false,
        is_collapsed: true,
        detail: Some("x"),
        ttl: None,
    };
    let text = "underpass; fwd=uri-miss; fwd-status=200; stored; collapsed; detail=x";
    assert_eq!(miss.to_string(), text);
    let changed = CacheStatus { forward: Some(Forward::Stale), ..miss };
    let confirmed = CacheStatus { is_confirmed: true, ..changed };
    assert_eq!([miss, changed, confirmed, hit].map(|it| it.is_new()), [true, true, false, false]);
    let relayed = hit.relayed("no-room");
    assert_eq!(relayed.to_string(), "underpass; fwd=partial; ttl=30; stored=?0; detail=no-room");
    assert_eq!(relayed.label(), "partial");
}

#[test]
fn a_request_that_comes_back_is_recognized() {
    for (line, expected) in [
        ("CDN-Loop: a, Node-1; v=2", true),
        ("CDN-Loop: node-1", true),
        ("CDN-Loop: node-10, a; node-1", false),
        ("Via: node-1", false),
    ] {
        with_fields(&[line], |request| {
            assert_eq!(has_passed(request, "node-1"), expected, "{line}");
        });
    }
}
