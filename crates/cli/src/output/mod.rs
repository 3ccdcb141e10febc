//! The only module that prints.

mod lines;
pub(crate) mod printable;
mod progress;
mod shared;

pub(crate) use lines::*;
pub(crate) use progress::{ProgressMeter, ProgressPosition};
pub(crate) use shared::write_all;
