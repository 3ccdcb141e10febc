//! Renders the text format of Prometheus, version 0.0.4.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use underpass_engine::Mechanism;

use crate::metrics::histogram::BOUNDS;
use crate::metrics::{Metrics, RareCounts, SiteCounts, WorkerMetrics};

/// Renders the counters of all workers.
pub(super) fn render(
    metrics: &Metrics,
    open_transfers: usize,
    sites: &[Arc<SiteCounts>],
) -> String {
    let mut page = MetricsPage { text: String::with_capacity(8 * 1024), workers: &metrics.workers };
    page.connections();
    page.tls();
    page.requests();
    page.bytes();
    page.sites(sites);
    page.declines();
    page.cold_waits();
    let digests = metrics.digests.load(Relaxed);
    page.counter("digests_total", "Digests of files that were computed.", digests);
    let help = "Bytes read into user space to compute digests and checksums of zips.";
    page.counter("digest_read_bytes_total", help, metrics.digest_bytes.load(Relaxed));
    let help = "Folders walked to lay out archives, each once for all requests that waited.";
    page.counter("folder_walks_total", help, metrics.folder_walks.load(Relaxed));
    let help = "Listings made, each once for all requests that waited.";
    page.counter("listings_total", help, metrics.listings.load(Relaxed));
    page.gauge("transfers_open", "Transfers that are under way.", open_transfers as u64);
    page.family("build_info", "gauge", "The version of the program; always 1.");
    page.sample("build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
    page.text
}

/// Returns one counter of a site.
type SiteCount = fn(&SiteCounts) -> u64;

/// The text under construction, and the counters.
struct MetricsPage<'m> {
    /// The text so far.
    text: String,
    /// The counters.
    workers: &'m [WorkerMetrics],
}

impl MetricsPage<'_> {
    /// Writes the number of connections, open and in total.
    fn connections(&mut self) {
        // The closed ones are read first, so that a connection that ends in between does not make
        // the difference negative.
        let closed = self.sum(|worker| &worker.closed);
        let accepted = self.sum(|worker| &worker.accepted);
        let refused = self.sum(|worker| &worker.refused);
        self.counter("connections_accepted_total", "Connections accepted.", accepted);
        self.counter("connections_refused_total", "Connections refused.", refused);
        let evicted = self.sum(|worker| &worker.evicted);
        let help = "Idle connections closed to make room for others.";
        self.counter("connections_evicted_total", help, evicted);
        let open = accepted.saturating_sub(closed);
        self.gauge("connections_open", "Connections that are open.", open);
    }

    /// Writes where TLS records are encrypted, and the results of handshakes.
    fn tls(&mut self) {
        let name = "tls_connections_total";
        let help = "TLS connections, by where they are encrypted and why not in the kernel.";
        self.family(name, "counter", help);
        for ((mode, reason), count) in self.rare(|worker| &worker.secured) {
            self.sample(name, &[("mode", mode), ("reason", &reason)], count);
        }
        let name = "tls_handshakes_failed_total";
        self.family(name, "counter", "TLS handshakes that failed, by reason.");
        for ((reason, _), count) in self.rare(|worker| &worker.handshake_failures) {
            self.sample(name, &[("reason", reason)], count);
        }
        let resumed = self.sum(|worker| &worker.resumed);
        let help = "TLS handshakes that resumed an earlier session.";
        self.counter("tls_resumed_total", help, resumed);
    }

    /// Writes the counters of each site, if there are several.
    fn sites(&mut self, sites: &[Arc<SiteCounts>]) {
        let families: [(&str, &str, SiteCount); 2] = [
            ("site_requests_total", "Requests answered, by site.", SiteCounts::requests),
            ("site_sent_bytes_total", "Bytes sent, by site.", SiteCounts::bytes),
        ];
        for (name, help, count) in families.into_iter().filter(|_| !sites.is_empty()) {
            self.family(name, "counter", help);
            for site in sites {
                self.sample(name, &[("site", site.name())], count(site));
            }
        }
    }

    /// Writes the number of responses and their durations.
    fn requests(&mut self) {
        self.family("requests_total", "counter", "Requests answered, by status code.");
        for at in 0..500 {
            let count = self.sum(|worker| &worker.requests.0[at]);
            if count > 0 {
                let code = (100 + at).to_string();
                self.sample("requests_total", &[("code", &code)], count);
            }
        }
        self.durations();
        let name = "responses_failed_total";
        self.family(name, "counter", "Responses that failed, by reason.");
        for ((failure, _), count) in self.rare(|worker| &worker.failures) {
            self.sample(name, &[("reason", failure)], count);
        }
    }

    /// Writes the histogram of durations.
    fn durations(&mut self) {
        let name = "request_duration_seconds";
        let help = "Time from the request until the kernel (for large responses, the client) had \
                    the response, or until it failed.";
        self.family(name, "histogram", help);
        let mut counts = [0; BOUNDS.len() + 1];
        let mut nanoseconds = 0;
        for worker in self.workers {
            nanoseconds += worker.durations.sum();
            for (sum, count) in counts.iter_mut().zip(worker.durations.counts()) {
                *sum += count;
            }
        }
        let bounds = BOUNDS.iter().map(|(_, seconds)| *seconds).chain(["+Inf"]);
        let mut up_to = 0;
        for (bound, count) in bounds.zip(counts) {
            up_to += count;
            self.sample("request_duration_seconds_bucket", &[("le", bound)], up_to);
        }
        self.sample("request_duration_seconds_sum", &[], seconds(nanoseconds));
        self.sample("request_duration_seconds_count", &[], up_to);
    }

    /// Writes the bytes by mechanism. Mechanisms that were never used are listed with 0.
    fn bytes(&mut self) {
        let name = "sent_bytes_total";
        let help = "Bytes given to the kernel, by the mechanism that moved them.";
        self.family(name, "counter", help);
        for mechanism in Mechanism::ALL {
            let bytes = self.sum(|worker| &worker.moved[mechanism as usize]);
            self.sample(name, &[("mechanism", mechanism.name())], bytes);
        }
        let bytes = self.sum(|worker| &worker.memory);
        self.sample(name, &[("mechanism", "memory")], bytes);
        let name = "received_bytes_total";
        let help = "Bytes of uploads, by the mechanism that moved them.";
        self.family(name, "counter", help);
        for mechanism in [Mechanism::Splice, Mechanism::ReadWrite] {
            let bytes = self.sum(|worker| &worker.received[mechanism as usize]);
            self.sample(name, &[("mechanism", mechanism.name())], bytes);
        }
    }

    /// Writes the operations that the kernel declined.
    fn declines(&mut self) {
        let name = "declines_total";
        let help = "Times the kernel declined a mechanism, by its answer.";
        self.family(name, "counter", help);
        for ((mechanism, errno), count) in self.rare(|worker| &worker.declines) {
            self.sample(name, &[("mechanism", mechanism), ("errno", &errno)], count);
        }
    }

    /// Writes the waits for files that were not in the page cache.
    fn cold_waits(&mut self) {
        let waits = self.sum(|worker| &worker.cold_waits);
        let help = "Waits for a file that was not in the page cache.";
        self.counter("cold_waits_total", help, waits);
        let waited = self.sum(|worker| &worker.cold_nanoseconds);
        let help = "Time spent in waits for files that were not in the page cache.";
        self.counter("cold_wait_seconds_total", help, seconds(waited));
    }

    /// Writes a family with one sample that only grows.
    fn counter(&mut self, name: &str, help: &str, value: impl Display) {
        self.family(name, "counter", help);
        self.sample(name, &[], value);
    }

    /// Writes a family with one sample that goes up and down.
    fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.family(name, "gauge", help);
        self.sample(name, &[], value);
    }

    /// Writes the two lines before the samples of a family.
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP underpass_{name} {help}"));
        self.line(format_args!("# TYPE underpass_{name} {kind}"));
    }

    /// Writes one sample. No label contains a character that would need escaping.
    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let mut set = String::new();
        for (index, (label, text)) in labels.iter().enumerate() {
            set += if index == 0 { "{" } else { "," };
            set += label;
            set += "=\"";
            set += text;
            set += "\"";
        }
        set += if labels.is_empty() { "" } else { "}" };
        self.line(format_args!("underpass_{name}{set} {value}"));
    }

    /// Writes one line.
    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        writeln!(self.text, "{line}").expect("writing to a string does not fail");
    }

    /// Returns the sum of a counter over all workers.
    fn sum(&self, counter: impl Fn(&WorkerMetrics) -> &AtomicU64) -> u64 {
        self.workers.iter().map(|worker| counter(worker).load(Relaxed)).sum()
    }

    /// Returns the sum of rare counters over all workers.
    fn rare(
        &self,
        counts: impl Fn(&WorkerMetrics) -> &RareCounts,
    ) -> BTreeMap<(&'static str, String), u64> {
        let mut sums = BTreeMap::new();
        for worker in self.workers {
            counts(worker).add_to(&mut sums);
        }
        sums
    }
}

/// Converts nanoseconds to seconds.
fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}
