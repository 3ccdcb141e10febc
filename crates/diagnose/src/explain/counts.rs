//! Counts each system call, its failures and its time.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde::Serialize;
use syscalls::Sysno;

use crate::trace::CallBoundary;

/// The statistics of all calls of one name.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CallCount {
    /// The name in the manual; `unknown` for calls of another architecture.
    pub name: &'static str,
    /// The number of times it was made.
    pub calls: u64,
    /// The number of times it failed.
    pub errors: u64,
    /// Seconds between the start and end of the calls, including the time of tracing. A call that
    /// never returned, such as exit_group(2), counts none.
    pub seconds: f64,
}

/// Counts calls as threads begin and end them.
#[derive(Debug, Default)]
pub(super) struct Counts {
    sums: HashMap<&'static str, CallSum>,
    /// The call that each thread is in, and since when.
    pending: HashMap<u32, (&'static str, Instant)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct CallSum {
    calls: u64,
    errors: u64,
    time: Duration,
}

impl Counts {
    /// Counts the start or end of a call of a thread.
    pub(super) fn see(&mut self, tid: u32, call: &CallBoundary) {
        match call {
            CallBoundary::Begins { number, .. } => {
                let name = name(*number);
                self.sums.entry(name).or_default().calls += 1;
                self.pending.insert(tid, (name, Instant::now()));
            }
            CallBoundary::Ends(result) => {
                // If tracing began in the middle of a call, its start was not seen.
                let Some((name, since)) = self.pending.remove(&tid) else { return };
                let sum = self.sums.entry(name).or_default();
                sum.time += since.elapsed();
                sum.errors += u64::from(result.is_err());
            }
        }
    }

    /// Forgets a thread that has ended, perhaps within a call.
    pub(super) fn forget(&mut self, tid: u32) {
        self.pending.remove(&tid);
    }

    /// Returns the calls by name, those that took longest first.
    pub(super) fn by_name(&self) -> Vec<CallCount> {
        let mut counts: Vec<_> = self
            .sums
            .iter()
            .map(|(name, sum)| CallCount {
                name,
                calls: sum.calls,
                errors: sum.errors,
                seconds: sum.time.as_secs_f64(),
            })
            .collect();
        counts.sort_by(|one, other| {
            other.seconds.total_cmp(&one.seconds).then_with(|| one.name.cmp(other.name))
        });
        counts
    }
}

/// Returns the name of the call with this number.
fn name(number: Option<i64>) -> &'static str {
    let number = number.and_then(|number| usize::try_from(number).ok());
    number.and_then(Sysno::new).map_or("unknown", |call| call.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::io::Errno;

    #[test]
    fn calls_are_counted_by_name_with_their_errors() {
        let mut counts = Counts::default();
        let begins = |number| CallBoundary::Begins { number: Some(number), arguments: [0; 6] };
        counts.see(1, &CallBoundary::Ends(Ok(0)));
        counts.see(1, &begins(libc::SYS_read));
        counts.see(2, &begins(libc::SYS_read));
        counts.see(2, &CallBoundary::Ends(Err(Errno::AGAIN)));
        counts.see(1, &CallBoundary::Ends(Ok(7)));
        counts.see(2, &begins(libc::SYS_exit_group));
        counts.forget(2);
        counts.see(2, &CallBoundary::Ends(Ok(0)));
        // Unknown calls share one line.
        counts.see(1, &begins(1 << 40));
        counts.see(2, &begins(1 << 41));
        let mut found: Vec<_> =
            counts.by_name().iter().map(|each| (each.name, each.calls, each.errors)).collect();
        found.sort_unstable();
        assert_eq!(found, [("exit_group", 1, 0), ("read", 2, 1), ("unknown", 2, 0)]);
        assert_eq!((name(None), name(Some(1 << 40))), ("unknown", "unknown"));
    }
}
