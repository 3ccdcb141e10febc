//! Applies the confinement in its order, and reports what is in effect.

use std::fmt;
use std::path::PathBuf;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use crate::failure::Result;

use super::access;
use super::landlock::{Bounds, Landlock};
use super::privileges::{self, Privileges};
use super::seccomp::{self, Seccomp};
use super::user::User;

/// The confinement to apply.
#[derive(Debug)]
pub(crate) struct Confine<'a> {
    /// What the process needs from the file system.
    pub(crate) bounds: &'a Bounds,
    /// The user to become.
    pub(crate) user: Option<&'a User>,
    /// Whether more than the user is changed.
    pub(crate) sandbox: bool,
    /// Files that are read again on SIGHUP.
    pub(crate) reopened: &'a [PathBuf],
    /// Whether the memory of the process holds keys or passwords.
    pub(crate) has_secrets: bool,
}

/// The confinement in effect.
#[derive(Debug)]
pub(crate) struct Confinement {
    privileges: Privileges,
    /// Landlock and seccomp, unless they are disabled.
    sandbox: Option<(Landlock, Seccomp)>,
    warnings: Vec<String>,
}

impl Confine<'_> {
    /// Applies the confinement to this thread and those that it starts from now on.
    ///
    /// # Errors
    ///
    /// If the process cannot become the user, or the user cannot read the served files. A feature
    /// that this kernel lacks is no error: the returned value says what is in effect.
    pub(crate) fn apply(&self) -> Result<Confinement> {
        if self.sandbox {
            privileges::limit_bounding_set(self.user);
        }
        if let Some(user) = self.user {
            user.become_user(self.sandbox)?;
        }
        let privileges = match self.sandbox {
            true => privileges::drop_capabilities(self.user),
            false => Privileges::current(self.user),
        };
        access::check_readable(&self.bounds.root)?;
        let warnings = self.warnings(&privileges);
        if !self.sandbox {
            return Ok(Confinement { privileges, sandbox: None, warnings });
        }
        if self.has_secrets {
            // Neither a core file nor another process of this user may show them. A failure
            // leaves the process as it was.
            let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
        }
        let landlock = self.bounds.confine();
        Ok(Confinement {
            privileges,
            sandbox: Some((landlock, seccomp::restrict(self.bounds.caches))),
            warnings,
        })
    }

    /// Returns what the serving user lacks, or has too much of.
    fn warnings(&self, privileges: &Privileges) -> Vec<String> {
        let bounds = self.bounds;
        let mut warnings: Vec<String> = privileges.warning().into_iter().collect();
        if (bounds.uploads || bounds.deletes) && !access::is_writable(&bounds.root) {
            let root = bounds.root.display();
            warnings.push(format!(
                "{root} is not writable for this user: uploads and deletions directly in it fail"
            ));
        }
        if self.user.is_some() {
            for file in self.reopened.iter().filter(|file| !access::is_readable(file)) {
                let file = file.display();
                warnings.push(format!(
                    "{file} is not readable for this user: SIGHUP cannot read it again"
                ));
            }
            for folder in bounds.log.iter().filter(|folder| !access::is_writable(folder)) {
                let folder = folder.display();
                warnings.push(format!("{folder} is not writable for this user: SIGHUP cannot create the log file again"));
            }
        }
        warnings
    }
}

impl Confinement {
    /// Returns what the operator should change, one sentence each.
    pub(crate) fn warnings(&self) -> &[String] {
        &self.warnings
    }
}

impl fmt::Display for Confinement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.sandbox {
            None => f.write_str("not confined: --no-sandbox")?,
            Some((landlock, seccomp)) => write!(f, "{landlock}; {seccomp}")?,
        }
        write!(f, "; {}", self.privileges)
    }
}
