//! One download from its first question to the name of its file.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::SystemTime;

use rustix::fs::fstatvfs;
use underpass_engine::landing::Existing;
use underpass_engine::{Progress, Report};
use url::Url;

use super::board::{Board, without};
use super::check::{check, offered, wanted};
use super::crew::{Crew, Opened, Outcome, ask};
use super::meaning::{Asked, Meaning, Version, has_ranges, meaning, modified};
use super::pace::Pace;
use super::patience::{Patience, sleep};
use super::spot::{Name, Spot, set_time};
use super::{Done, DownloadError, Downloader, Event, Failed, Gauge, Kept, Taken, Target};
use crate::client::{Answer, ClientError, Request};
use crate::digest::{Digest, Fact};
use crate::incoming::Manner;

/// One download.
pub(super) struct Job<'j, 'a> {
    downloader: &'j Downloader<'a>,
    url: &'j Url,
    target: &'j Target<'j>,
    gauge: &'j Gauge,
    tell: &'j (dyn Fn(&Event<'_>) + Sync),
    pace: Pace,
    /// Where the bytes are; `None` before anything is known of them.
    spot: Option<Spot<'j>>,
    version: Option<Version>,
    total: Option<u64>,
    modified: Option<SystemTime>,
    /// Whether the server gives parts.
    has_ranges: bool,
    /// Whether there is a partial file of ours.
    has_partial: bool,
    /// Whether the server has said anything in this run.
    has_answered: bool,
    /// Whether all is asked for at once, since parts made no sense.
    is_plain: bool,
    report: Report,
    connections: u32,
    resumed_at: u64,
    /// What the server says of its digests.
    offered: Vec<Digest>,
    facts: Vec<Fact>,
}

/// The answer that tells what there is.
struct First<'a> {
    answer: Answer<'a>,
    /// Which bytes follow; all there are if that is not known.
    range: Option<Range<u64>>,
}

impl<'j, 'a> Job<'j, 'a> {
    pub(super) fn new(
        downloader: &'j Downloader<'a>,
        url: &'j Url,
        target: &'j Target<'j>,
        gauge: &'j Gauge,
        tell: &'j (dyn Fn(&Event<'_>) + Sync),
    ) -> Self {
        Self {
            downloader,
            url,
            target,
            gauge,
            tell,
            pace: Pace::new(downloader.wishes.rate),
            spot: None,
            version: None,
            total: None,
            modified: None,
            has_ranges: false,
            has_partial: false,
            has_answered: false,
            is_plain: false,
            report: Report::default(),
            connections: 0,
            resumed_at: 0,
            offered: Vec::new(),
            facts: Vec::new(),
        }
    }

    /// Does it all.
    pub(super) fn run(mut self) -> Result<Done, Failed> {
        match self.all() {
            Ok(was_here) => Ok(Done {
                size: self.total.unwrap_or_else(|| self.report.bytes()),
                report: self.report,
                resumed_at: self.resumed_at,
                connections: self.connections,
                was_here,
                facts: self.facts,
            }),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Does it all; true if there was nothing to be done.
    fn all(&mut self) -> Result<bool, DownloadError> {
        if self.is_here()? {
            return Ok(true);
        }
        self.find_earlier()?;
        let mut patience = Patience::new(self.downloader.wishes.retries);
        let mut changes = 0;
        loop {
            let before = self.here();
            let Err(error) = self.round() else { break };
            if matches!(error, DownloadError::Changed) {
                changes += 1;
                if !self.start_over()? || changes > MOST_CHANGES {
                    return Err(error);
                }
                (self.tell)(&Event::StartingOver);
                continue;
            }
            if self.here() > before {
                patience.reset();
            }
            if !self.is_resumable() && !self.start_over()? {
                return Err(error);
            }
            self.wait(&mut patience, error)?;
        }
        self.finish()?;
        Ok(false)
    }

    /// Waits for another attempt, or gives up for this reason.
    fn wait(&self, patience: &mut Patience, error: DownloadError) -> Result<(), DownloadError> {
        let is_hopeless = !self.has_answered && error.is_nobody();
        if is_hopeless || !error.is_temporary() {
            return Err(error);
        }
        let Some(after) = patience.next(error.retry_after()) else { return Err(error) };
        (self.tell)(&Event::Retrying { error: &error, after });
        let cancel: Vec<_> = self.downloader.agent.cancel.into_iter().collect();
        if sleep(after, &cancel) { Ok(()) } else { Err(ClientError::Cancelled.into()) }
    }

    /// Whether the file is there already, so that nothing has to be fetched.
    fn is_here(&mut self) -> Result<bool, DownloadError> {
        let Target::Named { taken, .. } = *self.target else { return Ok(false) };
        let Some(name) = self.name() else { return Ok(false) };
        let Some((size, time, inode)) = name.existing()? else { return Ok(false) };
        let finished = name.finished(self.url.as_str(), inode, size);
        match (taken, &finished) {
            (Taken::Refuse, None) => return Err(DownloadError::Exists),
            (Taken::Replace, None) => return Ok(false),
            _ => {}
        }
        let answer = self.ask_about()?;
        let fields = &answer.response.fields;
        let is_same = answer.response.status == 200
            && match &finished {
                Some(version) => Version::of(&answer.response).as_ref() == Some(version),
                None => {
                    let since = modified(&answer.response)
                        .and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
                    let said = since.and_then(|since| i64::try_from(since.as_secs()).ok());
                    fields.number("content-length") == Some(size) && said == Some(time)
                }
            };
        if is_same {
            if finished.is_some() {
                name.forget(false);
            }
            (self.total, self.resumed_at) = (Some(size), size);
            let wishes = &self.downloader.wishes;
            if !wishes.expected.is_empty() || !wishes.shown.is_empty() {
                let file = name.open()?;
                self.facts = check(&file, size, wishes, &[], self.downloader.agent.cancel)?;
            }
            return Ok(true);
        }
        if taken == Taken::Replace { Ok(false) } else { Err(DownloadError::Exists) }
    }

    /// What the server says of the file, without the file.
    fn ask_about(&mut self) -> Result<Answer<'a>, DownloadError> {
        let mut patience = Patience::new(self.downloader.wishes.retries);
        loop {
            let request = Request { method: "HEAD", fields: &[] };
            let error = match self.downloader.agent.ask(None, &request, self.url) {
                Ok(answer) => {
                    self.has_answered = true;
                    match answer.response.status {
                        408 | 425 | 429 | 500 | 502..=504 => {
                            answer.connection.refusal(&answer.response)
                        }
                        _ => return Ok(answer),
                    }
                }
                Err(error) => error,
            };
            self.wait(&mut patience, error.into())?;
        }
    }

    /// Goes on with what an earlier process left.
    fn find_earlier(&mut self) -> Result<(), DownloadError> {
        let Some(name) = self.name() else { return Ok(()) };
        self.spot = name.earlier(self.url.as_str())?;
        let Some(journal) = self.spot.as_ref().and_then(Spot::journal) else { return Ok(()) };
        self.has_partial = true;
        let subject = journal.subject().clone();
        (self.version, self.total) = (Some(subject.version), subject.size);
        // The server said so, or there would be no journal.
        self.has_ranges = true;
        self.resumed_at = self.here();
        self.gauge.set(self.resumed_at, self.total);
        if self.resumed_at > 0 {
            (self.tell)(&Event::Resuming { have: self.resumed_at, total: self.total });
        }
        Ok(())
    }

    /// Asks, and fetches what is missing as long as it comes.
    fn round(&mut self) -> Result<(), DownloadError> {
        let Some(First { answer, range }) = self.open()? else { return Ok(()) };
        match (self.total, range) {
            (Some(_), Some(range)) => self.fetch(answer, range),
            _ => self.fetch_unmeasured(answer),
        }
    }

    /// Asks for the first part that is missing, or for all, and makes a place for it; the answer,
    /// and which bytes it has if that is known. `None` if nothing is missing.
    fn open(&mut self) -> Result<Option<First<'a>>, DownloadError> {
        loop {
            let agent = &self.downloader.agent;
            let connection = agent.connect(self.url)?;
            let Some(mut asked) = self.question(connection.is_local()) else { return Ok(None) };
            asked.wants_digest = wanted(&self.downloader.wishes);
            let answer = ask(agent, Some(connection), &asked, self.url, true)?;
            self.has_answered = true;
            let found = meaning(&asked, &answer.response)?;
            match found {
                Meaning::Changed => return Err(DownloadError::Changed),
                Meaning::Refused => {
                    return Err(answer.connection.refusal(&answer.response).into());
                }
                // An empty file has no first byte that could be asked for.
                Meaning::Unsatisfiable => self.is_plain = true,
                Meaning::Whole { total } => {
                    self.settle(&answer, total)?;
                    return Ok(Some(First { answer, range: total.map(|total| 0..total) }));
                }
                Meaning::Part { range, total } => {
                    self.settle(&answer, Some(total))?;
                    return Ok(Some(First { answer, range: Some(range) }));
                }
            }
        }
    }

    /// What to ask for next; `None` if nothing is missing.
    fn question(&self, is_local: bool) -> Option<Asked> {
        let is_single = match self.downloader.wishes.connections {
            Some(connections) => connections == 1,
            None => is_local,
        } || matches!(self.target, Target::Stream { .. });
        let bounded = |range: &Range<u64>| match is_single {
            true => range.end,
            false => range.end.min(range.start.saturating_add(FIRST_PIECE)),
        };
        match (&self.spot, &self.version) {
            (Some(spot), Some(version)) if self.here() > 0 || self.total.is_some() => {
                let missing = self.missing();
                let first = missing.first()?;
                let end = self.total.map(|_| bounded(first));
                let from = match spot.present().first() {
                    Some(present) if self.total.is_none() && present.start == 0 => present.end,
                    _ => first.start,
                };
                let version = Some((version.clone(), self.total));
                Some(Asked { range: Some((from, end)), version, ..Asked::default() })
            }
            _ if is_single || self.is_plain => Some(Asked::default()),
            _ => Some(Asked { range: Some((0, Some(FIRST_PIECE))), ..Asked::default() }),
        }
    }

    /// Notes what an answer says of the file, and makes a place for it if there is none.
    fn settle(&mut self, answer: &Answer<'_>, total: Option<u64>) -> Result<(), DownloadError> {
        let response = &answer.response;
        self.modified = modified(response);
        self.total = total;
        self.offered = offered(response);
        if self.downloader.wishes.verify && self.offered.is_empty() {
            return Err(DownloadError::NoDigest);
        }
        if self.spot.is_none() {
            self.version = Version::of(response);
            self.has_ranges = has_ranges(response) && !self.is_plain;
            self.spot = Some(self.place(total)?);
            self.has_partial |= matches!(self.spot, Some(Spot::Partial(_)));
        }
        self.gauge.set(self.here(), total);
        self.check_room()
    }

    /// A place for what comes.
    fn place(&self, total: Option<u64>) -> Result<Spot<'j>, DownloadError> {
        match (self.target, self.name(), &self.version) {
            (Target::Stream { file, at }, ..) => Ok(Spot::Stream { file, at: *at, done: 0 }),
            (_, Some(name), Some(version))
                if self.has_ranges && total.is_none_or(|total| total > WORTH_KEEPING) =>
            {
                name.partial(self.url.as_str(), version, total)
            }
            (_, Some(name), _) => name.unnamed(),
            (Target::Named { .. }, None, _) => Err(DownloadError::Exists),
        }
    }

    /// Finds out before the first byte whether everything fits.
    fn check_room(&self) -> Result<(), DownloadError> {
        let (Some(total), Some(spot)) = (self.total, &self.spot) else { return Ok(()) };
        if matches!(spot, Spot::Stream { .. }) {
            return Ok(());
        }
        let Ok(room) = fstatvfs(spot.file()) else { return Ok(()) };
        let (needed, free) = (total - self.here().min(total), room.f_bavail * room.f_frsize);
        // Some file systems say nothing of their size.
        let is_full = room.f_blocks > 0 && needed > free;
        if is_full { Err(DownloadError::NoRoom { needed, free }) } else { Ok(()) }
    }

    /// Fetches what is missing over as many connections as it is worth.
    fn fetch(&mut self, answer: Answer<'a>, range: Range<u64>) -> Result<(), DownloadError> {
        let missing = self.missing();
        let Some(total) = self.total.filter(|_| !missing.is_empty()) else { return Ok(()) };
        let connections = self.connections(&missing, answer.connection.is_local());
        let cuts: Vec<_> = (0..connections).map(|_| AtomicBool::new(false)).collect();
        let Some(spot) = &self.spot else { return Ok(()) };
        let wishes = &self.downloader.wishes;
        let crew = Crew {
            agent: self.downloader.agent.clone(),
            board: Board::new(missing.clone(), connections),
            cuts: &cuts,
            cancel: self.downloader.agent.cancel,
            manner: self.manner(),
            pace: &self.pace,
            retries: wishes.retries,
            file: spot.file(),
            base: spot.base(),
            journal: spot.journal(),
            url: self.url,
            answered: (answer.url.clone(), answer.is_trusted),
            version: self.version.clone().filter(|_| self.has_ranges),
            total,
            gauge: self.gauge,
            tell: self.tell,
            moved: AtomicU64::new(0),
            outcome: Mutex::default(),
        };
        let first = range.start..missing[0].end.min(range.end);
        crew.board.assign(0, &first);
        if let Some(bytes) = self.pace.window() {
            answer.connection.set_window(bytes);
        }
        crew.run(Opened { answer, range }, first);
        let is_done = crew.board.is_done();
        let moved = crew.moved.load(Ordering::Relaxed);
        let Outcome { report, error, connections } =
            crew.outcome.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        self.moved(&report, moved, connections);
        match error {
            Some(error) => Err(error),
            None if is_done => Ok(()),
            None => Err(ClientError::Cancelled.into()),
        }
    }

    /// Fetches what has no length that is known.
    fn fetch_unmeasured(&mut self, mut answer: Answer<'a>) -> Result<(), DownloadError> {
        let Some(spot) = &self.spot else { return Ok(()) };
        let journal = spot.journal().map(|journal| (journal, journal.begin(&(0..u64::MAX))));
        let cancel: Vec<_> = self.downloader.agent.cancel.into_iter().collect();
        let mut moved = 0;
        let mut note = |bytes: u64| {
            if let Some((journal, number)) = journal {
                journal.note(number, bytes);
            }
            self.gauge.done.store(bytes, Ordering::Relaxed);
            self.pace.spend(bytes - moved, &cancel);
            moved = bytes;
        };
        if let Some(bytes) = self.pace.window() {
            answer.connection.set_window(bytes);
        }
        self.gauge.connections.store(1, Ordering::Relaxed);
        let extent = answer.response.extent;
        let manner = Manner { reserve: false, ..self.manner() };
        let mut tell = |progress: &Progress| note(progress.bytes);
        let incoming = answer.connection.incoming();
        let received = incoming.body(extent, spot.file(), spot.base(), &manner, &mut tell);
        note(received.report.bytes());
        self.gauge.connections.store(0, Ordering::Relaxed);
        let bytes = received.report.bytes();
        self.moved(&received.report, bytes, 1);
        received
            .outcome
            .map_err(|error| DownloadError::body(answer.connection.address(), error))?;
        self.total = Some(bytes);
        Ok(())
    }

    /// Counts what one round has moved.
    fn moved(&mut self, report: &Report, bytes: u64, connections: u32) {
        self.report.add(report);
        self.connections = self.connections.max(connections);
        if let Some(Spot::Stream { done, .. }) = &mut self.spot {
            *done += bytes;
        }
    }

    /// How bodies are received: each step is over before the journal lags behind by more than
    /// [`WORTH_KEEPING`].
    fn manner(&self) -> Manner<'_> {
        let wishes = &self.downloader.wishes;
        let most = WORTH_KEEPING - TELL_EVERY;
        let portion = self.pace.portion().unwrap_or(most);
        let step = usize::try_from(most.min(portion)).unwrap_or(usize::MAX);
        Manner {
            policy: wishes.policy,
            step: Some(wishes.step.unwrap_or(step).min(step)),
            pipes: Some(&self.downloader.pipes),
            tell_every: Some(TELL_EVERY.min(portion)),
            limit: None,
            reserve: !matches!(self.spot, Some(Spot::Stream { .. })),
        }
    }

    /// How many connections what is missing is worth.
    fn connections(&self, missing: &[Range<u64>], is_local: bool) -> usize {
        let left: u64 = missing.iter().map(|range| range.end - range.start).sum();
        let is_stream = matches!(self.target, Target::Stream { .. });
        if self.version.is_none() || !self.has_ranges || is_stream {
            return 1;
        }
        let most = match self.downloader.wishes.connections {
            Some(most) => u64::from(most).min(left / WORTH_KEEPING),
            // The kernel of one machine copies no faster for having several queues to copy from.
            None if is_local => 1,
            None => (left / WORTH_A_CONNECTION).min(DEFAULT_CONNECTIONS),
        };
        usize::try_from(most.max(1)).unwrap_or(1)
    }

    /// Throws away what is there; false if it has gone where it cannot be taken back from.
    fn start_over(&mut self) -> Result<bool, DownloadError> {
        match self.spot.take() {
            Some(stream @ Spot::Stream { done: 1.., .. }) => {
                self.spot = Some(stream);
                return Ok(false);
            }
            Some(Spot::Partial(partial)) => {
                // Empty before another journal is written, so that no crash can leave a mixture.
                let emptied = partial.landing.file().set_len(0);
                emptied.map_err(DownloadError::local("emptying"))?;
            }
            _ => {}
        }
        (self.version, self.total, self.resumed_at) = (None, None, 0);
        self.gauge.set(0, None);
        Ok(true)
    }

    /// Everything is there: it gets its time and its name.
    fn finish(&mut self) -> Result<(), DownloadError> {
        let file = match &self.spot {
            None | Some(Spot::Stream { .. }) => return Ok(()),
            Some(spot) => spot.file(),
        };
        let total = self.total.unwrap_or_default();
        let (wishes, cancel) = (&self.downloader.wishes, self.downloader.agent.cancel);
        self.gauge.is_checking.store(true, Ordering::Relaxed);
        let checked = check(file, total, wishes, &self.offered, cancel);
        if matches!(checked, Err(DownloadError::Digest(_))) {
            // There is nothing in it that could be gone on with.
            self.start_over()?;
        }
        self.facts = checked?;
        let Some(spot) = self.spot.take() else { return Ok(()) };
        let (landing, is_partial) = match spot {
            Spot::Stream { .. } => return Ok(()),
            Spot::Unnamed(landing) => (landing, false),
            Spot::Partial(partial) => (partial.landing, true),
        };
        if let Some(modified) = self.modified.filter(|_| wishes.keep_time) {
            // The bytes are right whatever the time.
            let _ = set_time(landing.file(), modified);
        }
        let landing = if wishes.durable { landing.durable() } else { landing };
        let existing = match self.target {
            Target::Named { taken: Taken::Replace, .. } => Existing::Replace,
            _ => Existing::Keep,
        };
        landing.commit(existing).map_err(|error| match error.kind() {
            std::io::ErrorKind::AlreadyExists => DownloadError::Exists,
            _ => DownloadError::Local { action: "writing", source: error },
        })?;
        if let Some(name) = self.name().filter(|_| is_partial) {
            name.forget(false);
        }
        Ok(())
    }

    /// The failure, with what is left.
    fn failed(mut self, error: DownloadError) -> Failed {
        let kept = self.here();
        if let (true, Some(name), 0) = (self.has_partial, self.name(), kept) {
            name.forget(true);
        }
        let is_kept = matches!(self.spot, Some(Spot::Partial(_))) && kept > 0;
        self.spot = None;
        let name = self.name().filter(|_| is_kept);
        let kept = name.map(|name| Kept { name: name.part_name(), bytes: kept });
        Failed { error, report: Box::new(self.report), kept }
    }

    /// Whether what is there can be gone on with.
    fn is_resumable(&self) -> bool {
        match &self.spot {
            None | Some(Spot::Partial(_)) => true,
            Some(Spot::Unnamed(_)) => false,
            Some(Spot::Stream { done, .. }) => {
                *done == 0 || (self.has_ranges && self.version.is_some())
            }
        }
    }

    /// Bytes that are there.
    fn here(&self) -> u64 {
        let present = self.spot.as_ref().map(Spot::present).unwrap_or_default();
        present.iter().map(|range| range.end - range.start).sum()
    }

    /// What is missing, in its order.
    fn missing(&self) -> Vec<Range<u64>> {
        let all = 0..self.total.unwrap_or(u64::MAX);
        let present = self.spot.as_ref().map(Spot::present).unwrap_or_default();
        present.iter().fold(vec![all], |missing, range| without(&missing, range))
    }

    fn name(&self) -> Option<Name<'j>> {
        match self.target {
            Target::Named { folder, name, .. } => Some(Name { folder, name }),
            Target::Stream { .. } => None,
        }
    }
}

/// The first question is for so much, where more connections may follow.
const FIRST_PIECE: u64 = 16 << 20;

/// Less is fetched anew rather than kept, and no more than this is moved twice by a connection.
const WORTH_KEEPING: u64 = 1 << 20;

/// The journal lags behind by so much at the most, less than a page is written for each.
const TELL_EVERY: u64 = 128 << 10;

/// What makes another connection worth its while.
const WORTH_A_CONNECTION: u64 = 16 << 20;

/// Connections at the most, unless somebody asks for more.
const DEFAULT_CONNECTIONS: u64 = 4;

/// How often a file may change while it is fetched.
const MOST_CHANGES: u32 = 4;
