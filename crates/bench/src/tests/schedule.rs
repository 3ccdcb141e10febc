//! The order of measurements.

use std::sync::atomic::AtomicBool;

use underpass_engine::Mechanism;

use crate::error::{BenchError, Result};
use crate::record::{Cell, Contender, Description, Environment, Record, Role, Side, Variant};
use crate::run::{Context, Measured, RunArgs, RunObserver, RunPlan, Scenario, Start, Verification};

/// Records its calls; declines splice.
#[derive(Default)]
struct CallLog(Vec<String>);

impl Scenario for CallLog {
    fn prepare(&mut self, cell: &Cell) -> Result<()> {
        self.0.push(format!("prepare {}", cell.size));
        Ok(())
    }

    fn verify(&mut self, cell: &Cell) -> Result<Verification> {
        self.0.push(format!("verify {} {}", cell.size, cell.variant));
        Ok(match cell.variant.contender {
            Contender::Only(Mechanism::Splice) => Verification::Declined("EINVAL".to_owned()),
            _ => Verification::Arrived("digest".to_owned()),
        })
    }

    fn sample(&mut self, cell: &Cell) -> Result<Measured> {
        self.0.push(format!("measure {} {}", cell.size, cell.variant));
        Ok(Measured::new(1.0, Side::new(Role::Sender, 1.0), None))
    }
}

#[derive(Debug)]
struct Silent;

impl RunObserver for Silent {
    fn begin(&self, _total: u64) {}
    fn measuring(&self, _what: &str) {}
    fn advance(&self, _done: u64) {}
    fn end(&self) {}
}

fn measure(log: &mut CallLog, is_cancelled: bool) -> Result<Record> {
    let only = |mechanism| Variant::plain(Contender::Only(mechanism));
    let variants =
        [only(Mechanism::ReadWrite), only(Mechanism::Splice), Variant::plain(Contender::Auto)];
    let cancel = AtomicBool::new(is_cancelled);
    let context = Context { program: "/".into(), cancel: &cancel, observer: &Silent };
    let run = RunArgs { runs: 2, warmup: 1, dir: "/".into(), json: None };
    let start = Start { context: &context, run: &run };
    let mut plan = RunPlan::new(start, &[1, 2], Environment::default());
    plan.for_sizes(&variants);
    plan.measure(&Description::NONE, log, variants[0])
}

#[test]
fn cells_are_verified_first_and_then_take_turns_without_the_declined_ones() {
    let mut log = CallLog::default();
    let record = measure(&mut log, false).unwrap();
    let of = |size| {
        let mut lines = vec![
            format!("prepare {size}"),
            format!("verify {size} read_write"),
            format!("verify {size} splice"),
            format!("verify {size} auto"),
        ];
        // Each round begins one further on: at read_write, at splice, at auto.
        for contender in ["read_write", "auto", "auto", "read_write", "auto", "read_write"] {
            lines.push(format!("measure {size} {contender}"));
        }
        lines
    };
    assert_eq!(log.0, [of(1), of(2)].concat());
    assert_eq!(record.cells[1].declined.as_deref(), Some("EINVAL"));
    let order: Vec<_> = record.samples.iter().map(|one| (one.cell, one.round)).collect();
    assert_eq!(order, [(2, 1), (0, 1), (2, 2), (0, 2), (5, 1), (3, 1), (5, 2), (3, 2)]);
}

#[test]
fn a_signal_ends_the_run_before_the_next_sample() {
    let mut log = CallLog::default();
    let failure = measure(&mut log, true).unwrap_err();
    assert!(matches!(failure, BenchError::Interrupted));
    assert_eq!(log.0, ["prepare 1"]);
}
