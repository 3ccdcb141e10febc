//! `bench serve fairness`: the latency of a small hot file, first alone, then while other clients
//! stream large files, of which nothing or everything is in the page cache.
//!
//! All clients share one thread, in which those of the hot file come first. Bytes that the streams
//! have read are dropped from the page cache, so that they can read the files over and over, unless
//! the files are meant to be cached.

use std::io;

use clap::Args;

use super::requests::{SERVER, connections_of};
use crate::error::Result;
use crate::load::{
    Class, Host, LoadGenerator, RequestSpec, ResourceUse, RunningServer, ServerFixture,
    StreamedFiles, during,
};
use crate::options::{Measure, ServerArgs, bytes, number};
use crate::record::{
    CALLS, Cell, Counted, Description, LOAD_BUSY, Load, Record, SERVER_BUSY, Served, Setting,
    metric, short_size,
};
use crate::run::{CallTracer, Measured, Noise, Scenario, Start, Verification};

#[derive(Debug, Args)]
pub(super) struct FairnessArgs {
    /// Serve a hot file of this size
    #[arg(long, value_name = "SIZE", default_value = "10K", value_parser = bytes)]
    size: u64,

    /// Request the hot file over N connections
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = number(1))]
    connections: u32,

    /// Stream N large files at the same time, each by one client
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = number(1))]
    streams: u32,

    /// Size of each large file
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = bytes)]
    stream_size: u64,

    /// Leave the large files in the page cache
    #[arg(long)]
    warm: bool,

    #[command(flatten)]
    server: ServerArgs,
}

impl Measure for FairnessArgs {
    fn measure(&self, start: Start<'_>) -> Result<Record> {
        let stream_bytes = StreamedFiles::whole(self.stream_size);
        let setting = Setting {
            streams: Some(self.streams),
            stream_bytes: Some(stream_bytes),
            ..self.server.setting(self.connections)
        };
        let opened = self.server.open(start, &FAIRNESS, &[self.size], setting)?;
        let (mut plan, mut fixture, variants) = opened;
        let all = stream_bytes.saturating_mul(self.streams.into());
        fixture.site.folder.require_space(all.saturating_add(self.size))?;
        fixture.noise = Noise::new(stream_bytes.max(self.size))?;
        plan.arguments.cold = !self.warm;
        plan.for_sizes(&variants);
        let streams = StreamedFiles {
            count: self.streams,
            size: stream_bytes,
            class: Class::Stream,
            is_cold: !self.warm,
        };
        plan.measure(&FAIRNESS, &mut Fairness { fixture, streams }, super::NGINX)
    }
}

/// A hot file, requested while large ones are streamed.
#[derive(Debug)]
struct Fairness<'a> {
    fixture: ServerFixture<'a>,
    streams: StreamedFiles,
}

impl Scenario for Fairness<'_> {
    fn prepare(&mut self, cell: &Cell) -> Result<()> {
        self.streams.create(&mut self.fixture)?;
        self.fixture.sha256 = self.fixture.create_file(HOT, cell.size)?;
        Ok(())
    }

    fn verify(&mut self, cell: &Cell) -> Result<Verification> {
        self.fixture.verify(cell.variant.contender, HOT, cell)
    }

    fn sample(&mut self, cell: &Cell) -> Result<Measured> {
        self.streams.evict(&self.fixture)?;
        let work = |server: &RunningServer, host: &Host| self.windows(cell.size, server, host);
        let ((before_s, spent, served), all_cpu_s) =
            self.fixture.with_server(cell.variant.contender, work)?;
        Ok(spent.measured(before_s + spent.elapsed_s(), served, all_cpu_s))
    }

    fn count(&mut self, cell: &Cell, tracer: &CallTracer) -> Result<Vec<Counted>> {
        self.streams.evict(&self.fixture)?;
        self.fixture.counted(cell.variant.contender, |server, host| {
            let mut generator = self.hot(cell.size, host)?;
            self.streams.join(self.streams.count, &self.fixture, &mut generator, host)?;
            generator.run_for(self.fixture.warm_up())?;
            self.fixture.count_requests(server, tracer, &mut generator)
        })
    }
}

impl Fairness<'_> {
    fn hot(&self, size: u64, host: &Host) -> io::Result<LoadGenerator<'_>> {
        let mut generator = LoadGenerator::new(self.fixture.context.cancel)?;
        let hot = RequestSpec { name: HOT, size, class: Class::Hot };
        for _ in 0..self.fixture.setting.connections {
            generator.join(host, hot, None)?;
        }
        Ok(generator)
    }

    /// Returns the seconds before the streams, what was spent while they ran, and what clients saw.
    fn windows(
        &self,
        size: u64,
        server: &RunningServer,
        host: &Host,
    ) -> io::Result<(f64, ResourceUse, Served)> {
        let mut generator = self.hot(size, host)?;
        let (before, alone) = self.window(&mut generator, server)?;
        self.streams.join(self.streams.count, &self.fixture, &mut generator, host)?;
        let (spent, beside) = self.window(&mut generator, server)?;
        let streamed_bytes = generator.load(Class::Stream, spent.elapsed_s()).bytes;
        Ok((before.elapsed_s(), spent, Served::Fairness { alone, beside, streamed_bytes }))
    }

    /// Warms up and measures the hot file.
    fn window(
        &self,
        generator: &mut LoadGenerator<'_>,
        server: &RunningServer,
    ) -> io::Result<(ResourceUse, Load)> {
        generator.run_for(self.fixture.warm_up())?;
        during(generator, server, self.fixture.time())
    }
}

const HOT: &str = "hot";

pub(super) const FAIRNESS: Description = Description {
    name: "serve_fairness",
    command: "serve fairness",
    caption: |record| {
        let setting = record.arguments.serve.unwrap_or_default();
        format!(
            "Latency of a hot file, {}: alone, and while {} clients stream a {} file of {} each",
            connections_of(record),
            setting.streams.unwrap_or(0),
            if record.arguments.cold { "cold" } else { "warm" },
            short_size(setting.stream_bytes.unwrap_or(0))
        )
    },
    metrics: &[
        &CALLS,
        &metric!("alone-p50": "Latency of half of the requests, alone", "p50 alone", Seconds, Table;
            Served::Fairness { alone, .. } => alone.latency?.p50_s),
        &metric!("beside-p50": "Latency of half of the requests, beside large files",
            "p50 beside", Seconds, Table;
            Served::Fairness { beside, .. } => beside.latency?.p50_s),
        &metric!("alone": "Latency of 99 of 100 requests, alone", "p99 alone", Seconds, Chart;
            Served::Fairness { alone, .. } => alone.latency?.p99_s),
        &metric!("beside": "Latency of 99 of 100 requests, beside large files",
            "p99 beside", Seconds, Chart;
            Served::Fairness { beside, .. } => beside.latency?.p99_s),
        &metric!("slowdown": "Latency beside large files, as a multiple of that alone",
            "p99 beside/alone", Times, Finding;
            Served::Fairness { alone, beside, .. } => beside.latency?.p99_s / alone.latency?.p99_s),
        &metric!("beside-max": "The longest latency beside large files",
            "max beside", Seconds, Table;
            Served::Fairness { beside, .. } => beside.latency?.max_s),
        &metric!("streams": "Bytes of large files per second", "streams B/s", Bytes, Main, more;
            Served::Fairness { beside, streamed_bytes, .. } =>
                streamed_bytes as f64 / beside.elapsed_s),
        &SERVER_BUSY,
        &LOAD_BUSY,
    ],
    ..SERVER
};
