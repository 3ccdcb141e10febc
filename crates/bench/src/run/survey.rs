//! The environment of a run as far as it affects the figures; nothing that identifies the machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use procfs::{Current, CurrentSI};
use rustix::system::uname;

use super::process::Cores;
use super::system::current;
use crate::record::Environment;

/// Returns the facts known before the first sample. Fields that cannot be read say so.
pub(crate) fn survey(cores: Cores, source: &Path, target: Option<&Path>) -> Environment {
    let kernel = uname();
    let text = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
    let cpu = procfs::CpuInfo::current().ok();
    let cpu = cpu.and_then(|cpu| Some(cpu.model_name(0)?.to_owned()));
    let load = procfs::LoadAverage::current().ok();
    Environment {
        kernel: text(kernel.release()),
        machine: text(kernel.machine()),
        cpu: cpu.unwrap_or_else(|| "unknown".to_owned()),
        cores: cores.count,
        first_core: cores.first,
        second_core: cores.second,
        memory_bytes: procfs::Meminfo::current().map_or(0, |memory| memory.mem_total),
        source_file_system: file_system(source),
        target_file_system: target.map(file_system),
        congestion_default: current(),
        load_average: load.map_or([0.0; 3], |load| {
            [load.one, load.five, load.fifteen]
                .map(|part| (f64::from(part) * 100.0).round() / 100.0)
        }),
        optimized: !cfg!(debug_assertions),
        ..Environment::default()
    }
}

/// Returns the path of a program, if it is in PATH, or in the folders of root's PATH for servers.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_for_root = ["nginx", "squid", "varnishd"].contains(&program);
    let more: &[&str] = if is_for_root { &["/usr/sbin", "/usr/local/sbin"] } else { &[] };
    let mut folders = std::env::split_paths(&path).chain(more.iter().map(PathBuf::from));
    folders.find_map(|folder| Some(folder.join(program)).filter(|file| file.is_file()))
}

/// Returns the version text of a program, up to the number; none if it does not report one.
pub(crate) fn version(program: &Path) -> Option<String> {
    let option = if program.ends_with("varnishd") { "-V" } else { "--version" };
    first_line(program, option).map(|line| short_version(&line))
}

/// Returns what nginx calls itself, such as `nginx/1.22.1`; none if there is none.
pub(crate) fn nginx_version() -> Option<String> {
    let line = first_line(&find("nginx")?, "-v")?;
    line.split_whitespace().find(|word| word.starts_with("nginx/")).map(str::to_owned)
}

/// Returns the first line that a program prints, to either output, when it is given this option.
pub(crate) fn first_line(program: &Path, option: &str) -> Option<String> {
    let output = Command::new(program).arg(option).output().ok()?;
    // If it failed, the line would be a complaint about the option.
    output.status.success().then_some(())?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    text.lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
}

/// Returns the words of a line up to the version number.
fn short_version(line: &str) -> String {
    let is_number = |word: &&str| word.starts_with(|first: char| first.is_ascii_digit());
    let words: Vec<_> = line.split_whitespace().collect();
    let count = words.iter().position(is_number).map_or(words.len(), |at| at + 1);
    words[..count].join(" ")
}

pub(crate) fn now() -> String {
    let now = jiff::Timestamp::now().as_second();
    jiff::Timestamp::from_second(now).map_or_else(|_| String::new(), |now| now.to_string())
}

/// Returns the processor seconds that all programs have spent since the machine started, with
/// interrupts as far as their clocks have them. The kernel counts them in steps of 10 ms.
pub(super) fn busy_seconds() -> f64 {
    let Ok(stat) = procfs::KernelStats::current() else { return 0.0 };
    let total = stat.total;
    let own = total.user + total.nice + total.system + total.steal.unwrap_or(0);
    let ticks = own + interrupts_of_programs(total.irq.unwrap_or(0), total.softirq.unwrap_or(0));
    ticks as f64 / procfs::ticks_per_second() as f64
}

/// Returns the ticks of interrupts that the clocks of programs contain as well. A kernel that keeps
/// them apart (`CONFIG_IRQ_TIME_ACCOUNTING`) counts hardware interrupts too; others find next to
/// none, because their tick is one itself, and the interrupted program pays for the network.
fn interrupts_of_programs(hard: u64, soft: u64) -> u64 {
    if hard > soft / 100 { 0 } else { hard + soft }
}

/// Returns the processor seconds of the whole machine since it started, with interrupts: on
/// loopback the network's own work is part of what a server costs, whichever core does it.
pub(crate) fn machine_seconds() -> Option<f64> {
    let total = procfs::KernelStats::current().ok()?.total;
    let interrupts = total.irq.unwrap_or(0) + total.softirq.unwrap_or(0);
    let ticks = total.user + total.nice + total.system + interrupts;
    Some(ticks as f64 / procfs::ticks_per_second() as f64)
}

/// Returns the type of the file system on which a folder lies: that of the mount with the longest
/// path above it; of two at one place the later one.
pub(crate) fn file_system(folder: &Path) -> String {
    let folder = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    let mounts = procfs::process::Process::myself().and_then(|process| process.mountinfo());
    let mounts = mounts.into_iter().flatten();
    let above = mounts.filter(|mount| folder.starts_with(&mount.mount_point));
    let nearest = above.max_by_key(|mount| mount.mount_point.as_os_str().len());
    nearest.map_or_else(|| "unknown".to_owned(), |mount| mount.fs_type)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_no_longer_than_its_number() {
        for (line, version) in [
            ("curl 7.88.1 (x86_64-pc-linux-gnu) libcurl/7.88.1", "curl 7.88.1"),
            ("GNU Wget 1.21.3 built on linux-gnu.", "GNU Wget 1.21.3"),
            ("aria2 version 1.36.0", "aria2 version 1.36.0"),
            ("nameless", "nameless"),
        ] {
            assert_eq!(short_version(line), version);
        }
    }

    #[test]
    fn interrupts_are_split_between_programs_and_kernel() {
        for (hard, soft, expected) in [(0, 138_705, 138_705), (2, 5_000, 5_002), (4_000, 5_000, 0)]
        {
            assert_eq!(interrupts_of_programs(hard, soft), expected, "{hard} {soft}");
        }
    }

    #[test]
    fn a_survey_knows_this_machine() {
        let folder = std::env::temp_dir();
        let found = survey(Cores::available(), &folder, Some(&folder));
        assert!(found.memory_bytes > 1 << 20 && found.cores > 0, "{found:?}");
        assert_ne!(found.source_file_system, "unknown");
        assert_eq!(found.target_file_system, Some(found.source_file_system));
        assert!(busy_seconds() > 0.0 && machine_seconds() > Some(0.0));
    }
}
