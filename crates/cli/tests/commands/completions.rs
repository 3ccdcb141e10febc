//! The completions, as the shells themselves give them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::rig::{folder, has, run};
use underpass_testkit::skip;

/// Returns what bash offers for these words. The last one is to be completed.
fn bash(here: &Path, words: &[&str]) -> BTreeSet<String> {
    let script = r#"
        compopt() { :; }
        source ./bash
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
        word=${COMP_WORDS[COMP_CWORD]}
        test "$word" != = || word=
        _underpass underpass "$word" "${COMP_WORDS[COMP_CWORD-1]}"
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let mut command = Command::new("bash");
    command.args(["--norc", "-c", script, "bash"]).args(words);
    lines(command, here)
}

/// Returns what fish offers for a line.
fn fish(here: &Path, line: &str) -> BTreeSet<String> {
    let mut command = Command::new("fish");
    command.args(["--no-config", "-c", "source ./fish; complete -C $argv[1]", line]);
    command.env("HOME", here);
    let offers = lines(command, here).into_iter();
    offers.map(|line| line.split('\t').next().unwrap_or_default().to_owned()).collect()
}

fn lines(mut command: Command, here: &Path) -> BTreeSet<String> {
    let output = command.current_dir(here).output().unwrap();
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// Writes the completions of each shell into a folder with a file.
fn shells() -> tempfile::TempDir {
    let here = folder();
    for shell in ["bash", "zsh", "fish"] {
        let text = run(["--completions", shell]).succeeded().text();
        fs::write(here.path().join(shell), text).unwrap();
    }
    fs::write(here.path().join("some-file"), "").unwrap();
    here
}

fn set(words: &[&str]) -> BTreeSet<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// The options of a command, from its help.
fn options(command: &str) -> BTreeSet<String> {
    let help = run([command, "--help"]).succeeded().text();
    let lines = help.lines().filter(|line| line.trim_start().starts_with('-'));
    // Two spaces separate an option from its description.
    let typed = lines.filter_map(|line| line.trim_start().split("  ").next());
    let words = typed.flat_map(|line| line.split([' ', ',', '[', '=']));
    words.filter(|word| word.starts_with("--")).map(str::to_owned).collect()
}

const COMMANDS: [&str; 10] =
    ["serve", "share", "get", "put", "send", "recv", "cp", "fill", "doctor", "explain"];

#[test]
fn bash_offers_every_option_and_its_values() {
    let here = shells();
    let bash = |words: &[&str]| bash(here.path(), &[&["underpass"], words].concat());
    for command in COMMANDS {
        let offered = bash(&[command, "--"]);
        let missing: Vec<_> = options(command).difference(&offered).cloned().collect();
        assert!(missing.is_empty(), "{command}: {missing:?}");
    }
    for typed in [&["--timeout"][..], &["-j"], &["--rate"], &["-u"], &["--digest"], &["--proxy"]] {
        assert_eq!(bash(&[&["get"], typed, &[""]].concat()), set(&[]), "{typed:?}");
    }
    for typed in [&["get", "--cacert"][..], &["get", "--check"], &["serve", "--tls-cert"]] {
        assert!(bash(&[typed, &["some"]].concat()).contains("some-file"), "{typed:?}");
    }
    assert_eq!(bash(&["cp", "--mechanism", "=", "se"]), set(&["sendfile"]));
    assert_eq!(bash(&["cp", "--verify", "=", "c"]), set(&["cache"]));
    assert_eq!(bash(&["cp", "--reflink", "="]), set(&["auto", "always", "never"]));
    // `--reflink auto` would copy a file of that name.
    for typed in ["--reflink", "--verify", "-u"] {
        let offered = bash(&["cp", typed, ""]);
        assert!(!offered.contains("auto") && !offered.contains("all"), "{typed}: {offered:?}");
    }
}

#[test]
fn fish_offers_every_option_and_its_values() {
    if !has("fish") {
        return skip("there is no fish");
    }
    let here = shells();
    let fish = |line: &str| fish(here.path(), &format!("underpass {line}"));
    for command in COMMANDS {
        let offered = fish(&format!("{command} --"));
        let offered =
            offered.iter().map(|option| option.trim_end_matches('=').to_owned()).collect();
        let missing: Vec<_> = options(command).difference(&offered).cloned().collect();
        assert!(missing.is_empty(), "{command}: {missing:?}");
    }
    for line in ["get --timeout ", "get -j ", "serve --port ", "get --digest ", "serve --user "] {
        assert_eq!(fish(line), set(&[]), "{line}");
    }
    for line in ["get --cacert ", "get --check ", "serve --tls-cert ", "doctor --to ", "cp "] {
        assert!(fish(line).contains("some-file"), "{line}");
    }
    assert_eq!(fish("cp --mechanism se"), set(&["sendfile"]));
    assert_eq!(fish("cp --verify=c"), set(&["--verify=cache"]));
    assert!(!fish("cp --reflink ").contains("auto"));
}

#[test]
fn zsh_offers_the_values_of_an_option() {
    if !has("zsh") {
        return skip("there is no zsh");
    }
    let here = shells();
    let parsed = Command::new("zsh").args(["-n", "zsh"]).current_dir(here.path()).status().unwrap();
    assert!(parsed.success());
    let text = fs::read_to_string(here.path().join("zsh")).unwrap();
    // An option, and its values: none known, files, a list, a list only after `=`.
    for (option, takes) in [
        ("--timeout=[", ":TIME:'"),
        ("--digest=[", ":ALG:VALUE:'"),
        ("--cacert=[", ":FILE:_files'"),
        ("--check=[", ":SUMS:_files'"),
        ("--mechanism=[", ":NAME:(reflink copy_file_range"),
        ("--reflink=-[", "::WHEN:((auto"),
        ("--verify=-[", "::HOW:((cache"),
    ] {
        let line = text.lines().find(|line| line.contains(option));
        let line = line.unwrap_or_else(|| panic!("{option} is missing"));
        assert!(line.contains(takes), "{line}");
    }
    assert!(!text.contains("_default'"), "files are offered for a value that is none");
}
