//! The end of a download: a complete file, a partial file, or starting over.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::sync::atomic::Ordering;
use std::time::SystemTime;

use rustix::io::Errno;
use underpass_engine::atomic_file::Existing;
use underpass_engine::hint::Action;

use super::mirrors::MirrorServer;
use super::state::{Download, RequestMode};
use crate::download::check::check;
use crate::download::error::{DownloadError, DownloadFailed, PartialInfo, Result, TargetError};
use crate::download::options::{DownloadEvent, IfExists, Target};
use crate::download::partial_file::{PartialFile, set_time};
use crate::download::version_attr;

impl Download<'_, '_> {
    /// Discards the received bytes; returns `false` if they were written to a stream.
    pub(super) fn start_over(&mut self) -> Result<bool> {
        match self.partial.take() {
            Some(stream @ PartialFile::Stream { done: 1.., .. }) => {
                self.partial = Some(stream);
                return Ok(false);
            }
            Some(PartialFile::Resumable(kept)) => {
                // Emptied before another journal is written, so that no crash can leave a mixture.
                let emptied = kept.atomic.file().set_len(0);
                emptied.map_err(DownloadError::local("emptying"))?;
            }
            _ => {}
        }
        (self.version, self.total, self.resumed_at) = (None, None, 0);
        (self.modified, self.request_mode) = (None, RequestMode::Ranges);
        self.answered_url = None;
        self.offered.clear();
        self.gauge.set(0, None);
        Ok(true)
    }

    /// Completes the file: checks it and sets its time and its name.
    pub(super) fn finish(&mut self) -> Result<()> {
        let file = match &self.partial {
            None => {
                // A partial file of another version, which the server had meanwhile.
                if let Some(name) = self.name().filter(|_| self.is_on_disk) {
                    self.report_left(name.forget(true));
                }
                return Ok(());
            }
            Some(PartialFile::Stream { .. }) => return Ok(()),
            Some(partial) => partial.file(),
        };
        let total = self.total.unwrap_or_default();
        let (options, cancel) = (self.options, self.client.cancel);
        self.gauge.is_checking.store(true, Ordering::Relaxed);
        let checked = check(file, total, options, &self.offered, cancel);
        if matches!(checked, Err(DownloadError::Digest(_))) {
            self.mirrors.iter().for_each(|mirror| mirror.keep_digests(file));
            // Nothing in it can be resumed.
            self.start_over()?;
        }
        self.facts = checked?;
        let is_compared = self.facts.iter().any(|fact| fact.expected.is_some());
        if !is_compared && self.mirrors.iter().any(MirrorServer::has_sent) {
            (self.on_event)(&DownloadEvent::OnlyTagsCompared);
        }
        let Some(partial) = self.partial.take() else { return Ok(()) };
        let (atomic, is_partial) = match partial {
            PartialFile::Stream { .. } => return Ok(()),
            PartialFile::Unnamed(atomic) => (atomic, false),
            PartialFile::Resumable(kept) => (kept.atomic, true),
        };
        if let Some(modified) = self.modified.filter(|_| options.keep_time) {
            keep_time(atomic.file(), modified)?;
        }
        if let (Some(name), true) = (self.name(), self.replaces()) {
            name.keep_mode(atomic.file())?;
        }
        let atomic = if options.durable { atomic.durable() } else { atomic };
        let existing = match self.target {
            Target::Named { if_exists: IfExists::Replace, .. } => Existing::Replace,
            Target::Named { if_exists: IfExists::Update, .. } => {
                let answered = self.answered_url.as_ref().unwrap_or(self.url);
                if let Some(version) = &self.version {
                    version_attr::store(atomic.file(), self.url, answered, version);
                }
                Existing::Replace
            }
            _ => Existing::Keep,
        };
        if let Err(error) = atomic.commit(existing) {
            let error = match error.kind() {
                io::ErrorKind::AlreadyExists => TargetError::Exists.into(),
                io::ErrorKind::StaleNetworkFileHandle => return Err(TargetError::Replaced.into()),
                _ => DownloadError::Local { action: Action::Writing, source: error },
            };
            if let Some(name) = self.name().filter(|name| is_partial && name.has_part()) {
                // A later process only has to rename it.
                self.unnamed = Some(PartialInfo { name: name.part_name().into(), bytes: total });
            }
            return Err(error);
        }
        if let Some(name) = self.name().filter(|_| self.is_on_disk) {
            // The partial file of a discarded version is empty.
            self.report_left(name.forget(!is_partial));
        }
        Ok(())
    }

    /// Removes what an earlier process left of the file that is now complete, unless this process
    /// has done so already.
    pub(super) fn forget_superseded(&self) {
        if let Some(name) = self.name().filter(|_| !self.is_on_disk) {
            self.report_left(name.forget_superseded(self.noted_url().as_str()));
        }
    }

    /// Reports a name that could not be removed. The file is complete, or nothing of it was kept.
    pub(super) fn report_left(&self, removed: Result<(), (OsString, io::Error)>) {
        if let Err((name, error)) = removed {
            (self.on_event)(&DownloadEvent::NotRemoved { name: &name, error: &error });
        }
    }

    /// Returns whether an existing file is replaced.
    fn replaces(&self) -> bool {
        let Target::Named { if_exists, .. } = self.target else { return false };
        matches!(if_exists, IfExists::Replace | IfExists::Update)
    }

    /// Returns the failure, with the partial file that is kept.
    pub(super) fn failed(mut self, error: DownloadError) -> DownloadFailed {
        let kept = self.here();
        let unnamed = self.unnamed.take();
        if let (true, Some(name), 0, None) = (self.is_on_disk, self.name(), kept, &unnamed) {
            self.partial = None;
            self.report_left(name.forget(true));
        }
        let is_kept = matches!(self.partial, Some(PartialFile::Resumable(_))) && kept > 0;
        if let Some(mut partial) = self.partial.take().filter(|_| is_kept) {
            partial.leave();
        }
        let name = self.name().filter(|_| is_kept);
        let kept = name.map(|name| PartialInfo { name: name.part_name().into(), bytes: kept });
        let kept = kept.or(unnamed).map(Box::new);
        DownloadFailed {
            error,
            report: Box::new(self.report),
            connections: self.connections,
            resumed_at: self.resumed_at,
            kept,
            tls: self.tls.map(Box::new),
        }
    }
}

/// Gives a file the server's time. Some file systems support no times, or not this one: the
/// contents are right all the same.
fn keep_time(file: &File, modified: SystemTime) -> Result<()> {
    match set_time(file, modified) {
        Err(Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => Ok(()),
        set => set.map_err(DownloadError::local("keeping times of")),
    }
}
