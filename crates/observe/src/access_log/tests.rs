//! The lines of the access log have their format, and no request can forge one.

use std::fs::File;
use std::io::{Seek, Write};
use std::time::{Duration, SystemTime};

use jiff::tz::{Offset, TimeZone};
use proptest::prelude::*;
use serde_json::Value;
use underpass_engine::{Mechanism, Options, Policy, Sink, Source, Tally, Transfer, Usage};

use crate::access_log::*;

fn exchange() -> AccessEntry {
    AccessEntry {
        started: SystemTime::UNIX_EPOCH + Duration::from_millis(971_211_334_000),
        duration: Duration::from_micros(2_012_900),
        peer: "192.0.2.7".into(),
        site: None,
        user: Some("alice".into()),
        verb: "GET".into(),
        target: b"/x?y=%20".into(),
        status: 200,
        body_len: 1_048_576,
        sent: 1_048_576,
        acknowledged: 1_048_576,
        is_complete: true,
        mechanisms: vec![
            (Mechanism::Sendfile, Tally { bytes: 4096, calls: 1 }),
            (Mechanism::ReadWrite, Tally { bytes: 1_044_480, calls: 32 }),
        ],
        calls: 35,
        user_space_bytes: 2_088_960,
        usage: Usage {
            user: Duration::from_micros(12),
            system: Duration::from_micros(1_000_345),
            voluntary_switches: 3,
            involuntary_switches: 1,
            ..Usage::default()
        },
        declined: vec!["sendfile EINVAL at 4096".into()],
        referer: b"http://example.org/".into(),
        user_agent: b"curl/8".into(),
        ..AccessEntry::default()
    }
}

/// Formats one line in a time zone seven hours west of UTC.
fn line(format: &str, exchange: &AccessEntry) -> String {
    let mut out = b"before".to_vec();
    let mut time = TimeText::new(TimeZone::fixed(Offset::constant(-7)));
    LogFormat::parse(format).unwrap().line_into(exchange, &mut time, &mut out);
    let text = String::from_utf8(out).unwrap();
    text.strip_prefix("before").unwrap().strip_suffix('\n').unwrap().to_owned()
}

#[test]
fn combined_line_begins_as_in_nginx_and_ends_with_our_additions() {
    assert_eq!(
        line("combined", &exchange()),
        "192.0.2.7 - alice [10/Oct/2000:13:55:36 -0700] \"GET /x?y=%20 HTTP/1.1\" 200 1048576 \
         \"http://example.org/\" \"curl/8\" 2.012 1048576 complete sendfile+read_write"
    );
}

#[test]
fn missing_fields_are_logged_as_a_dash() {
    let exchange =
        AccessEntry { verb: "HEAD".into(), target: b"/".into(), ..AccessEntry::default() };
    assert_eq!(
        line("combined", &exchange),
        "- - - [31/Dec/1969:17:00:00 -0700] \"HEAD / HTTP/1.1\" 0 0 \"-\" \"-\" 0.000 0 incomplete -"
    );
    let all =
        line("$remote_user $http_referer $http_user_agent $http_x $mechanism $declined", &exchange);
    assert_eq!(all, "- - - - - -");
}

#[test]
fn an_invalid_request_line_is_logged_as_received() {
    for (target, logged) in [("GET /a b HTTP/1.1", "GET /a b HTTP/1.1"), ("", "-")] {
        let exchange = AccessEntry { target: target.into(), ..AccessEntry::default() };
        assert_eq!(line("$request", &exchange), logged);
        assert!(line("combined", &exchange).contains(&format!(" \"{logged}\" ")));
    }
}

#[test]
fn truncated_response_is_logged_with_its_failure() {
    for failure in ["changed", "reset", "shrank", "timeout"] {
        let exchange = AccessEntry { failure: Some(failure), acknowledged: 7, ..exchange() };
        assert!(line("combined", &exchange).contains(&format!(" 7 {failure} ")), "{failure}");
        let json: Value = serde_json::from_str(&line("json", &exchange)).unwrap();
        assert_eq!((&json["failure"], &json["complete"]), (&failure.into(), &false.into()));
    }
}

#[test]
fn json_line_has_every_field() {
    let json: Value = serde_json::from_str(&line("json", &exchange())).unwrap();
    let expected = serde_json::json!({
        "time": "2000-10-10T13:55:36.012-07:00",
        "remote": "192.0.2.7",
        "user": "alice",
        "method": "GET",
        "target": "/x?y=%20",
        "protocol": "HTTP/1.1",
        "tls": null,
        "status": 200,
        "bytes": 1_048_576,
        "received": 0,
        "sent": 1_048_576,
        "acknowledged": 1_048_576,
        "complete": true,
        "failure": null,
        "duration_s": 2.012,
        "mechanisms": { "sendfile": 4096, "read_write": 1_044_480 },
        "mechanism_calls": { "sendfile": 1, "read_write": 32 },
        "calls": 35,
        "user_space_bytes": 2_088_960,
        "cpu_s": { "user": 0.000_012, "system": 1.000_345 },
        "context_switches": { "voluntary": 3, "involuntary": 1 },
        "declined": ["sendfile EINVAL at 4096"],
        "referer": "http://example.org/",
        "user_agent": "curl/8",
    });
    assert_eq!(json, expected);
}

#[test]
fn template_knows_every_variable() {
    let format = "$remote_addr $remote_user [$time_local] $time_iso8601 $msec \"$request\" \
                  $request_method $request_uri $server_protocol $status $body_bytes_sent \
                  $request_time $bytes_expected $bytes_acknowledged $bytes_received $completed $mechanism \
                  $moved $calls $user_space_bytes $cpu_time $context_switches ($declined) $http_referer $http_user_agent ${status}xx";
    assert_eq!(
        line(format, &exchange()),
        "192.0.2.7 alice [10/Oct/2000:13:55:36 -0700] 2000-10-10T13:55:36-07:00 971211336.012 \
         \"GET /x?y=%20 HTTP/1.1\" GET /x?y=%20 HTTP/1.1 200 1048576 2.012 1048576 1048576 \
         0 complete sendfile+read_write sendfile:4096/1+read_write:1044480/32 35 2088960 1.000357 4 \
         (sendfile EINVAL at 4096) http://example.org/ curl/8 200xx"
    );
}

#[test]
fn a_request_that_could_not_be_read_has_a_dash_for_each_part_that_is_unknown() {
    let entry = AccessEntry { status: 400, ..AccessEntry::default() };
    assert_eq!(line("$request_method $request_uri $server_protocol $status", &entry), "- - - 400");
}

#[test]
fn cost_is_measured_only_for_lines_that_include_it() {
    let tells = |format: &str| LogFormat::parse(format).unwrap().logs_cost();
    assert!(tells("json") && tells("$cpu_time") && tells("$status ${context_switches}"));
    assert!(!tells("combined") && !tells("$status $moved $calls $user_space_bytes"));
}

#[test]
fn tls_is_shown_with_version_suite_and_encrypting_side() {
    let tls = Secured {
        version: "TLSv1.3",
        suite: "TLS_AES_128_GCM_SHA256",
        is_resumed: true,
        why: Some("no_module"),
    };
    let format = "$scheme $ssl_protocol $ssl_cipher $ssl_session_reused $tls";
    let here = AccessEntry { tls: Some(tls), ..exchange() };
    assert_eq!(line(format, &here), "https TLSv1.3 TLS_AES_128_GCM_SHA256 r user_space");
    let json: Value = serde_json::from_str(&line("json", &here)).unwrap();
    let expected = serde_json::json!({
        "version": "TLSv1.3",
        "suite": "TLS_AES_128_GCM_SHA256",
        "resumed": true,
        "where": "user_space",
        "why": "no_module",
    });
    assert_eq!(json["tls"], expected);
    let kernel = Secured { is_resumed: false, why: None, ..tls };
    let kernel = AccessEntry { tls: Some(kernel), ..exchange() };
    assert_eq!(line("$tls $ssl_session_reused", &kernel), "kernel .");
    let json: Value = serde_json::from_str(&line("json", &kernel)).unwrap();
    assert_eq!((&json["tls"]["where"], &json["tls"]["why"]), (&"kernel".into(), &Value::Null));
    assert_eq!(line(format, &exchange()), "http - - - -");
}

#[test]
fn a_line_shows_what_the_cache_did() {
    let waited = Duration::from_millis(1250);
    let miss = AccessEntry { cache: Some("miss"), origin_bytes: 1000, waited, ..exchange() };
    assert_eq!(line("$cache $origin_bytes $waited", &miss), "miss 1000 1.250");
    assert_eq!(line("$cache $origin_bytes $waited", &exchange()), "- 0 0.000");
}

#[test]
fn template_says_which_request_fields_it_needs() {
    let format =
        LogFormat::parse("$http_X_Request_Id $http_host $http_host $http_referer").unwrap();
    assert_eq!(format.needs(), ["x-request-id", "host"]);
    assert!(LogFormat::Combined.needs().is_empty() && LogFormat::Json.needs().is_empty());
    let fields = vec![("host".into(), b"a".to_vec()), ("x-request-id".into(), b"7".to_vec())];
    let exchange = AccessEntry { fields, ..exchange() };
    assert_eq!(line("$http_x_request_id|$http_host", &exchange), "7|a");
}

#[test]
fn malformed_log_formats_are_refused_with_a_remedy() {
    let text = |format| LogFormat::parse(format).unwrap_err().to_string();
    for format in ["", "Combined", "apache"] {
        assert!(
            text(format).starts_with("log formats are combined, vhost_combined, json"),
            "{format}"
        );
    }
    let unknown = text("$status $upstream_addr");
    assert!(
        unknown.starts_with("there is no $upstream_addr in log formats; there are $body_bytes")
    );
    assert!(unknown.ends_with("$waited, and $http_NAME for every request header"), "{unknown}");
    assert!(text("$http_").starts_with("there is no $http_ "));
    for format in ["cost: 5 $", "$ status", "${status", "${}"] {
        assert!(text(format).contains("not followed by a name"), "{format}");
    }
    assert!(text("$status\n$status").contains("control character"));
    for format in ["$http_authorization", "$http_Proxy_Authorization"] {
        assert!(text(format).contains("passwords"), "{format}");
    }
}

#[test]
fn hostile_bytes_are_escaped_and_others_are_not() {
    let target = b"/\"\\ \n\r\t\x1b\x7f\xff\xc3\xbc\xc2\x85\xe2\x80\xae\xf0\x9f\xa6\x80".to_vec();
    let exchange = AccessEntry { target, user: Some("a b".into()), ..exchange() };
    assert_eq!(
        line("$request_uri", &exchange),
        "/\\x22\\x5C \\x0A\\x0D\\x09\\x1B\\x7F\\xFF\u{fc}\\xC2\\x85\\xE2\\x80\\xAE\u{1f980}"
    );
    assert_eq!(line("$remote_user", &exchange), "a\\x20b");
    let text = line("json", &exchange);
    assert!(text.contains(
        "\"/\\\"\\\\ \\u000A\\u000D\\u0009\\u001B\\u007F\\\\xFF\u{fc}\\u0085\\u202E\u{1f980}\""
    ));
    let json: Value = serde_json::from_str(&text).unwrap();
    let target = "/\"\\ \n\r\t\u{1b}\u{7f}\\xFF\u{fc}\u{85}\u{202e}\u{1f980}";
    assert_eq!(json["target"], target);
}

#[test]
fn time_is_formatted_again_when_the_second_changes() {
    let mut time = TimeText::utc();
    for (second, expected) in [(0, "00:00:00"), (0, "00:00:00"), (61, "00:01:01"), (59, "00:00:59")]
    {
        time.set(SystemTime::UNIX_EPOCH + Duration::from_millis(second * 1000 + 999));
        assert_eq!(time.common(), format!("01/Jan/1970:{expected} +0000"));
        assert_eq!(time.rfc3339(), format!("1970-01-01T{expected}+00:00"));
    }
}

#[test]
fn times_beyond_the_calendar_are_harmless() {
    let exchange = AccessEntry {
        started: SystemTime::UNIX_EPOCH - Duration::from_secs(5),
        duration: Duration::MAX,
        ..exchange()
    };
    assert!(line("$time_local $request_time", &exchange).starts_with("31/Dec/1969"));
    let far = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 60);
    assert!(line("$time_local", &AccessEntry { started: far, ..exchange }).contains("/9999:"));
}

#[test]
fn cleared_exchange_is_as_new() {
    let mut exchange = AccessEntry { fields: vec![("a".into(), Vec::new())], ..exchange() };
    exchange.clear();
    assert_eq!(exchange, AccessEntry::default());
}

#[test]
fn reports_of_several_transfers_add_up() {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&[7; 100]).unwrap();
    let end = tempfile::NamedTempFile::new().unwrap();
    let end = File::options().append(true).open(end.path()).unwrap();
    let mut exchange = AccessEntry { mechanisms: vec![], declined: vec![], ..exchange() };
    for bytes in [100, 200] {
        file.rewind().unwrap();
        let (source, sink) = (Source::of(&file).unwrap(), Sink::of(&end).unwrap());
        let options = Options::default().policy(Policy::Require(Mechanism::ReadWrite));
        exchange.record(&Transfer::new(source, sink).options(options).run().unwrap());
        let logged: Vec<_> =
            exchange.mechanisms.iter().map(|(it, tally)| (*it, tally.bytes)).collect();
        assert_eq!(logged, [(Mechanism::ReadWrite, bytes)]);
    }
    file.rewind().unwrap();
    let (source, sink) = (Source::of(&file).unwrap(), Sink::of(&end).unwrap());
    let options = Options::default().policy(Policy::Require(Mechanism::CopyFileRange));
    exchange.record(Transfer::new(source, sink).options(options).run().unwrap_err().report());
    let [declined] = &exchange.declined[..] else { panic!("{:?}", exchange.declined) };
    let reason = "copy_file_range unsuitable_ends at 0: an end is a stream, opened with O_APPEND";
    assert!(declined.starts_with(reason), "{declined}");
    let logged = line("$mechanism ($declined)", &exchange);
    assert!(logged.contains("(copy_file_range unsuitable_ends at 0: "), "{logged}");
}

proptest! {
    #[test]
    fn no_request_can_end_its_line_or_leave_its_quotes(
        target in prop::collection::vec(any::<u8>(), 0..64),
        agent in prop::collection::vec(any::<u8>(), 0..64),
        peer in any::<String>(),
        user in any::<String>(),
    ) {
        let exchange = AccessEntry {
            target, user_agent: agent.clone(), referer: agent, peer,
            user: Some(user.as_str().into()), ..exchange()
        };
        let combined = line("combined", &exchange);
        prop_assert!(!combined.chars().any(char::is_control));
        prop_assert_eq!(combined.matches('"').count(), 6);
        prop_assert_eq!(combined.split('"').next().unwrap().split(' ').count(), 6);
        let json = line("json", &exchange);
        prop_assert!(!json.chars().any(char::is_control));
        let json: Value = serde_json::from_str(&json).unwrap();
        prop_assert_eq!(json.as_object().unwrap().len(), 24);
        if let Ok(target) = str::from_utf8(&exchange.target) {
            prop_assert_eq!(&json["target"], target);
        }
    }

    #[test]
    fn numbers_are_written_as_the_standard_library_does(number in any::<u64>()) {
        let mut out = Vec::new();
        escape::push_number(&mut out, number);
        out.push(b' ');
        escape::push_thousandths(&mut out, number);
        let expected = format!("{number} {}.{:03}", number / 1000, number % 1000);
        prop_assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn parsing_and_using_any_log_format_never_panics(text in "[$a-z_{} ]{0,40}") {
        let _ = LogFormat::parse(&text).map(|format| format.line(&exchange()));
    }
}
