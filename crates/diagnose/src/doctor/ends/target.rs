//! The target of a trial: what `--to` means.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, OFlags, fcntl_getfl, fstat, readlink};
use rustix::io::Errno;

use crate::doctor::ends::scratch::{self, Scratch};
use crate::doctor::error::{DoctorError, Result, UnsuitableEnd, WithPath};
use underpass_engine::hint::Action;

/// The target of a trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrialTarget {
    /// No target was named: any peer.
    Any,
    /// A new file, or one that is replaced.
    File(PathBuf),
    /// A file of any name in this folder.
    Folder(PathBuf),
    /// A peer over TCP, by name or address.
    Host(String),
    /// Standard output.
    Output,
    /// A peer on this machine.
    Unix,
}

impl TrialTarget {
    /// Returns the target that a path names: a file, a folder, or nothing yet.
    ///
    /// # Errors
    ///
    /// [`DoctorError::Unsuitable`] for anything else that exists, [`DoctorError::Path`] if it
    /// cannot be examined.
    pub fn of_path(path: &Path) -> Result<Self> {
        match fs::metadata(path) {
            Ok(found) if found.is_dir() => Ok(Self::Folder(path.to_owned())),
            // The file that a link names is replaced, not the link.
            Ok(found) if found.is_file() => {
                Ok(Self::File(fs::canonicalize(path).with_path("following the link", path)?))
            }
            Ok(_) => Err(UnsuitableEnd::StreamTarget(path.to_owned()).into()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Ok(Self::File(path.to_owned()))
            }
            Err(error) => Err(error).with_path("looking at", path)?,
        }
    }

    /// Returns whether the bytes would go to a peer, over a socket.
    pub(crate) fn is_stream(&self) -> bool {
        matches!(self, Self::Any | Self::Host(_) | Self::Unix)
    }

    /// Returns whether the bytes would be a copy, in a file that is named when it is complete.
    pub(crate) fn is_copy(&self) -> bool {
        matches!(self, Self::File(_) | Self::Folder(_))
    }

    /// Returns its name for people.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Any => "a TCP connection".to_owned(),
            Self::File(path) | Self::Folder(path) => path.display().to_string(),
            Self::Host(host) => format!("a TCP connection to {host}"),
            Self::Output => "standard output".to_owned(),
            Self::Unix => "a Unix stream".to_owned(),
        }
    }

    /// Returns the folder of the new file, if there would be one.
    pub(crate) fn folder(&self) -> Option<PathBuf> {
        match self {
            Self::Folder(path) => Some(path.clone()),
            Self::File(path) => match path.parent() {
                Some(parent) if parent != Path::new("") => Some(parent.to_owned()),
                _ => Some(PathBuf::from(".")),
            },
            Self::Output => {
                let link = readlink("/proc/self/fd/1", Vec::new()).ok()?;
                let path = PathBuf::from(link.into_string().ok()?);
                path.parent().filter(|parent| parent.is_absolute()).map(Path::to_owned)
            }
            Self::Any | Self::Host(_) | Self::Unix => None,
        }
    }

    /// Creates a temporary sink of the same kind as the target.
    pub(crate) fn scratch(&self) -> Result<Scratch> {
        match self {
            Self::Any | Self::Host(_) => {
                Scratch::tcp().map_err(|source| DoctorError::System { action: CONNECTING, source })
            }
            Self::Unix => {
                Scratch::unix().map_err(|source| DoctorError::System { action: CONNECTING, source })
            }
            Self::File(path) => Ok(Scratch::file(path).with_path(Action::Creating, path)?),
            Self::Folder(path) => {
                Ok(Scratch::file(&path.join(scratch::NAME))
                    .with_path("creating a file in", path)?)
            }
            Self::Output => self.output(),
        }
    }

    /// Creates a sink like standard output: a file of the same kind, with the same flags, in its
    /// folder.
    fn output(&self) -> Result<Scratch> {
        let name = || PathBuf::from(self.name());
        let output = io::stdout();
        let stat = fstat(output.as_fd()).with_path("looking at", name())?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Fifo => Ok(Scratch::pipe().with_path("creating a pipe like", name())?),
            FileType::Socket => Ok(Scratch::unix().with_path("creating a socket like", name())?),
            FileType::RegularFile => {
                let folder = self.folder().ok_or(Errno::NOENT);
                let folder = folder.with_path("looking for the folder of", name())?;
                let flags = fcntl_getfl(output.as_fd()).with_path("looking at", name())?;
                let at = rustix::fs::seek(output.as_fd(), rustix::fs::SeekFrom::Current(0));
                let at = at.unwrap_or(0);
                let appends = flags.contains(OFlags::APPEND);
                let scratch = Scratch::like(&folder.join(scratch::NAME), appends, at);
                Ok(scratch.with_path("creating a file in", folder)?)
            }
            _ => Err(UnsuitableEnd::StandardOutput.into()),
        }
    }
}

const CONNECTING: &str = "connecting to this program itself over loopback";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_a_target_file_is_its_parent() {
        assert_eq!(TrialTarget::File("./new".into()).folder(), Some(PathBuf::from(".")));
        assert_eq!(TrialTarget::File("new".into()).folder(), Some(PathBuf::from(".")));
        assert_eq!(TrialTarget::Any.folder(), None);
    }
}
