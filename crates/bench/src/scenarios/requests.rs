//! `bench serve requests`: one file, requested by many connections without a pause; and `bench
//! serve handshakes`, in which each connection sends only one request.

use std::io;

use clap::Args;

use crate::error::Result;
use crate::load::{Class, Host, LoadGenerator, RequestSpec, ServerFixture, during};
use crate::options::{Measure, ServerArgs, bytes, number};
use crate::record::{
    CALLS, CPU, Cell, Contender, Counted, Description, LOAD_BUSY, LONGEST, MACHINE, P50, P99, RATE,
    Record, SERVER_BUSY, SWITCHES, Served, Setting, short_size,
};
use crate::run::{CallTracer, Measured, Scenario, Start, Verification, digest, largest, sparse};

#[derive(Debug, Args)]
pub(super) struct RequestsArgs {
    /// Measure files of these sizes
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = bytes)]
    #[arg(default_value = "1K,10K,100K,1M,1G")]
    sizes: Vec<u64>,

    /// Use N connections [default: 64; fewer for files of more than 2M, down to two]
    #[arg(long, value_name = "N", value_parser = number(1))]
    connections: Option<u32>,

    /// Encrypt connections with TLS 1.3, by the same suite for all servers
    #[arg(long)]
    tls: bool,

    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Args)]
pub(super) struct HandshakesArgs {
    /// Measure files of these sizes
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = bytes)]
    #[arg(default_value = "1K")]
    sizes: Vec<u64>,

    /// Use N connections at once
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = number(1))]
    connections: u32,

    #[command(flatten)]
    server: ServerArgs,
}

impl Measure for RequestsArgs {
    fn measure(&self, start: Start<'_>) -> Result<Record> {
        let setting = Setting {
            tls: self.tls,
            all_connections: self.connections.is_some(),
            ..self.server.setting(self.connections.unwrap_or(64))
        };
        measure(RequestsKind::KeptAlive, &self.sizes, setting, &self.server, start)
    }
}

impl Measure for HandshakesArgs {
    fn measure(&self, start: Start<'_>) -> Result<Record> {
        let setting = Setting { tls: true, ..self.server.setting(self.connections) };
        measure(RequestsKind::Reconnecting, &self.sizes, setting, &self.server, start)
    }
}

fn measure(
    kind: RequestsKind,
    sizes: &[u64],
    setting: Setting,
    args: &ServerArgs,
    start: Start<'_>,
) -> Result<Record> {
    let about = if kind == RequestsKind::Reconnecting { &HANDSHAKES } else { &REQUESTS };
    let (mut plan, fixture, variants) = args.open(start, about, sizes, setting)?;
    fixture.site.folder.require_space(largest(sizes))?;
    plan.for_sizes(&variants);
    plan.measure(about, &mut Requests { fixture, kind }, super::NGINX)
}

/// Files that clients request over and over.
#[derive(Debug)]
pub(super) struct Requests<'a> {
    pub(super) fixture: ServerFixture<'a>,
    pub(super) kind: RequestsKind,
}

/// The measurements of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestsKind {
    /// Requests on connections that are kept alive.
    KeptAlive,
    /// Requests each on a new connection.
    Reconnecting,
    /// Kept-alive requests and the memory of the server; each size has a separate file.
    WithMemory,
}

impl Scenario for Requests<'_> {
    fn prepare(&mut self, cell: &Cell) -> Result<()> {
        let name = self.name(cell.size);
        let path = self.fixture.site.file(&name);
        self.fixture.sha256 = match self.fixture.setting.sparse_from {
            Some(from) if cell.size >= from => {
                sparse(&path, cell.size)?;
                digest(&path)?
            }
            _ => self.fixture.create_file(&name, cell.size)?,
        };
        Ok(())
    }

    fn verify(&mut self, cell: &Cell) -> Result<Verification> {
        self.fixture.verify(cell.variant.contender, &self.name(cell.size), cell)
    }

    fn sample(&mut self, cell: &Cell) -> Result<Measured> {
        self.fixture.sample(cell.variant.contender, |server, host| {
            let has_memory = self.kind == RequestsKind::WithMemory;
            let start = has_memory.then(|| server.memory());
            let mut generator = self.generator(cell, host)?;
            let (spent, load) = during(&mut generator, server, self.fixture.time())?;
            // The connections are still open.
            let served = match start {
                Some(start) => Served::Scale { load, start, busy: server.memory() },
                None => Served::Requests(load),
            };
            Ok((spent, served))
        })
    }

    fn count(&mut self, cell: &Cell, tracer: &CallTracer) -> Result<Vec<Counted>> {
        self.fixture.counted(cell.variant.contender, |server, host| {
            self.fixture.count_requests(server, tracer, &mut self.generator(cell, host)?)
        })
    }
}

impl Requests<'_> {
    fn name(&self, size: u64) -> String {
        match self.kind {
            RequestsKind::WithMemory => format!("file{size}"),
            _ => "file".to_owned(),
        }
    }

    /// Opens all connections, and lets them request until the server is warm.
    fn generator(&self, cell: &Cell, host: &Host) -> io::Result<LoadGenerator<'_>> {
        let mut generator = LoadGenerator::new(self.fixture.context.cancel)?;
        let name = &self.name(cell.size);
        let spec = RequestSpec { name, size: cell.size, class: Class::Hot };
        let usual = connections(&self.fixture.setting, cell.size);
        for _ in 0..cell.connections.unwrap_or(usual) {
            generator.join(host, spec, None)?;
        }
        if self.kind == RequestsKind::Reconnecting {
            generator.reconnects = Some(host.clone());
        }
        generator.run_for(self.fixture.warm_up())?;
        Ok(generator)
    }
}

/// Returns the number of connections: fewer for large files, unless a number was given.
fn connections(setting: &Setting, size: u64) -> u32 {
    let requested = setting.connections;
    if setting.all_connections {
        return requested;
    }
    let enough = u32::try_from(MAX_UNDER_WAY / size.max(1)).unwrap_or(u32::MAX);
    requested.min(enough.max(2))
}

/// Describes the number of connections of a record, and the sizes with fewer.
pub(super) fn connections_of(record: &Record) -> String {
    let setting = record.arguments.serve.unwrap_or_default();
    let requested = setting.connections;
    let fewer = |size: &u64| {
        let (asked_for, size) = (connections(&setting, *size), short_size(*size));
        (asked_for != requested).then(|| format!("at {size} {asked_for}"))
    };
    let fewer: Vec<_> = record.sizes().iter().filter_map(fewer).collect();
    if fewer.is_empty() {
        format!("{requested} connections")
    } else {
        format!("{requested} connections ({})", fewer.join(", "))
    }
}

fn subject(record: &Record) -> String {
    let file_system = &record.environment.source_file_system;
    let logs = if record.arguments.serve.is_some_and(|setting| setting.log) {
        "with access logs (nginx's with buffer=64k flush=1s)"
    } else {
        "without access logs"
    };
    let scheme = if record.arguments.serve.is_some_and(|setting| setting.tls) {
        "HTTPS (TLS 1.3, AES-128-GCM, P-256)"
    } else {
        "HTTP"
    };
    format!("files on {file_system} by {scheme} on loopback, {logs}")
}

/// The common parts of the descriptions of scenarios with servers.
pub(super) const SERVER: Description = Description {
    cores: Some("server and load"),
    expected: Some(Contender::Nginx),
    subject,
    ..Description::NONE
};

pub(super) const REQUESTS: Description = Description {
    name: "serve",
    command: "serve",
    saturates: true,
    caption: |record| {
        format!("Processor time of the server for each request, {}", connections_of(record))
    },
    metrics: &[
        &RATE,
        &CPU,
        &MACHINE,
        &CALLS,
        &SWITCHES,
        &P50,
        &P99,
        &LONGEST,
        &SERVER_BUSY,
        &LOAD_BUSY,
    ],
    ..SERVER
};

pub(super) const HANDSHAKES: Description = Description {
    name: "serve_handshakes",
    command: "serve handshakes",
    caption: |record| {
        let connections = connections_of(record);
        format!("Processor time of the server for each new connection, {connections}")
    },
    ..REQUESTS
};

/// The maximum number of bytes requested at once, unless that were fewer than two files.
const MAX_UNDER_WAY: u64 = 128 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_files_are_requested_over_fewer_connections_but_at_least_two() {
        for (requested, size, expected) in
            [(64, 1, 64), (64, 2 << 20, 64), (64, 4 << 20, 32), (64, 1 << 30, 2), (1, 1 << 30, 1)]
        {
            let mut setting = Setting { connections: requested, ..Setting::default() };
            assert_eq!(connections(&setting, size), expected, "{size}");
            setting.all_connections = true;
            assert_eq!(connections(&setting, size), requested, "{size}");
        }
    }
}
