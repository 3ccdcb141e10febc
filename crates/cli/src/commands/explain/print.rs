//! The receipt of a program in text form.

use indicatif::HumanCount;

use crate::output::counted;
use crate::output::printable::one_line;
use crate::receipt::explained::{costs, refusal};
use crate::receipt::path_diagram::{Alphabet, DiagramFlow, KernelPath, PathDiagram, label};
use underpass_diagnose::explain::{
    Count, CrossingReceipt, EndReceipt, ProgramReceipt, RefusalReceipt,
};
use underpass_receipt::EndKind;

/// Returns the whole text, without the final line break.
pub(super) fn text(receipt: &ProgramReceipt, alphabet: Alphabet) -> String {
    let mut lines = vec![heading(receipt)];
    lines.extend(diagram(receipt).draw(alphabet).iter().map(|line| format!("  {line}")));
    lines.push("receipt".to_owned());
    let mut line = |name: &str, text: String| lines.push(format!("  {name:<12} {text}"));
    moved(receipt, &mut line);
    cost(receipt, &mut line);
    for end in receipt.ends.iter().take(MAX_ENDS) {
        line(end.kind.name(), end_text(end));
    }
    let more = receipt.ends.len().saturating_sub(MAX_ENDS) + receipt.ends_left_out;
    if more > 0 {
        line("more", format!("{} other ends, see --json", HumanCount(more as u64)));
    }
    lines.join("\n")
}

/// Returns the heading: `curl -O http://a.test/file: exit code 0`.
fn heading(receipt: &ProgramReceipt) -> String {
    let command: String = one_line(&receipt.command.join(" ")).chars().take(MAX_COMMAND).collect();
    match (receipt.exit_code, receipt.signal) {
        (Some(code), _) => format!("{command}: exit code {code}"),
        (_, Some(signal)) => format!("{command}: ended by signal {signal}"),
        _ => command,
    }
}

/// Writes the lines about the movement of the bytes.
fn moved(receipt: &ProgramReceipt, line: &mut impl FnMut(&str, String)) {
    for moved in receipt.moves.iter().filter(|moved| moved.count.bytes > 0) {
        let (how, from, to) = (moved.mechanism, moved.from.name(), moved.to.name());
        line("in kernel", format!("{how}, {from} to {to}: {}", count(moved.count)));
    }
    for crossing in &receipt.crossings {
        let kind = crossing.kind.name();
        let (name, text) = match (crossing.direction, crossing.mechanism) {
            ("in", "mmap") => ("read", format!("from {kind} into a mapped file")),
            ("in", _) => ("read", format!("from {kind}")),
            (_, "read_write") => ("written", format!("to {kind}")),
            (_, "mmap") => ("written", format!("to {kind} from a mapped file (mmap)")),
            (_, how) => ("given", format!("to {kind} by reference ({how})")),
        };
        line(name, format!("{text}: {}", count(crossing.count)));
    }
    for declined in &receipt.declined {
        line("declined", refusal_text(declined));
    }
    for failed in &receipt.failed {
        line("failed", refusal_text(failed));
    }
    line("user space", format!("{} bytes", HumanCount(receipt.user_space_bytes)));
    let hidden = receipt.hidden;
    for (calls, what) in [
        (hidden.io_uring_calls, "io_uring: its reads and writes are not seen, nor counted here"),
        (hidden.io_submit_calls, "io_submit: its reads and writes are not seen, nor counted here"),
        (hidden.foreign_calls, "another architecture, such as 32 bits: not understood"),
        (
            hidden.between_processes_calls,
            "process_vm_readv and its like: their bytes are not counted here",
        ),
    ] {
        if calls > 0 {
            line("hidden", format!("{} calls of {what}", HumanCount(calls)));
        }
    }
    // The C library maps a smaller amount in every program.
    if receipt.mapped_bytes >= MAPPED_BY_NATURE {
        let bytes = HumanCount(receipt.mapped_bytes);
        let files = counted(receipt.mapped_files, "file", "files");
        let note = "what is read there without a call is not seen";
        line("mapped", format!("{bytes} bytes of {files}; {note}"));
    }
}

/// Writes the lines about the cost.
fn cost(receipt: &ProgramReceipt, line: &mut impl FnMut(&str, String)) {
    let (calls, waits) = (HumanCount(receipt.calls), HumanCount(receipt.waits));
    let all = receipt.all_calls.map(|all| format!(" of {} in all", HumanCount(all)));
    line("calls", format!("{calls}{}, {waits} not ready", all.unwrap_or_default()));
    let (processes, threads) = (HumanCount(receipt.processes), HumanCount(receipt.threads));
    let plural = if receipt.threads == 1 { "" } else { "s" };
    line("processes", format!("{processes}, with {threads} thread{plural}"));
    line("time", format!("{:.3} s", receipt.elapsed_s));
    costs(receipt.cpu_s, receipt.context_switches, receipt.page_faults, line);
    let stops = HumanCount(receipt.stops);
    line("watched", format!("in {stops} stops; the times above include them, the switches do not"));
}

/// Formats a count: `7,340,032 bytes in 448 calls of 16,384`.
fn count(count: Count) -> String {
    let (bytes, calls) = (HumanCount(count.bytes), HumanCount(count.calls));
    match count.calls {
        1 => format!("{bytes} bytes in 1 call"),
        _ => format!("{bytes} bytes in {calls} calls of {}", HumanCount(count.mean_bytes())),
    }
}

/// Formats a refusal: `copy_file_range (EXDEV), file to file, at byte 0: two file systems`.
fn refusal_text(declined: &RefusalReceipt) -> String {
    let ends = match (declined.from, declined.to) {
        (EndKind::Other, to) => format!(", to {},", to.name()),
        (from, EndKind::Other) => format!(", from {},", from.name()),
        (from, to) => format!(", {} to {},", from.name(), to.name()),
    };
    refusal(&declined.refusal, &ends)
}

/// Formats an end: `7,340,032 read, 7,340,032 written: /srv/disk.img`.
fn end_text(end: &EndReceipt) -> String {
    let parts = [
        (end.count.read, "read"),
        (end.count.written, "written"),
        (end.count.moved_from, "moved from it"),
        (end.count.moved_to, "moved to it"),
    ];
    let texts: Vec<_> = parts
        .iter()
        .filter(|(count, _)| count.bytes > 0)
        .map(|(count, what)| format!("{} {what}", HumanCount(count.bytes)))
        .collect();
    let name = one_line(&end.name);
    let number = match end.count.number {
        0 | 1 => String::new(),
        number => format!("{} ", HumanCount(number)),
    };
    let plural = if end.count.number > 1 { "s" } else { "" };
    format!("{number}{name}{plural}: {}", texts.join(", "))
}

/// Returns the diagram: kinds of ends, those with the most bytes first.
fn diagram(receipt: &ProgramReceipt) -> PathDiagram {
    let flows = |direction: &str| {
        let through = |each: &&CrossingReceipt| {
            each.direction == direction && each.mechanism != "mmap" && each.count.bytes > 0
        };
        let flow = |each: &CrossingReceipt| {
            let label = label(each.count.bytes, each.count.calls);
            let label = match each.mechanism {
                "read_write" => label,
                how => format!("{how} {label}"),
            };
            DiagramFlow { end: each.kind, label }
        };
        receipt.crossings.iter().filter(through).map(flow).collect()
    };
    let under = |from, to, how: &str, count: Count| KernelPath {
        from,
        to,
        label: format!("{how} {}", label(count.bytes, count.calls)),
    };
    let mapped = receipt.crossings.iter().filter(|each| each.mechanism == "mmap");
    let mapped = mapped.map(|each| match each.direction {
        "in" => under(each.kind, EndKind::File, each.mechanism, each.count),
        _ => under(EndKind::File, each.kind, each.mechanism, each.count),
    });
    let moved = receipt.moves.iter().filter(|each| each.count.bytes > 0);
    let moved = moved.map(|each| under(each.from, each.to, each.mechanism, each.count));
    PathDiagram {
        ins: flows("in"),
        outs: flows("out"),
        unders: moved.chain(mapped).collect(),
        is_local: receipt.ends.iter().all(|end| !is_network(end)),
    }
}

/// Returns whether an end is a socket that may lead to another machine.
fn is_network(end: &EndReceipt) -> bool {
    end.kind == EndKind::Socket
        && !["UNIX", "NETLINK"].iter().any(|local| end.name.starts_with(local))
}

/// Bytes of mapped files that are not worth a line: those of a locale.
const MAPPED_BY_NATURE: u64 = 8 << 20;

/// The most ends that are printed.
const MAX_ENDS: usize = 6;

/// The most characters of a command that are printed.
const MAX_COMMAND: usize = 200;
