//! The lists of transfers are correct and safe to show.

use serde_json::Value;

use crate::transfers::*;

fn facts(target: &str, expected: u64, started: Instant) -> TransferFacts {
    TransferFacts {
        peer: "192.0.2.7:50000".into(),
        site: None,
        user: Some("alice".into()),
        verb: "GET".into(),
        target: target.into(),
        status: 206,
        expected,
        started,
    }
}

/// Returns the time this many seconds ago.
fn ago(seconds: u64) -> Instant {
    Instant::now().checked_sub(Duration::from_secs(seconds)).unwrap()
}

fn json(transfers: &Transfers) -> Vec<Value> {
    serde_json::from_str(&transfers.json(|_| true)).unwrap()
}

#[test]
fn transfer_is_listed_from_registration_until_its_handle_is_dropped() {
    let transfers = Transfers::default();
    assert!(transfers.is_empty() && transfers.json(|_| true) == "[]");
    let first = transfers.register(facts("/a", 10, Instant::now()));
    let second = transfers.clone().register(facts("/b", 10, Instant::now()));
    assert_eq!(transfers.len(), 2);
    drop(first);
    let left = json(&transfers);
    assert_eq!((left.len(), &left[0]["target"], &left[0]["id"]), (1, &"/b".into(), &1.into()));
    drop(second);
    assert!(transfers.is_empty());
    let _third = transfers.register(facts("/c", 10, Instant::now()));
    assert_eq!(json(&transfers)[0]["id"], 2, "numbers are not used again");
}

#[test]
fn bidirectional_controls_of_a_target_are_escaped() {
    let transfers = Transfers::default();
    let target = "/\u{202e}gpj.exe\u{61c}";
    let _handle = transfers.register(facts(target, 10, Instant::now()));
    assert!(transfers.json(|_| true).is_ascii());
    assert_eq!(json(&transfers)[0]["target"], target);
    let page = page::path(b"/%e2%80%aegpj.exe%1b[2J");
    assert_eq!(page, "/\u{fffd}gpj.exe\u{fffd}[2J");
}

#[test]
fn json_tells_everything_about_a_transfer() {
    let transfers = Transfers::default();
    let handle = transfers.register(facts("/a?b", 3_000_000, ago(2)));
    handle.progress(1_000_000, Some(Mechanism::Sendfile));
    let mut entry = json(&transfers).remove(0);
    let object = entry.as_object_mut().unwrap();
    let elapsed = object.remove("elapsed_s").unwrap().as_f64().unwrap();
    let rate = object.remove("rate_bytes_per_s").unwrap().as_u64().unwrap();
    let remaining = object.remove("remaining_s").unwrap().as_u64().unwrap();
    assert!((2.0..30.0).contains(&elapsed), "{elapsed}");
    assert!((30_000..=500_000).contains(&rate), "{rate}");
    assert_eq!(remaining, 2_000_000_u64.div_ceil(rate));
    let expected = serde_json::json!({
        "id": 0, "peer": "192.0.2.7:50000", "user": "alice", "method": "GET", "target": "/a?b",
        "status": 206, "bytes": 1_000_000, "expected": 3_000_000, "mechanism": "sendfile",
    });
    assert_eq!(entry, expected);
}

#[test]
fn mechanisms_are_shown_by_name() {
    let transfers = Transfers::default();
    let handle = transfers.register(facts("/", 10, Instant::now()));
    assert_eq!(json(&transfers)[0]["mechanism"], "memory");
    for mechanism in Mechanism::ALL {
        handle.progress(1, Some(mechanism));
        assert_eq!(json(&transfers)[0]["mechanism"], mechanism.name());
    }
    handle.progress(2, None);
    assert_eq!(json(&transfers)[0]["mechanism"], "memory");
}

#[test]
fn rate_follows_the_last_seconds() {
    let progress = TransferState::default();
    let at = |milliseconds| Duration::from_millis(milliseconds);
    progress.set(500, None, at(500));
    assert_eq!(progress.rate(at(500)), 1000, "from the start, before there is a measure");
    for second in 1..=10 {
        progress.set(second * 1000, None, at(second * 1000));
        assert_eq!(progress.rate(at(second * 1000 + 10)), 1000);
    }
    for second in 11..=20 {
        progress.set(10_000 + (second - 10) * 9000, None, at(second * 1000));
    }
    assert!((8_900..=9_000).contains(&progress.rate(at(20_010))), "{}", progress.rate(at(20_010)));
}

#[test]
fn rate_of_a_stalled_transfer_falls_to_zero() {
    let progress = TransferState::default();
    progress.set(1_000_000, None, Duration::from_secs(1));
    assert_eq!(progress.rate(Duration::from_secs(1)), 1_000_000);
    assert_eq!(progress.rate(Duration::from_secs(4)), 0);
    progress.set(1_000_300, None, Duration::from_secs(61));
    assert_eq!(progress.rate(Duration::from_secs(61)), 5, "the stall counts");
}

#[test]
fn progress_that_goes_backwards_is_harmless() {
    let transfers = Transfers::default();
    let handle = transfers.register(facts("/", 10, ago(5)));
    handle.progress(u64::MAX, None);
    handle.progress(0, None);
    assert_eq!(json(&transfers)[0]["bytes"], 0);
    assert!(transfers.page(|_| true).contains("0 B of 10 B"));
    let later = Instant::now() + Duration::from_secs(1000);
    let _future = transfers.register(facts("/", 0, later));
    assert_eq!(json(&transfers)[1]["elapsed_s"], 0.0);
}

#[test]
fn names_cannot_break_out_of_the_page() {
    let transfers = Transfers::default();
    let target = "/%3C/bdi%3e<script>alert(\"1\")</script>&amp;";
    let _handle = transfers.register(TransferFacts {
        site: None,
        user: Some("<i>".into()),
        peer: "\"><img>".into(),
        ..facts(target, 10, ago(1))
    });
    let page = transfers.page(|_| true);
    for tag in ["<script", "<img", "<i>"] {
        assert!(!page.contains(tag), "{tag}");
    }
    assert!(
        page.contains("/&lt;/bdi&gt;&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;&amp;amp;")
    );
    assert_eq!(json(&transfers)[0]["target"], target);
}

#[test]
fn page_is_small_loads_nothing_and_reloads_itself() {
    let transfers = Transfers::default();
    let worst = "\"".repeat(8000);
    let handles: Vec<_> = (0..2000)
        .map(|_| {
            let facts = TransferFacts {
                site: None,
                user: Some(worst.as_str().into()),
                ..facts(&worst, u64::MAX, ago(90_061))
            };
            transfers.register(facts)
        })
        .collect();
    for handle in &handles {
        handle.progress(u64::MAX / 3, Some(Mechanism::CopyFileRange));
    }
    let page = transfers.page(|_| true);
    assert!(page.len() < 20 * 1024, "{}", page.len());
    assert!(page.contains("<meta http-equiv=\"refresh\" content=\"2\">"));
    assert!(page.contains("2000 transfers") && page.contains("1984 older ones"));
    for foreign in ["http:", "https:", "src=", "<script", "<link", "@import", "url("] {
        assert!(!page.contains(foreign), "{foreign}");
    }
}

#[test]
fn page_without_transfers_is_marked_as_empty() {
    let page = Transfers::default().page(|_| true);
    assert!(page.contains("No transfers") && !page.contains("<ul>"));
}

#[test]
fn transfers_that_the_client_may_not_see_are_left_out() {
    let transfers = Transfers::default();
    let _handles = ["/a", "/b"].map(|name| transfers.register(facts(name, 10, Instant::now())));
    let seen = transfers.json(|facts| facts.target == b"/b");
    assert!(seen.contains("/b") && !seen.contains("\"/a\""), "{seen}");
}

#[test]
fn the_style_of_the_page_is_the_one_that_its_policy_allows() {
    use base64::Engine as _;
    use sha2::Digest as _;
    let page = Transfers::default().page(|_| true);
    let style = page.split_once("<style>").unwrap().1.split_once("</style>").unwrap().0;
    let digest = base64::engine::general_purpose::STANDARD.encode(sha2::Sha256::digest(style));
    assert!(CONTENT_SECURITY_POLICY.contains(&digest), "{digest}");
    assert!(!page.contains("style=") && !page.contains("<script"));
}
