//! Counts the system calls of the processes of a scenario, if it is to count any.

use std::path::PathBuf;
use std::process::Command;

use rustix::process::Pid;

use super::counted::{Missing, Tally};
use super::data::Folder;
use super::record::Role;
use super::strace::{Strace, Watch};
use crate::failure::Result;

/// Counts processes, of each role one, into files beside those that are measured.
#[derive(Clone, Debug)]
pub(crate) struct Counter {
    strace: Option<Strace>,
    folder: PathBuf,
}

impl Counter {
    /// Counts into files in `folder`, unless nobody is to count; and what is missing if somebody is.
    pub(crate) fn unless(is_off: bool, folder: &Folder) -> (Self, Vec<Missing>) {
        let (strace, missing) = match Strace::find() {
            _ if is_off => (None, Vec::new()),
            Ok(strace) => (Some(strace), Vec::new()),
            Err(missing) => (None, vec![missing]),
        };
        (Self { strace, folder: folder.path().to_owned() }, missing)
    }

    /// Whether it counts nothing.
    pub(crate) const fn is_off(&self) -> bool {
        self.strace.is_none()
    }

    /// The same command, counted if asked for.
    pub(crate) fn watched(&self, command: Command, role: Role, is_counted: bool) -> Command {
        match &self.strace {
            Some(strace) if is_counted => strace.watch(&command, &self.summary(role)),
            _ => command,
        }
    }

    /// What a process called, who was counted and has ended.
    pub(crate) fn tally(&self, role: Role) -> Result<Tally> {
        Ok(Tally::new(role, Strace::read(&self.summary(role))?))
    }

    /// Counts from now on what a server calls, in all of its processes; nothing if it is off.
    pub(crate) fn attach(&self, processes: impl Fn() -> Vec<Pid>) -> Result<Option<Watch>> {
        let Some(strace) = &self.strace else { return Ok(None) };
        loop {
            let found = processes();
            let watch = strace.attach(&found, &self.summary(Role::Server))?;
            // One that was born meanwhile would be missed; children of the watched are not.
            if processes() == found {
                return Ok(Some(watch));
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
