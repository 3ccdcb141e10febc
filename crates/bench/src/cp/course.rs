//! One copy after the other, each to a place where nothing was before.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use super::content::Content;
use super::copiers::{Copier, Words, is_ours};
use super::original::Original;
use super::record::{Chilled, Earlier};
use crate::child::Running;
use crate::counted::Tally;
use crate::counter::{Counter, watched};
use crate::data::{Folder, Noise};
use crate::error::{BenchError, Result, WithPath};
use crate::plan::Variant;
use crate::record::{Process, Role, Side};
use crate::rounds::{Course, Measured, Verdict};
use crate::way::Way;

/// Copies of one original.
#[derive(Debug)]
pub(crate) struct Copying<'a> {
    /// Where the original is, unless it was there.
    pub(crate) place: Folder,
    /// Where the copies are made.
    pub(crate) target: Folder,
    /// What is copied.
    pub(crate) original: Original,
    /// What was found there.
    pub(crate) content: Content,
    /// What the verified copies had, by the way that has another original.
    pub(crate) sha256: [String; 2],
    /// How the original is thrown out of memory before each sample.
    pub(crate) chilled: Option<Chilled>,
    /// What becomes of earlier copies.
    pub(crate) earlier: Earlier,
    /// Who counts, if somebody does.
    pub(crate) counter: Option<Counter>,
    /// How many copies there have been.
    pub(crate) turn: u32,
    /// Set by a signal.
    pub(crate) cancel: &'a AtomicBool,
}

impl Course for Copying<'_> {
    fn prepare(&mut self, size: u64) -> Result<()> {
        if let Original::File(len) = &mut self.original
            && *len != size
        {
            *len = size;
            self.content = begin(&self.original, &self.place, size)?;
        }
        self.sha256[0] = self.content.sha256()?;
        if let Original::Sparse { .. } = self.original {
            self.sha256[1] = Content::survey(&Original::dense_path(&self.place))?.sha256()?;
        }
        self.place.settle()
    }

    fn verify(&mut self, _size: u64, variant: Variant) -> Result<Verdict> {
        let (way, is_dense) = (variant.way, is_dense(variant.way));
        self.copy(way, Pass::Verified)?;
        let copy = Content::survey(&self.copy_path())?;
        let sha256 = copy.sha256()?;
        let may_take = self.content.allocated.saturating_add(SLACK);
        let has_holes = !is_ours(way) || is_dense || copy.allocated <= may_take;
        self.clear(&copy)?;
        match sha256 == self.sha256[usize::from(is_dense)] && has_holes {
            true => Ok(Verdict::Arrived(sha256)),
            false => Err(differs(way)),
        }
    }

    fn measure(&mut self, _size: u64, variant: Variant) -> Result<Measured> {
        let cost = self.copy(variant.way, Pass::Timed)?;
        let copy = Content::survey(&self.copy_path())?;
        self.clear(&copy)?;
        let is_whole = (copy.files, copy.bytes) == (self.content.files, self.content.bytes);
        if !is_whole && !is_dense(variant.way) {
            return Err(differs(variant.way));
        }
        let wall_s = cost.wall_s;
        let side =
            Side { role: Role::Copier, elapsed_s: wall_s, thread: None, process: Some(cost) };
        Ok(Measured::new(wall_s, side, None))
    }

    fn count(&mut self, _size: u64, variant: Variant) -> Result<Vec<Tally>> {
        let Some(counter) = self.counter.clone() else { return Ok(Vec::new()) };
        self.copy(variant.way, Pass::Counted)?;
        let copy = Content::survey(&self.copy_path())?;
        self.clear(&copy)?;
        Ok(vec![counter.tally(Role::Copier)?])
    }
}

/// What a copy is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pass {
    /// To be compared with its original.
    Verified,
    /// For its time.
    Timed,
    /// For its system calls.
    Counted,
}

impl Copying<'_> {
    /// The place of the present copy.
    fn copy_path(&self) -> PathBuf {
        self.target.file(&format!("copy{}", self.turn))
    }

    fn copy(&mut self, way: Way, pass: Pass) -> Result<Process> {
        self.turn += 1;
        let from = match is_dense(way) {
            true => Original::dense_path(&self.place),
            false => self.original.path(&self.place),
        };
        let words = Words::new(way, self.original.is_folder(), &from, &self.copy_path());
        // That would read all zeros of the holes, twice; the digest knows them.
        let has_holes = matches!(self.original, Original::Sparse { .. });
        let words = if pass == Pass::Verified && !has_holes { words.verifying() } else { words };
        self.target.settle()?;
        self.cool(&from)?;
        let before = children_s();
        let counter = self.counter.as_ref().filter(|_| pass == Pass::Counted);
        let command = watched(counter, words.command(), Role::Copier);
        let finished = Running::start(command, None)?.finish(None, self.cancel)?;
        if !finished.status.success() {
            return Err(finished.failure(way.to_string()));
        }
        // Its own children's time is only in this account, which is kept in steps of 10 ms.
        let cpu_s = finished.cost.cpu_s.max(children_s() - before);
        Ok(Process { cpu_s, ..finished.cost })
    }

    /// Throws the original out of memory, if it is to be.
    fn cool(&self, from: &Path) -> Result<()> {
        match self.chilled {
            None => Ok(()),
            Some(Chilled::AllCaches) => drop_caches(),
            Some(Chilled::PageCache) if is_dense_path(from, &self.place) => {
                Content::survey(from)?.chill()
            }
            Some(Chilled::PageCache) => self.content.chill(),
        }
    }

    /// Leaves the next copy as much memory as this one had, and its place if there is no other.
    fn clear(&self, copy: &Content) -> Result<()> {
        if self.earlier == Earlier::Stay {
            self.target.settle()?;
            return copy.chill();
        }
        let path = self.copy_path();
        let removed = match self.original.is_folder() {
            true => fs::remove_dir_all(&path),
            false => fs::remove_file(&path),
        };
        removed.with_path("removing", path)?;
        self.target.settle()
    }
}

/// Throws everything out of memory; fails without root's rights.
pub(crate) fn drop_caches() -> Result<()> {
    let path = Path::new("/proc/sys/vm/drop_caches");
    fs::write(path, "3").with_path("writing", path)
}

/// Makes what a run begins with.
pub(crate) fn begin(original: &Original, place: &Folder, largest: u64) -> Result<Content> {
    original.plant(place, &mut Noise::new(largest.max(SLACK))?)?;
    place.settle()?;
    Content::survey(&original.path(place))
}

const fn is_dense(way: Way) -> bool {
    matches!(way, Way::Copier(Copier::Dense))
}

fn is_dense_path(path: &Path, place: &Folder) -> bool {
    path == Original::dense_path(place)
}

/// Processor seconds of all processes that have ended and were waited for, and of those that these
/// have waited for.
fn children_s() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the program may have spaces in it.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: u64 = fields.skip(13).take(2).filter_map(|word| word.parse::<u64>().ok()).sum();
    // USER_HZ, which is 100 on every architecture that Rust's Linux runs on.
    ticks as f64 / 100.0
}

/// A copy was something else.
fn differs(way: Way) -> BenchError {
    BenchError::Differs { what: way.to_string() }
}

/// Bytes that a copy may take more on the disk than its original.
const SLACK: u64 = 1 << 20;
