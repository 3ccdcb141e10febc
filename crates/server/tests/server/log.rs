//! The access log: what actually arrived, in lines that no client can forge.

use std::time::Duration;

use underpass_server::access_log::LogFormat;

use super::rig::{Running, Site, pattern, request, wait_until};

const LEN: usize = 12 << 20;

const RESETS: &str = "responses_failed_total{reason=\"reset\"}";

fn site(format: &str) -> Running {
    let site = Site::of(&[("a", b"first")]);
    site.write("large", &pattern(LEN));
    site.with(|settings| settings.log = Some(LogFormat::parse(format).unwrap())).start()
}

#[test]
fn a_combined_line_says_what_arrived_and_how() {
    let site = site("combined");
    site.ask("GET", "/a?b=c", &["Referer: http://from/", "User-Agent: tester/1.0"]);
    let line = site.line("/a?b=c");
    let begin = "127.0.0.1 - - [";
    let middle = "] \"GET /a?b=c HTTP/1.1\" 200 5 \"http://from/\" \"tester/1.0\" ";
    assert!(line.starts_with(begin) && line.contains(middle) && line.ends_with('\n'), "{line}");
    let added: Vec<_> = line.split(middle).nth(1).unwrap().split_whitespace().collect();
    assert!(added[0].parse::<f64>().is_ok(), "{line}");
    assert_eq!(added[1..], ["5", "complete", "read_write"], "{line}");
    site.get("/nothing");
    assert!(site.line("/nothing").contains("\" 404 "));
}

#[test]
fn a_json_line_records_complete_and_broken_responses() {
    let site = site("json");
    assert_eq!(site.get("/large").body.len(), LEN);
    let record = site.record("\"target\":\"/large\"");
    assert_eq!((&record["status"], &record["complete"]), (&200.into(), &true.into()));
    for name in ["bytes", "sent", "acknowledged"] {
        assert_eq!(record[name], LEN, "{name}: {record}");
    }
    assert_eq!(record["failure"], serde_json::Value::Null);
    let by = |field: &str, name: &str| record[field][name].as_u64().unwrap_or_default();
    // The last bytes may be held back, and are then copied.
    let copied = by("mechanisms", "read_write");
    assert!(by("mechanisms", "sendfile") >= LEN as u64 - 3, "{record}");
    assert_eq!(by("mechanisms", "sendfile") + copied, LEN as u64, "{record}");
    assert_eq!(record["user_space_bytes"].as_u64().unwrap(), 2 * copied, "{record}");
    assert_eq!(by("mechanism_calls", "read_write") > 0, copied > 0, "{record}");
    let calls = by("mechanism_calls", "sendfile");
    assert!(calls > 0 && record["calls"].as_u64().unwrap() >= calls, "{record}");
    assert!(record["cpu_s"]["system"].is_f64() && record["cpu_s"]["user"].is_f64(), "{record}");
    assert!(record["context_switches"]["voluntary"].is_u64(), "{record}");
    assert_eq!((&record["remote"], &record["method"]), (&"127.0.0.1".into(), &"GET".into()));
    let head = site.ask("HEAD", "/large", &[]);
    assert_eq!(head.status, 200);
    let record = site.record("\"method\":\"HEAD\"");
    assert_eq!((&record["sent"], &record["complete"]), (&0.into(), &true.into()), "{record}");
}

#[test]
fn an_aborted_download_is_logged_as_incomplete() {
    let site = site("json");
    let mut client = site.connect_narrow();
    client.send(request("GET", "/large", &[]));
    client.head().unwrap();
    client.take(2 << 20).unwrap();
    drop(client);
    let record = site.record("\"target\":\"/large\"");
    assert_eq!((&record["complete"], &record["failure"]), (&false.into(), &"reset".into()));
    let number = |name: &str| record[name].as_u64().unwrap();
    assert!(number("acknowledged") >= 2 << 20, "{record}");
    assert!(number("acknowledged") < number("sent"), "{record}");
    assert!(number("sent") < LEN as u64, "{record}");
    assert_eq!(site.metric(RESETS), 1.0);
}

#[test]
fn bytes_that_the_client_never_read_are_logged_as_a_reset() {
    let site = Site::new();
    site.write("file", &pattern(400_000));
    let site = site.start();
    leave_after_the_head(&site);
    let record = site.record("\"target\":\"/file\"");
    assert_eq!((&record["complete"], &record["failure"]), (&false.into(), &"reset".into()));
    assert!(record["acknowledged"].as_u64() < Some(400_000), "{record}");
    assert_eq!(site.metric(RESETS), 1.0);
}

#[test]
fn the_metrics_count_cut_responses_without_a_log() {
    let site = Site::new();
    site.write("file", &pattern(400_000));
    let site = site.with(|settings| settings.log = None).start();
    for cut in 1..=3 {
        leave_after_the_head(&site);
        wait_until("the response is counted", || site.metric(RESETS) == f64::from(cut));
    }
}

fn leave_after_the_head(site: &Running) {
    let mut client = site.connect_narrow();
    client.send(request("GET", "/file", &[]));
    client.head().unwrap();
}

#[test]
fn a_client_that_ends_its_side_may_still_read() {
    let site = Site::new();
    site.write("file", &pattern(120_000));
    let site = site.start();
    for version in ["1.0", "1.1"] {
        let mut client = site.connect_narrow();
        client.send(format!("GET /file?{version} HTTP/{version}\r\nHost: localhost\r\n\r\n"));
        client.half_close();
        std::thread::sleep(Duration::from_millis(300));
        assert!(client.reply().body == pattern(120_000));
        assert!(client.is_closed());
        let record = site.record(&format!("\"target\":\"/file?{version}\""));
        assert_eq!(record["complete"], true, "{record}");
    }
}

#[test]
fn one_request_one_line_in_their_order() {
    let site = site("$request_method $request_uri $status $http_x_id");
    let mut client = site.connect();
    let all: String = (0..50).map(|at| request("GET", "/a", &[&format!("X-Id: {at}")])).collect();
    client.send(all);
    (0..50).for_each(|_| assert_eq!(client.reply().text(), "first"));
    drop(client);
    site.line("/a 200 49");
    let expected: Vec<_> = (0..50).map(|at| format!("GET /a 200 {at}\n")).collect();
    assert_eq!(site.lines(), expected);
}

#[test]
fn nothing_that_a_client_sends_can_end_a_line_or_forge_one() {
    let site = site("combined");
    let mut client = site.connect();
    client.send(b"GET /\x1b[31m\x07 HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.reply().status, 400);
    let agent = "User-Agent: a\" 200 5 \"forged\" \u{7f}\u{85}\tb";
    let mut client = site.connect();
    client.send(request("GET", "/%0a%22x", &[&agent.replace('\u{7f}', "")]));
    assert_eq!(client.reply().status, 404);
    site.line("/%0a%22x");
    for line in site.lines() {
        let text = line.strip_suffix('\n').unwrap();
        assert!(!text.bytes().any(|byte| byte < b' ' || byte == 0x7f), "{text:?}");
        let quotes = text.replace("\\\"", "").matches('"').count();
        assert_eq!(quotes, 6, "{text}");
    }
    let json = Site::of(&[]).start();
    let mut client = json.connect();
    client.send(b"\"\\\x01\n nonsense\r\n\r\n");
    assert_eq!(client.reply().status, 400);
    assert_eq!(json.record("\"status\":400")["status"], 400);
}

#[test]
fn without_a_log_there_is_no_line() {
    let site = Site::of(&[("a", b"first")]).with(|settings| settings.log = None).start();
    assert_eq!(site.get("/a").text(), "first");
    assert_eq!(site.metric("requests_total{code=\"200\"}"), 1.0);
    assert!(site.lines().is_empty());
}
