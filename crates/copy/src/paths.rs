//! What the paths on the command line mean: that of coreutils.

use std::collections::HashMap;
use std::ffi::{CString, OsStr};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, fstat, openat, stat};
use rustix::io::Errno;

use crate::CopyTarget;
use crate::error::{At, CopyError, Refusal};
use crate::folder::{Entry, Trail};
use crate::marker;
use crate::observer::CopyObserver;
use crate::options::{Follow, Settings};
use crate::worker::Worker;
use underpass_engine::hint::Action;

/// What goes where.
pub(crate) struct Plan {
    /// The folder that relative names of sources begin in.
    pub(crate) source: OwnedFd,
    /// The folder that everything is put in.
    pub(crate) target: OwnedFd,
    /// Their paths.
    pub(crate) trail: Trail,
    /// What was named, in turns: of several folders of one name each has to wait for the one before.
    pub(crate) turns: Vec<Vec<Entry>>,
    /// The first turn of those that come after the last source whose contents are spread out in the
    /// target.
    pub(crate) spread: usize,
    /// What cannot be copied from the outset.
    pub(crate) problems: Vec<CopyError>,
    /// The size of the one file that is copied.
    pub(crate) len: Option<u64>,
}

type Result<T> = std::result::Result<T, CopyError>;

/// The folder that things are put in, and the name that the one thing gets there.
struct Goal {
    folder: PathBuf,
    name: Option<Vec<u8>>,
}

/// Finds out what the paths mean.
pub(crate) fn understand(
    settings: &Settings<'_>,
    sources: &[PathBuf],
    target: CopyTarget<'_>,
    observer: &dyn CopyObserver,
) -> Result<Plan> {
    let goal = goal(settings, sources, target)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = |path: &Path| openat(CWD, path, flags, Mode::empty());
    let action = if goal.name.is_some() { Action::Creating } else { "opening".into() };
    let target = open(&goal.folder).at(action, || goal_path(&goal))?;
    let source = open(Path::new(".")).at("opening", || ".")?;
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
            Ok(None) => observer.named_twice(from),
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
    Ok(plan)
}

/// Where everything is put.
fn goal(settings: &Settings<'_>, sources: &[PathBuf], to: CopyTarget<'_>) -> Result<Goal> {
    let (CopyTarget::Folder(target) | CopyTarget::NewName(target) | CopyTarget::Either(target)) =
        to;
    let is_folder = fs::metadata(target).is_ok_and(|found| found.is_dir());
    let into = Goal { folder: target.to_owned(), name: None };
    if target.as_os_str().is_empty() {
        return Err(Errno::NOENT).at(Action::Creating, || target);
    }
    let is_unfinished = || match sources {
        [from] => settings.resume && marker::is_set(target, from, settings.follow),
        _ => false,
    };
    match to {
        CopyTarget::Folder(_) => return Ok(into),
        CopyTarget::Either(_) if is_folder && !is_unfinished() => return Ok(into),
        CopyTarget::NewName(_) | CopyTarget::Either(_) => {}
    }
    if sources.len() > 1 {
        return refuse(Refusal::NoFolder { target: target.to_owned() });
    }
    let from = sources.first().map_or(Path::new(""), PathBuf::as_path);
    let target = followed(settings, from, target)?;
    let bytes = target.as_os_str().as_bytes();
    let is_marked = bytes.ends_with(b"/") && !is_folder;
    let source_is_folder = fs::metadata(from).is_ok_and(|found| found.is_dir());
    if is_marked && !source_is_folder {
        return Err(Errno::NOTDIR).at(Action::Creating, || target);
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
        return fs::canonicalize(target).at("following the link", || target);
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
    let found = found.at("opening", || from)?;
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
        return refuse(Refusal::JustMade { from: from.to_owned(), to: path });
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
        openat(&plan.target, ".", flags, Mode::empty()).at("opening", || goal.folder.as_path())?;
    let mut last = None;
    // To the root, which is its own parent.
    loop {
        let stat = fstat(&at).at("looking at", || goal.folder.as_path())?;
        let here = (stat.st_dev, stat.st_ino);
        if here == (found.st_dev, found.st_ino) {
            return refuse(Refusal::IntoItself { from: from.to_owned(), to: goal_path(goal) });
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

fn refuse<T>(refusal: Refusal) -> Result<T> {
    Err(CopyError::Refused(refusal))
}

fn c_string(bytes: &[u8]) -> Result<CString> {
    let error = |_| io::Error::from(io::ErrorKind::InvalidInput);
    CString::new(bytes).map_err(error).at("opening", || OsStr::from_bytes(bytes))
}
