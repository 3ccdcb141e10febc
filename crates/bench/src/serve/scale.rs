//! `bench scale`: how throughput, processor time and memory of a server change when connections become
//! more and files larger. All points take turns, as they are compared with each other and not only
//! with other servers.

use std::io;

use super::client::Host;
use super::course::{Counting, Stage};
use super::crowd::{Class, Wish};
use super::record::Served;
use super::requests::Asking;
use super::server::Server;
use crate::data::{digest, sparse};
use crate::error::Result;
use crate::plan::Variant;
use crate::record::{Cell, Sample};
use crate::rounds::{
    Measured, Results, Schedule, Verdict, counted, interrupted, progress, sampled,
};

/// Points to be measured, each with every server.
#[derive(Debug)]
pub(crate) struct Scale<'a> {
    pub(crate) stage: Stage<'a>,
    /// Sizes with the number of connections.
    pub(crate) points: Vec<(u64, u32)>,
}

impl Scale<'_> {
    /// Verifies every file by every server once, then measures all points in turn.
    pub(crate) fn run(mut self, schedule: &Schedule) -> Result<Results> {
        let mut cells: Vec<Cell> = Vec::new();
        for (size, connections) in self.points.clone() {
            let is_made = cells.iter().any(|cell| cell.size == size);
            if !is_made {
                self.make(size)?;
            }
            for variant in &schedule.variants {
                interrupted(self.stage.cancel)?;
                let same = |cell: &&Cell| cell.size == size && cell.variant == *variant;
                let sha256 = match cells.iter().find(same) {
                    Some(cell) => cell.sha256.clone(),
                    None => self.verify(size, *variant)?,
                };
                let (variant, connections) = (*variant, Some(connections));
                cells.push(Cell { size, variant, sha256, declined: None, connections, load: None });
            }
        }
        let samples = self.samples(&cells, schedule)?;
        let counted = counted(0..cells.len(), self.stage.cancel, |index| {
            let asking = self.asking(&cells[index]);
            let count = |counting: &Counting<'_>, host: &Host| asking.count(counting, host);
            self.stage.counted(cells[index].variant.way, count)
        })?;
        Ok(Results { cells, samples, counted })
    }

    /// Makes the file of a size.
    fn make(&mut self, size: u64) -> Result<()> {
        let file = name(size);
        let path = self.stage.site.file(&file);
        self.stage.sha256 = match size {
            _ if self.stage.setting.sparse_from.is_some_and(|from| size >= from) => {
                sparse(&path, size)?;
                digest(&path)?
            }
            _ => self.stage.make(&file, size)?,
        };
        Ok(())
    }

    fn verify(&self, size: u64, variant: Variant) -> Result<Option<String>> {
        match self.stage.verify(variant.way, &name(size), size)? {
            Verdict::Arrived(sha256) => Ok(Some(sha256)),
            Verdict::Declined(_) | Verdict::Unknown => Ok(None),
        }
    }

    fn samples(&self, cells: &[Cell], schedule: &Schedule) -> Result<Vec<Sample>> {
        let rounds = schedule.warmup + schedule.runs;
        let bar = progress(u64::from(rounds) * cells.len() as u64);
        let mut samples = Vec::new();
        let turns = (0..rounds).flat_map(|round| {
            // Each round begins with another one, as everywhere.
            (0..cells.len()).map(move |turn| (round, (turn + round as usize) % cells.len()))
        });
        for (round, index) in turns {
            interrupted(self.stage.cancel)?;
            let sample = sampled(index, || self.measure(&cells[index]))?;
            if round >= schedule.warmup {
                samples.push(Sample { round: round - schedule.warmup + 1, ..sample });
            }
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(samples)
    }

    fn asking(&self, cell: &Cell) -> Asking<'_> {
        let path = format!("/{}", name(cell.size));
        Asking {
            wish: Wish { path, size: cell.size, class: Class::Hot },
            connections: cell.connections.unwrap_or(1),
            come_anew: false,
            stage: &self.stage,
        }
    }

    fn measure(&self, cell: &Cell) -> Result<Measured> {
        let asking = self.asking(cell);
        let ask = |server: &Server, host: &Host| -> io::Result<_> {
            let start = server.memory();
            let (spent, load, busy) = asking.run_and_look(server, host, Server::memory)?;
            Ok((spent, load, [start, busy]))
        };
        let ((spent, load, [start, busy]), all_cpu_s) =
            self.stage.with_server(cell.variant.way, ask)?;
        let (measured, peer) = spent.sides();
        Ok(Measured {
            wall_s: spent.elapsed_s(),
            measured,
            peer: Some(peer),
            served: Some(Served::Scale { load, start, busy }),
            besides_cpu_s: all_cpu_s - spent.cpu_s(),
        })
    }
}

/// The name of the file of a size.
fn name(size: u64) -> String {
    format!("file{size}")
}
