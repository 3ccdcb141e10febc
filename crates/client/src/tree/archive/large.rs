//! Unpacks the large files of an archive, each of which is assembled in a partial file.

use std::fs::File;
use std::sync::atomic::Ordering;

use underpass_engine::hint::Action;

use super::noted::LargeFile;
use super::stream::{ArchiveStream, receive_options};
use super::unpack::{BodyEnd, Unpack, padded};
use crate::journal::FileId;
use crate::tree::error::{Result, TreeError, local};
use crate::tree::paths::as_path;

impl<'a> Unpack<'_, '_, 'a> {
    /// Unpacks a large file, unless it exists already.
    pub(super) fn begin_large(
        &mut self,
        stream: &mut ArchiveStream<'a>,
        large: &LargeFile,
    ) -> Result<BodyEnd> {
        match self.destination.dest.has(&large.path, large.size, large.modified) {
            Ok(false) => {
                if let Some((partial, done)) = self.partial.take() {
                    if self.has_partial(&partial, done) && partial.header == large.header {
                        return self.resume_large(stream, partial, done);
                    }
                    // Its bytes must not be treated as those of this file.
                    let _ = self.destination.dest.remove_partial(&partial.path);
                }
                self.journal.record_large_file(large).map_err(|error| self.journal_error(error))?;
                self.unpack_large(stream, large)
            }
            Ok(true) => {
                self.is_here(&large.path, large.mode)?;
                self.tree.gauge.files.fetch_add(1, Ordering::Relaxed);
                self.pass(stream, large.data, padded(large.size))
            }
            Err(errno) => {
                self.failed(Action::Writing, &large.path, errno)?;
                self.pass(stream, large.data, padded(large.size))
            }
        }
    }

    /// Unpacks the part of a large file that an earlier run has not received.
    fn resume_large(
        &mut self,
        stream: &mut ArchiveStream<'a>,
        large: LargeFile,
        done: u64,
    ) -> Result<BodyEnd> {
        self.tree.done.resumed_at = done;
        // A retry needs it, too.
        self.large = Some(large.clone());
        if self.pass(stream, large.data, done)? == BodyEnd::Jump {
            return Ok(BodyEnd::Jump);
        }
        self.large = None;
        self.unpack_large(stream, &large)
    }

    /// Returns whether the first bytes of a large file are in its partial file.
    pub(super) fn has_partial(&self, large: &LargeFile, done: u64) -> bool {
        let LargeFile { path, size, modified, part, .. } = large;
        self.destination.dest.has_partial(path, *size, *modified, *part, done)
    }

    /// Unpacks the rest of a large file.
    pub(super) fn unpack_large(
        &mut self,
        stream: &mut ArchiveStream<'a>,
        large: &LargeFile,
    ) -> Result<BodyEnd> {
        let done = self.position.saturating_sub(large.data);
        let atomic = match self.destination.dest.open_partial(&large.path) {
            Ok(atomic) => atomic,
            Err(errno) => {
                self.failed(Action::Creating, &large.path, errno)?;
                let rest = padded(large.size) - done;
                return self.pass(stream, large.data + done, rest);
            }
        };
        let io = |action| {
            let path = large.path.clone();
            move |error: std::io::Error| TreeError::io(action, as_path(&path), error)
        };
        if done == 0 {
            let noted = FileId::of(atomic.file())
                .map_err(Into::into)
                .and_then(|part| self.journal.record_part(part));
            noted.map_err(|error| self.journal_error(error))?;
        }
        // Bytes beyond were written after the last record, or by another program.
        atomic.file().set_len(done).map_err(io("cutting"))?;
        let outcome = self.receive(stream, large, atomic.file(), done);
        if let Err(error) = outcome {
            self.large = Some(large.clone());
            return Err(error);
        }
        let (mode, modified) = (Some(large.mode), Some(large.modified));
        let dest = &self.destination.dest;
        dest.set_file_attributes(&large.path, atomic.file(), mode, modified)
            .map_err(|errno| TreeError::io("finishing", as_path(&large.path), errno))?;
        match self.destination.dest.commit(&large.path, atomic) {
            Ok(()) => self.tree.done.files += 1,
            Err(errno) => {
                let _ = self.destination.dest.remove_partial(&large.path);
                self.failed("naming", &large.path, errno)?;
            }
        }
        self.tree.gauge.files.fetch_add(1, Ordering::Relaxed);
        // The padding counts as unpacked, so that no retry fetches it.
        self.reached(large.data + padded(large.size))?;
        // The next large file's partial file must not be mistaken for this one's.
        self.save_position()?;
        stream.skip(padded(large.size) - large.size)?;
        Ok(BodyEnd::Complete)
    }

    /// Moves the rest of a large file by the engine, and records the position.
    fn receive(
        &mut self,
        stream: &mut ArchiveStream<'a>,
        large: &LargeFile,
        file: &File,
        done: u64,
    ) -> Result<()> {
        let receive_options = receive_options(self.tree, &self.pipes, REPORT_EVERY);
        let (journal, gauge) = (&self.journal, self.tree.gauge);
        let begins = large.data + done;
        let mut journal_error = None;
        let mut on_progress = |progress: &underpass_engine::Progress| {
            gauge.done.store(begins + progress.bytes, Ordering::Relaxed);
            journal_error = journal.reached(begins + progress.bytes).err().or(journal_error.take());
        };
        let received =
            stream.body(large.size - done, file, done, &receive_options, &mut on_progress);
        self.tree.done.report.add(&received.report);
        self.position = begins + received.report.bytes();
        if let Some(error) = journal_error {
            return Err(self.journal_error(error));
        }
        received.outcome.map_err(|error| match local(&error) {
            Some(errno) => TreeError::io(Action::Writing, as_path(&large.path), errno),
            None => stream.connection_error(error).into(),
        })
    }
}

/// Bytes of a large file between two records.
const REPORT_EVERY: u64 = 512 << 10;
