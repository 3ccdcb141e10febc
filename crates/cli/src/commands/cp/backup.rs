//! The backups that options and environment request.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use clap::{Args, ValueEnum};
use underpass_copy::{Backup, BackupControl};

use super::abbreviated::{Abbreviated, find};
use super::usage::CpError;
use crate::failure::Result;

/// The options about backups.
#[derive(Debug, Args)]
pub(crate) struct BackupArgs {
    /// Keep what is replaced under another name
    #[arg(short = 'b')]
    simply: bool,

    /// Like -b, with names chosen by CONTROL, or by VERSION_CONTROL in the environment [default:
    /// existing]
    #[arg(long, value_name = "CONTROL", num_args = 0..=1, require_equals = true)]
    #[arg(value_parser = Abbreviated::<BackupNames>::new())]
    backup: Option<Option<BackupNames>>,

    /// Like -b, with this suffix for simple backups [default: SIMPLE_BACKUP_SUFFIX, or ~]
    #[arg(short = 'S', long, value_name = "SUFFIX")]
    suffix: Option<OsString>,
}

/// The names of backups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum BackupNames {
    /// No backups
    #[value(alias = "off")]
    None,
    /// NAME.~N~
    #[value(alias = "t")]
    Numbered,
    /// Numbered if there are numbered ones, simple otherwise
    #[value(aliases = ["nil", ""])]
    Existing,
    /// NAME with the suffix
    #[value(alias = "never")]
    Simple,
}

impl BackupArgs {
    /// Returns which backups are made.
    ///
    /// # Errors
    ///
    /// If VERSION_CONTROL would have to be known, and has an unknown value.
    pub(super) fn backup(&self) -> Result<Option<Backup>> {
        if !self.simply && self.backup.is_none() && self.suffix.is_none() {
            return Ok(None);
        }
        let control = match self.backup.flatten() {
            Some(control) => control,
            None => of_environment()?,
        };
        let control = match control {
            BackupNames::None => return Ok(None),
            BackupNames::Numbered => BackupControl::Numbered,
            BackupNames::Existing => BackupControl::Existing,
            BackupNames::Simple => BackupControl::Simple,
        };
        let suffix = self.suffix.clone().or_else(|| std::env::var_os("SIMPLE_BACKUP_SUFFIX"));
        // As with coreutils, one that would lead to another path is ignored.
        let suffix = suffix.filter(|suffix| is_suffix(suffix)).unwrap_or_else(|| "~".into());
        Ok(Some(Backup { control, suffix }))
    }
}

fn is_suffix(suffix: &OsStr) -> bool {
    !suffix.is_empty() && !suffix.as_bytes().contains(&b'/')
}

/// Returns the control that VERSION_CONTROL names.
fn of_environment() -> Result<BackupNames> {
    let Some(value) = std::env::var_os("VERSION_CONTROL").filter(|value| !value.is_empty()) else {
        return Ok(BackupNames::Existing);
    };
    let known = value.to_str().and_then(find::<BackupNames>);
    let known = known.and_then(|known| BackupNames::from_str(known.get_name(), false).ok());
    Ok(known.ok_or(CpError::Control(value))?)
}
