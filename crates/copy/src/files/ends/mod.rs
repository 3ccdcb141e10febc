//! The ends of a transfer that a command line names: files, devices, `-`. Only programs may use
//! them: they rely on a check of the standard streams before `main`.

mod input;
mod open;
mod output;
mod stream;

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use underpass_engine::atomic_file;
use underpass_engine::hint::{Hint, Hinted, PathError, WithPath};

pub use input::Input;
pub use open::{Opener, blocking, standard_input};
pub use output::{OutputTarget, OverwriteRule};
pub use stream::{check_ends, copy_stream, is_same_end};

/// The reason why an end cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EndError {
    /// Two processes would append at the same offset of a file.
    #[error(
        "appending to {}: another process has locked it (wait until it has finished)",
        .0.display()
    )]
    Locked(PathBuf),
    /// A system call failed.
    #[error(transparent)]
    Path(#[from] PathError),
}

impl Hinted for EndError {
    fn hint(&self) -> Option<Hint> {
        match self {
            Self::Path(error) => error.hint(),
            Self::Locked(_) => None,
        }
    }
}

/// Returns whether a path is `-`, which is standard input or output.
#[must_use]
pub fn is_dash(path: &Path) -> bool {
    path == Path::new("-")
}

/// Returns the number of the descriptor of this process that a path stands for, if a file, a pipe
/// or a socket is open there. Bytes are appended to the open file, which is not replaced, because
/// other programs write to it, too.
#[must_use]
pub fn open_file_number(path: &Path) -> Option<i32> {
    let number = match path.to_str()? {
        "/dev/stdout" => 1,
        "/dev/stderr" => 2,
        path => {
            let number = ["/dev/fd/", "/proc/self/fd/"].iter().find_map(|at| path.strip_prefix(at));
            number?.parse().ok()?
        }
    };
    let kind = fs::metadata(path).ok()?.file_type();
    (kind.is_file() || kind.is_fifo() || kind.is_socket()).then_some(number)
}

/// Returns whether a path stands for standard output.
#[must_use]
pub fn is_stdout(path: &Path) -> bool {
    is_dash(path) || open_file_number(path) == Some(1)
}

/// Follows a link: the file that it leads to is replaced, as other programs do.
///
/// # Errors
///
/// As [`atomic_file::follow`].
pub fn followed(path: &Path) -> Result<PathBuf, PathError> {
    if path.is_symlink() {
        return atomic_file::follow(path).with_path("following the link", path);
    }
    Ok(path.to_owned())
}
