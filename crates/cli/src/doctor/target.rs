//! Where the bytes would go: what `--to` means.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, OFlags, fcntl_getfl, fstat, readlink};
use rustix::io::Errno;

use super::scratch::{self, Scratch};
use crate::address::Address;
use crate::failure::{Failure, Result, WithPath};
use crate::output::plain_path;
use underpass_engine::hint::Action;

/// Where the bytes would go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Nothing was named: a peer somewhere.
    Any,
    /// A new file, or one that is replaced.
    File(PathBuf),
    /// Into this folder, by whatever name.
    Folder(PathBuf),
    /// A peer over TCP, by name or number.
    Host(String),
    /// What standard output is.
    Output,
    /// A peer on this machine.
    Unix,
}

impl Target {
    /// Understands what was typed.
    pub(crate) fn understand(words: Option<&OsStr>) -> Result<Self> {
        let Some(words) = words else { return Ok(Self::Any) };
        let path = Path::new(words);
        let text = words.to_str();
        if text == Some("-") {
            return Ok(Self::Output);
        }
        if text.is_some_and(|text| text.starts_with("unix:")) {
            return Ok(Self::Unix);
        }
        match (fs::symlink_metadata(path).is_ok(), text) {
            (false, Some(text)) if !text.contains('/') => host(text),
            _ => file(path),
        }
    }

    /// Whether the bytes would go to a peer, over a socket.
    pub(crate) fn is_stream(&self) -> bool {
        matches!(self, Self::Any | Self::Host(_) | Self::Unix)
    }

    /// Whether the bytes would be a copy, in a file that is named when it is whole.
    pub(crate) fn is_copy(&self) -> bool {
        matches!(self, Self::File(_) | Self::Folder(_))
    }

    /// What it is called.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Any => "a TCP connection".to_owned(),
            Self::File(path) | Self::Folder(path) => plain_path(path),
            Self::Host(host) => format!("a TCP connection to {}", plain_path(Path::new(host))),
            Self::Output => "standard output".to_owned(),
            Self::Unix => "a unix stream".to_owned(),
        }
    }

    /// The folder that a new file would be in, if it would be one.
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

    /// Something that bytes can be moved into, as into the target, and that is gone afterwards.
    pub(crate) fn scratch(&self) -> Result<Scratch> {
        match self {
            Self::Any | Self::Host(_) => {
                Scratch::tcp().map_err(|source| Failure::System { action: CONNECTING, source })
            }
            Self::Unix => {
                Scratch::unix().map_err(|source| Failure::System { action: CONNECTING, source })
            }
            Self::File(path) => Scratch::file(path).with_path(Action::Creating, path),
            Self::Folder(path) => {
                Scratch::file(&path.join(scratch::NAME)).with_path("creating a file in", path)
            }
            Self::Output => self.output(),
        }
    }

    /// Like standard output: a file of the same kind, with the same flags, beside it.
    fn output(&self) -> Result<Scratch> {
        let name = || PathBuf::from(self.name());
        let output = io::stdout();
        let stat = fstat(output.as_fd()).with_path("looking at", name())?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Fifo => Scratch::pipe().with_path("making a pipe like", name()),
            FileType::Socket => Scratch::unix().with_path("making a socket like", name()),
            FileType::RegularFile => {
                let folder = self.folder().ok_or(Errno::NOENT);
                let folder = folder.with_path("looking for the folder of", name())?;
                let flags = fcntl_getfl(output.as_fd()).with_path("looking at", name())?;
                let at = rustix::fs::seek(output.as_fd(), rustix::fs::SeekFrom::Current(0));
                let at = at.unwrap_or(0);
                let appends = flags.contains(OFlags::APPEND);
                Scratch::like(&folder.join(scratch::NAME), appends, at)
                    .with_path("creating a file in", folder)
            }
            _ => Err(Failure::Usage(
                "standard output is neither a file nor a pipe: redirect it, or name a file"
                    .to_owned(),
            )),
        }
    }
}

/// A word that is no path.
fn host(text: &str) -> Result<Target> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let is_number = bare.parse::<std::net::IpAddr>().is_ok();
    let host = match text.parse::<Address>() {
        Ok(Address::Tcp { host, .. }) => host,
        Ok(Address::Unix(_)) => return Ok(Target::Unix),
        Err(_) if is_number || !text.contains(':') => bare.to_owned(),
        Err(error) => return Err(Failure::Usage(format!("--to {text}: {error}"))),
    };
    match host.is_empty() {
        true => Err(Failure::Usage("--to names no host and no file".to_owned())),
        false => Ok(Target::Host(host)),
    }
}

/// What is, or would be, a file or a folder.
fn file(path: &Path) -> Result<Target> {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => Ok(Target::Folder(path.to_owned())),
        // What a link leads to is replaced, not the link.
        Ok(found) if found.is_file() => {
            Ok(Target::File(fs::canonicalize(path).with_path("following the link", path)?))
        }
        Ok(_) => Err(Failure::Usage(format!(
            "{} is no file and no folder: nothing is written into it only to try",
            plain_path(path)
        ))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Target::File(path.to_owned())),
        Err(error) => Err(error).with_path("looking at", path),
    }
}

const CONNECTING: &str = "connecting to this very program over loopback";

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn understood(text: &str) -> Target {
        Target::understand(Some(OsStr::new(text))).unwrap()
    }

    #[test]
    fn a_word_is_a_host_unless_it_is_a_path() {
        let hosts =
            [("mirror.test", "mirror.test"), ("mirror.test:80", "mirror.test"), ("::1", "::1")];
        for (text, host) in hosts.into_iter().chain([("[::1]:80", "::1"), ("[::1]", "::1")]) {
            assert_eq!(understood(text), Target::Host(host.to_owned()), "{text}");
        }
        assert_eq!(understood("./mirror.test"), Target::File("./mirror.test".into()));
        assert_eq!(understood("unix:/run/a"), Target::Unix);
        assert_eq!(understood("-"), Target::Output);
        assert_eq!(understood("/proc"), Target::Folder("/proc".into()));
        assert_eq!(understood("src"), Target::Folder("src".into()));
        assert_eq!(Target::understand(None).unwrap(), Target::Any);
    }

    #[test]
    fn what_can_be_no_target_is_refused() {
        for text in ["", ":80", "/dev/null", "a:b:c", "host:port"] {
            let refused = Target::understand(Some(OsStr::new(text)));
            assert!(matches!(refused, Err(Failure::Usage(_))), "{text}: {refused:?}");
        }
    }

    #[test]
    fn a_file_lies_in_a_folder() {
        assert_eq!(understood("./new").folder(), Some(PathBuf::from(".")));
        assert_eq!(Target::File("new".into()).folder(), Some(PathBuf::from(".")));
        assert_eq!(Target::Any.folder(), None);
    }
}
