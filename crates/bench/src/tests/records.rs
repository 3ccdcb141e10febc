//! Fixed records of every form, for the tests of computations and drawings. They are kept as files,
//! as those of users are, each with the name of its scenario:
//!
//! - `cp`: two rounds, the second twice as slow, of a program and ours, which takes half of its time
//! - `get`: three other programs and ours, which takes a quarter of curl's time and half of its
//!   processor time
//! - `net`: two rounds at 1 MiB, the second twice as slow: read_write at 4K in 100 ms and at 64K in
//!   50, sendfile at 4K in 60 and at 64K in 25, splice declined
//! - `put`: two other contenders and ours, waiting for the disk and not, without one that was not
//!   installed
//! - `serve`: two rounds at 1 KiB and 1 MiB, the second twice as slow: underpass needs half as much
//!   processor time as nginx and serves twice as many requests
//! - `serve_fairness`: one hot file, 40 times slower with nginx and twice with underpass
//! - `serve_idle`: memory of nginx, and half of it of underpass, which doubles in the second of two
//!   rounds
//! - `tree`: a folder, by one other program and ours, which takes a fifth of the time

use crate::record::{Record, Sample, ThreadCost};

/// The scenarios whose records are used as they are.
pub(super) const SCENARIOS: [&str; 8] =
    ["cp", "get", "net", "put", "serve", "serve_fairness", "serve_idle", "tree"];

/// Returns the record of a scenario.
pub(super) fn record(scenario: &str) -> Record {
    let path = format!("{}/src/tests/records/{scenario}.json", env!("CARGO_MANIFEST_DIR"));
    Record::load(path.as_ref()).unwrap()
}

/// One round of `chain`, in which sendfile costs `ratios` as much as one buffer.
pub(super) fn chain_record(sizes: &[u64], ratios: &[f64]) -> Record {
    let mut record = record("chain");
    let (cells, samples) = (record.cells.split_off(0), record.samples.split_off(0));
    for (size, ratio) in sizes.iter().zip(ratios) {
        for ((cell, sample), time) in cells.iter().zip(&samples).zip([0.001, 0.001 * ratio]) {
            let mut sample = Sample { cell: record.cells.len(), ..sample.clone() };
            (sample.wall_s, sample.watched_s) = (time * 2.0, time * 2.0);
            for side in [Some(&mut sample.measured), sample.peer.as_mut()].into_iter().flatten() {
                side.thread =
                    side.thread.take().map(|thread| ThreadCost { system_s: time, ..thread });
            }
            let mut cell = cell.clone();
            cell.size = *size;
            record.cells.push(cell);
            record.samples.push(sample);
        }
    }
    record
}
