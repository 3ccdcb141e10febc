//! `underpass doctor`: the mechanisms that this machine supports, and how to enable the other ones.

mod args;
mod print;
mod run;

pub(crate) use args::DoctorArgs;
pub(crate) use run::run;
