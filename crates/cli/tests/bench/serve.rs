//! The bench of servers measures complete and correct responses, and leaves no server behind.

use std::fs;
use std::path::Path;

use crate::rig::{bench, folder, has, interrupt_bench, run};
use serde_json::Value;

/// Whether `underpass serve` is in this program.
fn can_serve() -> bool {
    run(["serve", "--help"]).code() == Some(0)
}

/// Whether a process has a file open below a folder, even one that has been removed.
fn is_in_use(folder: &Path) -> bool {
    let links = |process: fs::DirEntry| fs::read_dir(process.path().join("fd")).ok();
    let open = fs::read_dir("/proc").unwrap().flatten().filter_map(links).flatten().flatten();
    open.filter_map(|link| fs::read_link(link.path()).ok()).any(|path| path.starts_with(folder))
}

fn samples(record: &Value) -> &Vec<Value> {
    record["samples"].as_array().unwrap()
}

/// Responses and bodies add up, have cost processor time, and their latencies are in order.
#[track_caller]
fn check_requests(record: &Value, server: &str) {
    assert_eq!(record["scenario"], "serve");
    for cell in record["cells"].as_array().unwrap() {
        assert_eq!(cell["way"], server);
        assert_eq!(cell["sha256"].as_str().unwrap().len(), 64);
    }
    for sample in samples(record) {
        let size = &record["cells"][sample["cell"].as_u64().unwrap() as usize]["size"];
        let load = &sample["served"]["requests"];
        let number = |name: &str| load[name].as_f64().unwrap();
        let connections = number("connections");
        let bodies = number("bytes") / size.as_f64().unwrap();
        assert!(number("responses") > 0.0, "{load}");
        assert!((bodies - number("responses")).abs() <= connections, "{load}");
        let latency = |name: &str| load["latency"][name].as_f64().unwrap();
        assert!(latency("p50_s") <= latency("p99_s") && latency("p99_s") <= latency("max_s"));
        let server = &sample["measured"];
        assert_eq!(
            (&server["role"], &sample["peer"]["role"]),
            (&"server".into(), &"client".into())
        );
        assert!(server["process"]["cpu_s"].as_f64().unwrap() > 0.0, "{server}");
        // The kernel splits a short time into user and system time by sampled ticks.
        let client = |name: &str| sample["peer"]["thread"][name].as_f64().unwrap();
        assert!(client("user_s") + client("system_s") > 0.0, "{sample}");
    }
}

/// The calls of each server were counted in a separate pass, with the bytes it served meanwhile: a
/// request takes a few calls, `moves` among them.
#[track_caller]
fn check_counted(record: &Value, moves: &[&str]) {
    if !has("strace") {
        return;
    }
    let counted = record["counted"].as_array().unwrap();
    let cells = record["cells"].as_array().unwrap();
    assert_eq!(counted.len(), cells.len(), "{counted:?}");
    for (index, (one, cell)) in counted.iter().zip(cells).enumerate() {
        assert_eq!((&one["cell"], &one["role"]), (&index.into(), &"server".into()));
        let of = |name: &str| {
            let calls = one["calls"].as_array().unwrap().iter();
            calls
                .filter(|call| call["name"] == name)
                .filter_map(|call| call["calls"].as_f64())
                .sum::<f64>()
        };
        let moved: f64 = moves.iter().map(|name| of(name)).sum::<f64>();
        assert!(moved > 0.0, "{one}");
        let Some(bytes) = one["served_bytes"].as_f64() else { continue };
        if record["scenario"] == "serve_fairness" {
            // Files of two sizes.
            assert!(bytes > 0.0, "{one}");
            continue;
        }
        let responses = bytes / cell["size"].as_f64().unwrap();
        // One response of each connection was in flight when counting began.
        let before = record["arguments"]["serve"]["connections"].as_f64().unwrap();
        assert!(responses > 0.0 && moved >= (responses - before) * 0.5, "{responses}: {one}");
        // Requests are read one by one.
        let request = of("recvfrom") + of("read");
        assert!(request <= (responses + before) * 8.0, "{responses}: {one}");
    }
}

#[test]
fn nginx_is_measured_with_and_without_access_logs() {
    if !has("nginx") {
        return;
    }
    for log in [&[][..], &["--log"]] {
        let folder = folder();
        let args = ["serve", "--server", "nginx", "--sizes", "1K,3M", "--connections", "5"];
        let args = [&args[..], &["--runs", "2", "--seconds", "0.2"], log].concat();
        let (finished, record) = bench(folder.path(), &args);
        check_requests(&record, "nginx");
        check_counted(&record, &["sendfile"]);
        let order: Vec<_> =
            samples(&record).iter().map(|one| (&one["cell"], &one["round"])).collect();
        let order = serde_json::to_value(order).unwrap();
        assert_eq!(order, serde_json::json!([[0, 1], [0, 2], [1, 1], [1, 2]]));
        assert!(record["environment"]["nginx"].as_str().unwrap().starts_with("nginx/"));
        assert!(record["environment"]["congestion"].is_string());
        assert_eq!(record["arguments"]["serve"]["log"], !log.is_empty());
        let words = if log.is_empty() { "without access logs" } else { "buffer=64k" };
        assert!(finished.text().contains(words), "{}", finished.text());
        assert!(!is_in_use(folder.path()));
    }
}

#[test]
fn nginx_is_measured_beside_cold_streams() {
    if !has("nginx") {
        return;
    }
    let folder = folder();
    let args = ["serve", "fairness", "--server", "nginx", "--runs", "1", "--warmup", "0"];
    let more = ["--streams", "2", "--stream-size", "40M", "--seconds", "0.3"];
    let (_, record) = bench(folder.path(), &[&args[..], &more].concat());
    let found = &samples(&record)[0]["served"]["fairness"];
    for window in ["alone", "beside"] {
        assert!(found[window]["responses"].as_u64().unwrap() > 0, "{found}");
    }
    assert!(found["streamed_bytes"].as_u64().unwrap() > 0, "{found}");
    assert!(!is_in_use(folder.path()));
}

#[test]
fn nginx_is_measured_with_idle_connections_and_slow_downloads() {
    if !has("nginx") {
        return;
    }
    let folder = folder();
    let args = ["serve", "idle", "--server", "nginx", "--runs", "1", "--warmup", "0"];
    let more = ["--idle", "300", "--slow", "50", "--size", "8M"];
    let (_, record) = bench(folder.path(), &[&args[..], &more].concat());
    let found = &samples(&record)[0]["served"]["idle"];
    let resident = |stage: &str| found[stage]["resident_bytes"].as_u64().unwrap();
    assert!(resident("start") > 0, "{found}");
    assert!(
        resident("start") <= resident("idle") && resident("idle") < resident("slow"),
        "{found}"
    );
    assert!(found["answers"]["max_s"].as_f64().unwrap() > 0.0);
    assert!(!is_in_use(folder.path()));
}

#[test]
fn a_signal_ends_the_server_too() {
    if !has("nginx") {
        return;
    }
    let args = ["serve", "--server", "nginx", "--sizes", "1K"];
    let folder = interrupt_bench(&args, is_in_use, (300, "INT"));
    assert!(!is_in_use(folder.path()));
}

#[test]
fn more_connections_than_files_may_be_open_are_refused() {
    let most = fs::read_to_string("/proc/sys/fs/nr_open").unwrap();
    if most.trim().parse::<u64>().unwrap() > 10_000_000 {
        return; // root may have them
    }
    for scenario in ["requests", "handshakes", "fairness"] {
        let words = ["bench", "serve", scenario, "--server", "underpass"];
        let finished = run([&words[..], &["--connections", "10000000"]].concat());
        finished.failed(1, &["10000128 open files", "ulimit -Hn"]);
    }
}

#[test]
fn underpass_is_measured_beside_nginx() {
    if !can_serve() || !has("nginx") {
        return;
    }
    for log in [&[][..], &["--log"]] {
        let folder = folder();
        let args = ["serve", "--sizes", "1K,100K", "--connections", "5", "--runs", "1"];
        let args = [&args[..], &["--warmup", "0", "--seconds", "0.2"], log].concat();
        let (finished, record) = bench(folder.path(), &args);
        let ways: Vec<_> =
            record["cells"].as_array().unwrap().iter().map(|cell| &cell["way"]).collect();
        assert_eq!(ways, ["nginx", "underpass", "nginx", "underpass"]);
        assert_eq!(samples(&record).len(), 4);
        check_counted(&record, &["sendfile", "sendto", "sendmsg"]);
        assert!(finished.text().contains("underpass"), "{}", finished.text());
        assert!(!is_in_use(folder.path()));
    }
}

#[test]
fn handshakes_are_measured_one_for_each_request() {
    let folder = folder();
    let servers = if has("nginx") { "nginx,underpass" } else { "underpass" };
    let args = ["serve", "handshakes", "--server", servers, "--connections", "3", "--runs", "1"];
    let (_, record) = bench(folder.path(), &[&args[..], &["--seconds", "0.3"]].concat());
    assert_eq!(record["scenario"], "serve_handshakes");
    assert_eq!(record["arguments"]["serve"]["tls"], true);
    for sample in samples(&record) {
        let load = &sample["served"]["requests"];
        assert!(load["responses"].as_u64().unwrap() > 0, "{load}");
    }
    check_counted(&record, &["write", "sendto", "sendmsg", "writev"]);
    let counted = record["counted"].as_array().map(Vec::as_slice).unwrap_or_default();
    for one in counted {
        let calls = one["calls"].as_array().unwrap().iter();
        let accepted = calls.filter(|call| call["name"].as_str().unwrap().starts_with("accept"));
        let accepted: u64 = accepted.map(|call| call["calls"].as_u64().unwrap()).sum();
        let responses = one["served_bytes"].as_u64().unwrap() / 1024;
        assert!(accepted + 3 >= responses, "{responses}: {one}");
    }
    assert!(!is_in_use(folder.path()));
}

#[test]
fn underpass_is_measured_with_streams_and_many_idle_connections() {
    if !can_serve() {
        return;
    }
    let folder = folder();
    let once = ["--server", "underpass", "--runs", "1", "--warmup", "0", "--seconds", "1"];
    let streams = ["serve", "fairness", "--streams", "2", "--stream-size", "40M"];
    let (_, record) = bench(folder.path(), &[&streams[..], &once].concat());
    let found = &samples(&record)[0]["served"]["fairness"];
    assert!(found["streamed_bytes"].as_u64().unwrap() > 0, "{found}");
    check_counted(&record, &["sendfile"]);
    fs::remove_file(folder.path().join("record.json")).unwrap();
    let crowd = ["serve", "idle", "--idle", "300", "--slow", "50", "--size", "8M"];
    let (_, record) = bench(folder.path(), &[&crowd[..], &once].concat());
    let found = &samples(&record)[0]["served"]["idle"];
    assert!(found["slow"]["resident_bytes"].as_u64().unwrap() > 0, "{found}");
    check_counted(&record, &["sendfile"]);
    assert!(!is_in_use(folder.path()));
}

#[test]
fn caches_in_front_of_an_origin_are_measured_by_what_it_sent() {
    for (server, program) in [
        ("underpass", None),
        ("nginx-slice", Some("nginx")),
        ("squid", Some("squid")),
        ("ats", Some("traffic_server")),
    ] {
        if program.is_some_and(|program| !has(program)) {
            continue;
        }
        let folder = folder();
        let args = ["origin", "--server", server, "--clients", "8", "--size", "4M", "--runs", "1"];
        let more = ["--warmup", "0", "--large", "256M", "--budget", "4M", "--origin-rate", "64M"];
        let (_, record) = bench(folder.path(), &[&args[..], &more].concat());
        let found = &samples(&record)[0]["served"]["origin"];
        let number = |value: &Value| value.as_u64().unwrap();
        // The bytes that a crowd, or ranges, cost the origin are recorded exactly.
        let sent = number(&found["crowd_origin_bytes"]);
        assert!(sent >= 4 << 20, "{found}");
        let ranges = &found["ranges"];
        assert_eq!(number(&ranges["asked_bytes"]), 64 << 20);
        assert!(number(&ranges["origin_bytes"]) > 0, "{found}");
        assert!(number(&found["hot"][0]) >= 8 && number(&found["kept"][1]) == 4 << 20, "{found}");
        if server == "underpass" {
            assert_eq!(sent, 4 << 20, "{found}");
            assert!(number(&found["kept"][0]) < 5 << 20, "{found}");
        }
    }
}
