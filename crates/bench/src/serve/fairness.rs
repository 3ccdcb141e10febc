//! `bench serve fairness`: the latency of a small hot file, first alone, then while other clients
//! stream files of which nothing is in the page cache.
//!
//! All clients share one thread, in which those of the hot file have their turn first. What the
//! streams have read is thrown out of the page cache behind them, so that they may go round and
//! round.

use std::fs::File;
use std::io;

use super::client::Host;
use super::course::{Counting, Spent, Stage, watch};
use super::crowd::{Class, Crowd, Wish};
use super::record::{Load, Served};
use super::server::Server;
use super::trail::Trail;
use crate::counted::Tally;
use crate::data::chill;
use crate::error::Result;
use crate::plan::Variant;
use crate::rounds::{Course, Measured, Verdict};

/// A hot file beside cold ones.
#[derive(Debug)]
pub(crate) struct Fairness<'a>(pub(crate) Stage<'a>);

/// What a sample found.
struct Found {
    alone: (Spent, Load),
    beside: (Spent, Load),
    streamed_bytes: u64,
}

impl Course for Fairness<'_> {
    fn prepare(&mut self, size: u64) -> Result<()> {
        for index in 0..self.streams() {
            let size = self.stream_bytes();
            self.0.make(&cold(index), size)?;
        }
        self.0.sha256 = self.0.make(HOT, size)?;
        Ok(())
    }

    fn verify(&mut self, size: u64, variant: Variant) -> Result<Verdict> {
        self.0.verify(variant.way, HOT, size)
    }

    fn measure(&mut self, size: u64, variant: Variant) -> Result<Measured> {
        self.chill()?;
        let work = |server: &Server, host: &Host| self.sample(size, server, host);
        let (found, all_cpu_s) = self.0.with_server(variant.way, work)?;
        let (alone, beside) = (found.alone, found.beside);
        let (measured, peer) = beside.0.sides();
        Ok(Measured {
            wall_s: alone.0.elapsed_s() + beside.0.elapsed_s(),
            measured,
            peer: Some(peer),
            served: Some(Served::Fairness {
                alone: alone.1,
                beside: beside.1,
                streamed_bytes: found.streamed_bytes,
            }),
            besides_cpu_s: all_cpu_s - beside.0.cpu_s(),
        })
    }

    fn count(&mut self, size: u64, variant: Variant) -> Result<Vec<Tally>> {
        self.chill()?;
        let work = |counting: &Counting<'_>, host: &Host| {
            let mut crowd = self.hot(size, host)?;
            self.join_streams(&mut crowd, host)?;
            crowd.run_for(self.0.warm_up())?;
            counting.asked_by(&mut crowd, self.0.time())
        };
        self.0.counted(variant.way, work)
    }

    fn weight(&self, _size: u64) -> u64 {
        1
    }
}

impl Fairness<'_> {
    fn streams(&self) -> u32 {
        self.0.setting.streams.unwrap_or(0)
    }

    fn stream_bytes(&self) -> u64 {
        self.0.setting.stream_bytes.unwrap_or(0)
    }

    /// Throws the cold files out of the page cache.
    fn chill(&self) -> Result<()> {
        (0..self.streams()).try_for_each(|index| chill(&self.0.site.file(&cold(index))))
    }

    /// Those who ask for the hot file.
    fn hot(&self, size: u64, host: &Host) -> io::Result<Crowd<'_>> {
        let mut crowd = Crowd::new(self.0.cancel)?;
        let hot = Wish { path: format!("/{HOT}"), size, class: Class::Hot };
        for _ in 0..self.0.setting.connections {
            crowd.join(host, &hot, None)?;
        }
        Ok(crowd)
    }

    /// Those who stream a cold file each.
    fn join_streams(&self, crowd: &mut Crowd<'_>, host: &Host) -> io::Result<()> {
        for index in 0..self.streams() {
            let (name, size) = (cold(index), self.stream_bytes());
            let trail = Trail::new(File::open(self.0.site.file(&name))?, size);
            let wish = Wish { path: format!("/{name}"), size, class: Class::Stream };
            crowd.join(host, &wish, Some(trail))?;
        }
        Ok(())
    }

    fn sample(&self, size: u64, server: &Server, host: &Host) -> io::Result<Found> {
        let mut crowd = self.hot(size, host)?;
        let alone = self.window(&mut crowd, server)?;
        self.join_streams(&mut crowd, host)?;
        let beside = self.window(&mut crowd, server)?;
        let streamed_bytes = crowd.load(Class::Stream, beside.0.elapsed_s()).bytes;
        Ok(Found { alone, beside, streamed_bytes })
    }

    /// Warms up and measures the hot file.
    fn window(&self, crowd: &mut Crowd<'_>, server: &Server) -> io::Result<(Spent, Load)> {
        crowd.run_for(self.0.warm_up())?;
        watch(crowd, server, self.0.time())
    }
}

/// The name of a file that is streamed.
fn cold(index: u32) -> String {
    format!("cold-{index}")
}

const HOT: &str = "hot";
