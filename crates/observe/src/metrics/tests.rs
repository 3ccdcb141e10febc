//! The metrics page has the right counts, and Prometheus can parse it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Seek, Write};

use underpass_engine::{Error, Options, Policy, Sink, Source, Transfer};

use crate::metrics::*;

/// Returns the samples of a page by name and labels, and checks every applicable rule of the
/// format.
fn parse(page: &str) -> BTreeMap<String, f64> {
    assert!(page.ends_with('\n') && page.is_ascii());
    let mut samples = BTreeMap::new();
    let mut families = BTreeSet::new();
    let (mut helped, mut family, mut kind) = ("", "", "");
    for line in page.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, text) = help.split_once(' ').unwrap();
            assert!(text.ends_with('.') && !text.contains('\\'), "{line}");
            assert!(families.insert(name), "a family stands together: {name}");
            helped = name;
        } else if let Some(of_type) = line.strip_prefix("# TYPE ") {
            (family, kind) = of_type.split_once(' ').unwrap();
            assert_eq!(family, helped, "help, then type");
            assert!(matches!(kind, "counter" | "gauge" | "histogram"), "{line}");
            assert_eq!(kind == "counter", family.ends_with("_total"), "{line}");
        } else {
            let (key, value) = line.rsplit_once(' ').unwrap();
            check_sample(key, family, kind);
            assert!(samples.insert(key.to_owned(), value.parse().unwrap()).is_none(), "{line}");
        }
    }
    samples
}

/// Checks the name and the labels of a sample.
fn check_sample(key: &str, family: &str, kind: &str) {
    let (name, labels) = key.split_once('{').unwrap_or((key, "}"));
    let is_name = |text: &str| text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
    assert!(name.starts_with("underpass_") && is_name(name), "{key}");
    let suffix = name.strip_prefix(family).unwrap();
    let suffixes: &[&str] =
        if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
    assert!(suffixes.contains(&suffix), "{key}");
    for label in labels.strip_suffix('}').unwrap().split(',').filter(|label| !label.is_empty()) {
        let (label, value) = label.split_once('=').unwrap();
        let value = value.strip_prefix('"').unwrap().strip_suffix('"').unwrap();
        assert!(is_name(label) && !value.contains(['"', '\\', '\n']), "{key}");
    }
}

/// Copies 100 bytes to a file opened for appending, where copy_file_range is declined.
fn report(policy: Policy) -> Result<Report, Error> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&[7; 100]).unwrap();
    file.rewind().unwrap();
    let end = tempfile::NamedTempFile::new().unwrap();
    let end = File::options().append(true).open(end.path()).unwrap();
    let (source, sink) = (Source::of(&file).unwrap(), Sink::of(&end).unwrap());
    Transfer::new(source, sink).options(Options::default().policy(policy)).run()
}

#[test]
fn fresh_page_has_every_family_and_zeros() {
    let samples = parse(&Metrics::new(2).render(0, &[]));
    for name in [
        "connections_accepted_total",
        "connections_refused_total",
        "connections_evicted_total",
        "connections_open",
        "cold_waits_total",
        "cold_wait_seconds_total",
        "tls_resumed_total",
        "transfers_open",
        "sent_bytes_total{mechanism=\"sendfile\"}",
        "sent_bytes_total{mechanism=\"memory\"}",
        "request_duration_seconds_bucket{le=\"+Inf\"}",
        "request_duration_seconds_count",
    ] {
        assert_eq!(samples[&format!("underpass_{name}")], 0.0, "{name}");
    }
}

#[test]
fn counters_of_workers_are_summed() {
    let metrics = Metrics::new(3);
    for worker in 0..3 {
        let metrics = metrics.worker(worker);
        metrics.connection_opened();
        metrics.connection_opened();
        metrics.connection_closed();
        metrics.connection_refused();
        metrics.connection_evicted();
        metrics.request(200, Duration::from_millis(1));
        metrics.request(404, Duration::from_micros(1001));
        metrics.request(999, Duration::from_secs(7200));
        metrics.cold_wait(Duration::from_millis(250));
        metrics.moved(Some(Mechanism::Sendfile), 1000);
        metrics.moved(None, 10);
        metrics.failed("reset");
        metrics.secured(None, false);
        metrics.secured(Some("no_module"), true);
        metrics.handshake_failed("closed");
    }
    let samples = parse(&metrics.render(5, &[]));
    for (name, value) in [
        ("connections_accepted_total", 6.0),
        ("connections_refused_total", 3.0),
        ("connections_evicted_total", 3.0),
        ("connections_open", 3.0),
        ("requests_total{code=\"200\"}", 3.0),
        ("requests_total{code=\"404\"}", 3.0),
        ("responses_failed_total{reason=\"reset\"}", 3.0),
        ("tls_connections_total{mode=\"kernel\",reason=\"\"}", 3.0),
        ("tls_connections_total{mode=\"user_space\",reason=\"no_module\"}", 3.0),
        ("tls_handshakes_failed_total{reason=\"closed\"}", 3.0),
        ("tls_resumed_total", 3.0),
        ("cold_waits_total", 3.0),
        ("cold_wait_seconds_total", 0.75),
        ("transfers_open", 5.0),
        ("sent_bytes_total{mechanism=\"sendfile\"}", 3000.0),
        ("sent_bytes_total{mechanism=\"memory\"}", 30.0),
        ("request_duration_seconds_bucket{le=\"0.001\"}", 3.0),
        ("request_duration_seconds_bucket{le=\"0.002\"}", 6.0),
        ("request_duration_seconds_bucket{le=\"3600\"}", 6.0),
        ("request_duration_seconds_bucket{le=\"+Inf\"}", 9.0),
        ("request_duration_seconds_count", 9.0),
        ("request_duration_seconds_sum", 21_600.006_003),
    ] {
        assert_eq!(samples[&format!("underpass_{name}")], value, "{name}");
    }
}

#[test]
fn worker_beyond_the_last_counts_at_the_first() {
    let metrics = Metrics::new(0);
    metrics.worker(7).connection_opened();
    assert_eq!(parse(&metrics.render(0, &[]))["underpass_connections_accepted_total"], 1.0);
}

#[test]
fn bounds_of_the_histogram_ascend_and_match_their_labels() {
    assert!(histogram::BOUNDS.is_sorted_by(|a, b| a.0 < b.0));
    for (milliseconds, seconds) in histogram::BOUNDS {
        assert_eq!(seconds.parse::<f64>().unwrap(), milliseconds as f64 / 1000.0);
    }
}

#[test]
fn report_is_counted_by_mechanism_and_only_once() {
    let report = report(Policy::Require(Mechanism::ReadWrite)).unwrap();
    let metrics = Metrics::new(1);
    let mut recorded = Recorded::default();
    for _ in 0..3 {
        metrics.worker(0).record_more(&report, &mut recorded);
    }
    let name = "underpass_sent_bytes_total{mechanism=\"read_write\"}";
    assert_eq!(parse(&metrics.render(0, &[]))[name], 100.0);
    metrics.worker(0).record(&report);
    assert_eq!(parse(&metrics.render(0, &[]))[name], 200.0);
}

#[test]
fn declines_are_counted_by_mechanism_and_reason() {
    let error = report(Policy::Require(Mechanism::CopyFileRange)).unwrap_err();
    let metrics = Metrics::new(1);
    let mut recorded = Recorded::default();
    metrics.worker(0).record_more(error.report(), &mut recorded);
    metrics.worker(0).record_more(error.report(), &mut recorded);
    let samples = parse(&metrics.render(0, &[]));
    let name = "underpass_declines_total{mechanism=\"copy_file_range\",errno=\"unsuitable_ends\"}";
    assert_eq!(samples[name], 1.0);
}

#[test]
fn labels_are_bounded() {
    let counts = RareCounts::default();
    for errno in 0..1000 {
        counts.count("sendfile", format!("errno {errno}"));
        counts.count("sendfile", "errno 0".into());
    }
    let mut sums = BTreeMap::new();
    counts.add_to(&mut sums);
    assert_eq!(sums.len(), MAX_LABELS + 1);
    assert_eq!(sums.values().sum::<u64>(), 2000);
    assert_eq!(sums[&("sendfile", "errno 0".to_owned())], 1001);
}
