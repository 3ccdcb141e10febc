//! The destination of a download: a name in a folder, standard output, a device.

use std::ffi::OsString;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use rustix::fs::CWD;
use rustix::io::Errno;
use underpass_client::download::{IfExists, Target, name_or_suggested};
use underpass_client::input::list::ListedFile;

use super::args::GetArgs;
use super::usage::{GetError, UrlUsage};
use underpass_copy::ends::{
    OutputTarget, OverwriteRule, followed, is_dash, is_stdout, open_file_number,
};
use underpass_engine::atomic_file::{self, NewFolders};
use underpass_engine::hint::{Action, PathError};
use underpass_engine::wait::lock;

use crate::failure::{Result, WithPath};
use crate::signals::opener;
use underpass_receipt::{EndKind, shown};

/// The destination of a download.
#[derive(Debug)]
pub(crate) enum GetDestination {
    /// A file that appears when it is complete.
    Named { path: PathBuf, folder: OwnedFd, name: OsString, if_exists: IfExists },
    /// A device, a FIFO or standard output, which is written to directly.
    Stream(OutputTarget),
}

impl GetDestination {
    /// Returns the destination that the arguments give for a URL.
    ///
    /// `suggested` asks the server for a name; `folders` notes those that are created.
    pub(crate) fn of(
        args: &GetArgs,
        item: &ListedFile,
        suggested: impl FnOnce() -> Option<OsString>,
        folders: &Mutex<NewFolders>,
        cancel: &AtomicBool,
    ) -> Result<Self> {
        match &args.output {
            Some(path) if is_stream(path) => {
                if args.update {
                    return Err(GetError::UpdateOfStream(path.clone()).into());
                }
                if args.show.json && is_stdout(path) {
                    return Err(GetError::OutputTwice.into());
                }
                Ok(Self::Stream(OutputTarget::create(
                    path,
                    OverwriteRule::Always,
                    &opener(cancel),
                )?))
            }
            Some(path) => {
                let if_exists = if args.update { IfExists::Update } else { IfExists::Replace };
                atomic_file::check_links(atomic_file::folder_of(path))?;
                Self::named(path, if_exists)
            }
            None => {
                let name = match &item.out {
                    Some(out) => out.clone(),
                    None => name_or_suggested(&item.url, suggested)
                        .ok_or_else(|| UrlUsage::Nameless(shown(&item.url)))?
                        .into(),
                };
                let if_exists = match (args.update, args.force) {
                    (true, _) => IfExists::Update,
                    (false, true) => IfExists::Replace,
                    (false, false) => IfExists::SameIsFine,
                };
                let path = args.dir.as_deref().unwrap_or(Path::new("")).join(name);
                atomic_file::check_links(atomic_file::folder_of(&path))?;
                if let Some(dir) = path.parent() {
                    lock(folders).create(dir).with_path(Action::Creating, dir)?;
                }
                Self::named(&path, if_exists)
            }
        }
    }

    /// Returns its kind.
    pub(crate) fn kind(&self) -> EndKind {
        match self {
            Self::Named { .. } => EndKind::File,
            Self::Stream(target) => target.sink().map_or(EndKind::Other, |sink| sink.kind().into()),
        }
    }

    /// Creates the destination of a file at this path, or of the file to which a link there leads.
    fn named(path: &Path, if_exists: IfExists) -> Result<Self> {
        if path.file_name().is_none() {
            return Err(GetError::NotAName(path.to_owned()).into());
        }
        if atomic_file::names_folder(path) && !path.is_dir() {
            return Err(PathError::new(Action::Creating, path, Errno::NOTDIR).into());
        }
        let file = followed(path)?;
        let name = file.file_name().ok_or_else(|| GetError::NotAName(path.to_owned()))?;
        let parent = atomic_file::folder_of(&file);
        let folder = atomic_file::folder_at(CWD, parent).with_path("opening", parent)?;
        Ok(Self::Named { path: path.to_owned(), folder, name: name.to_owned(), if_exists })
    }

    /// Returns its name for people.
    pub(crate) fn path(&self) -> &Path {
        match self {
            Self::Named { path, .. } => path,
            Self::Stream(target) => target.path(),
        }
    }

    /// Returns the target for the library.
    pub(crate) fn target(&self) -> Target<'_> {
        match self {
            Self::Named { folder, name, if_exists, .. } => {
                Target::Named { folder, name, if_exists: *if_exists }
            }
            Self::Stream(target) => Target::Stream { file: target.file(), at: target.at() },
        }
    }

    /// Finishes the file once all bytes are written.
    pub(crate) fn finish(self, bytes: u64) -> Result<()> {
        match self {
            Self::Named { .. } => Ok(()),
            Self::Stream(target) => Ok(target.finish(bytes)?),
        }
    }
}

/// Returns whether the path is written to directly.
pub(super) fn is_stream(path: &Path) -> bool {
    is_dash(path)
        || open_file_number(path).is_some()
        || fs::metadata(path).is_ok_and(|found| !found.is_file() && !found.is_dir())
}
