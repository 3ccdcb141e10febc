//! `bench serve`: its scenarios, and what all scenarios with servers begin with.

mod cold;
mod origin;

use clap::{Args, Subcommand};

use super::fairness::FairnessArgs;
use super::idle::IdleArgs;
use super::installed;
use super::requests::{HandshakesArgs, RequestsArgs};
use crate::error::Result;
use crate::load::{SPARE_FILES, ServedSite, ServerFixture, accept_any_certificate};
use crate::options::{Benchmark, Run, ServerArgs};
use crate::record::{Description, Role, Setting, Variant};
use crate::run::{
    Cores, Noise, RunPlan, Start, SystemCongestion, allow_open_files, find, largest, nginx_version,
    survey, version,
};
pub(super) use cold::COLD;
use cold::ColdArgs;
pub(super) use origin::ORIGIN;
pub use origin::OriginArgs;

/// The arguments of `bench serve`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ServeArgs {
    /// What to measure; requests by default.
    #[command(subcommand)]
    scenario: Option<ServeScenario>,

    #[command(flatten)]
    requests: Run<RequestsArgs>,
}

#[derive(Debug, Subcommand)]
enum ServeScenario {
    /// Measure processor time of requests, and requests per second
    Requests(Run<RequestsArgs>),
    /// Measure the latency of a hot file, alone and while large files are streamed
    Fairness(Run<FairnessArgs>),
    /// Measure throughput and processor time of files that are not in the page cache
    Cold(Run<ColdArgs>),
    /// Measure processor time of new TLS connections with one request each, and connections per
    /// second
    Handshakes(Run<HandshakesArgs>),
    /// Measure memory with thousands of idle connections and slow downloads, and the latency of a
    /// new connection
    Idle(Run<IdleArgs>),
}

impl ServeArgs {
    /// Returns the scenario that was typed.
    #[must_use]
    pub fn chosen(&self) -> &dyn Benchmark {
        match &self.scenario {
            None => &self.requests,
            Some(ServeScenario::Requests(args)) => args,
            Some(ServeScenario::Fairness(args)) => args,
            Some(ServeScenario::Cold(args)) => args,
            Some(ServeScenario::Handshakes(args)) => args,
            Some(ServeScenario::Idle(args)) => args,
        }
    }
}

impl ServerArgs {
    /// Returns the options that all scenarios with servers have.
    pub(super) fn setting(&self, connections: u32) -> Setting {
        Setting { connections, seconds: self.seconds, log: self.log, ..Setting::default() }
    }

    /// Finds the servers and a place for their files, of which nothing is measured yet.
    pub(super) fn open<'a>(
        &self,
        start: Start<'a>,
        about: &Description,
        sizes: &[u64],
        setting: Setting,
    ) -> Result<(RunPlan<'a>, ServerFixture<'a>, Vec<Variant>)> {
        let nginx = nginx_version();
        let (servers, missing) = installed(&self.server, |name| find(name).is_some())?;
        let programs = servers.iter().filter(|server| !server.programs().contains(&"nginx"));
        let programs = programs.filter_map(|server| version(&find(server.programs().first()?)?));
        let cores = Cores::of_server();
        let Start { context, run } = start;
        allow_open_files(u64::from(setting.connections) + SPARE_FILES)?;
        let mut site = ServedSite::create(context, &run.dir, self.log, Some(cores.first))?;
        // Surveyed before any setting of the system is changed.
        let mut plan = RunPlan::new(start, sizes, survey(cores, site.folder.path(), None));
        let congestion = SystemCongestion::choose(&self.system.congestion)?;
        plan.environment.nginx = nginx;
        plan.environment.programs = programs.collect();
        plan.environment.congestion = Some(congestion.name.clone());
        plan.arguments.mechanisms.clone_from(&servers);
        (plan.arguments.side, plan.arguments.serve) = (Role::Server, Some(setting));
        plan.count_calls_unless(self.system.no_count, &site.folder);
        // If a program is expected and missing, its absent version already causes a warning.
        let missing =
            missing.into_iter().filter(|name| about.expected.is_none_or(|it| it.name() != *name));
        plan.add_missing(missing, "not installed");
        if setting.tls {
            site.encrypt()?;
        }
        let fixture = ServerFixture {
            site,
            noise: Noise::new(largest(sizes))?,
            setting,
            congestion,
            tls: setting.tls.then(accept_any_certificate).transpose()?,
            cores,
            context,
            sha256: String::new(),
        };
        let variants = servers.into_iter().map(Variant::plain).collect();
        Ok((plan, fixture, variants))
    }
}
