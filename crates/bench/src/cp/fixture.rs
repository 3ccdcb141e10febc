//! A fixed record of programs that copy, for the tests of what is drawn from records.

use super::copiers::Copier;
use super::record::{Commands, Copies, Earlier, Kind};
use crate::fixture::{cell, empty, sample};
use crate::plan::Variant;
use crate::record::{Process, Record, Role, Sample, Scenario, Side};
use crate::way::{Step, Way};

/// Two rounds, the second twice as slow, of a program and ours, which takes half of its time.
pub(crate) fn cp_record() -> Record {
    let mut record = empty(Scenario::Cp);
    let ways = [(Way::Copier(Copier::Cp), 2.0), (Way::Underpass, 1.0)];
    record.baseline = Variant::new(ways[0].0, Step::Default);
    record.arguments.side = Role::Copier;
    record.environment.target_file_system = Some("ext4".to_owned());
    record.environment.cp = Some("cp (GNU coreutils) 1.2".to_owned());
    let mut commands = Vec::new();
    for (index, (way, seconds)) in ways.into_iter().enumerate() {
        record.cells.push(cell(1 << 20, Variant::new(way, Step::Default)));
        record.samples.extend((1..=2).map(|round| {
            let wall_s = seconds * f64::from(round);
            let process = Some(Process { wall_s, cpu_s: wall_s / 2.0, ..Process::default() });
            let side = Side { role: Role::Copier, elapsed_s: wall_s, thread: None, process };
            let sample = sample(index, round, wall_s, 0.0);
            Sample { measured: side, peer: None, ..sample }
        }));
        commands.push(Commands { way, command: format!("{way} ORIGINAL COPY") });
    }
    record.copies = Some(Copies {
        original: Kind::SmallFiles,
        files: 100,
        allocated_bytes: 1 << 20,
        chilled: None,
        earlier: Earlier::Stay,
        commands,
        missing: vec!["xcp".to_owned()],
    });
    record
}
