//! The errors of the arguments of `cp`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use underpass_copy::ends::is_dash;

use crate::failure::UsageError;

/// The reason why the sources, the target or the environment of `cp` are invalid.
#[derive(Debug, thiserror::Error)]
pub(super) enum CpError {
    #[error("-Z and --context are for kernels without SELinux: use chcon or restorecon here")]
    Context,
    #[error("VERSION_CONTROL is '{}': it can be none, numbered, existing or simple", .0.display())]
    Control(OsString),
    #[error("a source and a target are required")]
    Incomplete,
    #[error("--parents puts sources into a folder: name one that exists")]
    ParentsWithoutFolder,
    #[error("{from} and {to} are the same file")]
    SameFile { from: String, to: String },
    #[error("-T takes one source and its new name")]
    SeveralSources,
}

impl CpError {
    /// Returns the refusal of a source that is also the target.
    pub(super) fn same_end(from: &Path, to: &Path) -> Self {
        let name = |path: &Path, standard: &str| {
            if is_dash(path) { standard.to_owned() } else { path.display().to_string() }
        };
        Self::SameFile { from: name(from, "standard input"), to: name(to, "standard output") }
    }
}

impl UsageError for CpError {}

/// The reason why two options of `cp` contradict each other.
#[derive(Debug, thiserror::Error)]
pub(super) enum OptionConflict {
    #[error("--backup cannot be combined with --in-place, which overwrites the old files")]
    BackupInPlace,
    #[error("--backup cannot be combined with -n or --update=none, which replace nothing")]
    BackupWithoutReplacement,
    #[error("--delete would remove the files that --backup keeps")]
    DeleteWithBackup,
    #[error("--delete needs -r")]
    DeleteWithoutFolders,
    #[error("a copy that shares blocks has the holes of its original: leave out {instead}")]
    HolesOfSharedBlocks { instead: &'static str },
    #[error("--reflink cannot be combined with --mechanism, --prefer or --no-zero-copy")]
    ReflinkTwice,
}

impl UsageError for OptionConflict {}

/// The reason why a stream cannot be copied with these arguments.
#[derive(Debug, thiserror::Error)]
pub(super) enum StreamError {
    #[error(
        "-i reads answers from standard input, which is also the source: leave out -i, or name a file"
    )]
    AnswersFromSource,
    #[error("{} is a folder: name a file in it", .0.display())]
    InputToFolder(PathBuf),
    #[error("- is standard input: copy it alone, and name a file for it")]
    InputWithOthers,
    #[error("{0} needs files: a stream can be read or written only once")]
    NeedsFiles(&'static str),
    #[error("--json prints on standard output, where the bytes go: name a file")]
    OutputTwice,
    #[error("-r cannot be combined with -: pack the folder with tar")]
    TreeAsStream,
}

impl UsageError for StreamError {}
