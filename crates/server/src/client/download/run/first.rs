//! What is asked first: whether the file is here, what an earlier process left, what the server has.

use std::ops::Range;
use std::time::{Duration, SystemTime};

use rustix::fs::fstatvfs;

use super::state::{Job, WORTH_KEEPING};
use crate::client::backoff::Backoff;
use crate::client::download::check::{check, offered, wanted};
use crate::client::download::error::DownloadError;
use crate::client::download::interpret::{Asked, Meaning, Version, has_ranges, meaning, modified};
use crate::client::download::options::{Event, Taken, Target};
use crate::client::download::partial_file::Spot;
use crate::client::download::workers::ask;
use crate::client::http::{Answer, Request};

/// The answer that tells what there is.
pub(super) struct First<'a> {
    pub(super) answer: Answer<'a>,
    /// Which bytes follow; all there are if that is not known.
    pub(super) range: Option<Range<u64>>,
}

impl<'j, 'a> Job<'j, 'a> {
    /// Whether the file is there already, so that nothing has to be fetched.
    pub(super) fn is_here(&mut self) -> Result<bool, DownloadError> {
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
            let wishes = self.wishes;
            if !wishes.expected.is_empty() || !wishes.shown.is_empty() {
                let file = name.open()?;
                self.facts = check(&file, size, wishes, &[], self.agent.cancel)?;
            }
            return Ok(true);
        }
        if taken == Taken::Replace { Ok(false) } else { Err(DownloadError::Exists) }
    }

    /// What the server says of the file, without the file.
    pub(super) fn ask_about(&mut self) -> Result<Answer<'a>, DownloadError> {
        let mut backoff = Backoff::new(self.wishes.retries);
        loop {
            let request = Request { method: "HEAD", fields: &[] };
            let error = match self.agent.ask(None, &request, self.url) {
                Ok(answer) => {
                    self.has_answered = true;
                    self.tls = answer.connection.tls().cloned();
                    match answer.response.status {
                        408 | 425 | 429 | 500 | 502..=504 => {
                            answer.connection.refusal(&answer.response)
                        }
                        _ => return Ok(answer),
                    }
                }
                Err(error) => error,
            };
            self.wait(&mut backoff, error.into())?;
        }
    }

    /// Goes on with what an earlier process left.
    pub(super) fn find_earlier(&mut self) -> Result<(), DownloadError> {
        let Some(name) = self.name() else { return Ok(()) };
        self.spot = name.earlier(self.url.as_str())?;
        let Some(journal) = self.spot.as_ref().and_then(Spot::journal) else { return Ok(()) };
        self.has_partial = true;
        let subject = journal.subject().clone();
        (self.version, self.total) = (Some(subject.version), subject.size);
        let modified = subject.modified.map(Duration::from_secs);
        self.modified = modified.and_then(|since| SystemTime::UNIX_EPOCH.checked_add(since));
        // The server said so, or there would be no journal.
        self.has_ranges = true;
        self.resumed_at = self.here();
        self.gauge.set(self.resumed_at, self.total);
        if self.resumed_at > 0 {
            (self.tell)(&Event::Resuming { have: self.resumed_at, total: self.total });
        }
        Ok(())
    }

    /// Asks for the first part that is missing, or for all, and makes a place for it; the answer,
    /// and which bytes it has if that is known. `None` if nothing is missing.
    pub(super) fn open(&mut self) -> Result<Option<First<'a>>, DownloadError> {
        loop {
            let agent = self.agent;
            let connection = agent.connect(self.url)?;
            let Some(mut asked) = self.question(connection.is_local()) else { return Ok(None) };
            asked.wants_digest = wanted(self.wishes);
            let answer = ask(agent, Some(connection), &asked, self.url, true)?;
            self.has_answered = true;
            self.tls = answer.connection.tls().cloned();
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
    pub(super) fn question(&self, is_local: bool) -> Option<Asked> {
        let is_single = match self.wishes.connections {
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
    pub(super) fn settle(
        &mut self,
        answer: &Answer<'_>,
        total: Option<u64>,
    ) -> Result<(), DownloadError> {
        let response = &answer.response;
        self.modified = modified(response).or(self.modified);
        self.total = total;
        self.offered = offered(response);
        if self.wishes.verify && self.offered.is_empty() {
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
    pub(super) fn place(&self, total: Option<u64>) -> Result<Spot<'j>, DownloadError> {
        match (self.target, self.name(), &self.version) {
            (Target::Stream { file, at }, ..) => Ok(Spot::Stream { file, at: *at, done: 0 }),
            (_, Some(name), Some(version))
                if self.has_ranges && total.is_none_or(|total| total > WORTH_KEEPING) =>
            {
                name.partial(self.url.as_str(), version, total, self.modified)
            }
            (_, Some(name), _) => name.unnamed(),
            (Target::Named { .. }, None, _) => Err(DownloadError::Exists),
        }
    }

    /// Finds out before the first byte whether everything fits.
    pub(super) fn check_room(&self) -> Result<(), DownloadError> {
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
}

/// The first question is for so much, where more connections may follow.
const FIRST_PIECE: u64 = 16 << 20;
