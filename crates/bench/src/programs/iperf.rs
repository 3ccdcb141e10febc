//! `iperf3 -Z`, the usual tool for measuring networks, with sendfile(2). It sends a file of its
//! own, again and again, to a receiver of its own.

use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::Value;

use super::SocketPrograms;
use crate::error::{BenchError, Result};
use crate::load::free_port;
use crate::record::{Contender, Role, Side};
use crate::run::{Cores, Finished, Link, Measured, Running, retry};

/// The summary that it prints at the end.
#[derive(Debug, Deserialize)]
struct IperfSum {
    seconds: f64,
    bytes: u64,
}

/// Moves `size` bytes, or a few more, as it moves whole blocks; time is given as for `size`.
pub(crate) fn measure(
    programs: &SocketPrograms,
    link: &Link,
    cores: Cores,
    size: u64,
    cancel: &AtomicBool,
) -> Result<Measured> {
    // It needs a port in advance, which another program may take before it does.
    retry(cancel, || {
        let (host, port) = (link.host.to_string(), free_port()?.to_string());
        let program =
            || programs.plain(Contender::Iperf3).unwrap_or_else(|| Command::new("iperf3"));
        let mut command = program();
        command.args(["--server", "--one-off", "--bind", &host, "--port", &port]);
        let mut receiver = Running::start(command, link.receiver(cores.second))?;
        let deadline = Instant::now() + MAX_WAIT;
        let sender = loop {
            let mut command = program();
            command.args(["--client", &host, "--port", &port, "--zerocopy", "--json"]);
            command.args(["--bytes", &size.to_string()]);
            let sender = Running::start(command, link.sender(cores.first))?.finish(None, cancel)?;
            // The receiver does not report when it listens, and the sender always exits with 0.
            let is_early = sender.stdout.contains("unable to connect");
            if !is_early || receiver.has_ended() || Instant::now() >= deadline {
                break sender;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let sum = sum(&sender)?;
        let receiver = receiver.finish(Some(MAX_WAIT), cancel)?;
        let elapsed_s = sum.seconds * size as f64 / sum.bytes as f64;
        let side = |role, finished: &Finished| Side::process(role, elapsed_s, finished.cost);
        let (sender, receiver) = (side(Role::Sender, &sender), side(Role::Receiver, &receiver));
        Ok(Measured::new(elapsed_s, sender, Some(receiver)))
    })
}

/// Returns the receiver's summary in the sender's output. It lacks the bytes in flight when the
/// sender stopped; if these were all bytes, the sender's summary counts.
fn sum(sender: &Finished) -> Result<IperfSum> {
    let output: Value = serde_json::from_str(&sender.stdout).unwrap_or_default();
    let sums = ["sum_received", "sum_sent"].map(|name| &output["end"][name]).into_iter();
    let sums = sums.filter_map(|sum| IperfSum::deserialize(sum).ok());
    let mut sums = sums.filter(|sum| sum.bytes > 0 && sum.seconds > 0.0);
    sums.next().filter(|_| sender.status.success()).ok_or_else(|| {
        let line = sender.stdout.lines().find(|line| line.contains("\"error\""));
        let why = line.unwrap_or("it has said nothing of its work").trim().to_owned();
        BenchError::measuring(Contender::Iperf3, why)
    })
}

/// The time that its receiver may take to begin, and to end.
const MAX_WAIT: Duration = Duration::from_secs(10);
