//! The receipt of a transfer in text form: the path as a diagram, and the cost.

use std::time::Duration;

use indicatif::{BinaryBytes, HumanCount};
use underpass_engine::Mechanism;

use super::path_diagram::{self, Alphabet, DiagramFlow, KernelPath, PathDiagram};
use crate::output::counted;
use underpass_receipt::{CpuReceipt, DeclineReceipt, FaultsReceipt, Receipt, SwitchesReceipt};

/// Returns the receipt as people read it.
pub(crate) fn explained(receipt: &Receipt, alphabet: Alphabet) -> String {
    let mut lines = vec!["receipt".to_owned()];
    lines.extend(diagram(receipt).draw(alphabet).iter().map(|line| format!("  {line}")));
    let mut line = |name: &str, text: String| lines.push(format!("  {name:<12} {text}"));
    for moved in &receipt.mechanisms {
        let (bytes, calls) = (HumanCount(moved.bytes), counted(moved.calls, "call", "calls"));
        line("moved", format!("{bytes} bytes by {} in {calls}", moved.name));
    }
    for declined in &receipt.declined {
        line("declined", refusal(declined, ""));
    }
    line("user space", format!("{} bytes", HumanCount(receipt.user_space_bytes)));
    let waits = counted(receipt.waits, "time", "times");
    line("calls", format!("{}, waited {waits}", HumanCount(receipt.calls)));
    let time = Duration::try_from_secs_f64(receipt.elapsed_s).unwrap_or_default();
    line("time", format!("{:.3} s", time.as_secs_f64()));
    costs(receipt.cpu_s, receipt.context_switches, receipt.page_faults, &mut line);
    line("integrity", receipt.integrity.clone());
    if let Some(congestion) = &receipt.congestion {
        line("congestion", congestion.clone());
    }
    if let Some(tls) = &receipt.tls {
        let place = match &tls.why {
            None => "in the kernel".to_owned(),
            Some(why) => format!("in user space ({why})"),
        };
        let resumed = if tls.resumed { ", resumed" } else { "" };
        line("tls", format!("{}, {}{resumed}: {place}", tls.version, tls.suite));
    }
    if let Some(upload) = &receipt.upload {
        let before = HumanCount(upload.resumed_at);
        line("resumed", format!("{before} bytes were there before"));
        if let Some(status) = upload.status {
            line("answer", format!("{status} from {}", upload.url));
        }
        if let Some(digest) = &upload.digest {
            let read = HumanCount(digest.read_bytes);
            line("digest", format!("{}:{}, read {read} bytes", digest.algorithm, digest.value));
        }
    }
    lines.join("\n")
}

/// Returns the costs that the kernel counted for the process that moved the bytes.
pub(crate) fn costs(
    cpu: CpuReceipt,
    switches: SwitchesReceipt,
    faults: FaultsReceipt,
    line: &mut impl FnMut(&str, String),
) {
    line("processor", format!("{:.3} s user, {:.3} s system", cpu.user, cpu.system));
    let (voluntary, involuntary) = (switches.voluntary, switches.involuntary);
    line("switches", format!("{voluntary} voluntary, {involuntary} involuntary"));
    line("page faults", format!("{} minor, {} major", faults.minor, faults.major));
}

/// Formats a refusal: `copy_file_range (EXDEV) at byte 0, 3 times: two file systems`; the ends come
/// before the byte.
pub(crate) fn refusal(declined: &DeclineReceipt, ends: &str) -> String {
    let DeclineReceipt { mechanism, errno, at, times, reason, .. } = declined;
    let times = if *times > 1 { format!(", {times} times") } else { String::new() };
    let reason = reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    format!("{mechanism} ({errno}){ends} at byte {}{times}{reason}", HumanCount(*at))
}

/// Returns the path of the bytes; nothing is drawn if there were several kinds of ends.
fn diagram(receipt: &Receipt) -> PathDiagram {
    let mut diagram = PathDiagram::default();
    let (Some(from), Some(to)) = (receipt.from, receipt.to) else { return diagram };
    for moved in &receipt.mechanisms {
        let label = path_diagram::label(moved.bytes, moved.calls);
        if moved.mechanism == Some(Mechanism::ReadWrite) {
            // The calls that read are not counted separately.
            let label = format!("{label} for both");
            diagram
                .ins
                .push(DiagramFlow { end: from, label: BinaryBytes(moved.bytes).to_string() });
            diagram.outs.push(DiagramFlow { end: to, label });
        } else {
            diagram.unders.push(KernelPath { from, to, label: format!("{} {label}", moved.name) });
        }
    }
    diagram
}
