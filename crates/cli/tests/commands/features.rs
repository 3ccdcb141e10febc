//! Builds without a feature: missing commands and options, and the messages about them.
//!
//! `UNDERPASS_FULL=1 scripts/features` runs these tests with a program that has no features, which
//! `UNDERPASS_WITHOUT_FEATURES` names: the libraries of the tests need not be compiled for it.

use std::env;
use std::process::{Command, Stdio};

use crate::rig::{Finished, Running};

/// Runs the program to its end.
fn run<'a>(words: impl IntoIterator<Item = &'a str>) -> Finished {
    let mut command =
        env::var_os("UNDERPASS_WITHOUT_FEATURES").map_or_else(crate::rig::underpass, Command::new);
    command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Running::start(command).finish()
}

/// Whether the program has a feature that this test was compiled with.
fn has(feature: bool) -> bool {
    feature && env::var_os("UNDERPASS_WITHOUT_FEATURES").is_none()
}

/// Checks that a command is in the help if its feature was built, and is unknown otherwise.
fn is_there(command: &str, is_built: bool) {
    let help = run(["--help"]).succeeded().text();
    let line = format!("\n  {command} ");
    assert_eq!(help.contains(&line), is_built, "{help}");
    if is_built {
        run([command, "--help"]).succeeded();
    } else {
        run([command]).failed(2, &["unrecognized subcommand", command]);
    }
}

#[test]
fn a_command_that_was_left_out_is_unknown() {
    is_there("bench", has(cfg!(feature = "bench")));
    is_there("explain", has(cfg!(feature = "explain")));
    is_there("doctor", true);
}

#[test]
fn a_scheme_that_is_not_supported_is_wrong_usage() {
    run(["get", "ftp://localhost/file"]).failed(2, &["the scheme ftp is not supported"]);
    run(["get", "--no-proxi", "http://localhost/"]).failed(2, &["found; tip: a similar argument"]);
}
