//! Reasons to doubt a record.

use super::records::{chain_record, record};
use crate::record::{Record, Sample, warnings};

fn with_runs(runs: u32) -> Record {
    let mut record = record("net");
    record.arguments.runs = runs;
    record
}

#[test]
fn a_long_run_without_noise_has_no_warnings() {
    assert!(warnings(&with_runs(5)).is_empty(), "{:?}", warnings(&with_runs(5)));
}

/// Sets the time of each sample of the cell of sendfile at 64K.
fn set_times(record: &mut Record, time: impl Fn(u32) -> f64) {
    for sample in record.samples.iter_mut().filter(|sample| sample.cell == 3) {
        sample.wall_s = time(sample.round);
    }
}

fn set_reads(record: &mut Record, bytes: u64) {
    let sides = record.samples.iter_mut().map(|sample| &mut sample.measured);
    for process in sides.filter_map(|side| side.process.as_mut()) {
        process.storage_read_bytes = bytes;
    }
}

/// What spoils a record, and the words of the warning about it.
type Fault = (fn(&mut Record), &'static str);

/// Checks that each fault of a record leads to a warning.
#[track_caller]
fn assert_faults(record: &Record, faults: &[Fault]) {
    for (spoil, words) in faults {
        let mut record = record.clone();
        spoil(&mut record);
        let found = warnings(&record);
        assert!(found.iter().any(|warning| warning.contains(words)), "{words}: {found:?}");
    }
}

/// Checks that this is one of the warnings about a record.
#[track_caller]
fn assert_warning(record: &Record, expected: &str) {
    let found = warnings(record);
    assert!(found.iter().any(|warning| warning == expected), "{found:?}");
}

#[test]
fn each_reason_is_named_with_what_it_is_about() {
    let faults: [Fault; 11] = [
        (|record| record.environment.optimized = false, "without optimization"),
        (|record| record.arguments.runs = 2, "fewer than 3 rounds"),
        (|record| record.arguments.warmup = 0, "no round to warm up"),
        (
            |record| set_times(record, |_| 0.001),
            "too short to be exact (under 5 ms): 1M sendfile 64K",
        ),
        (
            |record| set_times(record, |round| f64::from(round * round)),
            "noisy, the slowest sample over 2 times the fastest: 1M sendfile 64K",
        ),
        (|record| set_reads(record, 1 << 19), "50 % of the source came from the disk"),
        (|record| record.samples[0].other_cpu_s = 1.0, "of the processor time"),
        (|record| record.environment.load_average[0] = 1.5, "load average was 1.50"),
        (|record| record.environment.second_core = 0, "one core"),
        (|record| record.environment.congestion = Some("bbr".to_owned()), "bbr paces"),
        (|record| record.arguments.cold = true, "only 0 % of the source came from the disk"),
    ];
    assert_faults(&with_runs(5), &faults);
}

#[test]
fn warnings_name_the_faults_of_a_run_with_servers() {
    assert_eq!(warnings(&record("serve_fairness")).len(), 1);
    let mut record = record("serve");
    assert_eq!(warnings(&record).len(), 1, "two rounds are few");
    let faults: [Fault; 4] = [
        (|record| record.environment.nginx = None, "nginx is not installed"),
        (|record| record.environment.second_core = 0, "server and load shared one core"),
        (|record| record.arguments.cold = true, "only 0 % of the source"),
        (|record| record.environment.congestion = Some("bbr".to_owned()), "bbr paces"),
    ];
    assert_faults(&record, &faults);
    let of_ours = |record: &mut Record, spoil: fn(&mut Sample)| {
        record.samples.iter_mut().filter(|sample| sample.cell == 1).for_each(spoil);
    };
    of_ours(&mut record, |sample| {
        let load = sample.peer.as_mut().and_then(|peer| peer.thread.as_mut()).unwrap();
        load.system_s = 1.9;
    });
    assert_warning(&record, "requests per second are limited by the load: 1K underpass");
    of_ours(&mut record, |sample| sample.measured.process.as_mut().unwrap().cpu_s = 0.1);
    assert_warning(&record, "under 400 ms of processor time in a sample: 1K underpass");
}

#[test]
fn warnings_name_the_faults_of_a_run_with_clients() {
    assert_warning(&record("put"), "dufs is not installed: it is missing from the comparison");
    let mut record = record("get");
    assert_eq!(warnings(&record).len(), 1, "two rounds are few");
    record.environment.second_core = 1;
    record.samples[0].wall_s = 100.0;
    record.samples[7].peer.as_mut().unwrap().process.as_mut().unwrap().storage_read_bytes = 8 << 20;
    let found = warnings(&record);
    for words in ["server and client shared one core", "1M curl", "100 % of the source"] {
        assert!(found.iter().any(|warning| warning.contains(words)), "{words}: {found:?}");
    }
}

#[test]
fn a_warning_about_all_cells_of_a_size_is_printed_once() {
    let mut record = chain_record(&[1, 2], &[1.0, 1.0]);
    for sample in &mut record.samples[..3] {
        sample.wall_s = 0.001;
    }
    record.samples[3].wall_s = 0.1;
    assert_warning(&record, "too short to be exact (under 5 ms): 1 all; 2 one buffer");
}
