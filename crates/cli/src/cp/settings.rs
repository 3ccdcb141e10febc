//! What the arguments mean, made into values that are ready to be used.

use rustix::fs::Mode;
use rustix::process::{getegid, geteuid, umask};
use underpass_engine::{Integrity, Mechanism, Options, Policy};

use crate::args::MoveArgs;
use crate::commands::cp::{CpArgs, Verify, When};
use crate::failure::{Failure, Result};

use super::glob::Pattern;

/// Which links are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Follow {
    /// None.
    Never,
    /// Those that were named on the command line.
    Named,
    /// All.
    Always,
}

/// How everything is to be copied.
#[derive(Debug)]
pub(super) struct Settings<'a> {
    pub(super) recursive: bool,
    pub(super) follow: Follow,
    /// Whether owners, attributes and all bits of the mode are kept.
    pub(super) preserve: bool,
    /// Whether names of one file stay names of one file.
    pub(super) links: bool,
    pub(super) update: bool,
    pub(super) no_clobber: bool,
    pub(super) interactive: bool,
    pub(super) force: bool,
    pub(super) one_file_system: bool,
    pub(super) exclude: Vec<Pattern>,
    pub(super) reflink: When,
    pub(super) sparse: When,
    pub(super) verify: Option<Verify>,
    pub(super) sync: bool,
    pub(super) in_place: bool,
    pub(super) resume: bool,
    pub(super) jobs: usize,
    pub(super) dry_run: bool,
    pub(super) movement: &'a MoveArgs,
    /// The umask, for what is no copy of a file.
    pub(super) mask: u32,
    /// To whom new files belong.
    pub(super) owner: (u32, u32),
}

impl<'a> Settings<'a> {
    /// Reads the arguments.
    pub(super) fn new(args: &'a CpArgs) -> Result<Self> {
        let recursive = args.recursive || args.archive;
        let follow = match (args.dereference, args.follow_named) {
            (true, _) => Follow::Always,
            (_, true) => Follow::Named,
            _ if recursive || args.no_dereference => Follow::Never,
            _ => Follow::Always,
        };
        let policy = args.movement.policy();
        if args.reflink != When::Auto && policy != Policy::Auto {
            let message =
                "--reflink and --mechanism, --prefer or --no-zero-copy say the same thing";
            return Err(Failure::Usage(message.to_owned()));
        }
        if args.reflink == When::Always && args.sparse != When::Auto {
            let message = "a copy that shares blocks has the holes of its original: leave out one of --reflink and --sparse";
            return Err(Failure::Usage(message.to_owned()));
        }
        Ok(Self {
            recursive,
            follow,
            preserve: args.preserve || args.archive,
            links: args.archive,
            update: args.update,
            no_clobber: args.no_clobber,
            interactive: args.interactive,
            force: args.force,
            one_file_system: args.one_file_system,
            exclude: args.exclude.iter().map(|glob| Pattern::new(glob)).collect::<Result<_>>()?,
            reflink: args.reflink,
            sparse: args.sparse,
            verify: args.verify,
            sync: args.sync,
            in_place: args.in_place,
            resume: args.resume,
            jobs: args.jobs.map_or_else(default_jobs, usize::from),
            dry_run: args.dry_run,
            movement: &args.movement,
            mask: mask(),
            owner: (geteuid().as_raw(), getegid().as_raw()),
        })
    }

    /// Options of the engine for one file.
    pub(super) fn options<'o>(&self) -> Options<'o> {
        let options = self.movement.options();
        match (self.reflink, self.sparse) {
            (When::Always, _) => options.policy(Policy::Require(Mechanism::Reflink)),
            // A clone would have the holes that are not wanted.
            (When::Never, _) | (_, When::Never) => options.unshared(),
            _ => options,
        }
    }

    /// Whether files may be copied through a buffer if that costs least.
    pub(super) fn is_free(&self) -> bool {
        let policy = self.movement.policy();
        self.reflink != When::Always
            && self.movement.integrity() <= Integrity::Detect
            && matches!(policy, Policy::Auto | Policy::Require(Mechanism::ReadWrite))
    }

    /// Whether owners can be kept: root is told where they are not.
    pub(super) fn may_give_files_away(&self) -> bool {
        self.owner.0 == 0
    }

    /// The permissions of a copy.
    pub(super) fn mode(&self, mode: u32) -> u32 {
        // Its owner is the one who copies, unless owners are kept: so are the bits that lend rights.
        mode & if self.preserve { 0o7777 } else { 0o1777 }
    }
}

/// The umask, which can only be asked for by setting it.
fn mask() -> u32 {
    let mask = umask(Mode::from_raw_mode(0o077));
    umask(mask);
    mask.as_raw_mode()
}

/// Measured with small files in the page cache, on 2 processors: 4 threads copy as fast as 2, and
/// keep a disk busier that has to be waited for.
fn default_jobs() -> usize {
    std::thread::available_parallelism().map_or(2, |cores| (2 * cores.get()).min(8))
}
