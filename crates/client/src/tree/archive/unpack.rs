//! Unpacks an archive while it arrives, and notes the position.

use std::collections::BTreeMap;
use std::fs::File;
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
use super::stream::{ArchiveStream, receive_options};
use crate::http::OpenResponse;
use crate::journal::FileId;
use crate::tree::dest::{DestOutcome, FolderAttrs};
use crate::tree::error::{Result, TreeError, explain, is_about_name, local};
use crate::tree::options::TreeEvent;
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
    /// The large file that the position is within.
    large: Option<LargeFile>,
    /// Folders by their paths, whose permissions and times are set at the end.
    folders: BTreeMap<Vec<u8>, FolderAttrs>,
    /// The memory that these take, roughly, in bytes.
    folder_bytes: usize,
    pipes: PipePool,
    members: u64,
}

/// The end of the body of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyEnd {
    /// The archive is complete.
    Complete,
    /// A large file is here already: another request should begin after it.
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
            large: None,
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
        self.tree.gauge.before.store(0, Ordering::Relaxed);
        self.tree.gauge.done.store(0, Ordering::Relaxed);
        self.large = None;
        self.folders.clear();
        self.folder_bytes = 0;
        self.tree.gauge.total.store(origin.len + 1, Ordering::Relaxed);
        self.journal.begin(origin).map_err(|error| self.journal_error(error))
    }

    /// Resumes where an earlier run has stopped.
    pub(super) fn resume(&mut self, noted: NotedArchive) -> Result<()> {
        self.tree.gauge.total.store(noted.origin.len + 1, Ordering::Relaxed);
        self.origin = noted.origin;
        for facts in noted.folders {
            self.remember_folder(facts)?;
        }
        self.position = noted.position;
        self.large = noted.large.filter(|large| {
            let done = noted.position - large.data;
            let dest = &self.destination.dest;
            let is_partial = self.position < self.origin.len
                && dest.has_partial(&large.path, large.size, large.modified, large.part, done);
            if !is_partial {
                // It was named after the last note, or its bytes are gone: its header tells which.
                self.position = large.header;
            }
            is_partial
        });
        self.tree.gauge.before.store(self.position, Ordering::Relaxed);
        self.tree.gauge.done.store(self.position, Ordering::Relaxed);
        self.journal.go_on(self.position).map_err(|error| self.journal_error(error))
    }

    /// Begins at the first byte of an archive, and puts aside the files of another one.
    pub(super) fn start_over(&mut self, origin: &ArchiveId) -> Result<()> {
        if let Some(large) = self.large.take() {
            // It is where it was, or it is not there.
            let _ = self.destination.dest.remove_partial(&large.path);
        }
        // If this is killed on the way, the next run does it again.
        self.journal.clear().map_err(|error| self.journal_error(error))?;
        self.destination.start_over()?;
        self.begin(origin)
    }

    /// Saves the position to the journal.
    pub(super) fn save_position(&self) -> Result<()> {
        self.journal.reach(self.position).map_err(|error| self.journal_error(error))
    }

    /// Unpacks the body of an answer.
    pub(super) fn run(&mut self, answer: OpenResponse<'a>) -> Result<BodyEnd> {
        let len = self.origin.len - self.position;
        let mut stream = ArchiveStream::new(answer.connection, len, self.tree);
        if let Some(large) = self.large.take()
            && let BodyEnd::Jump = self.unpack_large(&mut stream, &large)?
        {
            return Ok(BodyEnd::Jump);
        }
        let mut decoder = Decoder::default();
        // Where the header at hand begins, which has several blocks.
        let mut header = self.position;
        let mut at = self.position;
        loop {
            let needed = decoder.needed();
            if stream.left() < needed as u64 {
                // Some writers leave the end out, which is no loss where the length is known.
                let is_end = stream.left() == 0 && at == header;
                return if is_end { Ok(BodyEnd::Complete) } else { Err(TarError::Cut.into()) };
            }
            // After the contents of an extension there is always another block.
            let beyond = if decoder.is_extended() { BLOCK as usize } else { 0 };
            let step = decoder.step(stream.read_exact(needed, beyond)?)?;
            at += needed as u64;
            match step {
                TarEvent::More => {}
                TarEvent::End => return Ok(BodyEnd::Complete),
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

    /// Notes that everything before `position` is here.
    fn reached(&mut self, position: u64) -> Result<()> {
        self.position = position;
        self.tree.gauge.done.store(position, Ordering::Relaxed);
        self.members += 1;
        if self.members > MAX_MEMBERS {
            return Err(TreeError::TooMany { limit: MAX_MEMBERS });
        }
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
            MemberKind::Folder => dest.make_folder(&path),
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
        // An archive may name one folder again and again.
        if self.folders.get(&facts.path) == Some(&facts) {
            return Ok(());
        }
        self.journal.record_folder(&facts).map_err(|error| self.journal_error(error))?;
        self.remember_folder(facts)
    }

    /// Remembers a folder for the end; the last of several entries counts.
    fn remember_folder(&mut self, facts: FolderAttrs) -> Result<()> {
        let bytes = 2 * facts.path.len() + FOLDER_BYTES;
        if self.folders.insert(facts.path.clone(), facts).is_none() {
            self.folder_bytes += bytes;
        }
        if self.folder_bytes > MAX_FOLDER_BYTES {
            Err(TreeError::TooManyNames { limit: MAX_FOLDER_BYTES })
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
        // After each member there is another block, at least that of the end.
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

    /// Counts a file that is here already, and sets its permissions.
    fn is_here(&mut self, path: &[u8], mode: u32) -> Result<()> {
        self.tree.done.here += 1;
        match self.destination.dest.adopt(path, mode) {
            Ok(()) => Ok(()),
            Err(errno) => self.failed("setting the permissions of", path, errno),
        }
    }

    /// Unpacks a large file, unless it is here.
    fn begin_large(
        &mut self,
        stream: &mut ArchiveStream<'a>,
        large: &LargeFile,
    ) -> Result<BodyEnd> {
        match self.destination.dest.has(&large.path, large.size, large.modified) {
            Ok(false) => {
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

    /// Unpacks the rest of a large file.
    fn unpack_large(
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
        // Bytes after that were written when nothing was noted any more, or by another program.
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
        stream.skip(padded(large.size) - large.size)?;
        self.reached(large.data + padded(large.size))?;
        // The partial file of the next one must not be taken for that of this one.
        self.save_position()?;
        Ok(BodyEnd::Complete)
    }

    /// Moves the rest of a large file by the engine, and notes the position.
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

    /// Discards bytes, or returns that another request should begin after them.
    fn pass(&mut self, stream: &mut ArchiveStream<'a>, from: u64, len: u64) -> Result<BodyEnd> {
        if len > MIN_JUMP && !self.origin.etag.is_empty() {
            self.position = from + len;
            self.save_position()?;
            return Ok(BodyEnd::Jump);
        }
        stream.skip(len)?;
        self.position = from + len;
        Ok(BodyEnd::Complete)
    }

    /// Skips an entry if the reason concerns that entry alone; other errors end the run.
    fn failed(&mut self, action: impl Into<Action>, path: &[u8], errno: Errno) -> Result<()> {
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

    fn journal_error(&self, error: std::io::Error) -> TreeError {
        TreeError::io("writing the journal of", self.destination.path(), error)
    }

    /// Sets permissions and times of the folders, and gives the whole its name.
    pub(super) fn finish(mut self) -> Result<()> {
        // What lies deeper comes first: to change a folder is to change its time.
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
        // The journal lies in the folder, whose time is to be the archive's.
        self.destination.finish(journal, self.tree.done.left_out)?;
        settle(&self.destination, self.tree);
        Ok(())
    }
}

fn depth(path: &[u8]) -> usize {
    path.iter().filter(|byte| **byte == b'/').count() + usize::from(!path.is_empty())
}

fn padded(size: u64) -> u64 {
    size + underpass_protocol::archive::padding(size)
}

/// The maximum size of a file that is copied through memory, in bytes. The calls of a splice cost
/// more than copying this much.
const MAX_SMALL: u64 = 128 << 10;

/// Bytes of a large file between two notes.
const REPORT_EVERY: u64 = 512 << 10;

/// The minimum number of unwanted bytes for which a new request is cheaper than discarding them.
const MIN_JUMP: u64 = 16 << 20;

/// The maximum number of members of an archive: their folders are kept in memory.
const MAX_MEMBERS: u64 = 10_000_000;

/// The memory of a folder in bytes, without its path, which is kept twice.
const FOLDER_BYTES: usize = 128;

/// The maximum memory of the folders of an archive in bytes: enough for a million and more.
const MAX_FOLDER_BYTES: usize = 256 << 20;
