//! The options about the SELinux context of copies.

use std::ffi::OsString;
use std::path::Path;

use clap::Args;

use super::usage::CpError;
use crate::failure::Result;
use crate::output;

/// The options about the context of copies.
#[derive(Debug, Args)]
pub(crate) struct ContextArgs {
    /// Give copies the default SELinux context; ignored without SELinux
    #[arg(short = 'Z')]
    by_default: bool,

    /// Give copies the default SELinux context, or CONTEXT
    #[arg(long, value_name = "CONTEXT", num_args = 0..=1, require_equals = true)]
    context: Option<Option<OsString>>,
}

impl ContextArgs {
    /// Does what coreutils does if the kernel has no SELinux: nothing, with a warning if a context
    /// was named.
    ///
    /// # Errors
    ///
    /// If the kernel has SELinux: only its own tools know the default contexts.
    pub(super) fn check(&self) -> Result<()> {
        if !self.by_default && self.context.is_none() {
            return Ok(());
        }
        if Path::new("/sys/fs/selinux/enforce").exists() {
            return Err(CpError::Context.into());
        }
        if matches!(self.context, Some(Some(_))) {
            output::note("--context is ignored: the kernel has no SELinux");
        }
        Ok(())
    }
}
