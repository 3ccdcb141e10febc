//! A stored response only grows older, and is never used for longer than it states, whatever the
//! origin sends and however the clock is set.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use underpass_protocol::caching::{Freshness, FreshnessRules, ResponseTimes, Use, may_store};

use crate::input::Input;

/// Where the search begins.
pub(crate) const SEEDS: &[&[u8]] = &[
    b"\0\0\0\0\0\0\x03\xe8\0\0\0\0\0\0\x07\xd0\0\0\0\0\0\0\x0f\xa0age: 18446744073709551615",
    b"\0\0\0\0\0\0\x03\xe8\0\0\0\0\0\0\x07\xd0\0\0\0\0\0\0\x0f\xa0cache-control: max-age=60, stale-if-error=9\nage: 5, 6",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xffdate: Sun, 06 Nov 1994 08:49:37 GMT\nexpires: 0",
    b"\0\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xfflast-modified: Sun, 06 Nov 1994 08:49:37 GMT\ncdn-cache-control: max-age=99999999999999999999",
];

/// The times of its request, of its arrival, and now, in milliseconds since 1970; and fields.
pub(crate) fn check(data: &[u8]) {
    let mut input = Input(data);
    let mut time = || UNIX_EPOCH + Duration::from_millis(input.number());
    let (times, now) = (ResponseTimes { requested: time(), received: time() }, time());
    let text = String::from_utf8_lossy(input.0);
    let lines = text.lines().filter_map(|line| line.split_once(": "));
    let fields: Vec<_> =
        lines.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
    let _ = may_store(200, &fields, &[]);
    let rules = FreshnessRules { fresh: None, stale_if_error: Duration::from_secs(9) };
    let freshness = Freshness::of(&fields, times, &rules);
    let later = now + Duration::from_secs(10);
    assert!(freshness.age(now) <= freshness.age(later));
    assert!(freshness.remaining(now) >= freshness.remaining(later));
    check_use(&freshness, now);
    check_use(&freshness, later);
}

fn check_use(freshness: &Freshness, now: SystemTime) {
    match freshness.usage(now) {
        Use::Fresh => {
            assert!(freshness.remaining(now) >= 0);
            assert!(freshness.is_usable_on_error(now));
        }
        Use::WhileRevalidating => assert!(freshness.remaining(now) <= 0),
        Use::AfterValidation => {}
    }
}
