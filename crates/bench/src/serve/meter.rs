//! What a server that goes on running has cost so far: all of its processes and threads, by their
//! clocks and from procfs.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Pid;

use super::record::Memory;
use crate::child::spent;
use crate::procfs::{count, field};
use crate::record::Process;

/// The meters of a server's processes at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Meter {
    at: Instant,
    /// Time on a processor by process, of all threads that there are or ever were.
    processes: BTreeMap<i32, Duration>,
    voluntary_switches: u64,
    involuntary_switches: u64,
    read_bytes: u64,
    written_bytes: u64,
}

impl Meter {
    /// Before there was a process.
    pub(crate) fn zero() -> Self {
        Self {
            at: Instant::now(),
            processes: BTreeMap::new(),
            voluntary_switches: 0,
            involuntary_switches: 0,
            read_bytes: 0,
            written_bytes: 0,
        }
    }

    /// The meters of these processes now.
    pub(crate) fn read(processes: &[Pid]) -> Self {
        let mut meter = Self::zero();
        for process in processes {
            let folder = format!("/proc/{process}");
            let io = read(&format!("{folder}/io"));
            meter.read_bytes += count(&io, "read_bytes");
            meter.written_bytes += count(&io, "write_bytes");
            for thread in names(&format!("{folder}/task")) {
                let status = read(&format!("{folder}/task/{thread}/status"));
                meter.voluntary_switches += count(&status, "voluntary_ctxt_switches");
                meter.involuntary_switches += count(&status, "nonvoluntary_ctxt_switches");
            }
            // Last, so that what all of this costs is not between the time and the cost.
            meter.processes.insert(process.as_raw_nonzero().get(), spent(*process));
        }
        meter.at = Instant::now();
        meter
    }

    /// What was spent since an earlier moment.
    pub(crate) fn since(&self, earlier: &Self) -> Process {
        Process {
            wall_s: self.at.duration_since(earlier.at).as_secs_f64(),
            cpu_s: self.cpu_since(earlier),
            // Of threads that have ended nothing is known.
            voluntary_switches: self.voluntary_switches.saturating_sub(earlier.voluntary_switches),
            involuntary_switches: self
                .involuntary_switches
                .saturating_sub(earlier.involuntary_switches),
            storage_read_bytes: self.read_bytes.saturating_sub(earlier.read_bytes),
            storage_written_bytes: self.written_bytes.saturating_sub(earlier.written_bytes),
        }
    }

    /// Processor seconds to the nanosecond. Those of a process that has ended are not known.
    fn cpu_since(&self, earlier: &Self) -> f64 {
        let spent = |(process, now): (&i32, &Duration)| {
            now.saturating_sub(earlier.processes.get(process).copied().unwrap_or_default())
        };
        self.processes.iter().map(spent).sum::<Duration>().as_secs_f64()
    }
}

impl Memory {
    /// The memory of these processes now.
    pub(crate) fn of(processes: &[Pid]) -> Self {
        let mut memory = Self::default();
        for process in processes {
            memory.resident_bytes += bytes(&read(&format!("/proc/{process}/status")), "VmRSS");
            memory.proportional_bytes +=
                bytes(&read(&format!("/proc/{process}/smaps_rollup")), "Pss");
        }
        memory
    }
}

/// The most resident memory that these processes have had so far, summed up.
pub(crate) fn peak(processes: &[Pid]) -> u64 {
    let status = |process: &Pid| read(&format!("/proc/{process}/status"));
    processes.iter().map(|process| bytes(&status(process), "VmHWM")).sum()
}

/// A process with its children.
pub(crate) fn family(parent: Pid) -> Vec<Pid> {
    let is_child = |pid: &Pid| parent_of(&read(&format!("/proc/{pid}/stat"))) == Some(parent);
    let pids = names("/proc").into_iter().filter_map(|name| Pid::from_raw(name.parse().ok()?));
    std::iter::once(parent).chain(pids.filter(is_child)).collect()
}

/// The fields of a `stat` behind the name of the program, which may contain anything.
fn stat_fields(stat: &str) -> impl Iterator<Item = &str> {
    stat.rsplit_once(") ").map_or("", |(_, fields)| fields).split_whitespace()
}

fn parent_of(stat: &str) -> Option<Pid> {
    Pid::from_raw(stat_fields(stat).nth(1)?.parse().ok()?)
}

/// The bytes behind `name:`, which are told as `123 kB`.
fn bytes(text: &str, name: &str) -> u64 {
    let value = field(text, name).unwrap_or_default().trim_end_matches(" kB");
    value.parse::<u64>().unwrap_or(0) << 10
}

/// The numbers in a folder of procfs.
fn names(folder: &str) -> Vec<String> {
    let Ok(entries) = fs::read_dir(Path::new(folder)) else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())).collect()
}

/// What cannot be read belongs to a thread or process that has ended.
fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const STAT: &str = "7 (a) S 1 (b) R 5 7 7 0 -1 4194304 100 200 0 0 30 12 1 2 20 0 1 0 99";

    #[test]
    fn the_name_of_a_program_does_not_confuse_the_fields_behind_it() {
        assert_eq!(parent_of(STAT), Pid::from_raw(5));
        assert_eq!(parent_of(""), None);
    }

    #[test]
    fn memory_is_told_in_bytes() {
        let rollup = "55-7f [rollup]\nRss:            1208 kB\nPss:             122 kB\n";
        assert_eq!((bytes(rollup, "Pss"), bytes(rollup, "Swap")), (122 << 10, 0));
    }

    fn meter(processes: &[(i32, u64)]) -> Meter {
        let processes = processes.iter().map(|(pid, ms)| (*pid, Duration::from_millis(*ms)));
        Meter { processes: processes.collect(), ..Meter::zero() }
    }

    #[test]
    fn processes_that_begin_count_from_their_begin() {
        let before = meter(&[(1, 1000), (2, 5)]);
        let grown = meter(&[(1, 1500), (2, 5), (3, 250)]);
        assert_eq!(grown.since(&before).cpu_s, 0.75);
        assert_eq!(meter(&[(1, 1500)]).since(&before).cpu_s, 0.5);
    }

    #[test]
    fn this_process_has_threads_memory_and_a_child() {
        let me = rustix::process::getpid();
        let before = Meter::read(&[me]);
        // Its time counts, though the thread has ended.
        let busy = || {
            let begun = Instant::now();
            while begun.elapsed().as_millis() < 30 {}
        };
        std::thread::spawn(busy).join().unwrap();
        assert!(Meter::read(&[me]).since(&before).cpu_s > 0.01);
        let memory = Memory::of(&[me]);
        assert!(memory.resident_bytes >= memory.proportional_bytes, "{memory:?}");
        assert!(memory.proportional_bytes > 100 << 10, "{memory:?}");
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(family(me).contains(&Pid::from_child(&child)));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!family(me).contains(&Pid::from_child(&child)));
    }
}
