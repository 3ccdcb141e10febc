//! `underpass doctor`: what this machine supports, and how to fix what it does not.

mod args;
mod origin;
mod print;
mod run;

pub(crate) use args::DoctorArgs;
pub(crate) use run::run;
