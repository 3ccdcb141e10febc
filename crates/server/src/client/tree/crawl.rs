//! A folder file by file, found by the listings of a server that has no archives.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::UNIX_EPOCH;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use underpass_engine::PipePool;
use underpass_engine::hint::Action;
use url::Url;

use super::error::{TreeError, is_about_name};
use super::listing::{self, Entry, Facts};
use super::place::{Place, Taken, errno};
use super::queue::Queue;
use super::retry::Retry;
use super::{Job, TreeDone, TreeEvent, TreeWay, Why, as_path, local, reason, shown};
use crate::client::download::{self, Downloader, Gauge, Target, Wishes};
use crate::client::{Answer, ClientError, Connection, Request, Response};
use crate::incoming::{Extent, Manner};
use crate::validator::parse_date;

/// Something to be fetched.
#[derive(Debug)]
struct Task {
    entry: Entry,
    /// How many folders it lies in.
    depth: u32,
}

/// What the threads share.
struct Crawl<'c, 'j, 'a> {
    job: &'c Job<'j, 'a>,
    place: Place,
    queue: Queue<Task>,
    /// Addresses of folders that were listed.
    seen: Mutex<HashSet<String>>,
    /// Folders with what is to be set of them at the end.
    folders: Mutex<Vec<(Vec<u8>, Facts)>>,
    found: AtomicU64,
    /// Bytes of their paths and addresses.
    found_bytes: AtomicU64,
    pipes: PipePool,
}

/// Fetches the folder.
pub(super) fn fetch(job: &mut Job<'_, '_>) -> Result<(), TreeError> {
    let threads = job.wishes.connections.max(1);
    let (outcome, done) = {
        let crawl = Crawl::new(job)?;
        (job.tell)(&TreeEvent::Begun(TreeWay::Listing));
        let done = thread::scope(|scope| {
            let (running, stop) = mpsc::channel();
            if let Some(log) = crawl.place.log() {
                scope.spawn(move || log.keep_safe(&stop));
            }
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(|| crawl.work())).collect();
            let done = workers.into_iter().map(|worker| worker.join().unwrap_or_default());
            let done = done.fold(TreeDone::default(), sum);
            drop(running);
            done
        });
        crawl.finish(done)
    };
    *job.done = done;
    job.done.way = TreeWay::Listing;
    outcome
}

fn sum(mut all: TreeDone, one: TreeDone) -> TreeDone {
    all.files += one.files;
    all.here += one.here;
    all.folders += one.folders;
    all.left_out += one.left_out;
    all.connections += one.connections;
    all.resumed_at += one.resumed_at;
    all.report.add(&one.report);
    all.tls = one.tls.or(all.tls);
    all
}

impl<'c, 'j, 'a> Crawl<'c, 'j, 'a> {
    fn new(job: &'c Job<'j, 'a>) -> Result<Self, TreeError> {
        let (url, facts) = (job.url.clone(), Facts::default());
        let entry = Entry { path: Vec::new(), url, is_folder: true, facts };
        let queue = Queue::new(Task { entry, depth: 0 });
        let failed = |error| TreeError::io("making", job.path, error);
        fs::create_dir_all(job.path).map_err(failed)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(CWD, job.path, flags, Mode::empty());
        let root = root.map_err(|errno| TreeError::io("opening", job.path, errno))?;
        let taken = if job.wishes.replaces { Taken::Replaced } else { Taken::Stays };
        Ok(Self {
            job,
            place: Place::with_log(root, taken),
            queue,
            seen: Mutex::default(),
            folders: Mutex::default(),
            found: AtomicU64::new(0),
            found_bytes: AtomicU64::new(0),
            pipes: PipePool::default(),
        })
    }

    /// One thread with a connection of its own.
    fn work(&self) -> TreeDone {
        let mut worker = Worker { crawl: self, idle: None, done: TreeDone::default() };
        while let Some(task) = self.queue.take() {
            worker.done.connections = 1;
            let mut retry = Retry::new(self.job);
            let outcome = loop {
                match worker.fetch(&task) {
                    Ok(()) => break Ok(()),
                    Err(error) => match retry.wait(error) {
                        Ok(()) => {}
                        Err(error) => break worker.give_up(&task, error),
                    },
                }
            };
            self.queue.done(outcome);
        }
        worker.done
    }

    /// Sets what is to be set of the folders, deepest first, when nothing is made any more.
    fn finish(mut self, mut done: TreeDone) -> (Result<(), TreeError>, TreeDone) {
        let mut folders = std::mem::take(&mut *lock(&self.folders));
        folders.sort_by_key(|(path, _)| {
            std::cmp::Reverse(path.iter().filter(|byte| **byte == b'/').count())
        });
        for (path, facts) in folders {
            if let Err(errno) = self.place.settle_what_is_known(&path, facts.mode, facts.modified) {
                done.left_out += 1;
                (self.job.tell)(&TreeEvent::LeftOut { path: &path, why: &reason(errno) });
            }
        }
        let outcome = self.queue.finish().and_then(|()| {
            let finished = self.place.finish(done.left_out > 0);
            finished.map_err(|errno| TreeError::io("removing the log of", self.job.path, errno))
        });
        (outcome, done)
    }
}

/// One thread.
struct Worker<'w, 'c, 'j, 'a> {
    crawl: &'w Crawl<'c, 'j, 'a>,
    idle: Option<Connection<'a>>,
    done: TreeDone,
}

impl<'a> Worker<'_, '_, '_, 'a> {
    fn fetch(&mut self, task: &Task) -> Result<(), TreeError> {
        if task.entry.is_folder { self.list(task) } else { self.file(task) }
    }

    /// What becomes of all if one thing cannot be fetched: the rest goes on if it is the server's
    /// opinion of this one.
    fn give_up(&mut self, task: &Task, error: TreeError) -> Result<(), TreeError> {
        match error {
            TreeError::Client(ClientError::Status { .. }) if task.depth > 0 => {
                self.leave_out(&task.entry.path, &error);
                Ok(())
            }
            TreeError::NotAFolder { .. } if task.depth > 0 => {
                self.leave_out(&task.entry.path, &error);
                Ok(())
            }
            TreeError::Io { ref source, .. }
                if Errno::from_io_error(source).is_some_and(is_about_name) =>
            {
                let why = Errno::from_io_error(source).map(reason).unwrap_or_default();
                self.leave_out(&task.entry.path, &why);
                Ok(())
            }
            error => Err(error),
        }
    }

    fn leave_out(&mut self, path: &[u8], why: &dyn Why) {
        self.done.left_out += 1;
        (self.crawl.job.tell)(&TreeEvent::LeftOut { path, why });
    }

    fn ask(
        &mut self,
        method: &str,
        fields: &[(&str, &str)],
        url: &Url,
    ) -> Result<Answer<'a>, TreeError> {
        let request = Request { method, fields };
        let answer = self.crawl.job.agent.ask(self.idle.take(), &request, url)?;
        self.crawl.job.note_answer();
        self.done.tls = answer.connection.tls().cloned();
        if answer.response.is_success() {
            return Ok(answer);
        }
        Err(answer.connection.refusal(&answer.response).into())
    }

    /// Lists a folder, and makes it.
    fn list(&mut self, task: &Task) -> Result<(), TreeError> {
        let crawl = self.crawl;
        let mut url = task.entry.url.clone();
        if !lock(&crawl.seen).insert(url.to_string()) {
            return Ok(());
        }
        if task.depth > DEEPEST {
            self.leave_out(&task.entry.path, &"folders lie too deep within each other");
            return Ok(());
        }
        let mut read = self.read(&url);
        if let Ok(listing) = &read
            && listing.is_scripted
        {
            url.set_query(Some("json"));
            read = self.read(&url);
        }
        let listing = read.inspect_err(|_| {
            lock(&crawl.seen).remove(task.entry.url.as_str());
        })?;
        let made = crawl.place.make_folder(&task.entry.path);
        made.map_err(|errno| TreeError::io("making", as_path(&task.entry.path), errno))?;
        if task.depth > 0 {
            self.done.folders += 1;
            lock(&crawl.folders).push((task.entry.path.clone(), task.entry.facts));
        }
        for (name, refusal) in &listing.refused {
            self.leave_out(&joined(&task.entry.path, name), refusal);
        }
        let count = listing.entries.len() as u64;
        if listing.is_too_long {
            return Err(TreeError::TooMany { limit: MOST_ENTRIES });
        }
        let bytes = |entry: &Entry| {
            (entry.path.len() + task.entry.path.len() + entry.url.as_str().len()) as u64
        };
        let bytes: u64 = listing.entries.iter().map(bytes).sum();
        let before = crawl.found_bytes.fetch_add(bytes, Ordering::Relaxed);
        if before + bytes > MOST_NAME_BYTES as u64 {
            return Err(TreeError::TooManyNames { limit: MOST_NAME_BYTES });
        }
        if crawl.found.fetch_add(count, Ordering::Relaxed) + count > MOST_ENTRIES {
            return Err(TreeError::TooMany { limit: MOST_ENTRIES });
        }
        let tasks = listing.entries.into_iter().map(|mut entry| {
            entry.path = joined(&task.entry.path, &entry.path);
            Task { entry, depth: task.depth + 1 }
        });
        let (folders, files) = tasks.partition(|task: &Task| task.entry.is_folder);
        crawl.queue.add(files, folders);
        Ok(())
    }

    /// Reads a listing.
    fn read(&mut self, url: &Url) -> Result<listing::Listing, TreeError> {
        let fields = [("Accept", "application/json, text/html;q=0.9, */*;q=0.1")];
        let mut answer = self.ask("GET", &fields, url)?;
        let media_type = answer.response.fields.text("content-type").unwrap_or_default().to_owned();
        let (extent, address) = (answer.response.extent, answer.connection.address().to_owned());
        let not_a_folder =
            || TreeError::NotAFolder { url: shown(url), media_type: media_type.clone() };
        if !media_type.contains("html") && !media_type.contains("json") {
            return Err(not_a_folder());
        }
        let body = answer.connection.incoming().memory(extent, MOST_LISTING);
        let body = body.map_err(|error| ClientError::receiving(&address, error))?;
        self.keep(answer.connection, &answer.response);
        // Where the server says the folder is: its links are relative to that.
        listing::read(&answer.url, &media_type, &body).ok_or_else(not_a_folder)
    }

    /// Keeps a connection all of whose answer was read.
    fn keep(&mut self, connection: Connection<'a>, response: &Response) {
        if response.keeps_alive {
            self.idle = Some(connection);
        }
    }

    /// Fetches a file, unless it is here.
    fn file(&mut self, task: &Task) -> Result<(), TreeError> {
        let (path, place) = (&task.entry.path, &self.crawl.place);
        let failed = |action| {
            let path = as_path(path);
            move |errno: Errno| TreeError::io(action, path, errno)
        };
        // Where a file is in the place of its folder the attempt to make it tells.
        let mut asks = place.look(path).is_ok_and(|found| found.is_some());
        if asks {
            let facts = match task.entry.facts {
                facts @ Facts { size: Some(_), modified: Some(_), .. } => facts,
                facts => self.facts(&task.entry.url, facts)?,
            };
            // Apache says nothing of the length of an empty file unless it sends it.
            if facts.size.is_some() {
                if self.is_here(path, facts).map_err(failed(Action::Writing))? {
                    return Ok(());
                }
                asks = false;
            }
        }
        let answer = self.ask("GET", &[], &task.entry.url)?;
        if is_folder_of(&answer.url, &task.entry.url) {
            return self.turned_out_a_folder(task, answer);
        }
        let facts = completed(&answer.response, task.entry.facts);
        if asks && self.is_here(path, facts).map_err(failed(Action::Writing))? {
            self.idle = answer.connection.finish(&answer.response);
            return Ok(());
        }
        if matches!(answer.response.extent, Extent::Length(len) if len >= LARGE) {
            return self.download(task, facts);
        }
        self.receive(task, facts, answer)
    }

    /// Fetches a large file so that it can be gone on with after a break.
    fn download(&mut self, task: &Task, facts: Facts) -> Result<(), TreeError> {
        let (path, place, job) = (&task.entry.path, &self.crawl.place, self.crawl.job);
        let failed = |errno: Errno| TreeError::io(Action::Writing, as_path(path), errno);
        let (folder, name) = place.parted(path).map_err(failed)?;
        let taken = match place.taken {
            Taken::Stays => download::Taken::Refuse,
            Taken::Ours | Taken::Replaced => download::Taken::Replace,
        };
        let target = Target::Named { folder: &folder, name: OsStr::from_bytes(name), taken };
        let wishes = Wishes {
            // The others are at work on other files.
            connections: Some(1),
            retries: job.wishes.retries,
            policy: job.wishes.policy,
            step: job.wishes.step,
            ..Wishes::default()
        };
        let downloader = Downloader::new(job.agent.clone(), wishes);
        let outcome = downloader.fetch(&task.entry.url, &target, &Gauge::default(), &|_| {});
        let done = match outcome {
            Ok(done) => done,
            Err(failed) => {
                self.done.report.add(&failed.report);
                let (path, source) = (as_path(path).to_owned(), Box::new(failed.error));
                return Err(TreeError::Download { path, source });
            }
        };
        self.done.report.add(&done.report);
        self.done.resumed_at += done.resumed_at;
        self.done.files += 1;
        job.gauge.files.fetch_add(1, Ordering::Relaxed);
        job.gauge.done.fetch_add(done.size, Ordering::Relaxed);
        place.settle_named(path, facts.mode, facts.modified).map_err(failed)
    }

    /// Whether a file is here already; one that is another is an error if it is to stay.
    fn is_here(&mut self, path: &[u8], facts: Facts) -> Result<bool, Errno> {
        let place = &self.crawl.place;
        let is_here = match (facts.size, facts.modified) {
            (Some(size), Some(modified)) => place.has(path, size, modified)?,
            _ if place.taken == Taken::Stays => return Err(Errno::EXIST),
            _ => false,
        };
        if is_here {
            self.done.here += 1;
            self.crawl.job.gauge.files.fetch_add(1, Ordering::Relaxed);
        }
        Ok(is_here)
    }

    /// What the server says of a file without sending it.
    fn facts(&mut self, url: &Url, known: Facts) -> Result<Facts, TreeError> {
        let answer = self.ask("HEAD", &[], url)?;
        let facts = completed(&answer.response, known);
        self.keep(answer.connection, &answer.response);
        Ok(facts)
    }

    /// A name without a slash that led to one with a slash.
    fn turned_out_a_folder(&mut self, task: &Task, answer: Answer<'a>) -> Result<(), TreeError> {
        let mut entry = task.entry.clone();
        entry.url = answer.url.clone();
        entry.is_folder = true;
        self.idle = answer.connection.finish(&answer.response);
        self.crawl.queue.add(Vec::new(), vec![Task { entry, depth: task.depth }]);
        Ok(())
    }

    /// Puts the body of an answer into its place.
    fn receive(
        &mut self,
        task: &Task,
        facts: Facts,
        mut answer: Answer<'a>,
    ) -> Result<(), TreeError> {
        let (path, place, job) = (&task.entry.path, &self.crawl.place, self.crawl.job);
        let failed = |action| {
            let path = as_path(path);
            move |errno: Errno| TreeError::io(action, path, errno)
        };
        let landing = place.land(path, 0o666).map_err(failed(Action::Creating))?;
        let manner = Manner {
            policy: job.wishes.policy,
            step: job.wishes.step,
            pipes: Some(&self.crawl.pipes),
            reserve: true,
            ..Manner::default()
        };
        let mut told = 0;
        let mut tell = |progress: &underpass_engine::Progress| {
            job.gauge.done.fetch_add(progress.bytes - told, Ordering::Relaxed);
            told = progress.bytes;
        };
        let extent = answer.response.extent;
        let incoming = answer.connection.incoming();
        let received = incoming.body(extent, landing.file(), 0, &manner, &mut tell);
        self.done.report.add(&received.report);
        if let Err(error) = received.outcome {
            // What was here of it is not any more.
            job.gauge.done.fetch_sub(told, Ordering::Relaxed);
            return Err(match local(&error) {
                Some(errno) => failed(Action::Writing)(errno),
                None => ClientError::receiving(answer.connection.address(), error).into(),
            });
        }
        job.gauge.done.fetch_add(received.report.bytes() - told, Ordering::Relaxed);
        Place::settle_exactly(landing.file(), facts.mode, facts.modified)
            .map_err(failed("finishing".into()))?;
        let existing = place.existing();
        landing.commit(existing).map_err(|error| failed("naming".into())(errno(&error)))?;
        self.done.files += 1;
        job.gauge.files.fetch_add(1, Ordering::Relaxed);
        // A body without a length ended with the connection.
        if extent != Extent::UntilEnd {
            self.keep(answer.connection, &answer.response);
        }
        Ok(())
    }
}

/// What is known of a file, and what the head of an answer says besides.
fn completed(response: &Response, known: Facts) -> Facts {
    let modified = || {
        let time = parse_date(response.fields.get("last-modified")?)?;
        let time = time.duration_since(UNIX_EPOCH).ok()?;
        Some((i64::try_from(time.as_secs()).ok()?, 0))
    };
    let size = known.size.or_else(|| response.fields.number("content-length"));
    Facts { size, modified: known.modified.or_else(modified), ..known }
}

/// Whether an address is that of the folder of a name.
fn is_folder_of(answered: &Url, asked: &Url) -> bool {
    answered.origin() == asked.origin() && answered.path().strip_suffix('/') == Some(asked.path())
}

fn joined(folder: &[u8], name: &[u8]) -> Vec<u8> {
    if folder.is_empty() { name.to_vec() } else { [folder, b"/", name].concat() }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From here on a file is worth a journal of its own.
const LARGE: u64 = 16 << 20;

/// Bytes of a listing at the most: a million names.
const MOST_LISTING: usize = 256 << 20;

/// Files and folders at the most. Links on the server that lead in circles end here, too.
const MOST_ENTRIES: u64 = listing::MOST_LINKS as u64;

/// Bytes of their paths and addresses at the most.
const MOST_NAME_BYTES: usize = 512 << 20;

/// Folders within each other: the system follows no more than 40 links on one path.
const DEEPEST: u32 = 256;
