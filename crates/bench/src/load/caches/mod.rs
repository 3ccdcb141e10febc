//! Starts an origin, and caches in front of it.

mod origin;
mod others;

use std::fs;
use std::net::SocketAddrV4;
use std::path::Path;
use std::process::Command;

use crate::error::{Result, WithPath};
use crate::record::Contender;

pub(crate) use origin::CountingOrigin;
pub(super) use others::SquidMemory;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CacheSetup {
    pub(crate) contender: Contender,
    pub(crate) origin: SocketAddrV4,
    pub(crate) budget: u64,
}

/// The folder of a cache, within the folder of the run.
pub(crate) const CACHE: &str = "cache";

impl CacheSetup {
    /// Returns the command that starts it with an empty folder, beneath that of the run.
    pub(super) fn command(&self, ours: Command, folder: &Path, port: u16) -> Result<Command> {
        let cache = folder.join(CACHE);
        let _ = fs::remove_dir_all(&cache);
        fs::create_dir(&cache).with_path("creating", &cache)?;
        let program = others::program(self.contender);
        let command = Command::new(&program);
        match self.contender {
            Contender::NginxCache | Contender::NginxSlice => self.nginx(command, &cache, port),
            Contender::Squid => self.squid(&program, &cache, port),
            Contender::TrafficServer => self.traffic_server(command, &cache, port),
            Contender::Varnish => Ok(self.varnish(command, &cache, port)),
            _ => {
                let mut command = ours;
                command.args(["serve", "-q", "--workers", "1", "--cache-free", "0"]);
                command.args(["--port", &port.to_string(), "--max-per-address", "0", "--origin"]);
                command.arg(format!("http://{}/", self.origin)).arg("--cache").arg(&cache);
                command.args(["--cache-size", &self.budget.to_string()]);
                Ok(command)
            }
        }
    }

    /// Returns whether it fetches only the requested range of an object that it does not have.
    pub(crate) fn fetches_ranges(contender: Contender) -> bool {
        use Contender::{NginxSlice, Squid, TrafficServer, Underpass};
        matches!(contender, NginxSlice | Squid | TrafficServer | Underpass)
    }
}
