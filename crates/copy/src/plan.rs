//! The target of each source: the rules are those of coreutils.

mod overlap;
mod parents;

use std::collections::HashMap;
use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Mutex;
use std::{fs, io};

use rustix::fs::{CWD, FileType, Stat, fstat, stat};
use rustix::io::Errno;
use underpass_engine::atomic_file::{self, folder_at};
use underpass_engine::hint::Action;
use underpass_engine::{FileId, is_folder};

use crate::error::{At, CopyError, CopyRefusal, Overlap, Result};
use crate::observer::CopyObserver;
use crate::options::{ExistingFiles, Settings};
use crate::tree::entry::SourceEntry;
use crate::tree::marker;
use crate::tree::path_chain::PathChain;
use parents::Parents;

/// The target of a copy.
#[derive(Clone, Copy, Debug)]
pub enum CopyTarget<'a> {
    /// A folder in which every source keeps its name.
    Folder(&'a Path),
    /// The new name of the one source.
    NewName(&'a Path),
    /// A folder if there is one of that name, or else a new name.
    Either(&'a Path),
}

/// Which source is copied to which name.
pub(crate) struct CopyPlan {
    /// The folder that relative paths of sources begin in.
    pub(crate) source: OwnedFd,
    /// The folder that all copies are put in.
    pub(crate) target: OwnedFd,
    /// The paths of both.
    pub(crate) chain: PathChain,
    /// The sources in rounds: of several folders of one name each has to wait for the one before.
    pub(crate) rounds: Vec<Vec<SourceEntry>>,
    /// The first round after the last source whose contents are copied, and not the folder itself.
    pub(crate) first_after_contents: usize,
    /// Whether a file may be found more often than its link count.
    pub(crate) overlaps: bool,
    /// Sources that cannot be copied.
    pub(crate) problems: Vec<CopyError>,
    /// Whether leftovers of dead processes are removed from the folder.
    pub(crate) sweeps: bool,
    /// The size in bytes, if one file is copied.
    pub(crate) len: Option<u64>,
    /// The target as it was given, if it is a link to the file that the only source is copied to.
    pub(crate) link: Option<PathBuf>,
}

/// The folder that copies are put in, and the new name, if one was given.
struct PlanDest {
    folder: PathBuf,
    name: Option<Vec<u8>>,
    /// The target as it was given, if it is a link to the file that the only source is copied to.
    link: Option<PathBuf>,
}

impl CopyPlan {
    /// Returns the plan of one folder that is copied to a new name in another one.
    pub(crate) fn of_folder(
        from: BorrowedFd<'_>,
        to: BorrowedFd<'_>,
        name: &CStr,
    ) -> io::Result<Self> {
        let (own, new_name) = (c".".to_owned(), Some(name.to_owned()));
        let kind = FileType::Directory;
        let entry =
            SourceEntry { name: own, new_name, kind, follows: false, number: 0, only: None };
        let (source, target) = Default::default();
        Ok(Self {
            source: from.try_clone_to_owned()?,
            target: to.try_clone_to_owned()?,
            chain: PathChain {
                parent: None,
                source,
                target,
                hidden: Mutex::default(),
                is_above: true,
            },
            rounds: vec![vec![entry]],
            first_after_contents: 0,
            overlaps: false,
            problems: Vec::new(),
            len: None,
            link: None,
            sweeps: false,
        })
    }

    /// Finds out which source is copied to which name.
    pub(crate) fn new(
        settings: &Settings<'_>,
        sources: &[PathBuf],
        target: CopyTarget<'_>,
        observer: &dyn CopyObserver,
    ) -> Result<CopyPlan> {
        let destination = destination(settings, sources, target)?;
        let action = if destination.name.is_some() { Action::Creating } else { "opening".into() };
        let target =
            folder_at(CWD, &destination.folder).at(action, || destination_path(&destination))?;
        // Absolute paths work even where this user may not open the current folder.
        let is_absolute = sources.iter().all(|from| from.is_absolute());
        let base = if is_absolute { "/" } else { "." };
        let source = folder_at(CWD, base).at("opening", || base)?;
        let mut plan = Self {
            source,
            target,
            chain: PathChain {
                parent: None,
                source: CString::default(),
                target: c_string(destination.folder.as_os_str().as_bytes())?,
                hidden: Mutex::new(None),
                is_above: true,
            },
            rounds: Vec::new(),
            first_after_contents: 0,
            overlaps: false,
            problems: Vec::new(),
            sweeps: settings.recursive || settings.resume,
            len: None,
            link: destination.link.clone(),
        };
        let (mut named, mut parents) = (Named::new(), [Parents::default(), Parents::default()]);
        for from in sources {
            if settings.parents {
                let parents = &mut parents[usize::from(from.is_absolute())];
                match with_parents(settings, from, &destination, &plan, parents) {
                    Ok(true) => {}
                    Ok(false) => observer.named_twice(from),
                    Err(failure) => plan.problems.push(failure),
                }
                continue;
            }
            match entry(settings, from, &destination, &plan, &mut named) {
                Ok(Some((round, entry))) => {
                    if entry.target() == c"." {
                        plan.first_after_contents = round + 1;
                    }
                    plan.rounds.resize_with(plan.rounds.len().max(round + 1), Vec::new);
                    plan.rounds[round].push(entry);
                }
                Ok(None) => observer.named_twice(from),
                Err(failure) => plan.problems.push(failure),
            }
        }
        plan.overlaps = settings.hard_links && overlap::overlap(sources, settings.recursive);
        // `/a/f` and `a/g` have one folder as target, and two as sources.
        let entries = parents.map(|each| each.into_entries(settings.recursive));
        plan.rounds.extend(entries.into_iter().filter(|entries| !entries.is_empty()));
        if let [from] = sources {
            plan.len =
                fs::metadata(from).ok().filter(fs::Metadata::is_file).map(|found| found.len());
            // The error of a sole source is returned as it is.
            if let Some(failure) = plan.problems.pop() {
                return Err(failure);
            }
        }
        Ok(plan)
    }
}

/// Returns the folder that copies are put in, and the new name.
fn destination(
    settings: &Settings<'_>,
    sources: &[PathBuf],
    to: CopyTarget<'_>,
) -> Result<PlanDest> {
    let (CopyTarget::Folder(target) | CopyTarget::NewName(target) | CopyTarget::Either(target)) =
        to;
    let is_folder = fs::metadata(target).is_ok_and(|found| found.is_dir());
    let into = PlanDest { folder: target.to_owned(), name: None, link: None };
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
        return refuse(CopyRefusal::NoFolder { target: target.to_owned() });
    }
    let from = sources.first().map_or(Path::new(""), PathBuf::as_path);
    let given = target;
    let target = followed(settings, from, given)?;
    let link = (target != given).then(|| given.to_owned());
    let bytes = target.as_os_str().as_bytes();
    let is_marked = bytes.ends_with(b"/") && !is_folder;
    let source_is_folder = metadata(settings, from).is_ok_and(|found| found.is_dir());
    if is_marked && !source_is_folder {
        return Err(Errno::NOTDIR).at(Action::Creating, || target);
    }
    // With a slash, a link stands for the folder that it leads to, also with dots in between.
    let is_followed = bytes.ends_with(b"/") && is_folder;
    let stands_for = || is_link(&target) || last_name(&target) == b".";
    let is_itself = bytes.ends_with(b"/.") || is_followed && stands_for();
    let Some(name) = target.file_name().filter(|_| !is_itself) else {
        return Ok(PlanDest { folder: target, name: Some(b".".to_vec()), link });
    };
    let folder = match target.parent() {
        Some(parent) if parent != Path::new("") => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    Ok(PlanDest { folder, name: Some(name.as_bytes().to_vec()), link })
}

/// Returns whether a path without the slashes at its end is that of a link.
fn is_link(path: &Path) -> bool {
    let bytes = path.as_os_str().as_bytes();
    let end = bytes.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
    fs::symlink_metadata(OsStr::from_bytes(&bytes[..end])).is_ok_and(|found| found.is_symlink())
}

/// Returns the metadata of a source: that of a link itself if the link is copied.
fn metadata(settings: &Settings<'_>, from: &Path) -> io::Result<fs::Metadata> {
    if settings.follow.follows_named() { fs::metadata(from) } else { fs::symlink_metadata(from) }
}

/// Follows a target that is a link, if bytes are copied: the file that it leads to is replaced, as
/// other programs do. A device or FIFO that is created takes the place of the link itself.
fn followed(settings: &Settings<'_>, from: &Path, target: &Path) -> Result<PathBuf> {
    let is_link = fs::symlink_metadata(target).is_ok_and(|found| found.is_symlink());
    if settings.removes_existing() || settings.link.is_some() {
        return Ok(target.to_owned());
    }
    let has_bytes = |source: fs::Metadata| {
        if settings.recursive { source.is_file() } else { !source.is_symlink() && !source.is_dir() }
    };
    if is_link && metadata(settings, from).is_ok_and(has_bytes) {
        return atomic_file::follow(target).at("following the link", || target);
    }
    Ok(target.to_owned())
}

/// The sources, by their new names.
type Named = HashMap<CString, Vec<FileId>>;

/// Returns a source with its new name, and its round; `None` if it was named before.
fn entry(
    settings: &Settings<'_>,
    from: &Path,
    destination: &PlanDest,
    plan: &CopyPlan,
    named: &mut Named,
) -> Result<Option<(usize, SourceEntry)>> {
    let follows = settings.follow.follows_named();
    let found = look(settings, from, destination, plan)?;
    let kind = FileType::from_raw_mode(found.st_mode);
    let new_name = match &destination.name {
        Some(name) => name.clone(),
        None => last_name(from),
    };
    let new_name = c_string(&new_name)?;
    let named_before = named.entry(new_name.clone()).or_default();
    let own = FileId::of(&found);
    if named_before.contains(&own) && (kind == FileType::Directory || settings.backup.is_none()) {
        return Ok(None);
    }
    let is_decided_now = settings.dry_run && settings.existing == ExistingFiles::Replace;
    let is_second = kind != FileType::Directory && !named_before.is_empty();
    if is_decided_now && is_second && !settings.keeps_all() {
        // A dry run makes nothing that would show this later.
        let to = destination.folder.join(OsStr::from_bytes(new_name.as_bytes()));
        return refuse(CopyRefusal::JustMade { from: from.to_owned(), to });
    }
    named_before.push(own);
    let round = match new_name.as_bytes() {
        // An entry of this source may have the same name as any other source.
        b"." => plan.rounds.len(),
        _ => (named_before.len() - 1).max(plan.first_after_contents),
    };
    let name = c_string(from.as_os_str().as_bytes())?;
    let new_name = Some(new_name);
    Ok(Some((round, SourceEntry { name, new_name, kind, follows, number: 0, only: None })))
}

/// Adds a source that keeps its path, and returns whether it was not named before.
fn with_parents(
    settings: &Settings<'_>,
    from: &Path,
    destination: &PlanDest,
    plan: &CopyPlan,
    parents: &mut Parents,
) -> Result<bool> {
    if from.components().any(|each| each == Component::ParentDir) {
        return refuse(CopyRefusal::Outside { from: from.to_owned() });
    }
    // A link with a slash at its end is the folder that it leads to; its name alone is the link.
    let follows = settings.follow.follows_named() || atomic_file::names_folder(from);
    let found = look(settings, from, destination, plan)?;
    let kind = FileType::from_raw_mode(found.st_mode);
    Ok(parents.add(from, kind, follows))
}

/// Returns the metadata of a source, unless it is a folder that would be copied into itself.
fn look(
    settings: &Settings<'_>,
    from: &Path,
    destination: &PlanDest,
    plan: &CopyPlan,
) -> Result<Stat> {
    let found = if settings.follow.follows_named() { stat(from) } else { rustix::fs::lstat(from) }
        .at("opening", || from)?;
    if is_folder(&found) && settings.recursive {
        refuse_inside(&found, from, destination, plan)?;
    }
    Ok(found)
}

/// Returns the name that a source keeps in a folder. `a/.` and `..` have none: their contents are
/// copied.
fn last_name(path: &Path) -> Vec<u8> {
    let bytes = path.as_os_str().as_bytes();
    let end = bytes.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
    match bytes[..end].rsplit(|&byte| byte == b'/').next() {
        None | Some(b"" | b"." | b"..") => b".".to_vec(),
        Some(name) => name.to_vec(),
    }
}

/// Refuses to copy a folder into itself.
fn refuse_inside(found: &Stat, from: &Path, destination: &PlanDest, plan: &CopyPlan) -> Result<()> {
    let mut at = folder_at(&plan.target, ".").at("opening", || destination.folder.as_path())?;
    let mut last = None;
    // Up to the root, which is its own parent.
    loop {
        let stat = fstat(&at).at("looking at", || destination.folder.as_path())?;
        let here = FileId::of(&stat);
        if here == FileId::of(found) {
            let (from, to) = (from.to_owned(), destination_path(destination));
            return Err(Overlap::IntoItself { from, to }.into());
        }
        if last == Some(here) {
            return Ok(());
        }
        last = Some(here);
        at = match folder_at(&at, "..") {
            Ok(above) => above,
            // A folder that cannot be opened cannot be a source either.
            Err(_) => return Ok(()),
        };
    }
}

fn destination_path(destination: &PlanDest) -> PathBuf {
    match &destination.name {
        Some(name) => destination.folder.join(OsStr::from_bytes(name)),
        None => destination.folder.clone(),
    }
}

fn refuse<T>(refusal: CopyRefusal) -> Result<T> {
    Err(CopyError::Refused(refusal))
}

fn c_string(bytes: &[u8]) -> Result<CString> {
    let error = |_| io::Error::from(io::ErrorKind::InvalidInput);
    CString::new(bytes).map_err(error).at("opening", || OsStr::from_bytes(bytes))
}
