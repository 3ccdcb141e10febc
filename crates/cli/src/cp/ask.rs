//! Questions before something is replaced, for `--interactive`.

use std::io;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use crate::output::{self, plain_path};
use crate::signals::interruptible;

/// Asks whether a file may be replaced. Anything that does not begin with a y means no, and so does
/// the end of standard input.
///
/// # Errors
///
/// `EINTR` if the command was cancelled meanwhile, and as read(2).
pub(super) fn may_replace(path: &Path, cancel: &AtomicBool) -> io::Result<bool> {
    output::question(&format!("replace {}? [y/N] ", plain_path(path)));
    let answer = interruptible(cancel, || {
        let mut line = String::new();
        io::stdin().read_line(&mut line).map(|_| line)
    })?;
    Ok(answer.trim_start().starts_with(['y', 'Y']))
}
