//! `bench cp`: copies by `underpass cp` and other common programs, from the start of their process
//! to its end: a large file, many small ones, an existing folder, a file with holes.

mod copiers;
mod original;

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;

use self::copiers::copy;
use self::original::CopyOriginal;
use super::installed;
use crate::error::{BenchError, Result, WithPath};
use crate::options::{Measure, Named, among, bytes, number};
use crate::record::{
    CALLS, CPU, Cell, CommandLine, Contender, Copies, Counted, Description, Dropped, EarlierCopies,
    Environment, Metric, OriginalKind, ProcessCost, Record, Role, SPEED, SWITCHES, Side, TIME,
    Unit, Variant, metric,
};
use crate::run::{
    CallTracer, Content, Context, Cores, FileTree, Measured, Noise, PAGE, RunFolder, RunPlan,
    Running, Scenario, Start, Verification, find, survey, traced, version,
};

/// The arguments of `bench cp`.
#[derive(Debug, Args)]
pub struct CpArgs {
    /// Copy files of these sizes, one after the other [default: 4G]
    #[arg(long, value_name = "LIST", value_delimiter = ',', group = "original")]
    #[arg(value_parser = bytes)]
    sizes: Vec<u64>,

    /// Copy N files of 1 to 16 KiB, a hundred in each folder
    #[arg(long, value_name = "N", value_parser = number(1), group = "original")]
    files: Option<u32>,

    /// Copy this folder, with everything in it
    #[arg(long, value_name = "DIR", group = "original")]
    tree: Option<PathBuf>,

    /// Copy a file of this length that has --data bytes between its holes, and one of the data
    /// alone
    #[arg(long, value_name = "SIZE", value_parser = bytes, group = "original")]
    sparse: Option<u64>,

    /// Put this many bytes into the file with holes, a MiB in each place
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = bytes)]
    #[arg(requires = "sparse")]
    data: u64,

    /// Measure these programs; those that are not installed are left out [default: those that keep
    /// holes with --sparse, all but underpass-dense otherwise]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = among(COPIERS))]
    way: Vec<Contender>,

    /// Drop the original from the caches before each sample: as root from all of them, otherwise
    /// from the page cache
    #[arg(long)]
    cold: bool,

    /// Create the target in DIR instead of --dir
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,

    /// Do not count system calls in a separate pass
    #[arg(long)]
    no_count: bool,
}

const COPIERS: &[Named] = &[
    ("cp-a", Contender::CpArchive, "cp -a of coreutils"),
    ("underpass", Contender::Underpass, "`underpass cp -a`"),
    ("underpass-dense", Contender::UnderpassDense, "`underpass cp -a` of the file without holes"),
    ("xcp", Contender::Xcp, "xcp -r"),
    ("fcp", Contender::Fcp, "fcp"),
    ("rsync-a", Contender::Rsync, "rsync -a"),
    ("tar", Contender::Tar, "tar into tar"),
];

impl CpArgs {
    fn original(&self) -> CopyOriginal {
        match (self.files, &self.tree, self.sparse) {
            (Some(files), _, _) => {
                CopyOriginal::FileTree(FileTree { files, large: 0, large_bytes: 0 })
            }
            (_, Some(folder), _) => CopyOriginal::Folder(folder.clone()),
            (_, _, Some(len)) => CopyOriginal::Sparse { len, data: self.data.min(len) },
            _ => CopyOriginal::File(self.sizes.iter().copied().max().unwrap_or(DEFAULT_SIZE)),
        }
    }

    fn contenders(&self) -> &[Contender] {
        use Contender::{CpArchive, Fcp, Rsync, Tar, Underpass, UnderpassDense, Xcp};
        match self.sparse {
            _ if !self.way.is_empty() => &self.way,
            Some(_) => &[CpArchive, Underpass, UnderpassDense],
            None => &[CpArchive, Underpass, Xcp, Fcp, Rsync, Tar],
        }
    }
}

impl Measure for CpArgs {
    fn measure(&self, start: Start<'_>) -> Result<Record> {
        let original = self.original();
        let (contenders, missing) = installed(self.contenders(), |name| find(name).is_some())?;
        let Start { context, run } = start;
        let place = RunFolder::create(&run.dir)?;
        let target = RunFolder::create(self.to.as_deref().unwrap_or(&run.dir))?;
        place.require_space(original.room())?;
        let content = begin(&original, &place)?;
        let passes = u64::from(2 + run.warmup + run.runs) * contenders.len() as u64;
        let room = content.allocated.max(content.files * PAGE as u64);
        target.require_space(room)?;
        // The next copy would pay for the removal of folders.
        let has_room = target.require_space(room.saturating_mul(passes)).is_ok();
        let earlier = if original.is_folder() && has_room {
            EarlierCopies::Stay
        } else {
            EarlierCopies::Removed
        };
        let chilled = self.cold.then(|| match drop_all_caches() {
            Ok(()) => Dropped::AllCaches,
            Err(_) => Dropped::PageCache,
        });
        let sizes = match (&original, self.sizes.is_empty()) {
            (CopyOriginal::File(_), false) => self.sizes.clone(),
            (CopyOriginal::File(size), true) => vec![*size],
            _ => vec![content.bytes],
        };
        let environment = environment(&contenders, &original.path(&place), target.path());
        let mut plan = RunPlan::new(start, &sizes, environment);
        plan.count_calls_unless(self.no_count, &target);
        (plan.arguments.cold, plan.arguments.side) = (self.cold, Role::Copier);
        plan.copies = Some(Copies {
            original: original.kind(),
            files: content.files,
            allocated_bytes: content.allocated,
            chilled,
            earlier,
            commands: commands(&contenders, original.is_folder()),
            missing: missing.into_iter().map(str::to_owned).collect(),
        });
        plan.for_contenders(contenders);
        let sha256 = Default::default();
        let mut copying = Copying {
            place,
            target,
            original,
            content,
            sha256,
            chilled,
            earlier,
            turn: 0,
            context,
        };
        plan.measure(&CP, &mut copying, Variant::plain(Contender::CpArchive))
    }
}

fn environment(contenders: &[Contender], source: &Path, target: &Path) -> Environment {
    let others = contenders.iter().filter(|contender| **contender != Contender::CpArchive);
    let others = others.filter_map(|other| version(&find(other.programs().first()?)?));
    Environment {
        cp: find("cp").and_then(|cp| version(&cp)),
        programs: others.collect(),
        ..survey(Cores::available(), source, Some(target))
    }
}

fn commands(contenders: &[Contender], is_folder: bool) -> Vec<CommandLine> {
    let command = |contender: &Contender| {
        let from = if *contender == Contender::UnderpassDense { "DENSE" } else { "ORIGINAL" };
        let words = copy(*contender, is_folder, false, Path::new(from), Path::new("COPY"));
        CommandLine { command: Some(words.to_string()), ..CommandLine::of(*contender) }
    };
    contenders.iter().map(command).collect()
}

#[derive(Debug)]
struct Copying<'a> {
    /// The folder of the original, unless that existed before.
    place: RunFolder,
    target: RunFolder,
    original: CopyOriginal,
    content: Content,
    /// The digests of the verified copies; the second is of the variant with another original.
    sha256: [String; 2],
    chilled: Option<Dropped>,
    /// Whether copies of earlier rounds are kept or removed.
    earlier: EarlierCopies,
    turn: u32,
    context: &'a Context<'a>,
}

impl Scenario for Copying<'_> {
    fn prepare(&mut self, cell: &Cell) -> Result<()> {
        let size = cell.size;
        if let CopyOriginal::File(len) = &mut self.original
            && *len != size
        {
            *len = size;
            self.content = begin(&self.original, &self.place)?;
        }
        self.sha256[0] = self.content.sha256()?;
        if let CopyOriginal::Sparse { .. } = self.original {
            self.sha256[1] = Content::survey(&CopyOriginal::dense_path(&self.place))?.sha256()?;
        }
        self.place.sync()
    }

    fn verify(&mut self, cell: &Cell) -> Result<Verification> {
        let contender = cell.variant.contender;
        let is_dense = contender == Contender::UnderpassDense;
        let (_, copy) = self.copy(contender, Pass::Verified)?;
        let sha256 = copy.sha256()?;
        let may_take = self.content.allocated.saturating_add(SLACK);
        let has_holes = !contender.is_ours() || is_dense || copy.allocated <= may_take;
        self.clear(&copy)?;
        if sha256 == self.sha256[usize::from(is_dense)] && has_holes {
            Ok(Verification::Arrived(sha256))
        } else {
            Err(BenchError::differs(contender))
        }
    }

    fn sample(&mut self, cell: &Cell) -> Result<Measured> {
        let contender = cell.variant.contender;
        let (cost, copy) = self.copy(contender, Pass::Timed)?;
        self.clear(&copy)?;
        let is_whole = (copy.files, copy.bytes) == (self.content.files, self.content.bytes);
        if !is_whole && contender != Contender::UnderpassDense {
            return Err(BenchError::differs(cell.variant));
        }
        let wall_s = cost.wall_s;
        let side = Side::process(Role::Copier, wall_s, cost);
        Ok(Measured::new(wall_s, side, None))
    }

    fn count(&mut self, cell: &Cell, tracer: &CallTracer) -> Result<Vec<Counted>> {
        let (_, copy) = self.copy(cell.variant.contender, Pass::Counted(tracer))?;
        self.clear(&copy)?;
        Ok(vec![tracer.tally(Role::Copier)?])
    }
}

#[derive(Clone, Copy)]
enum Pass<'a> {
    Verified,
    Timed,
    Counted(&'a CallTracer),
}

impl Copying<'_> {
    fn copy_path(&self) -> PathBuf {
        self.target.file(&format!("copy{}", self.turn))
    }

    /// Copies the original, and returns the cost and the content of the copy.
    fn copy(&mut self, contender: Contender, pass: Pass<'_>) -> Result<(ProcessCost, Content)> {
        self.turn += 1;
        let from = match contender {
            Contender::UnderpassDense => CopyOriginal::dense_path(&self.place),
            _ => self.original.path(&self.place),
        };
        // --verify would read all zeros of the holes, twice; the digest covers them.
        let has_holes = matches!(self.original, CopyOriginal::Sparse { .. });
        let is_verified = matches!(pass, Pass::Verified) && !has_holes;
        let is_folder = self.original.is_folder();
        let words = copy(contender, is_folder, is_verified, &from, &self.copy_path());
        self.target.sync()?;
        self.evict(&from)?;
        let before = children_s();
        let tracer = if let Pass::Counted(tracer) = pass { Some(tracer) } else { None };
        let command = traced(tracer, words.command(self.context), Role::Copier);
        let finished = Running::start(command, None)?.finish(None, self.context.cancel)?;
        let finished = finished.succeeded(contender)?;
        // The time of its children is only in this counter, which has steps of 10 ms.
        let cpu_s = finished.cost.cpu_s.max(children_s() - before);
        Ok((ProcessCost { cpu_s, ..finished.cost }, Content::survey(&self.copy_path())?))
    }

    fn evict(&self, from: &Path) -> Result<()> {
        match self.chilled {
            None => Ok(()),
            Some(Dropped::AllCaches) => drop_all_caches(),
            Some(Dropped::PageCache) => Content::survey(from)?.drop_cached(),
        }
    }

    /// Leaves the next copy as much memory as this one had, and its space if there is no other.
    fn clear(&self, copy: &Content) -> Result<()> {
        if self.earlier == EarlierCopies::Stay {
            self.target.sync()?;
            return copy.drop_cached();
        }
        let path = self.copy_path();
        let removed = if self.original.is_folder() {
            fs::remove_dir_all(&path)
        } else {
            fs::remove_file(&path)
        };
        removed.with_path("removing", path)?;
        self.target.sync()
    }
}

/// Drops everything from all caches; fails without root's rights.
fn drop_all_caches() -> Result<()> {
    let path = Path::new("/proc/sys/vm/drop_caches");
    Ok(fs::write(path, "3").with_path("writing", path)?)
}

/// Creates the original, and reads its content.
fn begin(original: &CopyOriginal, place: &RunFolder) -> Result<Content> {
    let noise = original.room().clamp(SLACK, 16 << 20);
    original.create(place, &mut Noise::new(noise)?)?;
    place.sync()?;
    Content::survey(&original.path(place))
}

/// Returns the processor seconds of all reaped children and of their children.
fn children_s() -> f64 {
    let stat = procfs::process::Process::myself().and_then(|process| process.stat());
    let ticks = stat.map_or(0, |stat| stat.cutime + stat.cstime);
    ticks as f64 / procfs::ticks_per_second() as f64
}

/// The number of bytes that a copy may occupy beyond its original.
const SLACK: u64 = 1 << 20;

const DEFAULT_SIZE: u64 = 4 << 30;

fn subject(record: &Record) -> String {
    let source = &record.environment.source_file_system;
    let target = record.environment.target_file_system.as_deref().unwrap_or_default();
    let what = match record.copies.as_ref().map(|copies| copies.original) {
        Some(OriginalKind::Folder | OriginalKind::SmallFiles) => "folder",
        Some(OriginalKind::Sparse) => "file with holes",
        _ => "file",
    };
    format!("{what} on {source} to {target}")
}

fn caption(record: &Record) -> String {
    let Some(copies) = &record.copies else { return String::new() };
    let bytes = |bytes: u64| Unit::Bytes.show(bytes as f64);
    let whole = bytes(record.cells.first().map_or(0, |cell| cell.size));
    let files = Unit::Count.show(copies.files as f64);
    let what = match copies.original {
        OriginalKind::File => "A file".to_owned(),
        OriginalKind::Folder => format!("{files} files, {whole}"),
        OriginalKind::SmallFiles => format!("{files} files of 1 to 16 KiB, {whole}"),
        OriginalKind::Sparse => {
            format!("A file of {whole}, {} of them data", bytes(copies.allocated_bytes))
        }
    };
    let memory = match copies.chilled {
        None => "in the page cache",
        Some(Dropped::AllCaches) => "in no cache",
        Some(Dropped::PageCache) => "not in the page cache, though its names and facts may be",
    };
    let earlier = match copies.earlier {
        EarlierCopies::Stay => "earlier copies stay, out of the page cache",
        EarlierCopies::Removed => "earlier copies are removed",
    };
    format!(
        "{what}; {memory}; {earlier}. Time from the start of the process to its end, and processor \
         time of the whole of it with its children"
    )
}

pub(super) const CP: Description = Description {
    name: "cp",
    command: "cp",
    whole_folders: true,
    subject,
    caption,
    metrics: &[
        &TIME,
        &metric!("files": "Files per second", "files/s", Count, Table, more;
            |record, sample| Some(record.copies.as_ref()?.files as f64 / sample.wall_s)),
        // Holes need not be moved.
        &Metric {
            of: |record, sample| {
                let (copies, size) = (record.copies.as_ref()?, record.cells[sample.cell].size);
                let bytes = match copies.original {
                    OriginalKind::Sparse => copies.allocated_bytes.min(size),
                    _ => size,
                };
                Some(bytes as f64 / sample.wall_s)
            },
            ..SPEED
        },
        &CPU,
        &CALLS,
        &SWITCHES,
    ],
    ..Description::NONE
};
