//! nginx as a peer of several tests, each with separate directives.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Writes a configuration with these directives in `http`, and returns its path; nginx has all its
/// files in `state` and runs in the foreground.
pub fn config(state: &Path, http: &str) -> PathBuf {
    let at = state.display();
    // Otherwise its workers run as another user, who may not reach the files of the test.
    let user = if underpass_testkit::is_root() { "user root;" } else { "" };
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|kind| format!("{kind}_temp_path {at}/{kind}; "))
        .collect();
    let text = format!(
        "daemon off; {user} pid {at}/pid; error_log {at}/errors; events {{}}\n\
         http {{ access_log off; {temporary}\n{http} }}\n"
    );
    let path = state.join("nginx.conf");
    fs::write(&path, text).unwrap();
    path
}

/// nginx with such a configuration.
pub fn command(program: impl AsRef<OsStr>, config: &Path) -> Command {
    let mut command = super::piped(program);
    command.arg("-c").arg(config).arg("-e").arg(config.with_file_name("errors"));
    command
}
