//! `bench scale`: throughput, processor time and memory of a server by the number of connections
//! and the size of files. All points take turns, as they are compared with each other and not only
//! with other servers.

use clap::Args;

use super::requests::{Requests, RequestsKind, SERVER};
use crate::error::Result;
use crate::options::{Measure, ServerArgs, bytes, number};
use crate::record::{
    CALLS, CPU, Cell, Description, LOAD_BUSY, P50, P99, Record, SERVER_BUSY, SWITCHES, Served,
    THROUGHPUT, metric, short_size, unique,
};
use crate::run::Start;

/// The arguments of `bench scale`.
#[derive(Debug, Args)]
pub struct ScaleArgs {
    /// Request one file over this many connections
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = number(1))]
    #[arg(default_value = "1,4,16,64,256,1024")]
    connections: Vec<u32>,

    /// Serve a file of this size to them
    #[arg(long, value_name = "SIZE", default_value = "1M", value_parser = bytes)]
    size: u64,

    /// Request files of these sizes over few connections
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = bytes)]
    #[arg(default_value = "1K,10K,100K,1M,10M,100M,1G,10G")]
    sizes: Vec<u64>,

    /// Make files of at least this size sparse: in memory when they are measured, but on no disk
    #[arg(long, value_name = "SIZE", default_value = "2G", value_parser = bytes)]
    sparse_from: u64,

    /// Use N connections for --sizes
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = number(1))]
    at: u32,

    #[command(flatten)]
    server: ServerArgs,
}

impl Measure for ScaleArgs {
    fn measure(&self, start: Start<'_>) -> Result<Record> {
        let sizes = unique(self.sizes.iter().chain([&self.size]).copied());
        let mut setting = self.server.setting(self.at);
        let has_sparse = sizes.iter().any(|size| *size >= self.sparse_from);
        setting.sparse_from = has_sparse.then_some(self.sparse_from);
        let (mut plan, mut fixture, variants) = self.server.open(start, &SCALE, &sizes, setting)?;
        let is_written = |size: &&u64| **size < self.sparse_from;
        fixture.site.folder.require_space(sizes.iter().filter(is_written).sum())?;
        let max = self.connections.iter().chain([&self.at]).copied().max().unwrap_or(1);
        // A server may have the file open for each connection.
        fixture.allow(max, max)?;
        let by_connections = self.connections.iter().map(|connections| (self.size, *connections));
        let by_size = self.sizes.iter().map(|size| (*size, self.at));
        let points = unique(by_connections.chain(by_size));
        let at = |(size, connections)| {
            let cell =
                move |variant| Cell { connections: Some(connections), ..Cell::new(size, variant) };
            variants.iter().copied().map(cell)
        };
        plan.groups = vec![points.into_iter().flat_map(at).collect()];
        let mut requests = Requests { fixture, kind: RequestsKind::WithMemory };
        plan.measure(&SCALE, &mut requests, super::NGINX)
    }
}

pub(super) const SCALE: Description = Description {
    name: "scale",
    command: "scale",
    expected: None,
    caption: |record| {
        let sparse = record.arguments.serve.and_then(|setting| setting.sparse_from);
        let sparse = sparse.map_or_else(String::new, |size| {
            format!("; files from {} on are sparse, in memory, on no disk", short_size(size))
        });
        format!("Connections that ask again and again for a file{sparse}")
    },
    metrics: &[
        &THROUGHPUT,
        &CPU,
        &CALLS,
        &SWITCHES,
        &P50,
        &P99,
        &metric!("memory-busy": "Resident memory under load", "memory", Bytes, Main, measured;
            Served::Scale { busy, .. } => busy.resident_bytes as f64),
        &metric!("memory-rest": "Resident memory at rest", "at rest", Bytes, Table, measured;
            Served::Scale { start, .. } => start.resident_bytes as f64),
        &SERVER_BUSY,
        &LOAD_BUSY,
    ],
    ..SERVER
};
