//! The programs without HTTP that the bench compares with: those in `peers/`, written from the
//! descriptions in the articles and built when needed, and installed ones.

mod iperf;
mod socket;

pub(crate) use iperf::measure as measure_iperf;
pub(crate) use socket::{SocketPrograms, reported_seconds};
