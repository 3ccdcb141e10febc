//! `bench get`, `bench put` and `bench tree`: clients that move whole files by HTTP, ours and other
//! common ones, from the start of their process to its end. `args` has the options,
//! `clients` the command lines, `payload` takes the samples.

mod args;
mod clients;
mod payload;

use crate::record::{
    CALLS, CPU, Contender, Description, MemoryState, Metric, PEER_CPU, PinnedSides, Record, SPEED,
    SWITCHES, TIME, short_size,
};

pub use args::{GetArgs, PutArgs, TreeArgs};

fn caption(record: &Record) -> String {
    let transfers = record.arguments.transfers.clone().unwrap_or_default();
    let cores = match transfers.pinned {
        PinnedSides::Server => {
            format!("The server is on core {}, the client on any", record.environment.first_core)
        }
        PinnedSides::None => "Server and client are on any core".to_owned(),
    };
    let memory = match transfers.memory {
        MemoryState::Found => "memory is as the previous client left it",
        MemoryState::Even => "memory is in the same state for all",
    };
    let what = match transfers.files {
        Some(files) => {
            let large = short_size(transfers.large_bytes.unwrap_or(0));
            let count = transfers.large.unwrap_or(0);
            format!("{files} files of 1 to 16 KiB and {count} of {large}. ")
        }
        None => String::new(),
    };
    format!(
        "{what}Time from the start of the client's process to its end, and processor time of the \
         whole process. {cores}; {memory}"
    )
}

fn ends(record: &Record) -> [&str; 3] {
    let transfers = record.arguments.transfers.as_ref();
    let server = match transfers.and_then(|transfers| transfers.server) {
        Some(Contender::Nginx) => "nginx",
        _ => "underpass serve",
    };
    let target = record.environment.target_file_system.as_deref().unwrap_or_default();
    [&record.environment.source_file_system, server, target]
}

const METRICS: &[&Metric] = &[&TIME, &SPEED, &CPU, &PEER_CPU, &CALLS, &SWITCHES];

pub(super) const GET: Description = Description {
    name: "get",
    command: "get",
    cores: Some("server and client"),
    subject: |record| {
        let [source, server, target] = ends(record);
        format!("file on {source} from {server} by HTTP on loopback to file on {target}")
    },
    caption,
    metrics: METRICS,
    ..Description::NONE
};

pub(super) const PUT: Description = Description {
    name: "put",
    command: "put",
    subject: |record| {
        let [source, _, target] = ends(record);
        format!("file on {source} by HTTP on loopback to a server's file on {target}")
    },
    ..GET
};

pub(super) const TREE: Description = Description {
    name: "tree",
    command: "tree",
    whole_folders: true,
    subject: |record| {
        let [source, server, target] = ends(record);
        format!("folder on {source} from {server} by HTTP on loopback to folder on {target}")
    },
    ..GET
};
