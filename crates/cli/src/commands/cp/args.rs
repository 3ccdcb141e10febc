//! The arguments of `cp`, and the options of a copy that they mean.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, ValueEnum};

use underpass_copy::{CopyOptions, ExcludePattern, Follow, LinkKind, default_jobs};
use underpass_engine::{Mechanism, Policy};

use super::abbreviated::Abbreviated;
use super::backup::BackupArgs;
use super::context::ContextArgs;
use super::order::{OrderedOptions, Preserved, Update};
use super::usage::{CpError, OptionConflict};
use crate::args::{MoveArgs, When, pattern};
use crate::failure::Result;

/// The arguments of `cp`.
#[derive(Debug, Args)]
#[command(infer_long_args = true)] // as getopt_long(3) does
#[command(override_usage = "underpass cp [OPTIONS] <SOURCE>... <TARGET>\n       \
                            underpass cp [OPTIONS] -t <FOLDER> <SOURCE>...")]
pub(crate) struct CpArgs {
    // The first field, because it looks at options before the next ones take them.
    #[command(flatten)]
    pub(super) ordered: OrderedOptions,

    /// What to copy (- is standard input), then where to: a new name, a folder, or - for standard
    /// output
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

    /// Copy everything as it is: the same as -r -d -p
    #[arg(short, long)]
    pub(crate) archive: bool,

    /// Keep symbolic links, and hard links between the sources: -P --preserve=links
    #[arg(short = 'd')]
    no_dereference_links: bool,

    /// Also keep set-user-id and set-group-id bits, owner, group, extended attributes and ACLs;
    /// permissions and times are always kept
    #[arg(short = 'p')]
    keep: bool,

    /// Keep these properties; without a list those of -p
    #[arg(long, value_name = "LIST", num_args = 0..=1, require_equals = true)]
    #[arg(value_delimiter = ',', default_missing_value = "usual")]
    #[arg(value_parser = Abbreviated::<Preserved>::new())]
    preserve: Vec<Preserved>,

    /// Do not keep these properties, not even permissions and times
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    #[arg(value_parser = Abbreviated::<Preserved>::new())]
    no_preserve: Vec<Preserved>,

    #[command(flatten)]
    pub(super) context: ContextArgs,

    /// Copy mode, times and what -p and --preserve name, and no bytes
    #[arg(long, conflicts_with_all = ["resume", "verify"])]
    pub(crate) attributes_only: bool,

    /// Choose which existing files are replaced; without WHEN those that are older than their
    /// originals
    #[arg(short, long, value_name = "WHEN", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "older", value_parser = Abbreviated::<Update>::new())]
    update: Option<Update>,

    /// Leave existing files as they are
    #[arg(short, long, overrides_with = "interactive")]
    no_clobber: bool,

    /// Ask before replacing a file; the answer is read from standard input
    #[arg(short, long, overrides_with = "no_clobber")]
    interactive: bool,

    /// Replace files that are not writable; -n and -i still apply
    #[arg(short, long)]
    pub(crate) force: bool,

    /// Replace whatever has the name of a copy, even a link itself or a file that is not writable
    #[arg(long, conflicts_with = "in_place")]
    remove_destination: bool,

    #[command(flatten)]
    backup: BackupArgs,

    /// Make hard links instead of copies
    #[arg(short, long, conflicts_with_all = COPIES_ALONE, conflicts_with = "symbolic_link")]
    link: bool,

    /// Make symbolic links instead of copies
    #[arg(short, long, conflicts_with_all = COPIES_ALONE)]
    symbolic_link: bool,

    /// Follow all symbolic links
    #[arg(short = 'L', long, overrides_with_all = ["no_dereference", "follow_named"])]
    dereference: bool,

    /// Copy symbolic links as links [default with -r]
    #[arg(short = 'P', long, overrides_with_all = ["dereference", "follow_named"])]
    no_dereference: bool,

    /// Follow symbolic links that are sources, and copy others as links
    #[arg(short = 'H', long, overrides_with_all = ["dereference", "no_dereference"])]
    follow_named: bool,

    /// Remove slashes at the end of each source, which would follow a link
    #[arg(long)]
    pub(crate) strip_trailing_slashes: bool,

    /// Put each source into the target folder under its full path, and create the folders of that
    /// path
    #[arg(long, conflicts_with_all = ["no_target_directory", "resume"])]
    pub(crate) parents: bool,

    /// Remove from the copy of each folder what the folder itself does not have, once everything
    /// was copied without an error
    #[arg(long, conflicts_with = "parents")]
    delete: bool,

    /// Stay on the file system of each source; mount points become empty folders
    #[arg(short = 'x', long)]
    pub(crate) one_file_system: bool,

    /// Leave out entries whose name matches, or whose path if GLOB has a slash; can be repeated
    #[arg(long, value_name = "GLOB", value_parser = pattern())]
    pub(crate) exclude: Vec<ExcludePattern>,

    /// Share the blocks of the originals: auto (where possible), always (otherwise an error) or never
    #[arg(long, value_name = "WHEN", num_args = 0..=1, require_equals = true)]
    #[arg(default_value = "auto", default_missing_value = "always", hide_possible_values = true)]
    #[arg(value_parser = Abbreviated::<When>::new())]
    pub(crate) reflink: When,

    /// Create holes: auto (where the original has them), always (also where it has zeros) or never
    #[arg(long, value_name = "WHEN", default_value = "auto", hide_possible_values = true)]
    #[arg(value_parser = Abbreviated::<When>::new())]
    pub(crate) sparse: When,

    /// Read every copy again and compare it with its original: from the page cache, or directly
    /// from the disk
    #[arg(long, value_name = "HOW", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "cache")]
    pub(crate) verify: Option<VerifyFrom>,

    /// Wait until everything is on disk
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

    /// Print a line for each file, folder and link that is copied
    #[arg(short, long, overrides_with = "quiet", conflicts_with = "json")]
    pub(crate) verbose: bool,

    /// Print what would be copied, and copy nothing
    #[arg(long)]
    pub(crate) dry_run: bool,

    #[command(flatten)]
    pub(crate) movement: MoveArgs,
}

/// The place from which a copy is read when it is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum VerifyFrom {
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

impl From<VerifyFrom> for underpass_copy::Verify {
    fn from(verify: VerifyFrom) -> Self {
        match verify {
            VerifyFrom::Cache => Self::Cache,
            VerifyFrom::Direct => Self::Direct,
        }
    }
}

impl CpArgs {
    /// Returns the options of the copy.
    ///
    /// # Errors
    ///
    /// If two options contradict each other.
    pub(super) fn options(&self) -> Result<CopyOptions> {
        let recursive = self.recursive || self.archive;
        let backup = self.backup.backup()?;
        let link = match (self.link, self.symbolic_link) {
            (true, _) => Some(LinkKind::Hard),
            (_, true) => Some(LinkKind::Symbolic),
            _ => None,
        };
        let default = if recursive && !self.link { Follow::Never } else { Follow::Always };
        let policy = self.movement.engine.policy();
        if let Some(error) = self.contradiction(policy, backup.is_some()) {
            return Err(error.into());
        }
        let OrderedOptions { preserve, hard_links, follow, .. } = self.ordered;
        Ok(CopyOptions {
            recursive,
            follow: follow.unwrap_or(default),
            preserve,
            hard_links,
            existing: self.ordered.existing(),
            interactive: self.ordered.interactive,
            force: self.force,
            one_file_system: self.one_file_system,
            exclude: self.exclude.clone(),
            reflink: self.reflink.into(),
            sparse: self.sparse.into(),
            verify: self.verify.map(Into::into),
            sync: self.sync,
            in_place: self.in_place,
            resume: self.resume,
            jobs: self.jobs.map_or_else(default_jobs, usize::from),
            link,
            backup,
            remove_destination: self.remove_destination || (self.force && link.is_some()),
            delete: self.delete,
            parents: self.parents,
            attributes_only: self.attributes_only,
            dry_run: self.dry_run,
            policy,
            integrity: self.movement.integrity,
            step: self.movement.engine.step(),
            ..CopyOptions::default()
        })
    }

    /// Returns the first contradiction between these options.
    fn contradiction(&self, policy: Policy, has_backup: bool) -> Option<OptionConflict> {
        let OrderedOptions { no_clobber, refuse_existing, .. } = self.ordered;
        let shares =
            matches!(policy, Policy::Require(Mechanism::CopyFileRange | Mechanism::Reflink));
        let refused = [
            (self.delete && !self.recursive && !self.archive, OptionConflict::DeleteWithoutFolders),
            (self.delete && has_backup, OptionConflict::DeleteWithBackup),
            (has_backup && self.in_place, OptionConflict::BackupInPlace),
            (
                has_backup && (no_clobber || refuse_existing),
                OptionConflict::BackupWithoutReplacement,
            ),
            (self.reflink != When::Auto && policy != Policy::Auto, OptionConflict::ReflinkTwice),
            (
                self.reflink == When::Always && self.sparse != When::Auto,
                OptionConflict::HolesOfSharedBlocks { instead: "one of --reflink and --sparse" },
            ),
            (
                self.sparse == When::Never && shares,
                OptionConflict::HolesOfSharedBlocks {
                    instead: "--sparse never, or choose another --mechanism",
                },
            ),
        ];
        refused.into_iter().find_map(|(is_refused, error)| is_refused.then_some(error))
    }

    /// Returns which words are sources, and which is the target.
    ///
    /// # Errors
    ///
    /// If either is missing.
    pub(super) fn sources_and_target(&self) -> Result<(Cow<'_, [PathBuf]>, &Path)> {
        if let Some(folder) = &self.target_directory {
            return Ok((self.sources(&self.words), folder));
        }
        match self.words.split_last() {
            Some((target, sources)) if !sources.is_empty() => {
                if self.no_target_directory && sources.len() > 1 {
                    return Err(CpError::SeveralSources.into());
                }
                Ok((self.sources(sources), target))
            }
            _ => Err(CpError::Incomplete.into()),
        }
    }

    /// Returns the sources in the form in which they are copied.
    fn sources<'s>(&self, words: &'s [PathBuf]) -> Cow<'s, [PathBuf]> {
        if self.strip_trailing_slashes {
            words.iter().map(|word| stripped(word)).collect()
        } else {
            Cow::Borrowed(words)
        }
    }
}

/// Returns a path without slashes at its end, except the root.
fn stripped(path: &Path) -> PathBuf {
    let bytes = path.as_os_str().as_bytes();
    let end = bytes.iter().rposition(|byte| *byte != b'/').map_or(1, |last| last + 1);
    PathBuf::from(OsStr::from_bytes(&bytes[..end.min(bytes.len())]))
}

/// The options that are impossible for links.
const COPIES_ALONE: [&str; 4] = ["attributes_only", "in_place", "resume", "verify"];
