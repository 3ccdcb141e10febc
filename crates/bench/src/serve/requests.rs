//! `bench serve requests`: one file, asked for by many connections without a pause; and `bench serve
//! handshakes`, in which each connection asks only once.

use std::io;

use super::client::Host;
use super::course::{Counting, Spent, Stage, watch};
use super::crowd::{Class, Crowd, Wish};
use super::record::{Load, Served};
use super::server::Server;
use crate::counted::Tally;
use crate::error::Result;
use crate::plan::Variant;
use crate::rounds::{Course, Measured, Verdict};

/// One file, again and again.
#[derive(Debug)]
pub(crate) struct Requests<'a> {
    pub(crate) stage: Stage<'a>,
    /// Whether each request comes over a new connection.
    pub(crate) come_anew: bool,
}

impl Course for Requests<'_> {
    fn prepare(&mut self, size: u64) -> Result<()> {
        self.stage.sha256 = self.stage.make(FILE, size)?;
        Ok(())
    }

    fn verify(&mut self, size: u64, variant: Variant) -> Result<Verdict> {
        self.stage.verify(variant.way, FILE, size)
    }

    fn measure(&mut self, size: u64, variant: Variant) -> Result<Measured> {
        let asking = self.asking(size);
        let ask = |server: &Server, host: &Host| asking.run(server, host);
        let ((spent, load), all_cpu_s) = self.stage.with_server(variant.way, ask)?;
        let (measured, peer) = spent.sides();
        Ok(Measured {
            wall_s: spent.elapsed_s(),
            measured,
            peer: Some(peer),
            served: Some(Served::Requests(load)),
            besides_cpu_s: all_cpu_s - spent.cpu_s(),
        })
    }

    fn count(&mut self, size: u64, variant: Variant) -> Result<Vec<Tally>> {
        let asking = self.asking(size);
        self.stage.counted(variant.way, |counting, host| asking.count(counting, host))
    }

    fn weight(&self, _size: u64) -> u64 {
        1
    }
}

impl Requests<'_> {
    fn asking(&self, size: u64) -> Asking<'_> {
        let stage = &self.stage;
        Asking {
            wish: Wish { path: format!("/{FILE}"), size, class: Class::Hot },
            connections: connections(stage.setting.connections, size),
            come_anew: self.come_anew,
            stage,
        }
    }
}

/// What the load does in a sample.
pub(super) struct Asking<'a> {
    pub(super) wish: Wish,
    pub(super) connections: u32,
    pub(super) come_anew: bool,
    pub(super) stage: &'a Stage<'a>,
}

impl Asking<'_> {
    /// Asks, and returns what was spent meanwhile, and what the clients saw.
    fn run(&self, server: &Server, host: &Host) -> io::Result<(Spent, Load)> {
        self.run_and_look(server, host, |_| ()).map(|(spent, load, ())| (spent, load))
    }

    /// The same, with a look at the server at the end, while connections are still open.
    pub(super) fn run_and_look<T>(
        &self,
        server: &Server,
        host: &Host,
        look: impl FnOnce(&Server) -> T,
    ) -> io::Result<(Spent, Load, T)> {
        let mut crowd = self.crowd(host)?;
        let (spent, load) = watch(&mut crowd, server, self.stage.time())?;
        Ok((spent, load, look(server)))
    }

    /// The same while the server's system calls are counted, which makes it slower.
    pub(super) fn count(&self, counting: &Counting<'_>, host: &Host) -> io::Result<Tally> {
        counting.asked_by(&mut self.crowd(host)?, self.stage.time())
    }

    /// All who ask, and have asked long enough for the server to be warm.
    fn crowd(&self, host: &Host) -> io::Result<Crowd<'_>> {
        let mut crowd = Crowd::new(self.stage.cancel)?;
        for _ in 0..self.connections {
            crowd.join(host, &self.wish, None)?;
        }
        if self.come_anew {
            crowd.come_anew(host);
        }
        crowd.run_for(self.stage.warm_up())?;
        Ok(crowd)
    }
}

/// How many connections ask at this size: of large files fewer, as they would only wait for each
/// other.
fn connections(asked: u32, size: u64) -> u32 {
    let enough = u32::try_from(UNDER_WAY / size.max(1)).unwrap_or(u32::MAX);
    asked.min(enough.max(2))
}

const FILE: &str = "file";

/// Bytes asked for at once, at most, unless that were fewer than two files.
const UNDER_WAY: u64 = 128 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_files_are_asked_for_by_fewer_connections_but_by_two() {
        for (asked, size, expected) in
            [(64, 1, 64), (64, 2 << 20, 64), (64, 4 << 20, 32), (64, 1 << 30, 2), (1, 1 << 30, 1)]
        {
            assert_eq!(connections(asked, size), expected, "{size}");
        }
    }
}
