//! Unpacks an archive while it arrives, and records the position.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::OFlags;
use rustix::io::Errno;
use underpass_engine::PipePool;
use underpass_engine::hint::Action;
use underpass_protocol::archive::BLOCK;

use super::destination::ArchiveDest;
use super::journal::ArchiveJournal;
use super::noted::{ArchiveId, LargeFile, NotedArchive};
use super::stream::ArchiveStream;
use crate::http::OpenResponse;
use crate::tree::dest::{DestOutcome, FolderAttrs};
use crate::tree::error::{
    Result, SourceFolderError, TreeError, TreeOutcome, explain, is_about_name,
};
use crate::tree::options::{TreeEvent, TreeGauge};
use crate::tree::paths::{EntryRefusal, as_path, check_target, relative};
use crate::tree::tar::{Decoder, MemberKind, TarError, TarEvent, TarMember};
use crate::tree::task::TreeFetch;

/// An archive that is being unpacked.
pub(super) struct Unpack<'u, 'j, 'a> {
    pub(super) tree: &'u mut TreeFetch<'j, 'a>,
    pub(super) destination: ArchiveDest,
    pub(super) journal: Arc<ArchiveJournal>,
    pub(super) origin: ArchiveId,
    /// The position up to which the archive is unpacked.
    pub(super) position: u64,
    /// How often this run has started over in the middle of an archive.
    pub(super) restarts: u32,
    /// The large file that the position is within.
    pub(super) large: Option<LargeFile>,
    /// The large file of an earlier run that is still to come, and how many of its bytes exist.
    pub(super) partial: Option<(LargeFile, u64)>,
    /// Whether the journal records an omission.
    has_noted_omission: bool,
    /// Whether the journal records a refusal of permissions or times.
    has_noted_refusal: bool,
    /// Folders by path, whose permissions and times are set at the end.
    folders: BTreeMap<Vec<u8>, FolderAttrs>,
    /// The approximate memory of these folders in bytes.
    folder_bytes: usize,
    pub(super) pipes: PipePool,
    members: u64,
}

/// The end of a response's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyEnd {
    /// The archive is complete.
    Complete,
    /// A large file exists already: another request should begin after it.
    Jump,
}

impl<'u, 'j, 'a> Unpack<'u, 'j, 'a> {
    pub(super) fn new(
        tree: &'u mut TreeFetch<'j, 'a>,
        destination: ArchiveDest,
        journal: ArchiveJournal,
    ) -> Self {
        Self {
            tree,
            destination,
            journal: Arc::new(journal),
            origin: ArchiveId::default(),
            position: 0,
            restarts: 0,
            large: None,
            partial: None,
            has_noted_omission: false,
            has_noted_refusal: false,
            folders: BTreeMap::new(),
            folder_bytes: 0,
            pipes: PipePool::default(),
            members: 0,
        }
    }

    /// Begins at the first byte of an archive.
    fn begin(&mut self, origin: &ArchiveId) -> Result<()> {
        self.origin = origin.clone();
        self.position = 0;
        let TreeGauge { files, before, done, .. } = self.tree.gauge;
        [files, before, done].into_iter().for_each(|count| count.store(0, Ordering::Relaxed));
        let done = std::mem::take(self.tree.done);
        // The report also counts the bytes of an abandoned archive.
        let TreeOutcome { method, connections, report, tls, .. } = done;
        *self.tree.done = TreeOutcome { method, connections, report, tls, ..Default::default() };
        self.members = 0;
        self.large = None;
        (self.has_noted_omission, self.has_noted_refusal) = (false, false);
        self.folders.clear();
        self.folder_bytes = 0;
        self.tree.gauge.total.store(origin.len + 1, Ordering::Relaxed);
        self.journal.begin(origin).map_err(|error| self.journal_error(error))
    }

    /// Resumes where an earlier run stopped. If that left something out, or others may have changed
    /// the folder since, every member is checked again, and only the large file is resumed.
    pub(super) fn resume(&mut self, noted: NotedArchive) -> Result<()> {
        self.tree.gauge.total.store(noted.origin.len + 1, Ordering::Relaxed);
        self.origin = noted.origin;
        self.position = noted.position;
        if let Some(large) = noted.large {
            if self.position < self.origin.len
                && self.has_partial(&large, noted.position - large.data)
            {
                self.large = Some(large);
            } else {
                // It was named after the last record, or its bytes are gone: its header tells.
                self.position = large.header;
            }
        }
        self.journal.go_on(self.position).map_err(|error| self.journal_error(error))?;
        if let Some(errno) = noted.refused {
            self.destination.dest.note_refusal(errno);
        }
        if noted.has_omission || !self.destination.is_unnamed() {
            let position = std::mem::take(&mut self.position);
            self.partial = self.large.take().map(|large| {
                let done = position - large.data;
                (large, done)
            });
        } else {
            noted.folders.into_iter().try_for_each(|facts| self.remember_folder(facts))?;
        }
        self.tree.gauge.before.store(self.position, Ordering::Relaxed);
        self.tree.gauge.done.store(self.position, Ordering::Relaxed);
        Ok(())
    }

    /// Begins at the first byte of an archive, and puts the files of another one aside.
    pub(super) fn start_over(&mut self, origin: &ArchiveId) -> Result<()> {
        let partial = self.partial.take().map(|(large, _)| large);
        if let Some(large) = self.large.take().or(partial) {
            // If this fails, the partial file is gone or stays where it was.
            let _ = self.destination.dest.remove_partial(&large.path);
        }
        // If this run is killed meanwhile, the next one repeats it.
        self.journal.clear().map_err(|error| self.journal_error(error))?;
        self.destination.start_over()?;
        self.begin(origin)
    }

    /// Saves the position to the journal.
    pub(super) fn save_position(&mut self) -> Result<()> {
        self.note_omission()?;
        self.journal.reach(self.position).map_err(|error| self.journal_error(error))
    }

    /// Records omissions and refused permissions or times before the position moves past them.
    fn note_omission(&mut self) -> Result<()> {
        if self.tree.done.left_out > 0 && !std::mem::replace(&mut self.has_noted_omission, true) {
            self.journal.record_omission().map_err(|error| self.journal_error(error))?;
        }
        if let Some(errno) = self.destination.dest.refused()
            && !std::mem::replace(&mut self.has_noted_refusal, true)
        {
            self.journal.record_refusal(errno).map_err(|error| self.journal_error(error))?;
        }
        Ok(())
    }

    /// Unpacks the body of a response.
    pub(super) fn run(&mut self, answer: OpenResponse<'a>) -> Result<BodyEnd> {
        let len = self.origin.len - self.position;
        let mut stream = ArchiveStream::new(answer.connection, len, self.tree);
        if let Some(large) = self.large.take()
            && let BodyEnd::Jump = self.unpack_large(&mut stream, &large)?
        {
            return Ok(BodyEnd::Jump);
        }
        let mut decoder = Decoder::default();
        // The offset of the current header, which may have several blocks.
        let mut header = self.position;
        let mut at = self.position;
        loop {
            let needed = decoder.needed();
            if stream.left() < needed as u64 {
                // Some writers omit the end marker, which is harmless if the length is known.
                let is_end = stream.left() == 0 && at == header;
                return if is_end { Ok(BodyEnd::Complete) } else { Err(TarError::Cut.into()) };
            }
            // The contents of an extension are always followed by another block.
            let beyond = if decoder.is_extended() { BLOCK as usize } else { 0 };
            let step = decoder.step(stream.read_exact(needed, beyond)?)?;
            at += needed as u64;
            match step {
                TarEvent::More => {}
                TarEvent::End => {
                    // The end marker is not unpacked, but counts in the total.
                    self.tree.gauge.done.store(self.origin.len, Ordering::Relaxed);
                    return Ok(BodyEnd::Complete);
                }
                TarEvent::Member(member) => {
                    if stream.left() < member.padded() {
                        return Err(TarError::Cut.into());
                    }
                    if self.unpack_member(&mut stream, &member, header, at)? == BodyEnd::Jump {
                        return Ok(BodyEnd::Jump);
                    }
                    at += member.padded();
                    header = at;
                    self.reached(at)?;
                }
            }
        }
    }

    /// Records that everything before `position` is unpacked.
    pub(super) fn reached(&mut self, position: u64) -> Result<()> {
        self.position = position;
        self.tree.gauge.done.store(position, Ordering::Relaxed);
        self.members += 1;
        if self.members > MAX_MEMBERS {
            return Err(SourceFolderError::TooMany { limit: MAX_MEMBERS }.into());
        }
        self.note_omission()?;
        self.journal.reached(position).map_err(|error| self.journal_error(error))
    }

    /// Unpacks a member whose header ends at `data`.
    fn unpack_member(
        &mut self,
        stream: &mut ArchiveStream<'a>,
        member: &TarMember,
        header: u64,
        data: u64,
    ) -> Result<BodyEnd> {
        let path = match self.path(member) {
            Ok(path) => path,
            Err(refusal) => {
                self.leave_out(&member.path, &refusal.to_string());
                return self.pass(stream, data, member.padded());
            }
        };
        if member.kind == MemberKind::File {
            if member.size > MAX_SMALL {
                let (size, mode, modified) = (member.size, member.mode, member.modified);
                let large = LargeFile { header, data, size, mode, modified, path, part: None };
                return self.begin_large(stream, &large);
            }
            return self.unpack_small(stream, &path, member).map(|()| BodyEnd::Complete);
        }
        let dest = &self.destination.dest;
        let made = match &member.kind {
            MemberKind::Folder => dest.make_folder(&path, true),
            MemberKind::Symlink(target) => dest.make_link(&path, target, member.modified),
            MemberKind::HardLink(target) => match self.beneath_top(target) {
                Ok(target) => dest.make_hard_link(&path, &target),
                Err(_) => Err(Errno::NOENT),
            },
            MemberKind::File | MemberKind::Other(_) => Err(Errno::OPNOTSUPP),
        };
        let done = &mut self.tree.done;
        match made {
            Ok(made) if member.kind == MemberKind::Folder => {
                done.folders += 1;
                let mode = dest.folder_mode(&path, made, member.mode);
                let facts = FolderAttrs { path, mode, modified: member.modified };
                self.record_folder(facts)?;
            }
            Ok(_) => done.links += 1,
            Err(errno) => self.failed("creating", &path, errno)?,
        }
        self.pass(stream, data, member.padded())
    }

    /// Returns the path of a member, or why it is refused.
    fn path(&self, member: &TarMember) -> Result<Vec<u8>, EntryRefusal> {
        let path = self.beneath_top(&member.path)?;
        match &member.kind {
            MemberKind::Other(_) => return Err(EntryRefusal::Kind),
            MemberKind::Symlink(target) => check_target(&path, target)?,
            MemberKind::HardLink(target) => drop(self.beneath_top(target)?),
            MemberKind::File | MemberKind::Folder => {}
        }
        if path.is_empty() && member.kind != MemberKind::Folder {
            return Err(EntryRefusal::Nul);
        }
        Ok(path)
    }

    /// Returns a path of the archive without its top folder.
    fn beneath_top(&self, path: &[u8]) -> Result<Vec<u8>, EntryRefusal> {
        let mut path = relative(path)?;
        let top = &self.origin.top;
        if top.is_empty() {
            return Ok(path);
        }
        match path.strip_prefix(top.as_slice()) {
            Some([]) => Ok(Vec::new()),
            Some([b'/', ..]) => Ok(path.split_off(top.len() + 1)),
            _ => Err(EntryRefusal::Stray),
        }
    }

    fn record_folder(&mut self, facts: FolderAttrs) -> Result<()> {
        // An archive may list one folder repeatedly.
        if self.folders.get(&facts.path) == Some(&facts) {
            return Ok(());
        }
        self.journal.record_folder(&facts).map_err(|error| self.journal_error(error))?;
        self.remember_folder(facts)
    }

    /// Remembers a folder's attributes for the end; the last of several entries counts.
    fn remember_folder(&mut self, facts: FolderAttrs) -> Result<()> {
        let bytes = 2 * facts.path.len() + FOLDER_BYTES;
        if self.folders.insert(facts.path.clone(), facts).is_none() {
            self.folder_bytes += bytes;
        }
        if self.folder_bytes > MAX_FOLDER_BYTES {
            Err(SourceFolderError::TooManyNames { limit: MAX_FOLDER_BYTES }.into())
        } else {
            Ok(())
        }
    }

    /// Copies a file through memory.
    fn unpack_small(
        &mut self,
        stream: &mut ArchiveStream<'a>,
        path: &[u8],
        member: &TarMember,
    ) -> Result<()> {
        let (size, padded) = (member.size as usize, member.padded() as usize);
        // Each member is followed by another block, at least that of the end marker.
        let contents = &stream.read_exact(padded, BLOCK as usize)?[..size];
        let (dest, report) = (&self.destination.dest, &mut self.tree.done.report);
        match dest.make_small(path, contents, member.mode, member.modified, report) {
            Ok(DestOutcome::New) => self.tree.done.files += 1,
            Ok(DestOutcome::Same) => self.is_here(path, member.mode)?,
            Err(errno) => return self.failed(Action::Writing, path, errno),
        }
        self.tree.gauge.files.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Counts a file that exists already, and sets its permissions.
    pub(super) fn is_here(&mut self, path: &[u8], mode: u32) -> Result<()> {
        self.tree.done.here += 1;
        match self.destination.dest.adopt(path, mode) {
            Ok(()) => Ok(()),
            Err(errno) => self.failed("setting the permissions of", path, errno),
        }
    }

    /// Skips bytes, or returns that another request should begin after them.
    pub(super) fn pass(
        &mut self,
        stream: &mut ArchiveStream<'a>,
        from: u64,
        len: u64,
    ) -> Result<BodyEnd> {
        // If the connection breaks meanwhile, the next request also begins there.
        self.position = from + len;
        // Not after a restart: if the archive keeps changing, each jump could lead back here.
        if len > MIN_JUMP && !self.origin.etag.is_empty() && self.restarts == 0 {
            self.save_position()?;
            return Ok(BodyEnd::Jump);
        }
        stream.skip(len)?;
        Ok(BodyEnd::Complete)
    }

    /// Leaves out an entry if the error concerns that entry alone; other errors end the run.
    pub(super) fn failed(
        &mut self,
        action: impl Into<Action>,
        path: &[u8],
        errno: Errno,
    ) -> Result<()> {
        if !is_about_name(errno) {
            return Err(TreeError::io(action, as_path(path), errno));
        }
        self.leave_out(path, &explain(errno));
        Ok(())
    }

    fn leave_out(&mut self, path: &[u8], reason: &str) {
        self.tree.done.left_out += 1;
        (self.tree.on_event)(&TreeEvent::LeftOut { path, reason });
    }

    pub(super) fn journal_error(&self, error: std::io::Error) -> TreeError {
        TreeError::io("writing the journal of", self.destination.path(), error)
    }

    /// Sets permissions and times of the folders, and gives the destination its final name.
    pub(super) fn finish(mut self) -> Result<()> {
        // Deepest first, because changing a folder changes its time.
        let mut folders: Vec<_> = self.folders.into_values().collect();
        folders.sort_by_key(|facts| std::cmp::Reverse(depth(&facts.path)));
        let Ok(journal) = Arc::try_unwrap(self.journal) else {
            unreachable!("the thread that had the other one has ended")
        };
        let settle = |destination: &ArchiveDest, tree: &mut TreeFetch<'_, '_>| {
            for facts in &folders {
                let FolderAttrs { path, mode, modified } = facts;
                let (how, mode, modified) = (OFlags::DIRECTORY, Some(*mode), Some(*modified));
                if let Err(errno) =
                    destination.dest.set_opened_attributes(path, how, mode, modified)
                {
                    tree.done.left_out += 1;
                    (tree.on_event)(&TreeEvent::LeftOut { path, reason: &explain(errno) });
                }
            }
            tree.done.refused = destination.dest.refused();
        };
        if self.destination.is_unnamed() {
            self.destination.discard_superseded()?;
            settle(&self.destination, self.tree);
            return self.destination.finish(journal, self.tree.done.left_out);
        }
        // Removing the journal from the folder would change its time.
        self.destination.finish(journal, self.tree.done.left_out)?;
        settle(&self.destination, self.tree);
        Ok(())
    }
}

fn depth(path: &[u8]) -> usize {
    path.iter().filter(|byte| **byte == b'/').count() + usize::from(!path.is_empty())
}

pub(super) fn padded(size: u64) -> u64 {
    size + underpass_protocol::archive::padding(size)
}

/// The maximum size of a file that is copied through memory, in bytes. For larger ones the system
/// calls of a splice are cheaper than copying.
const MAX_SMALL: u64 = 128 << 10;

/// The minimum number of unneeded bytes for which a new request is cheaper than discarding them.
const MIN_JUMP: u64 = 16 << 20;

/// The maximum number of members of an archive: their folders are kept in memory.
const MAX_MEMBERS: u64 = 10_000_000;

/// The memory of a folder in bytes, without its path, which is kept twice.
const FOLDER_BYTES: usize = 128;

/// The maximum memory of an archive's folders in bytes: enough for over a million.
const MAX_FOLDER_BYTES: usize = 256 << 20;
