//! Medians, ratios and crossovers of records.

use super::records::{chain_record, record};
use crate::record::{Contender, Sample, Summary, summarize};

#[test]
fn the_median_is_the_middle_or_the_mean_of_two() {
    assert_eq!(summarize([]), None);
    let one = Summary { median: 3.0, min: 3.0, max: 3.0 };
    assert_eq!(summarize([3.0]), Some(one));
    let odd = Summary { median: 2.0, min: 1.0, max: 9.0 };
    assert_eq!(summarize([9.0, 1.0, 2.0]), Some(odd));
    let even = Summary { median: 2.5, min: 1.0, max: 9.0 };
    assert_eq!(summarize([9.0, 3.0, 1.0, 2.0]), Some(even));
}

#[test]
fn ratios_are_taken_within_a_round() {
    // The second round was twice as slow for both: no ratio shows it.
    let record = record("net");
    let sendfile = record.best(1 << 20, Contender::Only(underpass_engine::Mechanism::Sendfile));
    let ratio = record.ratio_by(sendfile.unwrap(), |sample: &Sample| Some(sample.wall_s)).unwrap();
    assert_eq!((ratio.min, ratio.max), (0.25, 0.25));
    let wall = record.summary_by(sendfile.unwrap(), |sample| Some(sample.wall_s)).unwrap();
    assert_eq!((wall.min, wall.max), (0.025, 0.05));
}

#[test]
fn the_best_step_is_the_fastest_and_never_the_baseline_or_a_declined_one() {
    let record = record("net");
    let best = |mechanism| {
        let cell = record.best(1 << 20, Contender::Only(mechanism)).unwrap();
        record.cells[cell].variant.to_string()
    };
    assert_eq!(best(underpass_engine::Mechanism::Sendfile), "sendfile 64K");
    assert_eq!(best(underpass_engine::Mechanism::ReadWrite), "read_write 64K");
    assert_eq!(best(underpass_engine::Mechanism::Splice), "splice 4K");
}

#[test]
fn the_crossover_is_where_the_other_contender_becomes_cheaper_despite_an_outlier() {
    let contender = Contender::Only(underpass_engine::Mechanism::Sendfile);
    let sizes = [1, 2, 4, 8, 16];
    let crossover = |ratios: [f64; 5]| chain_record(&sizes, &ratios).crossover(contender);
    assert_eq!(crossover([1.5, 1.4, 1.1, 0.9, 0.5]), 4);
    assert_eq!(crossover([1.5, 0.98, 1.3, 0.9, 0.5]), 4);
    assert_eq!(crossover([0.9, 0.9, 0.9, 0.9, 0.5]), 0);
    assert_eq!(crossover([2.0, 2.0, 2.0, 2.0, 2.0]), 16);
}
