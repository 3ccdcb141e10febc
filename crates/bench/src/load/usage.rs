//! The cost of a running server so far: its processes and threads, by their clocks and procfs.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use procfs::process::Status;
use rustix::process::Pid;

use crate::record::{ProcessCost, ServerMemory};
use crate::run::{process, processor_time};

/// The usages of a server's processes at one moment.
#[derive(Clone, Debug)]
pub(crate) struct ServerUsage {
    at: Instant,
    /// Processor time by process, of all its threads, including those that have ended.
    processes: HashMap<Pid, Duration>,
    counts: ProcessCost,
}

impl ServerUsage {
    pub(crate) fn zero() -> Self {
        Self { at: Instant::now(), processes: HashMap::new(), counts: ProcessCost::default() }
    }

    pub(crate) fn read(processes: &[Pid]) -> Self {
        let mut usage = Self::zero();
        for pid in processes {
            // An unreadable entry belongs to a thread or process that has ended.
            if let Ok(proc) = process(*pid) {
                let io = proc.io().ok();
                usage.counts.storage_read_bytes += io.map_or(0, |io| io.read_bytes);
                usage.counts.storage_written_bytes += io.map_or(0, |io| io.write_bytes);
                let tasks = proc.tasks().into_iter().flatten().flatten();
                for status in tasks.filter_map(|task| task.status().ok()) {
                    let counts = &mut usage.counts;
                    counts.voluntary_switches += status.voluntary_ctxt_switches.unwrap_or(0);
                    counts.involuntary_switches += status.nonvoluntary_ctxt_switches.unwrap_or(0);
                }
            }
            // Read last, so that the work above is not between it and the wall clock.
            usage.processes.insert(*pid, processor_time(*pid));
        }
        usage.at = Instant::now();
        usage
    }

    pub(crate) fn since(&self, earlier: &Self) -> ProcessCost {
        let count =
            |of: fn(&ProcessCost) -> u64| of(&self.counts).saturating_sub(of(&earlier.counts));
        ProcessCost {
            wall_s: self.at.duration_since(earlier.at).as_secs_f64(),
            cpu_s: self.cpu_since(earlier),
            // Threads that have ended are not counted.
            voluntary_switches: count(|of| of.voluntary_switches),
            involuntary_switches: count(|of| of.involuntary_switches),
            storage_read_bytes: count(|of| of.storage_read_bytes),
            storage_written_bytes: count(|of| of.storage_written_bytes),
        }
    }

    /// Returns processor seconds, exact to the nanosecond, without processes that have ended.
    fn cpu_since(&self, earlier: &Self) -> f64 {
        let spent = |(process, now): (&Pid, &Duration)| {
            now.saturating_sub(earlier.processes.get(process).copied().unwrap_or_default())
        };
        self.processes.iter().map(spent).sum::<Duration>().as_secs_f64()
    }
}

impl ServerMemory {
    pub(crate) fn of(processes: &[Pid]) -> Self {
        let mut memory = Self::default();
        for pid in processes {
            memory.resident_bytes += status(*pid, |status| status.vmrss);
            let rollup = process(*pid).and_then(|process| process.smaps_rollup());
            let map = rollup.ok().and_then(|rollup| rollup.memory_map_rollup.into_iter().next());
            memory.proportional_bytes +=
                map.and_then(|map| map.extension.map.get("Pss").copied()).unwrap_or(0);
        }
        memory
    }
}

/// Returns the most resident memory that these processes have had so far, summed up.
pub(crate) fn peak(processes: &[Pid]) -> u64 {
    processes.iter().map(|pid| status(*pid, |status| status.vmhwm)).sum()
}

/// Returns a field of the status of a process, given in KiB, in bytes.
fn status(pid: Pid, field: fn(&Status) -> Option<u64>) -> u64 {
    let status = process(pid).and_then(|process| process.status()).ok();
    status.as_ref().and_then(field).unwrap_or(0) << 10
}

pub(crate) fn family(parent: Pid) -> Vec<Pid> {
    let processes = procfs::process::all_processes().into_iter().flatten().flatten();
    let stats = processes.filter_map(|process| process.stat().ok());
    let children = stats.filter(|stat| stat.ppid == parent.as_raw_nonzero().get());
    std::iter::once(parent).chain(children.filter_map(|stat| Pid::from_raw(stat.pid))).collect()
}

#[cfg(test)]
mod tests {
    use underpass_engine::Usage;

    use super::*;

    fn usage(processes: &[(i32, u64)]) -> ServerUsage {
        let processes = processes
            .iter()
            .map(|(pid, ms)| (Pid::from_raw(*pid).unwrap(), Duration::from_millis(*ms)));
        ServerUsage { processes: processes.collect(), ..ServerUsage::zero() }
    }

    #[test]
    fn processes_that_begin_count_from_their_begin() {
        let before = usage(&[(1, 1000), (2, 5)]);
        let grown = usage(&[(1, 1500), (2, 5), (3, 250)]);
        assert_eq!(grown.since(&before).cpu_s, 0.75);
        assert_eq!(usage(&[(1, 1500)]).since(&before).cpu_s, 0.5);
    }

    #[test]
    fn this_process_has_threads_memory_and_a_child() {
        let me = rustix::process::getpid();
        let before = ServerUsage::read(&[me]);
        // Its time counts even after the thread has ended.
        let busy = || {
            let started = Usage::of_this_thread();
            while (Usage::of_this_thread() - started).user.as_millis() < 30 {}
        };
        std::thread::spawn(busy).join().unwrap();
        assert!(ServerUsage::read(&[me]).since(&before).cpu_s > 0.01);
        assert!(ServerMemory::of(&[me]).proportional_bytes > 100 << 10);
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let sleeping = Pid::from_child(&child);
        assert!(family(me).contains(&sleeping));
        // Both figures are read one after the other, so the process must not grow meanwhile.
        rustix::process::kill_process(sleeping, rustix::process::Signal::STOP).unwrap();
        let process = process(sleeping).unwrap();
        while process.stat().unwrap().state != 'T' {
            std::thread::yield_now();
        }
        let memory = ServerMemory::of(&[sleeping]);
        assert!(memory.resident_bytes >= memory.proportional_bytes, "{memory:?}");
        assert!(memory.proportional_bytes > 0, "{memory:?}");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!family(me).contains(&Pid::from_child(&child)));
    }
}
