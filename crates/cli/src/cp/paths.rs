//! What the paths on the command line mean: that of coreutils.

use std::collections::HashMap;
use std::ffi::{CString, OsStr};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, fstat, openat, stat};
use rustix::io::Errno;

use super::folder::{Entry, Trail};
use super::marker;
use super::settings::{Follow, Settings};
use super::special::twin;
use super::usage;
use super::worker::Worker;
use crate::commands::cp::CpArgs;
use crate::failure::{Failure, Result, WithPath};
use crate::output;
use underpass_engine::hint::Action;

/// What is to be done.
pub(super) enum Way {
    /// One stream of bytes: standard input or output, a device, a FIFO.
    Stream {
        /// From here.
        from: PathBuf,
        /// To here.
        to: PathBuf,
    },
    /// Files and folders.
    Files(Plan),
}

/// What goes where.
pub(super) struct Plan {
    /// The folder that relative names of sources begin in.
    pub(super) source: OwnedFd,
    /// The folder that everything is put in.
    pub(super) target: OwnedFd,
    /// Their paths.
    pub(super) trail: Trail,
    /// What was named, in turns: of several folders of one name each has to wait for the one before.
    pub(super) turns: Vec<Vec<Entry>>,
    /// The first turn of those that come after the last source whose contents are spread out in the
    /// target.
    pub(super) spread: usize,
    /// What cannot be copied from the outset.
    pub(super) problems: Vec<Failure>,
    /// The size of the one file that is copied.
    pub(super) len: Option<u64>,
}

/// The folder that things are put in, and the name that the one thing gets there.
struct Goal {
    folder: PathBuf,
    name: Option<Vec<u8>>,
}

/// Finds out what the paths mean.
pub(super) fn understand(args: &CpArgs, settings: &Settings<'_>) -> Result<Way> {
    let (sources, target) = split(args)?;
    if let [from] = sources
        && let Some(way) = stream(args, settings, from, target)?
    {
        return Ok(way);
    }
    if sources.iter().any(|from| from == Path::new("-")) {
        return usage("- is standard input: copy it alone, and name a file for it".to_owned());
    }
    let goal = goal(args, settings, sources, target)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = |path: &Path| openat(CWD, path, flags, Mode::empty());
    let action = if goal.name.is_some() { Action::Creating } else { Action::Other("opening") };
    let target = open(&goal.folder).with_path(action, goal_path(&goal))?;
    let source = open(Path::new(".")).with_path("opening", ".")?;
    let mut plan = Plan {
        source,
        target,
        trail: Trail {
            parent: None,
            source: CString::default(),
            target: c_string(goal.folder.as_os_str().as_bytes())?,
            hidden: Mutex::new(None),
        },
        turns: Vec::new(),
        spread: 0,
        problems: Vec::new(),
        len: None,
    };
    let mut named = Named::new();
    for from in sources {
        match entry(settings, from, &goal, &plan, &mut named) {
            Ok(Some((turn, entry))) => {
                if entry.target() == c"." {
                    plan.spread = turn + 1;
                }
                plan.turns.resize_with(plan.turns.len().max(turn + 1), Vec::new);
                plan.turns[turn].push(entry);
            }
            Ok(None) => output::note(&format!("{} was named twice", from.display())),
            Err(failure) => plan.problems.push(failure),
        }
    }
    if let [from] = sources {
        plan.len = fs::metadata(from).ok().filter(fs::Metadata::is_file).map(|found| found.len());
        // Alone, it may say by itself why it cannot be copied.
        if let Some(failure) = plan.problems.pop() {
            return Err(failure);
        }
    }
    Ok(Way::Files(plan))
}

/// Which words are sources, and which is the target.
fn split(args: &CpArgs) -> Result<(&[PathBuf], &Path)> {
    if let Some(folder) = &args.target_directory {
        return Ok((&args.words, folder));
    }
    match args.words.split_last() {
        Some((target, sources)) if !sources.is_empty() => {
            if args.no_target_directory && sources.len() > 1 {
                return usage("-T takes one source and its new name".to_owned());
            }
            Ok((sources, target))
        }
        _ => usage("name what to copy, and where to".to_owned()),
    }
}

/// Whether bytes are to flow from or into something that is no file.
fn stream(
    args: &CpArgs,
    settings: &Settings<'_>,
    from: &Path,
    target: &Path,
) -> Result<Option<Way>> {
    let is_dash = |path: &Path| path == Path::new("-");
    let target = match args.target_directory {
        Some(_) => target.join(from.file_name().unwrap_or_default()),
        None => target.to_owned(),
    };
    let kind = |found: fs::Metadata| FileType::from_raw_mode(found.mode());
    let target = if is_open_output(&target) { PathBuf::from("-") } else { target };
    let found = fs::metadata(&target).ok().map(kind);
    let takes_bytes =
        found.is_some_and(|kind| !matches!(kind, FileType::RegularFile | FileType::Directory));
    // A tree is not poured into a device, and with -r what is special stays special.
    let has_bytes = !settings.recursive
        || fs::symlink_metadata(from).is_ok_and(|found| kind(found) == FileType::RegularFile);
    let has_dash = is_dash(from) || is_dash(&target);
    let is_stream = has_dash || (takes_bytes && has_bytes);
    if !is_stream {
        return Ok(None);
    }
    if settings.recursive && has_dash {
        return usage("-r and - do not go together: pack a folder with tar".to_owned());
    }
    if is_dash(from) && found == Some(FileType::Directory) {
        return usage(format!("{} is a folder: name a file in it", target.display()));
    }
    Ok(Some(Way::Stream { from: from.to_owned(), to: target }))
}

/// Whether this is another name of a standard output that is a file. Bytes go to where it is open,
/// behind what is there: the file is not replaced by another one.
fn is_open_output(target: &Path) -> bool {
    ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"].iter().any(|name| target == Path::new(name))
        && fs::metadata(target).is_ok_and(|found| found.is_file())
}

/// Where everything is put.
fn goal(
    args: &CpArgs,
    settings: &Settings<'_>,
    sources: &[PathBuf],
    target: &Path,
) -> Result<Goal> {
    let is_folder = fs::metadata(target).is_ok_and(|found| found.is_dir());
    let into = Goal { folder: target.to_owned(), name: None };
    if target.as_os_str().is_empty() {
        return Err(Errno::NOENT).with_path(Action::Creating, target);
    }
    let is_unfinished = || match sources {
        [from] => settings.resume && marker::is_set(target, from, settings.follow),
        _ => false,
    };
    if args.target_directory.is_some()
        || (is_folder && !args.no_target_directory && !is_unfinished())
    {
        return Ok(into);
    }
    if sources.len() > 1 {
        let message = format!("{} is no folder: several sources need one", target.display());
        return usage(message);
    }
    let from = sources.first().map_or(Path::new(""), PathBuf::as_path);
    let target = followed(settings, from, target)?;
    let bytes = target.as_os_str().as_bytes();
    let is_marked = bytes.ends_with(b"/") && !is_folder;
    let source_is_folder = fs::metadata(from).is_ok_and(|found| found.is_dir());
    if is_marked && !source_is_folder {
        return Err(Errno::NOTDIR).with_path(Action::Creating, target);
    }
    let Some(name) = target.file_name().filter(|_| !bytes.ends_with(b"/.")) else {
        return Ok(Goal { folder: target, name: Some(b".".to_vec()) });
    };
    let folder = match target.parent() {
        Some(parent) if parent != Path::new("") => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    Ok(Goal { folder, name: Some(name.as_bytes().to_vec()) })
}

/// A link as target is followed, if bytes are put there: what it leads to is replaced, as every
/// other program would do.
fn followed(settings: &Settings<'_>, from: &Path, target: &Path) -> Result<PathBuf> {
    let is_link = fs::symlink_metadata(target).is_ok_and(|found| found.is_symlink());
    let source = match settings.follow {
        Follow::Never => fs::symlink_metadata(from),
        _ => fs::metadata(from),
    };
    if is_link && source.is_ok_and(|source| !source.is_symlink() && !source.is_dir()) {
        return fs::canonicalize(target).with_path("following the link", target);
    }
    Ok(target.to_owned())
}

/// Sources by their new names: device and number of each.
type Named = HashMap<CString, Vec<(u64, u64)>>;

/// One source with its new name, and when it is its turn; `None` if it was named before.
fn entry(
    settings: &Settings<'_>,
    from: &Path,
    goal: &Goal,
    plan: &Plan,
    named: &mut Named,
) -> Result<Option<(usize, Entry)>> {
    let follows = Worker::follows_named(settings.follow);
    let found = match follows {
        true => stat(from),
        false => rustix::fs::lstat(from),
    };
    let found = found.with_path("opening", from)?;
    let kind = FileType::from_raw_mode(found.st_mode);
    if kind == FileType::Directory && settings.recursive {
        refuse_inside(&found, from, goal, plan)?;
    }
    let new_name = match &goal.name {
        Some(name) => name.clone(),
        None => last_name(from),
    };
    let new_name = c_string(&new_name)?;
    let twins = named.entry(new_name.clone()).or_default();
    let own = (found.st_dev, found.st_ino);
    if twins.contains(&own) {
        return Ok(None);
    }
    if kind != FileType::Directory && !twins.is_empty() {
        let path = goal.folder.join(OsStr::from_bytes(new_name.as_bytes()));
        return usage(twin(from, &path));
    }
    twins.push(own);
    let turn = match new_name.as_bytes() {
        // What is in it may have the name of any other source.
        b"." => plan.turns.len(),
        _ => (twins.len() - 1).max(plan.spread),
    };
    let name = c_string(from.as_os_str().as_bytes())?;
    Ok(Some((turn, Entry { name, new_name: Some(new_name), kind, follows, number: 0 })))
}

/// The name that a source keeps in a folder. `a/.` and `..` have none: what is in them is put there.
fn last_name(path: &Path) -> Vec<u8> {
    let bytes = path.as_os_str().as_bytes();
    let end = bytes.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
    match bytes[..end].rsplit(|&byte| byte == b'/').next() {
        None | Some(b"" | b"." | b"..") => b".".to_vec(),
        Some(name) => name.to_vec(),
    }
}

/// Refuses to copy a folder into itself.
fn refuse_inside(found: &Stat, from: &Path, goal: &Goal, plan: &Plan) -> Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at =
        openat(&plan.target, ".", flags, Mode::empty()).with_path("opening", &goal.folder)?;
    let mut last = None;
    // To the root, which is its own parent.
    loop {
        let stat = fstat(&at).with_path("looking at", &goal.folder)?;
        let here = (stat.st_dev, stat.st_ino);
        if here == (found.st_dev, found.st_ino) {
            let to = goal_path(goal);
            let message =
                format!("{} cannot be copied into itself, {}", from.display(), to.display());
            return usage(message);
        }
        if last == Some(here) {
            return Ok(());
        }
        last = Some(here);
        at = match openat(&at, "..", flags, Mode::empty()) {
            Ok(above) => above,
            // Who may not look there cannot have named it either.
            Err(_) => return Ok(()),
        };
    }
}

fn goal_path(goal: &Goal) -> PathBuf {
    match &goal.name {
        Some(name) => goal.folder.join(OsStr::from_bytes(name)),
        None => goal.folder.clone(),
    }
}

fn c_string(bytes: &[u8]) -> Result<CString> {
    let error = |_| io::Error::from(io::ErrorKind::InvalidInput);
    CString::new(bytes).map_err(error).with_path("opening", OsStr::from_bytes(bytes))
}
