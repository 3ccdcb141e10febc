//! The manual pages: one for each command, with examples that the program accepts.

use std::collections::BTreeMap;
use std::fs;

use crate::rig::{Running, folder, run, underpass};

/// Writes the pages and returns each by its name: `underpass-get`.
fn pages() -> BTreeMap<String, String> {
    let folder = folder();
    let pages = folder.path().join("share/man1");
    run(["--write-manpages", pages.to_str().unwrap()]).succeeded();
    let entries = fs::read_dir(pages).unwrap().map(|entry| entry.unwrap().path());
    let named = |page: std::path::PathBuf| {
        assert_eq!(page.extension().unwrap(), "1", "{page:?}");
        let name = page.file_stem().unwrap().to_str().unwrap().to_owned();
        (name, fs::read_to_string(page).unwrap())
    };
    entries.map(named).collect()
}

/// Returns the command lines below EXAMPLES.
fn examples(page: &str) -> Vec<String> {
    let lines = page.split("\n.nf\n").skip(1).map(|rest| rest.lines().next().unwrap());
    let plain = |line: &str| line.replace("\\fB", "").replace("\\fR", "").replace("\\-", "-");
    lines.map(plain).collect()
}

#[test]
fn each_command_has_a_page_with_examples_that_it_accepts() {
    let pages = pages();
    let commands = [
        "serve", "share", "get", "put", "send", "recv", "cp", "fill", "bench", "doctor", "explain",
    ];
    let names = commands.map(|name| format!("underpass-{name}"));
    for name in names.iter().map(String::as_str).chain(["underpass"]) {
        let page = &pages[name];
        for heading in
            ["NAME", "SYNOPSIS", "OPTIONS", "EXAMPLES", "\"EXIT STATUS\"", "FILES", "\"SEE ALSO\""]
        {
            assert!(page.contains(&format!("\n.SH {heading}\n")), "{name}: {heading}\n{page}");
        }
        let examples = examples(page);
        assert!(!examples.is_empty(), "{name}");
        for example in examples {
            // What it reads comes from another program.
            let example = example.rsplit(" | ").next().unwrap();
            let words: Vec<_> = example.split(' ').collect();
            assert_eq!(words[0], "underpass", "{name}: {example}");
            assert!(name == "underpass" || words[1] == &name[10..], "{name}: {example}");
            // `explain` takes it for the program that it is to run.
            let at = words.iter().position(|word| *word == "--").unwrap_or(words.len());
            let mut command = underpass();
            command.args(&words[1..at]).arg("--no-such-option").args(&words[at..]);
            let finished = Running::start(command).finish();
            assert!(matches!(finished.code(), Some(2 | 127)), "{example}: {}", finished.stderr);
            assert!(finished.stderr.contains("--no-such-option"), "{example}: {}", finished.stderr);
        }
    }
    assert!(pages.contains_key("underpass-bench-net"), "{:?}", pages.keys());
}

#[test]
fn the_synopsis_is_the_usage_of_the_help() {
    for (name, page) in pages() {
        let (_, synopsis) = page.split_once("\n.SH SYNOPSIS\n").unwrap();
        let synopsis = synopsis.lines().next().unwrap().replace("\\-", "-");
        let (command, words) = synopsis.strip_prefix("\\fB").unwrap().split_once("\\fR").unwrap();
        assert_eq!(command.replace(' ', "-"), name);
        let help = run(command.split(' ').skip(1).chain(["--help"])).succeeded().text();
        assert!(help.contains(&format!("Usage: {command}{words}\n")), "{synopsis}: {help}");
        assert!(!page.contains("EXTRA"), "{name}");
    }
}

#[test]
fn a_folder_that_cannot_be_created_is_named() {
    run(["--write-manpages", "/proc/none"]).failed(1, &["/proc/none"]);
}
