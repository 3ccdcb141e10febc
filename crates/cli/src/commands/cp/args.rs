//! What can be typed after `cp`, and the options of a copy that it means.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, ValueEnum};

use underpass_copy::{CopyOptions, ExcludePattern, Follow, default_jobs};
use underpass_engine::{Mechanism, Policy};

use crate::args::MoveArgs;
use crate::failure::{Failure, Result};

/// What can be typed after `cp`.
#[derive(Debug, Args)]
#[command(override_usage = "underpass cp [OPTIONS] <SOURCE>... <TARGET>\n       \
                            underpass cp [OPTIONS] -t <FOLDER> <SOURCE>...")]
#[command(mut_arg("integrity", |arg| arg.default_value("detect")))]
pub(crate) struct CpArgs {
    /// What to copy (- is standard input), and last where to: a new name, a folder, or - for
    /// standard output
    #[arg(value_name = "SOURCE... TARGET", num_args = 1.., required = true)]
    #[arg(value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub(crate) words: Vec<PathBuf>,

    /// Copy every source into this folder
    #[arg(short, long, value_name = "FOLDER", conflicts_with = "no_target_directory")]
    #[arg(value_parser = OsStringValueParser::new().map(PathBuf::from))]
    pub(crate) target_directory: Option<PathBuf>,

    /// Treat the target as the new name, even if it is a folder
    #[arg(short = 'T', long)]
    pub(crate) no_target_directory: bool,

    /// Copy folders with everything in them
    #[arg(short, long, visible_short_alias = 'R')]
    pub(crate) recursive: bool,

    /// Copy everything as it is: -r -P -p, and hard links stay hard links
    #[arg(short, long)]
    pub(crate) archive: bool,

    /// Keep owner, group, set-user-id, extended attributes and ACLs; mode and times are always kept
    #[arg(short, long)]
    pub(crate) preserve: bool,

    /// Replace a file only if its original is newer
    #[arg(short, long)]
    pub(crate) update: bool,

    /// Leave existing files as they are
    #[arg(short, long, overrides_with = "interactive")]
    pub(crate) no_clobber: bool,

    /// Ask before replacing a file; the answer is read from standard input
    #[arg(short, long, overrides_with = "no_clobber")]
    pub(crate) interactive: bool,

    /// Replace files that are not writable; -n and -i still apply
    #[arg(short, long)]
    pub(crate) force: bool,

    /// Follow all symbolic links
    #[arg(short = 'L', long, overrides_with_all = ["no_dereference", "follow_named"])]
    pub(crate) dereference: bool,

    /// Copy symbolic links as links [default with -r]
    #[arg(short = 'P', long, overrides_with_all = ["dereference", "follow_named"])]
    pub(crate) no_dereference: bool,

    /// Follow symbolic links that are sources, and copy others as links
    #[arg(short = 'H', long, overrides_with_all = ["dereference", "no_dereference"])]
    pub(crate) follow_named: bool,

    /// Stay on the file system of each source; mount points become empty folders
    #[arg(short = 'x', long)]
    pub(crate) one_file_system: bool,

    /// Leave out entries whose name matches, or whose path if GLOB has a slash; can be repeated
    #[arg(long, value_name = "GLOB")]
    pub(crate) exclude: Vec<std::ffi::OsString>,

    /// Share the blocks of the originals: where possible, always (or fail), or never
    #[arg(long, value_name = "WHEN", num_args = 0..=1, require_equals = true)]
    #[arg(default_value = "auto", default_missing_value = "always")]
    pub(crate) reflink: When,

    /// Make holes where the original has them, also where it has zeros, or never
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    pub(crate) sparse: When,

    /// Read every copy again and compare it with its original: from the page cache, or directly
    /// from the disk
    #[arg(long, value_name = "HOW", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "cache")]
    pub(crate) verify: Option<Verify>,

    /// Wait until everything is on the disk
    #[arg(long)]
    pub(crate) sync: bool,

    /// Write into existing files instead of replacing them
    #[arg(long, conflicts_with = "resume")]
    pub(crate) in_place: bool,

    /// Continue an interrupted copy: leave files that have the size and time of their originals,
    /// compare those that a power cut may have damaged, and keep parts of large files
    #[arg(long)]
    pub(crate) resume: bool,

    /// Copy with this number of threads [default: twice the processors, at most 8]
    #[arg(short, long, value_name = "NUMBER")]
    pub(crate) jobs: Option<NonZeroUsize>,

    /// Print what would be copied, and copy nothing
    #[arg(long)]
    pub(crate) dry_run: bool,

    #[command(flatten)]
    pub(crate) movement: MoveArgs,
}

/// When something is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum When {
    /// Where possible.
    Auto,
    /// In any case, or fail.
    Always,
    /// Never.
    Never,
}

/// Where a copy is read from when it is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Verify {
    /// The page cache.
    Cache,
    /// The disk.
    Direct,
}

impl From<When> for underpass_copy::When {
    fn from(when: When) -> Self {
        match when {
            When::Auto => Self::Auto,
            When::Always => Self::Always,
            When::Never => Self::Never,
        }
    }
}

impl From<Verify> for underpass_copy::Verify {
    fn from(verify: Verify) -> Self {
        match verify {
            Verify::Cache => Self::Cache,
            Verify::Direct => Self::Direct,
        }
    }
}

impl CpArgs {
    /// Returns the options of the copy.
    ///
    /// # Errors
    ///
    /// If two options contradict each other, or `--exclude` was given what is no pattern.
    pub(super) fn options(&self) -> Result<CopyOptions> {
        let recursive = self.recursive || self.archive;
        let follow = match (self.dereference, self.follow_named) {
            (true, _) => Follow::Always,
            (_, true) => Follow::Named,
            _ if recursive || self.no_dereference => Follow::Never,
            _ => Follow::Always,
        };
        let policy = self.movement.policy();
        if self.reflink != When::Auto && policy != Policy::Auto {
            return usage(
                "--reflink and --mechanism, --prefer or --no-zero-copy say the same thing",
            );
        }
        if self.reflink == When::Always && self.sparse != When::Auto {
            return usage(
                "a copy that shares blocks has the holes of its original: leave out one of --reflink and --sparse",
            );
        }
        if self.sparse == When::Never && shares_blocks(policy) {
            return usage(
                "a copy that shares blocks has the holes of its original: leave out --sparse never, or choose another --mechanism",
            );
        }
        let patterns = self.exclude.iter().map(|glob| ExcludePattern::new(glob));
        let exclude = patterns.collect::<std::result::Result<_, _>>();
        Ok(CopyOptions {
            recursive,
            follow,
            preserve: self.preserve || self.archive,
            hard_links: self.archive,
            update: self.update,
            no_clobber: self.no_clobber,
            interactive: self.interactive,
            force: self.force,
            one_file_system: self.one_file_system,
            exclude: exclude.map_err(|error| Failure::Usage(format!("--exclude {error}")))?,
            reflink: self.reflink.into(),
            sparse: self.sparse.into(),
            verify: self.verify.map(Into::into),
            sync: self.sync,
            in_place: self.in_place,
            resume: self.resume,
            jobs: self.jobs.map_or_else(default_jobs, usize::from),
            dry_run: self.dry_run,
            policy,
            integrity: self.movement.integrity(),
            step: self.movement.step(),
            ..CopyOptions::default()
        })
    }

    /// Returns which words are sources, and which is the target.
    ///
    /// # Errors
    ///
    /// If one of both is missing.
    pub(super) fn sources_and_target(&self) -> Result<(&[PathBuf], &Path)> {
        if let Some(folder) = &self.target_directory {
            return Ok((&self.words, folder));
        }
        match self.words.split_last() {
            Some((target, sources)) if !sources.is_empty() => {
                if self.no_target_directory && sources.len() > 1 {
                    return usage("-T takes one source and its new name");
                }
                Ok((sources, target))
            }
            _ => usage("name what to copy, and where to"),
        }
    }
}

/// Whether the only mechanism that is allowed is one that may share blocks.
fn shares_blocks(policy: Policy) -> bool {
    matches!(policy, Policy::Require(Mechanism::CopyFileRange | Mechanism::Reflink))
}

/// Whether a path is `-`, which is standard input or output.
pub(super) fn is_dash(path: &Path) -> bool {
    path == Path::new("-")
}

/// Fails because of what was typed.
pub(super) fn usage<T>(message: &str) -> Result<T> {
    Err(Failure::Usage(message.to_owned()))
}
