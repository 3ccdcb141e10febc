//! `bench serve cold`: clients that stream a file each over and over, none in the page cache.

use clap::Args;

use crate::error::Result;
use crate::load::{Class, LoadGenerator, ServerFixture, StreamedFiles, during};
use crate::options::{Measure, ServerArgs, bytes, number};
use crate::record::{
    CPU, Cell, Contender, Description, MACHINE_PER_GIB, Record, SERVER_BUSY, SWITCHES, Served,
    THROUGHPUT, Variant, unique,
};
use crate::run::{Measured, Scenario, Start, Verification};
use crate::scenarios::NGINX;
use crate::scenarios::requests::SERVER;

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
        let size = StreamedFiles::whole(self.size);
        let max = self.connections.iter().copied().max().unwrap_or(1);
        let opened = self.server.open(start, &COLD, &[size], self.server.setting(max))?;
        let (mut plan, fixture, mut variants) = opened;
        fixture.site.folder.require_space(size.saturating_mul(max.into()))?;
        plan.arguments.cold = true;
        // nginx has two more ways of reading files that are not in the page cache.
        if variants.contains(&NGINX) {
            variants.extend([Contender::NginxAio, Contender::NginxDirect].map(Variant::plain));
        }
        let cell = |connections, variant| Cell {
            connections: Some(connections),
            ..Cell::new(size, variant)
        };
        let connections = unique(self.connections.iter().copied());
        let group = |connections| variants.iter().map(|one| cell(connections, *one)).collect();
        plan.groups = connections.into_iter().map(group).collect();
        let files = StreamedFiles { count: max, size, class: Class::Hot, is_cold: true };
        plan.measure(&COLD, &mut Cold { fixture, files }, NGINX)
    }
}

/// Cold files, each streamed by one client.
#[derive(Debug)]
struct Cold<'a> {
    fixture: ServerFixture<'a>,
    files: StreamedFiles,
}

impl Scenario for Cold<'_> {
    fn prepare(&mut self, _cell: &Cell) -> Result<()> {
        self.files.create(&mut self.fixture)
    }

    fn verify(&mut self, cell: &Cell) -> Result<Verification> {
        let last = StreamedFiles::name(self.files.count - 1);
        self.fixture.verify(cell.variant.contender, &last, cell)
    }

    fn sample(&mut self, cell: &Cell) -> Result<Measured> {
        self.files.evict(&self.fixture)?;
        self.fixture.sample(cell.variant.contender, |server, host| {
            let mut generator = LoadGenerator::new(self.fixture.context.cancel)?;
            let count = cell.connections.unwrap_or(1);
            self.files.join(count, &self.fixture, &mut generator, host)?;
            let start = server.memory();
            generator.run_for(self.fixture.warm_up())?;
            let (spent, load) = during(&mut generator, server, self.fixture.time())?;
            Ok((spent, Served::Scale { load, start, busy: server.memory() }))
        })
    }
}

pub(in crate::scenarios) const COLD: Description = Description {
    name: "serve_cold",
    command: "serve cold",
    caption: |_| "Clients that stream a file each of which nothing is in the page cache".to_owned(),
    metrics: &[&THROUGHPUT, &CPU, &MACHINE_PER_GIB, &SWITCHES, &SERVER_BUSY],
    ..SERVER
};
