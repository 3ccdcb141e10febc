//! TLS in the kernel (kTLS): whether it is available, for which suites, and whether it works.

use std::fs;
use std::time::Duration;

use rustix::io::Errno;
use underpass_engine::hint::Plain;
use underpass_engine::ktls::{Cipher, Support, TlsVersion, probe, self_test};
use underpass_engine::{Report, errno};

use super::place::{KernelOrigin, Module};
use crate::doctor::finding::Finding;

/// Facts about TLS in the kernel.
#[derive(Clone, Debug)]
pub(crate) struct TlsInfo {
    /// The parts of TLS that the kernel supports; a sentence if it could not be asked.
    pub(crate) support: Result<Support, String>,
    /// The result of the self-test, if there was a suite to try it with.
    pub(crate) proof: Option<Result<SelfTestResult, String>>,
    /// The kernel's counters, /proc/net/tls_stat.
    pub(crate) counters: Option<String>,
    /// The origin of the kernel.
    pub(crate) place: KernelOrigin,
}

/// A successful self-test.
#[derive(Clone, Debug)]
pub(crate) struct SelfTestResult {
    /// The suite, such as `TLS 1.3 AES-128-GCM`.
    pub(crate) suite: String,
    /// Bytes that arrived as they were sent.
    pub(crate) bytes: u64,
    /// The mechanism that sent them.
    pub(crate) sent_by: String,
    /// The mechanism that received them.
    pub(crate) received_by: String,
    /// The time that it took.
    pub(crate) elapsed: Duration,
}

impl TlsInfo {
    /// Gathers all facts.
    pub(crate) fn gather() -> Self {
        let support = probe().map_err(|error| Plain(&error).to_string());
        let suite = support.as_ref().ok().and_then(|support| suites(support, true).next());
        let proof = suite.map(|(version, cipher)| {
            let proof = self_test(version, cipher).map_err(|error| error.to_string())?;
            Ok(SelfTestResult {
                suite: suite_name((version, cipher)),
                bytes: proof.received.bytes(),
                sent_by: movers(&proof.sent),
                received_by: movers(&proof.received),
                elapsed: proof.elapsed,
            })
        });
        let counters = fs::read_to_string("/proc/net/tls_stat").ok();
        Self { support, proof, counters, place: KernelOrigin::detect() }
    }
}

/// Returns the findings for these facts.
pub(crate) fn findings(info: &TlsInfo) -> Vec<Finding> {
    let support = match &info.support {
        Ok(support) => support,
        Err(error) => return vec![untried(error)],
    };
    let mut findings = vec![match support.module {
        Ok(()) => Finding::best("ktls")
            .finding("the kernel has TLS")
            .consequence("the kernel encrypts HTTPS, and no byte of a file enters user space"),
        Err(errno) => missing(errno, info.place),
    }];
    if support.module.is_ok() {
        findings.extend([of_suites(support), of_key_changes(support)]);
    }
    findings.extend(info.proof.as_ref().map(of_proof));
    findings.extend(info.counters.as_deref().and_then(of_counters));
    findings
}

/// Returns the finding for a test without a connection.
fn untried(error: &str) -> Finding {
    Finding::closed("ktls")
        .finding(format!("it could not be tried over loopback: {error}"))
        .consequence("it is unknown whether the kernel can encrypt HTTPS")
        .remedy("let this program open TCP connections to 127.0.0.1 or ::1")
}

/// Returns the finding for a kernel that does not encrypt TLS, with a remedy.
fn missing(errno: Errno, place: KernelOrigin) -> Finding {
    let symbol = errno::name(errno);
    let (finding, remedy) = match (errno, place.module) {
        (Errno::NOENT, Module::Installed) => (
            "the kernel's TLS module is not loaded",
            "load it as root: modprobe tls; at each \
              start: echo tls > /etc/modules-load.d/tls.conf",
        ),
        (Errno::NOENT, Module::NotBuilt) => {
            ("this kernel was built without TLS", "run a kernel that has CONFIG_TLS=m or =y")
        }
        (Errno::NOENT, Module::Unknown) => (
            "the kernel has no TLS",
            "load it as root: modprobe tls; if there is no such module, \
              run a kernel that has CONFIG_TLS=m or =y",
        ),
        _ => (
            "a system call filter prevents TLS in the kernel",
            "let the filter (seccomp) allow setsockopt(2) with TCP_ULP and SOL_TLS",
        ),
    };
    let host = if place.is_container && errno == Errno::NOENT {
        "; this is a container: do it on its host"
    } else {
        ""
    };
    Finding::closed("ktls")
        .finding(format!("{finding} (TCP_ULP: {symbol})"))
        .consequence(
            "HTTPS is encrypted by this program, and each byte of a file crosses into user space \
             and back",
        )
        .remedy(format!("{remedy}{host}"))
}

fn of_suites(support: &Support) -> Finding {
    let names = |are_there| -> Vec<_> { suites(support, are_there).map(suite_name).collect() };
    let (has, lacks) = (names(true), names(false));
    let why = TlsVersion::ALL
        .into_iter()
        .flat_map(|version| Cipher::ALL.map(|cipher| support.supports(version, cipher).err()))
        .flatten()
        .next();
    let why = why.map(errno::name).unwrap_or_default();
    let name = "ktls_suites";
    let found = match (has.is_empty(), lacks.is_empty()) {
        (true, _) => Finding::closed(name).finding(format!("the kernel supports no suite ({why})")),
        (_, true) => Finding::best(name).finding(has.join(", ")),
        _ => Finding::limited(name).finding(format!(
            "{}; not {} ({why})",
            has.join(", "),
            lacks.join(", ")
        )),
    };
    if lacks.is_empty() {
        found.consequence("the kernel supports every suite that can be negotiated")
    } else {
        found.consequence("connections with another suite are encrypted by this program").remedy(
            "load the modules of the ciphers (modprobe gcm, modprobe chacha20poly1305), or \
                 run a newer kernel",
        )
    }
}

fn of_key_changes(support: &Support) -> Finding {
    match support.key_change {
        Ok(()) => Finding::best("ktls_key_change")
            .finding("the keys of a TLS 1.3 connection can be changed")
            .consequence("connections can last as long as both peers want"),
        Err(errno) => Finding::limited("ktls_key_change")
            .finding(format!("the keys of a connection cannot be changed ({})", errno::name(errno)))
            .consequence(
                "it is closed when the limit of its keys is near, after about 256 GiB, or when the peer changes keys; clients then reconnect",
            )
            .remedy("run Linux 6.14 or newer"),
    }
}

fn of_proof(proof: &Result<SelfTestResult, String>) -> Finding {
    match proof {
        Ok(SelfTestResult { suite, bytes, sent_by, received_by, elapsed }) => {
            Finding::best("ktls_self_test")
                .finding(format!(
                    "{} KiB were sent by {sent_by} and received by {received_by} with {suite}, byte for byte the same, in {:.1} ms",
                    bytes / 1024,
                    elapsed.as_secs_f64() * 1e3,
                ))
                .consequence("TLS in the kernel is reliable")
        }
        Err(error) => Finding::closed("ktls_self_test")
            .finding(format!("TLS in the kernel changed or lost bytes: {error}"))
            .consequence("transfers over HTTPS may fail or hang")
            .remedy("unload it (modprobe -r tls), and run another kernel"),
    }
}

/// Returns what the kernel has counted since the module was loaded, in this network namespace.
fn of_counters(counters: &str) -> Option<Finding> {
    let count = |name: &str| -> Option<u64> {
        let mut words = counters.lines().find(|line| line.starts_with(name))?.split_whitespace();
        words.nth(1)?.parse().ok()
    };
    let (here, card) = (count("TlsTxSw")?, count("TlsTxDevice")?);
    let (now_here, now_card) = (count("TlsCurrTxSw")?, count("TlsCurrTxDevice")?);
    let bad = count("TlsDecryptError")?;
    let finding = format!(
        "{here} connections were encrypted by the kernel and {card} by a network card, now \
         {now_here} and {now_card}; records that were not the peer's: {bad}"
    );
    let consequence =
        "these are the counts of the whole network namespace, not of this program alone";
    Some(Finding::best("ktls_counters").finding(finding).consequence(consequence))
}

/// Returns the suites that the kernel has, or those that it lacks, the best first.
fn suites(support: &Support, are_there: bool) -> impl Iterator<Item = (TlsVersion, Cipher)> + '_ {
    TlsVersion::ALL
        .into_iter()
        .flat_map(|version| Cipher::ALL.map(|cipher| (version, cipher)))
        .filter(move |&(version, cipher)| support.supports(version, cipher).is_ok() == are_there)
}

fn suite_name((version, cipher): (TlsVersion, Cipher)) -> String {
    format!("{} {}", version.name(), cipher.name())
}

fn movers(report: &Report) -> String {
    let names: Vec<_> = report.mechanisms().map(|(mechanism, _)| mechanism.name()).collect();
    names.join(" and ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::{count_closed, text};

    const HERE: KernelOrigin = KernelOrigin { module: Module::Unknown, is_container: false };
    const COUNTERS: &str = "TlsCurrTxSw                     \t2\nTlsCurrTxDevice  \t0\n\
                            TlsTxSw  \t27\nTlsTxDevice  \t0\nTlsDecryptError  \t1\n";

    fn whole() -> TlsInfo {
        let proof = SelfTestResult {
            suite: "TLS 1.3 AES-128-GCM".to_owned(),
            bytes: 384 << 10,
            sent_by: "sendfile".to_owned(),
            received_by: "splice".to_owned(),
            elapsed: Duration::from_micros(3_210),
        };
        let support = Support {
            module: Ok(()),
            suites: [[Ok(()); Cipher::ALL.len()]; TlsVersion::ALL.len()],
            key_change: Ok(()),
        };
        let counters = Some(COUNTERS.to_owned());
        TlsInfo { support: Ok(support), proof: Some(Ok(proof)), counters, place: HERE }
    }

    fn without(errno: Errno, place: KernelOrigin) -> TlsInfo {
        TlsInfo { support: Ok(Support::none(errno)), proof: None, counters: None, place }
    }

    fn rendered(info: &TlsInfo) -> String {
        text(&findings(info))
    }

    #[test]
    fn a_kernel_with_every_feature_matches_the_snapshot() {
        assert_eq!(rendered(&whole()), include_str!("../snapshots/ktls.txt"));
        assert_eq!(count_closed(&findings(&whole())), 0);
    }

    #[test]
    fn an_older_kernel_matches_the_snapshot() {
        let mut info = whole();
        let mut support = info.support.clone().unwrap_or(Support::none(Errno::IO));
        support.key_change = Err(Errno::BUSY);
        support.suites[1][2] = Err(Errno::INVAL);
        (info.support, info.counters) = (Ok(support), None);
        assert_eq!(rendered(&info), include_str!("../snapshots/ktls_older.txt"));
        assert_eq!(count_closed(&findings(&info)), 0);
    }

    #[test]
    fn kernels_without_ktls_match_the_snapshots() {
        let mut all = String::new();
        for module in [Module::Installed, Module::NotBuilt, Module::Unknown] {
            all += &rendered(&without(Errno::NOENT, KernelOrigin { module, ..HERE }));
        }
        all += &rendered(&without(Errno::NOENT, KernelOrigin { is_container: true, ..HERE }));
        all += &rendered(&without(Errno::PERM, KernelOrigin { is_container: true, ..HERE }));
        let untried = Err("Operation not permitted".to_owned());
        all += &rendered(&TlsInfo { support: untried, ..without(Errno::PERM, HERE) });
        assert_eq!(all, include_str!("../snapshots/ktls_missing.txt"));
    }

    #[test]
    fn a_failed_self_test_closes_ktls() {
        let proof = Some(Err("byte 16384 is not the one that was sent".to_owned()));
        let found = findings(&TlsInfo { proof, ..whole() });
        assert_eq!(count_closed(&found), 1);
        assert!(text(&found).contains("closed   ktls_self_test: "), "{found:?}");
        let mut none = whole();
        none.support = Ok(Support { module: Ok(()), ..Support::none(Errno::NOENT) });
        assert_eq!(count_closed(&findings(&none)), 1);
    }
}
