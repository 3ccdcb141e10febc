//! Applies the restrictions in order, and reports which are in effect.

use std::fmt;
use std::path::PathBuf;

use rustix::io::Errno;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use crate::access;
use crate::error::SandboxError;
use crate::landlock::{AllowedAccess, Landlock};
use crate::privileges::{self, Privileges};
use crate::seccomp::{self, Seccomp};
use crate::user::User;

/// The restrictions to apply.
#[derive(Clone, Debug)]
pub struct Sandbox<'a> {
    /// The access to files and ports that the process keeps.
    pub access: &'a AllowedAccess,
    /// The user to switch to.
    pub user: Option<&'a User>,
    /// Whether capabilities, files and system calls are restricted, not only the user changed.
    pub is_enabled: bool,
    /// Files that are reloaded on SIGHUP.
    pub reopened: &'a [PathBuf],
    /// Whether the memory of the process holds keys or passwords, now or later.
    pub has_secrets: bool,
}

/// The confinement in effect.
#[derive(Debug)]
pub struct Confinement {
    privileges: Privileges,
    /// Landlock and seccomp, unless they are disabled.
    sandbox: Option<(Landlock, Seccomp)>,
    warnings: Vec<String>,
}

impl<'a> Sandbox<'a> {
    /// Creates the restrictions of a process that keeps its user, has no secrets and reopens no
    /// file.
    #[must_use]
    pub fn new(access: &'a AllowedAccess) -> Self {
        Self { access, user: None, is_enabled: true, reopened: &[], has_secrets: false }
    }

    /// Applies the restrictions to this thread and those that it starts from now on.
    ///
    /// # Errors
    ///
    /// If the process cannot switch to the user, or the user cannot read the served files. A
    /// feature that this kernel lacks is not an error: the returned value tells what is in effect.
    pub fn apply(&self) -> Result<Confinement, SandboxError> {
        if self.is_enabled {
            privileges::limit_bounding_set(self.user);
        }
        if let Some(user) = self.user {
            user.become_user(self.is_enabled)?;
        }
        let privileges = if self.is_enabled {
            privileges::drop_capabilities(self.user)
        } else {
            Privileges::current(self.user)
        };
        for root in &self.access.roots {
            access::check_readable(&root.path)?;
        }
        let warnings = self.warnings(&privileges);
        if !self.is_enabled {
            return Ok(Confinement { privileges, sandbox: None, warnings });
        }
        if self.has_secrets {
            // Neither a core file nor another process of this user may reveal the secrets. A
            // failure leaves the process as it was.
            let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
        }
        let landlock = self.access.confine();
        let sandbox = Some((landlock, seccomp::restrict(self.access)));
        Ok(Confinement { privileges, sandbox, warnings })
    }

    /// Returns warnings about access that the serving user lacks, or has too much of.
    fn warnings(&self, privileges: &Privileges) -> Vec<String> {
        let allowed = self.access;
        let mut warnings: Vec<String> = privileges.warning().into_iter().collect();
        for root in allowed.roots.iter().filter(|root| root.uploads || root.deletes) {
            let path = root.path.display();
            if root.path.is_file() {
                warnings.push(format!(
                    "{path} is a single file, which is never changed: uploads and deletions need a folder"
                ));
                continue;
            }
            let Err(errno) = access::check_writable(&root.path) else { continue };
            let why = match errno {
                Errno::ROFS => {
                    "is read-only for this process (ReadWritePaths= of a unit changes that)"
                }
                _ => "is not writable for this user",
            };
            warnings.push(format!("{path} {why}: uploads and deletions directly in it fail"));
        }
        if self.user.is_some() {
            for file in self.reopened.iter().filter(|file| !access::is_readable(file)) {
                let file = file.display();
                warnings.push(format!(
                    "{file} is not readable for this user: SIGHUP cannot read it again"
                ));
            }
            for folder in
                allowed.log.iter().filter(|folder| access::check_writable(folder).is_err())
            {
                let folder = folder.display();
                warnings.push(format!("{folder} is not writable for this user: SIGHUP cannot create the log file again"));
            }
        }
        warnings
    }
}

impl Confinement {
    /// Returns whether access to files is restricted.
    #[must_use]
    pub fn restricts_files(&self) -> bool {
        matches!(self.sandbox, Some((Landlock::Confined { .. }, _)))
    }

    /// Returns what the operator should change, one sentence each.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
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
