//! What the samples of all scenarios with servers have in common.

use std::io;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use underpass_engine::{Report, Usage};

use super::client::Host;
use super::crowd::{Class, Crowd};
use super::meter::Meter;
use super::record::{Load, Setting};
use super::server::{Server, Site};
use super::wire::Tls;
use crate::chain::thread;
use crate::child::{Cores, stay_on};
use crate::counted::{Call, Tally};
use crate::counter::Counter;
use crate::data::Noise;
use crate::error::{BenchError, Result};
use crate::record::{Process, Role, Side};
use crate::rounds::Verdict;
use crate::way::Way;

/// Everything that a sample needs.
#[derive(Debug)]
pub(crate) struct Stage<'a> {
    /// The folder, and how servers are started.
    pub(crate) site: Site,
    /// What files are made of.
    pub(crate) noise: Noise,
    /// What was asked for.
    pub(crate) setting: Setting,
    /// The congestion control of the clients' ends.
    pub(crate) congestion: String,
    /// How connections are encrypted, if they are.
    pub(crate) tls: Option<Tls>,
    /// The first for the server, the second for the load.
    pub(crate) cores: Cores,
    /// Who counts, if somebody does.
    pub(crate) counter: Option<Counter>,
    /// Set by a signal.
    pub(crate) cancel: &'a AtomicBool,
    /// The digest of the file of the present size.
    pub(crate) sha256: String,
}

/// What a server and its load have spent in a window of time.
#[derive(Debug)]
pub(crate) struct Spent {
    server: Process,
    load: Usage,
}

/// Watches a server and the calling thread, which is its load.
#[derive(Debug)]
pub(crate) struct Window {
    server: Meter,
    load: Usage,
}

impl Stage<'_> {
    /// The server as its clients see it.
    pub(crate) fn host(&self, server: &Server) -> Host {
        let congestion = self.congestion.clone();
        Host { address: server.address, congestion, tls: self.tls.clone() }
    }

    /// The time of a sample.
    pub(crate) fn time(&self) -> Duration {
        Duration::from_secs_f64(self.setting.seconds)
    }

    /// The time in which a server and its connections warm up before each sample.
    pub(crate) fn warm_up(&self) -> Duration {
        WARM_UP.min(self.time())
    }

    /// Makes a file that is served.
    pub(crate) fn make(&mut self, name: &str, size: u64) -> Result<String> {
        self.noise.write(&self.site.file(name), size)
    }

    /// Asks once for a file, and looks whether it arrives as it is.
    pub(crate) fn verify(&self, way: Way, name: &str, size: u64) -> Result<Verdict> {
        let server = self.site.start(&way.into())?;
        let host = self.host(&server);
        match host.digest(&format!("/{name}"), size) {
            Ok(arrived) if arrived == self.sha256 => Ok(Verdict::Arrived(arrived)),
            Ok(_) => Err(BenchError::Differs { what: way.to_string() }),
            Err(error) => Err(server.failure(&error)),
        }
    }

    /// Starts a server and lets `work` ask it on the core of the load. Returns besides what was
    /// spent by both altogether, also outside of any window.
    pub(crate) fn with_server<T: Send>(
        &self,
        way: Way,
        work: impl FnOnce(&Server, &Host) -> io::Result<T> + Send,
    ) -> Result<(T, f64)> {
        let server = self.site.start(&way.into())?;
        let host = self.host(&server);
        let begun = Window { server: Meter::zero(), load: Usage::default() };
        let outcome = std::thread::scope(|scope| {
            let load = scope.spawn(|| {
                stay_on(self.cores.second);
                let found = work(&server, &host)?;
                Ok((found, begun.close(&server).cpu_s()))
            });
            load.join().expect("the load does not panic")
        });
        outcome.map_err(|error: io::Error| server.failure(&error))
    }

    /// What `work` counts of a server; nothing if nobody counts.
    pub(crate) fn counted(
        &self,
        way: Way,
        work: impl FnOnce(&Counting<'_>, &Host) -> io::Result<Tally> + Send,
    ) -> Result<Vec<Tally>> {
        let Some(counter) = &self.counter else { return Ok(Vec::new()) };
        let work = |server: &Server, host: &Host| work(&Counting { counter, server }, host);
        Ok(vec![self.with_server(way, work)?.0])
    }
}

/// Counts the system calls of a server from when it is asked to.
#[derive(Debug)]
pub(crate) struct Counting<'a> {
    counter: &'a Counter,
    pub(crate) server: &'a Server,
}

impl Counting<'_> {
    /// The calls of the server while `work` is done.
    pub(crate) fn during(&self, work: impl FnOnce() -> io::Result<()>) -> io::Result<Vec<Call>> {
        let other = |failure: BenchError| io::Error::other(failure.to_string());
        let watch = self.counter.attach(|| self.server.processes()).map_err(other)?;
        work()?;
        watch.end().map_err(other)
    }

    /// The same while a crowd asks for so long, with what it gets.
    pub(crate) fn asked_by(&self, crowd: &mut Crowd<'_>, time: Duration) -> io::Result<Tally> {
        let calls = self.during(|| crowd.run_for(time))?;
        Ok(Tally::while_serving(calls, crowd.bytes()))
    }
}

impl Window {
    /// Begins to watch.
    pub(crate) fn open(server: &Server) -> Self {
        Self { server: server.meter(), load: Usage::of_this_thread() }
    }

    /// What was spent since.
    pub(crate) fn close(self, server: &Server) -> Spent {
        let load = Usage::of_this_thread() - self.load;
        Spent { server: server.meter().since(&self.server), load }
    }
}

/// What is spent while a crowd asks for so long, and what those get whose latency matters.
pub(crate) fn watch(
    crowd: &mut Crowd<'_>,
    server: &Server,
    time: Duration,
) -> io::Result<(Spent, Load)> {
    let window = Window::open(server);
    crowd.run_for(time)?;
    let spent = window.close(server);
    let load = crowd.load(Class::Hot, spent.elapsed_s());
    Ok((spent, load))
}

impl Spent {
    /// Seconds of the window.
    pub(crate) const fn elapsed_s(&self) -> f64 {
        self.server.wall_s
    }

    /// Processor seconds of both.
    pub(crate) fn cpu_s(&self) -> f64 {
        self.server.cpu_s + (self.load.user + self.load.system).as_secs_f64()
    }

    /// Server and load, as a sample tells of them.
    pub(crate) fn sides(&self) -> (Side, Side) {
        let elapsed_s = self.elapsed_s();
        let side = |role| Side { role, elapsed_s, thread: None, process: None };
        let load = Some(thread(&Report::default(), self.load));
        (
            Side { process: Some(self.server), ..side(Role::Server) },
            Side { thread: load, ..side(Role::Client) },
        )
    }
}

/// Until connections are established, caches filled and windows opened.
const WARM_UP: Duration = Duration::from_millis(500);
