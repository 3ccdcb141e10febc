//! Counts the system calls of the processes of a scenario.

use std::path::PathBuf;
use std::process::Command;

use rustix::process::Pid;

use super::counted::{Missing, Tally};
use super::data::Folder;
use super::record::Role;
use super::strace::{Strace, Watch};
use crate::error::Result;

/// Counts processes, of each role one, into files beside those that are measured.
#[derive(Clone, Debug)]
pub(crate) struct Counter {
    strace: Strace,
    folder: PathBuf,
}

impl Counter {
    /// Counts into files in `folder`, unless nobody is to count; and what is missing if somebody is.
    pub(crate) fn unless(is_off: bool, folder: &Folder) -> (Option<Self>, Vec<Missing>) {
        match Strace::find() {
            _ if is_off => (None, Vec::new()),
            Ok(strace) => (Some(Self { strace, folder: folder.path().to_owned() }), Vec::new()),
            Err(missing) => (None, vec![missing]),
        }
    }

    /// The same command, counted.
    pub(crate) fn watch(&self, command: &Command, role: Role) -> Command {
        self.strace.watch(command, &self.summary(role))
    }

    /// What a process called, who was counted and has ended.
    pub(crate) fn tally(&self, role: Role) -> Result<Tally> {
        Ok(Tally::new(role, Strace::read(&self.summary(role))?))
    }

    /// Counts from now on what a server calls, in all of its processes.
    pub(crate) fn attach(&self, processes: impl Fn() -> Vec<Pid>) -> Result<Watch> {
        loop {
            let found = processes();
            let watch = self.strace.attach(&found, &self.summary(Role::Server))?;
            // One that was born meanwhile would be missed; children of the watched are not.
            if processes() == found {
                return Ok(watch);
            }
        }
    }

    /// Where the calls of one role are told.
    fn summary(&self, role: Role) -> PathBuf {
        self.folder.join(match role {
            Role::Client => "client.calls",
            Role::Copier => "copier.calls",
            Role::Receiver => "receiver.calls",
            Role::Sender => "sender.calls",
            Role::Server => "server.calls",
        })
    }
}

/// The command, counted if somebody counts.
pub(crate) fn watched(counter: Option<&Counter>, command: Command, role: Role) -> Command {
    match counter {
        Some(counter) => counter.watch(&command, role),
        None => command,
    }
}
