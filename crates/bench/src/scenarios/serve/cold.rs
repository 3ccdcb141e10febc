//! `bench serve cold`: clients that stream files of which nothing is in the page cache, each one of
//! its own, over and over.

use std::fs::File;
use std::io;

use clap::Args;

use crate::error::Result;
use crate::load::{
    Class, DropBehind, Host, LoadGenerator, RequestSpec, Server, ServerFixture, during,
};
use crate::options::{Measure, ServerArgs, bytes, number};
use crate::record::{
    CPU, Cell, Contender, Cpu, Description, MACHINE_PER_GIB, Record, SERVER_BUSY, SWITCHES, Served,
    THROUGHPUT, Variant, once,
};
use crate::run::{Measured, Noise, Scenario, Start, Verification, drop_cached};
use crate::scenarios::NGINX;
use crate::scenarios::requests::{REQUESTS, subject};

#[derive(Debug, Args)]
pub(super) struct ColdArgs {
    /// Use this many clients at once
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = number(1))]
    #[arg(default_value = "1,4,16")]
    connections: Vec<u32>,

    /// Size of each file
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = bytes)]
    size: u64,

    #[command(flatten)]
    server: ServerArgs,
}

impl Measure for ColdArgs {
    fn measure(&self, start: Start<'_>) -> Result<Record> {
        // Whole pieces, as they are dropped from the page cache.
        let size = self.size.next_multiple_of(1 << 20);
        let max = self.connections.iter().copied().max().unwrap_or(1);
        let opened = self.server.open(start, &COLD, &[size], self.server.setting(max))?;
        let (mut plan, mut fixture, mut variants) = opened;
        fixture.site.folder.require_space(size.saturating_mul(max.into()))?;
        fixture.noise = Noise::new(size)?;
        plan.arguments.cold = true;
        // nginx has two more ways of reading what is not in the page cache.
        if variants.contains(&NGINX) {
            variants.extend([Contender::NginxAio, Contender::NginxDirect].map(Variant::plain));
        }
        let cell = |connections, variant| Cell {
            connections: Some(connections),
            ..Cell::new(size, variant)
        };
        let connections = once(self.connections.iter().copied());
        let group = |connections| variants.iter().map(|one| cell(connections, *one)).collect();
        plan.groups = connections.into_iter().map(group).collect();
        plan.measure(&COLD, &mut Cold { fixture, size, max }, NGINX)
    }
}

/// Cold files, each streamed by one client.
#[derive(Debug)]
struct Cold<'a> {
    fixture: ServerFixture<'a>,
    size: u64,
    /// The number of files.
    max: u32,
}

impl Scenario for Cold<'_> {
    fn prepare(&mut self, cell: &Cell) -> Result<()> {
        for index in 0..self.max {
            if !self.fixture.site.file(&name(index)).exists() {
                self.fixture.sha256 = self.fixture.create_file(&name(index), cell.size)?;
            }
        }
        Ok(())
    }

    fn verify(&mut self, cell: &Cell) -> Result<Verification> {
        self.fixture.verify(cell.variant.contender, &name(0), cell.size)
    }

    fn sample(&mut self, cell: &Cell) -> Result<Measured> {
        (0..self.max).try_for_each(|index| drop_cached(&self.fixture.site.file(&name(index))))?;
        let work = |server: &Server, host: &Host| -> io::Result<_> {
            let mut generator = LoadGenerator::new(self.fixture.context.cancel)?;
            for index in 0..cell.connections.unwrap_or(1) {
                let file = File::open(self.fixture.site.file(&name(index)))?;
                let follower = Some(DropBehind::new(file, self.size));
                let spec = RequestSpec::of(&name(index), self.size, Class::Hot);
                generator.join(host, &spec, follower)?;
            }
            let start = server.memory();
            generator.run_for(self.fixture.warm_up())?;
            let (spent, load) = during(&mut generator, server, self.fixture.time())?;
            Ok((spent, Served::Scale { load, start, busy: server.memory() }))
        };
        let ((spent, served), all_cpu_s) =
            self.fixture.with_server(cell.variant.contender, work)?;
        Ok(spent.measured(spent.elapsed_s(), served, all_cpu_s))
    }
}

fn name(index: u32) -> String {
    format!("cold-{index}")
}

pub(in crate::scenarios) const COLD: Description = Description {
    name: "serve_cold",
    command: "serve cold",
    cpu: Cpu::Process,
    saturates: false,
    subject,
    caption: |_| "Clients that stream a file each of which nothing is in the page cache".to_owned(),
    metrics: &[&THROUGHPUT, &CPU, &MACHINE_PER_GIB, &SWITCHES, &SERVER_BUSY],
    ..REQUESTS
};
