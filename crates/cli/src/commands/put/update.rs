//! Checks which files the server has, and creates the folders above them.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Instant;

use underpass_client::Url;
use underpass_client::upload::{MODIFIED, UploadFailed, UploadOutcome};
use underpass_copy::ends::Input;
use underpass_receipt::{EndKind, Receipt};

use super::put_run::{PutRun, PutStop};

impl PutRun<'_> {
    /// With --update, checks whether the server has a folder, and notes the entries that it lists.
    pub(super) fn is_there(&mut self, path: &Path, url: &Url) -> Result<bool, PutStop> {
        if !self.args.update || self.bucket.is_some() {
            return Ok(false);
        }
        let found = self.remote.enter(&self.client, self.idle.take(), url);
        let (is_there, idle) = found.map_err(|error| self.folder_failure(path, url, error))?;
        self.idle = idle;
        Ok(is_there)
    }

    /// With --update, checks whether the server has a file; returns its receipt then.
    pub(super) fn has(&mut self, input: &Input, url: &Url) -> Result<Option<Receipt>, PutStop> {
        let Some(local) = facts(input).filter(|_| self.args.update) else { return Ok(None) };
        let started = Instant::now();
        let name = input.path().display().to_string();
        let found =
            self.remote.has(&self.client, self.idle.take(), &self.request_url(url)?, &local);
        let (is_there, idle) = found.map_err(|error| {
            let failed = UploadFailed::before_sending(error);
            self.failure(name.clone(), Some(EndKind::File), url, failed)
        })?;
        self.idle = idle;
        if !is_there {
            return Ok(None);
        }
        self.there += 1;
        let done = UploadOutcome::already_there(url.clone());
        let receipt = Receipt::of_upload(name, EndKind::File, &done, None, started.elapsed());
        Ok(Some(receipt))
    }

    /// Returns the field that gives a file on the server the time of the one here.
    pub(super) fn time(&self, input: &Input) -> Option<(&'static str, String)> {
        let local = facts(input)?;
        let is_sent = self.args.update && self.bucket.is_none() && local.mtime() >= 0;
        is_sent.then(|| (MODIFIED, local.mtime().to_string()))
    }

    /// With --create-parents, creates the folder of a file or folder, and those above it.
    pub(super) fn create_parents(&mut self, path: &Path, url: &Url) -> Result<(), PutStop> {
        if !self.args.create_parents || self.bucket.is_some() {
            return Ok(());
        }
        let above = if url.path().ends_with('/') { ".." } else { "." };
        let Ok(folder) = url.join(above) else { return Ok(()) };
        let made = self.folders.create_with_parents(&self.client, &folder, &mut self.idle);
        made.map_err(|error| self.folder_failure(path, &folder, error))
    }
}

/// Returns the metadata of a regular file that is not standard input.
fn facts(input: &Input) -> Option<Metadata> {
    input.file().metadata().ok().filter(|local| input.has_name() && local.is_file())
}
