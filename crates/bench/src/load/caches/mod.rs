//! How caches in front of an origin are started, and that origin.

mod origin;

use std::fs;
use std::net::SocketAddrV4;
use std::path::Path;
use std::process::Command;

use crate::error::{Result, WithPath};
use crate::record::Contender;
use crate::run::find;

pub(crate) use origin::CountingOrigin;

/// A cache in front of an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CacheSetup {
    /// The program.
    pub(crate) contender: Contender,
    /// Where the origin listens.
    pub(crate) origin: SocketAddrV4,
    /// The most bytes that it may keep.
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
        let program = self.contender.programs().first().copied().unwrap_or_default();
        let mut command = Command::new(find(program).unwrap_or_else(|| program.into()));
        let (origin, budget) = (self.origin, self.budget);
        let template = match self.contender {
            Contender::NginxCache | Contender::NginxSlice => NGINX,
            Contender::Varnish => {
                command.args(["-F", "-j", "none", "-a", &format!("127.0.0.1:{port}")]);
                command.args(["-b", &origin.to_string(), "-n"]).arg(cache.join("work"));
                command.arg("-s").arg(format!("file,{}/store,{budget}", cache.display()));
                return Ok(command);
            }
            _ => {
                let mut command = ours;
                command.args(["serve", "-q", "--workers", "1", "--cache-free", "0"]);
                command.args(["--port", &port.to_string(), "--max-per-address", "0", "--origin"]);
                command.arg(format!("http://{origin}/")).arg("--cache").arg(&cache);
                command.args(["--cache-size", &budget.to_string()]);
                return Ok(command);
            }
        };
        let is_root = rustix::process::geteuid().is_root();
        let text = template
            .replace("{user}", if is_root { "user root;" } else { "" })
            .replace("{slice}", if self.contender == Contender::NginxSlice { SLICE } else { "" })
            .replace("{port}", &port.to_string())
            .replace("{origin}", &origin.to_string())
            .replace("{mebibytes}", &(budget >> 20).to_string());
        let path = cache.join("conf");
        fs::write(&path, text).with_path("writing", &path)?;
        command.arg("-p").arg(&cache).arg("-c").arg(&path).current_dir(&cache);
        Ok(command)
    }

    /// Returns whether it fetches no more than a range of an object of which it has nothing.
    pub(crate) fn fetches_ranges(contender: Contender) -> bool {
        matches!(contender, Contender::NginxSlice | Contender::Underpass)
    }
}

const NGINX: &str = include_str!("../../../../../peers/nginx-cache.conf");

const SLICE: &str =
    "slice 1m; proxy_cache_key $uri$slice_range; proxy_set_header Range $slice_range;";
