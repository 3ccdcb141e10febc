//! The programs that the bench is measured against besides those that move HTTP: those in `peers/`,
//! written from what the articles describe and built on the spot, and those that are installed.

mod iperf;
mod programs;

pub(crate) use iperf::measure as measure_iperf;
pub(crate) use programs::{PeerPrograms, PeerReport};
