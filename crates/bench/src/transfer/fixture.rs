//! Fixed records of clients for the tests of what is computed and drawn from records.

use super::record::{Commands, Memory, Pin, Transfers};
use crate::fixture::{empty, sample};
use crate::plan::Variant;
use crate::record::{Cell, Process, Record, Role, Sample, Scenario, Side};
use crate::way::{Step, Way};

/// Three peers and ours, which takes a quarter of curl's time and half of its processor time.
pub(crate) fn get_record() -> Record {
    let ways = [(Way::Curl, 4.0), (Way::Wget, 8.0), (Way::Aria2, 6.0), (Way::Underpass, 1.0)];
    let mut record = record(Scenario::Get, &ways);
    let transfers = record.arguments.transfers.as_mut();
    if let Some(transfers) = transfers {
        (transfers.server, transfers.pinned) = (Some(Way::Nginx), Pin::Server);
        transfers.memory = Memory::Found;
    }
    record.environment.nginx = Some("nginx/1.2.3".to_owned());
    record.environment.programs = vec!["curl 1.2".to_owned(), "GNU Wget 3.4".to_owned()];
    record
}

/// Two peers and ours, waiting for the disk and not, without one that was not installed.
pub(crate) fn put_record() -> Record {
    let ways = [
        (Way::CurlToNginx, 2.0),
        (Way::CurlToUnderpass, 1.5),
        (Way::Underpass, 1.0),
        (Way::UnderpassSynced, 4.0),
    ];
    let mut record = record(Scenario::Put, &ways);
    if let Some(transfers) = record.arguments.transfers.as_mut() {
        transfers.missing = vec!["dufs".to_owned()];
    }
    record
}

/// A folder, by one peer and ours.
pub(crate) fn tree_record() -> Record {
    let mut record = record(Scenario::Tree, &[(Way::Wget, 5.0), (Way::Underpass, 1.0)]);
    if let Some(transfers) = record.arguments.transfers.as_mut() {
        transfers.server = Some(Way::Underpass);
        (transfers.files, transfers.large) = (Some(100), Some(2));
        transfers.large_bytes = Some(256 << 10);
    }
    record
}

/// Two rounds, the second twice as slow, in which a way takes so many seconds, and a quarter of them
/// of a processor and as much again.
fn record(scenario: Scenario, ways: &[(Way, f64)]) -> Record {
    let mut record = empty(scenario);
    record.baseline = Variant::new(ways[0].0, Step::Default);
    record.arguments.side = Role::Client;
    record.environment.target_file_system = Some("ext4".to_owned());
    (record.environment.first_core, record.environment.second_core) = (1, 0);
    let mut commands = Vec::new();
    for (cell, (way, seconds)) in ways.iter().enumerate() {
        let variant = Variant::new(*way, Step::Default);
        let sha256 = Some("0123456789abcdef".to_owned());
        record.cells.push(Cell {
            size: 1 << 20,
            variant,
            sha256,
            declined: None,
            connections: None,
            load: None,
        });
        record.samples.extend((1..=2).map(|round| one(cell, round, seconds * f64::from(round))));
        let client = format!("{way} URL");
        commands.push(Commands { way: *way, client, server: "underpass serve".to_owned() });
    }
    record.arguments.transfers = Some(Transfers { commands, ..Transfers::default() });
    record
}

fn one(cell: usize, round: u32, wall_s: f64) -> Sample {
    let sample = sample(cell, round, wall_s, 0.0);
    let side = |role, cpu_s| {
        let process = Some(Process { wall_s, cpu_s, ..Process::default() });
        Side { role, elapsed_s: wall_s, thread: None, process }
    };
    Sample {
        measured: side(Role::Client, wall_s / 4.0 + 0.25 * f64::from(round)),
        peer: Some(side(Role::Server, 0.125)),
        ..sample
    }
}
