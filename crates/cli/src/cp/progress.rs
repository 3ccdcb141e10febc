//! How far it is, for people.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use indicatif::HumanCount;
use underpass_engine::Progress;

use super::job::Job;
use crate::progress::Meter;

/// Shows progress until everything is done.
pub(super) fn show(job: &Job<'_>) {
    let meter = Meter::new(job.settings.movement.show);
    let mut observer = meter.observer();
    let started = Instant::now();
    while !job.stack.wait(INTERVAL) {
        let expected = job.progress.expected.load(Ordering::Relaxed);
        let bytes = job.progress.bytes.load(Ordering::Relaxed);
        let expected = Some(expected).filter(|&expected| expected > 0);
        observer(&Progress { bytes, expected, elapsed: started.elapsed() }, 0);
        if expected.is_none() {
            let files = job.progress.files.load(Ordering::Relaxed);
            meter.message(|| format!("{} files", HumanCount(files)));
        }
    }
    meter.clear();
}

const INTERVAL: Duration = Duration::from_millis(100);
