//! `bench serve`: `underpass serve` beside nginx, each on one core and the load on another one.
//!
//! `server` starts and ends them, `nginx` has the peer's configuration, `meter` reads what they
//! cost. `crowd` is the load, of which `responses`, `histogram` and `trail` are the pure parts,
//! `client` a single patient client, and `wire` the connections of both. `requests`, `fairness`,
//! `idle` and `scale` are the scenarios' samples; `scenarios` makes records of them and `table` draws those.

mod arguments;
mod client;
mod course;
mod crowd;
mod fairness;
#[cfg(test)]
mod fixture;
mod histogram;
mod idle;
mod meter;
mod nginx;
mod record;
mod requests;
mod responses;
mod scale;
mod scale_table;
mod scenarios;
mod server;
mod system;
mod table;
mod trail;
mod wire;

pub(crate) use arguments::CommonArgs;
pub use arguments::{ScaleArgs, ServeArgs};
pub(crate) use client::{Client, Host};
pub(crate) use course::{Spent, Stage, Window};
#[cfg(test)]
pub(crate) use fixture::{fairness_record, idle_record, requests_record};
pub(crate) use histogram::Histogram;
pub(crate) use meter::{Meter, peak};
pub(crate) use nginx::version as nginx_version;
pub(crate) use record::{Latency, Load, Memory, Served, Setting};
pub(crate) use scenarios::{Run, setting, tls as wire_tls};
pub use scenarios::{run, scale};
pub(crate) use server::{Kind, Server, Site, free_port};
pub(crate) use system::{SystemCongestion, allow_open_files};
pub(crate) use table::{load_busy, render, server_busy, title};
pub(crate) use wire::Wire;
