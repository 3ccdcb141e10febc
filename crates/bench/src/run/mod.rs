//! The parts that scenarios need: machine, files, processes, cores, links between two processes,
//! and the schedule of measurements.

mod context;
mod ends;
mod file_tree;
mod files;
mod link;
mod process;
mod schedule;
mod survey;
mod system;
mod threads;
mod tracer;

pub(crate) use context::RunArgs;
pub use context::{Context, RunObserver, Start};
pub(crate) use ends::SampleEnds;
pub(crate) use file_tree::{Content, FileTree};
pub(crate) use files::{Noise, PAGE, RunFolder, digest, drop_cached, hex, largest, sparse};
pub(crate) use link::Link;
pub(crate) use process::{
    CommandWords, Cores, Finished, Running, build, on_core, poll_until, process, processor_time,
    retry, run_to_end, stay_on,
};
pub(crate) use schedule::{Measured, RunPlan, Scenario, Verification};
pub(crate) use survey::{
    file_system, find, first_line, machine_seconds, nginx_version, survey, version,
};
pub(crate) use system::{SystemCongestion, allow_open_files, is_root};
pub(crate) use threads::{copy_memory, send_bare};
pub(crate) use tracer::{CallTracer, traced};
