//! `underpass doctor`: what this machine allows, and what to do about what it does not.

mod args;
mod print;
mod run;

pub(crate) use args::DoctorArgs;
pub(crate) use run::run;
