//! What the program lacks when it is built without one of its features, and says about it.

#![allow(clippy::unwrap_used)]

mod rig;

use rig::run;

/// Checks that a command is in the help exactly if its feature was built, and is unknown otherwise.
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
    is_there("bench", cfg!(feature = "bench"));
    is_there("explain", cfg!(feature = "explain"));
    is_there("doctor", true);
}

#[test]
fn a_scheme_that_is_not_supported_is_wrong_usage() {
    run(["get", "ftp://localhost/file"]).failed(2, &["the scheme ftp is not supported"]);
    run(["get", "--no-proxi", "http://localhost/"]).failed(2, &["found; tip: a similar argument"]);
}

#[test]
fn options_of_tls_are_there_if_it_was_built() {
    for (command, options) in [
        ("serve", ["--tls ", "--tls-cert", "--redirect-http", "--origin-cacert"].as_slice()),
        ("send", &["--tls", "--pin"]),
        ("recv", &["--tls", "--pin"]),
        ("get", &["--cacert", "--insecure", "--pin"]),
        ("put", &["--cacert", "--insecure", "--pin"]),
    ] {
        let help = run([command, "--help"]).succeeded().text();
        for option in options {
            assert_eq!(help.contains(option), cfg!(feature = "tls"), "{command} {option}: {help}");
        }
    }
    let manual = run(["--print-manpage"]).succeeded().text();
    assert_eq!(manual.contains("https://host/"), cfg!(feature = "tls"), "{manual}");
}

#[test]
#[cfg(not(feature = "tls"))]
fn https_is_refused_with_the_reason() {
    let folder = rig::folder();
    let (file, cache) = (folder.path().join("file"), folder.path().join("cache"));
    std::fs::write(&file, "bytes").unwrap();
    let (file, cache) = (file.to_str().unwrap(), cache.to_str().unwrap());
    for words in [
        ["get", "https://localhost:1/file"].as_slice(),
        &["put", file, "https://localhost:1/"],
        &["serve", "--origin", "https://localhost:1/", "--cache", cache],
    ] {
        let finished = run(words).failed(2, &["was built without TLS"]);
        assert_eq!(finished.stderr.lines().count(), 1, "{}", finished.stderr);
    }
    run(["serve", "--tls", "self"]).failed(2, &["--tls"]);
}
