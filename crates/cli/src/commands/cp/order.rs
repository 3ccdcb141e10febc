//! Options whose order on the command line matters, as in `-a --no-preserve=mode`.

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches, ValueEnum};

use underpass_copy::{
    ExistingFiles, Follow, Preserve, PreserveMode, PreserveTimes, PreserveXattrs,
};

/// The meaning of the options whose order matters: each changes that of those before it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OrderedOptions {
    /// The attributes of originals that are kept.
    pub(super) preserve: Preserve,
    /// Whether names of one file become names of one copy.
    pub(super) hard_links: bool,
    /// Which links are followed, if given.
    pub(super) follow: Option<Follow>,
    /// Whether the user is asked before a file is replaced.
    pub(super) interactive: bool,
    /// Whether nothing is replaced.
    pub(super) no_clobber: bool,
    /// Whether a file that is not replaced is an error.
    pub(super) refuse_existing: bool,
    /// Whether only older files are replaced.
    pub(super) update: bool,
}

/// The attributes of an original that can be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Preserved {
    /// Mode and ACLs
    Mode,
    /// Owner and group
    Ownership,
    /// Times
    Timestamps,
    /// Hard links between the sources
    Links,
    /// The SELinux context
    Context,
    /// Extended attributes
    Xattr,
    /// All of these
    All,
    /// The attributes that -p keeps.
    #[value(hide = true)]
    Usual,
}

/// Which existing files are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Update {
    /// All of them
    All,
    /// None of them
    None,
    /// None of them, and each is an error
    NoneFail,
    /// Those that are older than their originals
    Older,
}

/// One of the options.
#[derive(Clone, Copy)]
enum OrderedOption {
    Archive,
    Links,
    Preserve,
    Keep(Preserved, bool),
    Follow(Follow),
    Interactive,
    NoClobber,
    Update(Update),
}

impl OrderedOptions {
    /// Returns which files in the target are replaced.
    pub(super) fn existing(&self) -> ExistingFiles {
        match (self.no_clobber, self.refuse_existing, self.update) {
            (true, _, _) => ExistingFiles::Keep,
            (_, true, _) => ExistingFiles::Refuse,
            (_, _, true) => ExistingFiles::ReplaceOlder,
            _ => ExistingFiles::Replace,
        }
    }

    fn apply(&mut self, word: OrderedOption) {
        match word {
            OrderedOption::Archive => {
                (self.follow, self.hard_links) = (Some(Follow::Never), true);
                self.preserve = self.everything();
            }
            OrderedOption::Links => (self.follow, self.hard_links) = (Some(Follow::Never), true),
            OrderedOption::Preserve | OrderedOption::Keep(Preserved::Usual, _) => {
                self.preserve = self.everything();
            }
            OrderedOption::Keep(kept, is_kept) => self.keep(kept, is_kept),
            OrderedOption::Follow(follow) => self.follow = Some(follow),
            OrderedOption::Interactive => {
                (self.interactive, self.no_clobber, self.refuse_existing) = (true, false, false);
            }
            OrderedOption::NoClobber => {
                (self.interactive, self.no_clobber, self.refuse_existing) = (false, true, false);
            }
            OrderedOption::Update(update) => {
                self.update = update == Update::Older;
                self.refuse_existing = update == Update::NoneFail;
                self.no_clobber = update == Update::None;
                self.interactive &= matches!(update, Update::All | Update::Older);
            }
        }
    }

    /// Returns everything that can be kept. Extended attributes stay required if they are.
    fn everything(&self) -> Preserve {
        match self.preserve.xattrs {
            PreserveXattrs::Required => {
                Preserve { xattrs: PreserveXattrs::Required, ..Preserve::ALL }
            }
            _ => Preserve::ALL,
        }
    }

    fn keep(&mut self, kept: Preserved, is_kept: bool) {
        let mode = if is_kept { PreserveMode::All } else { PreserveMode::Nothing };
        let timestamps = if is_kept { PreserveTimes::All } else { PreserveTimes::Nothing };
        let xattrs = if is_kept { self.everything().xattrs } else { PreserveXattrs::Nothing };
        match kept {
            Preserved::Mode => self.preserve.mode = mode,
            Preserved::Ownership => self.preserve.ownership = is_kept,
            Preserved::Timestamps => self.preserve.timestamps = timestamps,
            Preserved::Links => self.hard_links = is_kept,
            Preserved::Context => self.preserve.context = is_kept,
            // An attribute that the file system refuses is an error only if xattr was named.
            Preserved::Xattr if is_kept => self.preserve.xattrs = PreserveXattrs::Required,
            Preserved::Xattr => self.preserve.xattrs = PreserveXattrs::Nothing,
            Preserved::All | Preserved::Usual => {
                self.hard_links = is_kept;
                self.preserve =
                    Preserve { mode, ownership: is_kept, timestamps, xattrs, context: is_kept };
            }
        }
    }
}

impl FromArgMatches for OrderedOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let flags = [
            ("archive", OrderedOption::Archive),
            ("no_dereference_links", OrderedOption::Links),
            ("keep", OrderedOption::Preserve),
            ("dereference", OrderedOption::Follow(Follow::Always)),
            ("no_dereference", OrderedOption::Follow(Follow::Never)),
            ("follow_named", OrderedOption::Follow(Follow::Named)),
            ("interactive", OrderedOption::Interactive),
            ("no_clobber", OrderedOption::NoClobber),
        ];
        let is_given = |id| matches.value_source(id) == Some(ValueSource::CommandLine);
        let mut words: Vec<(usize, OrderedOption)> = flags
            .into_iter()
            .filter(|(id, _)| is_given(id))
            .flat_map(|(id, word)| matches.index_of(id).map(|index| (index, word)))
            .collect();
        for (id, is_kept) in [("preserve", true), ("no_preserve", false)] {
            let values = matches.get_many::<Preserved>(id).into_iter().flatten();
            let indices = matches.indices_of(id).into_iter().flatten();
            let kept = indices
                .zip(values)
                .map(|(index, kept)| (index, OrderedOption::Keep(*kept, is_kept)));
            words.extend(kept);
        }
        if let (Some(index), Some(update)) =
            (matches.index_of("update"), matches.get_one::<Update>("update"))
        {
            words.push((index, OrderedOption::Update(*update)));
        }
        words.sort_by_key(|(index, _)| *index);
        // As with coreutils, only -i takes back -n.
        let is_last =
            |id, other| matches.index_of(id) > matches.index_of(other) || !is_given(other);
        let is_sticky = is_given("no_clobber") && is_last("no_clobber", "interactive");
        let mut ordered = Self::default();
        words.into_iter().for_each(|(_, word)| ordered.apply(word));
        if is_sticky {
            ordered.apply(OrderedOption::NoClobber);
        }
        Ok(ordered)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// It declares no option: it reads those of the command.
impl Args for OrderedOptions {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}
