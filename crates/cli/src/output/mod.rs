//! The only module that prints.

mod lines;
pub(crate) mod printable;
mod progress;
pub(crate) mod shared;

pub(crate) use lines::*;
pub(crate) use progress::{ProgressMeter, ProgressPosition};
