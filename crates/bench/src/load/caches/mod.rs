//! Starts an origin, and caches in front of it.

mod origin;

use std::fs;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Result, WithPath};
use crate::record::Contender;
use crate::run::{find, is_root, run_to_end};

pub(crate) use origin::CountingOrigin;

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
        let name = self.contender.programs().first().copied().unwrap_or_default();
        // It may be in a folder of root's PATH, such as /usr/sbin.
        let program = find(name).unwrap_or_else(|| name.into());
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

    fn nginx(&self, mut command: Command, cache: &Path, port: u16) -> Result<Command> {
        let is_slice = self.contender == Contender::NginxSlice;
        let text = self
            .filled(NGINX, cache, port)
            .replace("{user}", if is_root() { "user root;" } else { "" })
            .replace("{slice}", if is_slice { SLICE } else { "" });
        let path = write(cache, "conf", &text)?;
        command.arg("-p").arg(cache).arg("-c").arg(&path).current_dir(cache);
        Ok(command)
    }

    fn varnish(&self, mut command: Command, cache: &Path, port: u16) -> Command {
        command.args(["-F", "-j", "none", "-a", &format!("127.0.0.1:{port}")]);
        command.args(["-b", &self.origin.to_string(), "-n"]).arg(cache.join("work"));
        command.arg("-s").arg(format!("file,{}/store,{}", cache.display(), self.budget));
        command
    }

    /// Returns the command that starts Squid, whose folder was prepared by another one.
    fn squid(&self, program: &Path, cache: &Path, port: u16) -> Result<Command> {
        let path = write(cache, "conf", &self.filled(SQUID, cache, port))?;
        let command = || {
            // It refuses to run as root, so it gets another user in a user namespace.
            let mut command = Command::new(if is_root() { "unshare".as_ref() } else { program });
            if is_root() {
                command.args(["--user", "--map-user=13", "--map-group=13", "--"]).arg(program);
            }
            command.arg("-N").args(["-n", &squid_service()]).arg("-f").arg(&path);
            command.current_dir(cache);
            command
        };
        let mut preparing = command();
        preparing.arg("-z");
        run_to_end(preparing, None)?.succeeded("squid -z")?;
        Ok(command())
    }

    /// Returns the command that starts Traffic Server, with all of its folders in one.
    fn traffic_server(&self, mut command: Command, cache: &Path, port: u16) -> Result<Command> {
        for folder in ["objects", "run"] {
            let path = cache.join(folder);
            fs::create_dir(&path).with_path("creating", &path)?;
        }
        for (name, template) in TRAFFIC_SERVER {
            write(cache, name, &self.filled(template, cache, port))?;
        }
        // Traffic Server supports no smaller cache.
        let mebibytes = (self.budget >> 20).max(MIN_TRAFFIC_SERVER_MIB);
        let storage = format!("{}/objects {mebibytes}M\n", cache.display());
        write(cache, "storage.config", &storage)?;
        command.arg(format!("--run-root={}/runroot.yaml", cache.display()));
        Ok(command)
    }

    fn filled(&self, template: &str, cache: &Path, port: u16) -> String {
        template
            .replace("{port}", &port.to_string())
            .replace("{origin}", &self.origin.to_string())
            .replace("{origin_host}", &self.origin.ip().to_string())
            .replace("{origin_port}", &self.origin.port().to_string())
            .replace("{cache}", &cache.display().to_string())
            .replace("{mebibytes}", &(self.budget >> 20).to_string())
    }
}

/// The shared memory of this run's Squid, which a killed Squid leaves; removed on drop.
#[derive(Debug)]
pub(super) struct SquidMemory;

impl Drop for SquidMemory {
    fn drop(&mut self) {
        let prefix = format!("{}-", squid_service());
        for entry in fs::read_dir(SHARED_MEMORY).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(&prefix) {
                // A failure could only be reported, and the name of the file shows its owner.
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

/// Returns the service name of this run's Squid: those of the same name share memory.
fn squid_service() -> String {
    format!("underpassbench{}", std::process::id())
}

fn write(cache: &Path, name: &str, text: &str) -> Result<PathBuf> {
    let path = cache.join(name);
    fs::write(&path, text).with_path("writing", &path)?;
    Ok(path)
}

const NGINX: &str = include_str!("../../../../../peers/nginx-cache.conf");

const SLICE: &str =
    "slice 1m; proxy_cache_key $uri$slice_range; proxy_set_header Range $slice_range;";

const SQUID: &str = include_str!("../../../../../peers/squid-cache.conf");

const TRAFFIC_SERVER: [(&str, &str); 4] = [
    ("ip_allow.yaml", include_str!("../../../../../peers/trafficserver-ip-allow.yaml")),
    ("records.config", include_str!("../../../../../peers/trafficserver-cache.config")),
    ("remap.config", "map / http://{origin}/\n"),
    ("runroot.yaml", include_str!("../../../../../peers/trafficserver-runroot.yaml")),
];

/// The folder of shm_open(3).
const SHARED_MEMORY: &str = "/dev/shm";

/// The minimum size of Traffic Server's cache.
const MIN_TRAFFIC_SERVER_MIB: u64 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_shared_memory_of_this_run_is_removed() {
        let path = |name: String| Path::new(SHARED_MEMORY).join(name);
        let ours = path(format!("{}-cf__metadata.shm", squid_service()));
        let another = path(format!("{}0-cf__metadata.shm", squid_service()));
        for file in [&ours, &another] {
            fs::write(file, "").unwrap();
        }
        drop(SquidMemory);
        assert_eq!((ours.exists(), another.exists()), (false, true));
        fs::remove_file(another).unwrap();
    }
}
