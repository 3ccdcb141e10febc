//! Options that are repeated or override each other: the last one counts.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use crate::rig::{Finished, Running, folder, run, underpass};

/// All commands that a help text tells, and those of these, each with its own help text.
fn commands(above: &[String]) -> Vec<(Vec<String>, String)> {
    let words = above.iter().cloned().chain(["--help".to_owned()]);
    let help = run(words).succeeded().text();
    let below = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = below.take_while(|line| !line.is_empty()).filter(|line| line.starts_with("  "));
    let names = names.filter_map(|line| line.strip_prefix("  ")?.split_once(' ').map(|it| it.0));
    let names: Vec<_> = names.filter(|name| !name.is_empty() && *name != "help").collect();
    let mut found = Vec::new();
    for name in names {
        found.extend(commands(&[above, &[name.to_owned()]].concat()));
    }
    found.push((above.to_vec(), help));
    found
}

/// Values of all kinds: one of them is valid for each option.
const VALUES: [&str; 26] = [
    "1",
    "0.5",
    "1K",
    "127.0.0.1:0",
    "http://localhost/",
    "a: b",
    "/a /b 301",
    "a=b/c",
    "a:b",
    "fast",
    "auto",
    "mode",
    "on",
    "sendfile",
    "combined",
    "text",
    "sha-256",
    "self",
    "0-9",
    "02:00-14:00",
    "bash",
    "direct",
    "path",
    "\"etag\"",
    "sha256//AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
    "sha-256:0000000000000000000000000000000000000000000000000000000000000000",
];

/// The options that a help text tells, each with whether it takes a value: `None` if that may be left
/// out.
fn options(help: &str) -> Vec<(String, Option<bool>)> {
    let lines = help
        .lines()
        .map(str::trim_start)
        .filter(|line| line.starts_with('-') && !line.starts_with("- "));
    let mut found = Vec::new();
    for line in lines {
        let names = line.split("  ").next().unwrap_or_default().split(", ");
        for name in names {
            let end = name.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-');
            let takes = match end.map(|end| &name[end..]) {
                Some(rest) if rest.starts_with(" <") => Some(true),
                Some(rest) if rest.starts_with("[=") => None,
                _ => Some(false),
            };
            found.push((name[..end.unwrap_or(name.len())].to_owned(), takes));
        }
        // A short name takes what the long one behind it takes.
        let last = found.last().cloned();
        if let (Some((_, takes)), [.., short, _]) = (last, found.as_mut_slice())
            && line.starts_with(&format!("{}, ", short.0))
        {
            short.1 = takes;
        }
    }
    found
}

/// The error for these words, with which the program does not start work.
fn complaint(command: &[String], words: &[String]) -> String {
    let here = folder();
    let mut program = underpass();
    program.args(command).args(words).arg("--no-such-option").current_dir(here.path());
    let finished = Running::start(program).finish();
    // `explain` takes it for the program that it is to run.
    assert!(matches!(finished.code(), Some(2 | 127)), "{}", finished.stderr);
    finished.stderr
}

#[test]
fn every_option_of_every_command_can_be_repeated() {
    let (mut seen, mut wrong) = (0, Vec::new());
    for (command, help) in &commands(&[]) {
        for (name, takes) in options(help) {
            if ["--help", "-h", "--version", "-V"].contains(&name.as_str()) {
                continue;
            }
            let twice = |word: String| [word.clone(), word];
            let said = match takes {
                // Values of measurements are many, and are parsed as all others.
                Some(true) if command.first().is_some_and(|name| name == "bench") => continue,
                Some(true) => VALUES
                    .iter()
                    .map(|value| {
                        let pair = [name.clone(), (*value).to_owned()];
                        complaint(command, &[pair.clone(), pair].concat())
                    })
                    .find(|said| !said.contains("invalid value"))
                    .unwrap_or_else(|| "no value is right for it".to_owned()),
                _ => complaint(command, &twice(name.clone())),
            };
            if !said.contains("--no-such-option") {
                wrong.push(format!("{command:?} {name}: {said}"));
            }
            seen += 1;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(seen > 150, "{seen}");
}

#[test]
fn of_options_that_exclude_each_other_the_last_one_counts() {
    for (command, words) in [
        ("cp", "--reflink=auto --reflink=never"),
        ("cp", "--mechanism splice --prefer mmap --no-zero-copy --mechanism sendfile"),
        ("cp", "--progress -q --progress"),
        ("cp", "-n -i -n -f -u"),
        ("cp", "-L -P -H -L"),
        ("get", "--user a:b --bearer c --user a:b"),
        ("get", "--proxy http://localhost/ --no-proxy --proxy http://localhost/"),
        ("get", "--netrc-file a --no-netrc"),
        ("serve", "--no-zero-copy --mechanism sendfile"),
    ] {
        let words: Vec<_> = words.split(' ').map(str::to_owned).collect();
        let said = complaint(&[command.to_owned()], &words);
        assert!(said.contains("--no-such-option"), "{command} {words:?}: {said}");
    }
}

/// Copies `a` to `b` with these options and this answer: what is in `b` then.
fn copied(here: &Path, options: &str, answer: &str) -> (Finished, String) {
    fs::write(here.join("a"), "new").unwrap();
    fs::write(here.join("b"), "old").unwrap();
    let past = std::time::SystemTime::UNIX_EPOCH;
    fs::File::options().write(true).open(here.join("b")).unwrap().set_modified(past).unwrap();
    let mut command = underpass();
    command.arg("cp").args(options.split_whitespace()).args(["a", "b"]).current_dir(here);
    command.stdin(Stdio::piped());
    let mut copy = Running::start(command);
    let mut stdin = copy.child.stdin.take().unwrap();
    // The command may have ended without a question.
    let _ = std::io::Write::write_all(&mut stdin, answer.as_bytes());
    drop(stdin);
    (copy.finish(), fs::read_to_string(here.join("b")).unwrap())
}

#[test]
fn combined_overwrite_options_keep_the_files_that_coreutils_keeps() {
    let here = folder();
    for (options, answer, left) in [
        ("-nf", "", "old"),
        ("-fn", "", "old"),
        ("-f", "", "new"),
        ("-rR", "", "new"),
        ("-a -a", "", "new"),
        ("-inu", "y\n", "old"),
        ("-niu", "y\n", "new"),
        ("-niu", "n\n", "old"),
        ("-ni", "yes\n", "new"),
        ("-i", "", "old"),
        ("-if", "no\n", "old"),
        ("-fi", "Y\n", "new"),
        ("-in", "y\n", "old"),
        ("-r -i", "y\n", "new"),
        ("-r -i", "\n", "old"),
        ("--reflink=auto --reflink=never", "", "new"),
        ("--sparse always --sparse auto", "", "new"),
        ("--mechanism reflink --mechanism read_write", "", "new"),
    ] {
        let (finished, found) = copied(here.path(), options, answer);
        assert_eq!(finished.code(), Some(0), "{options}: {}", finished.stderr);
        assert_eq!(found, left, "{options}: {}", finished.stderr);
        let has_asked = finished.stderr.contains("replace b?");
        assert_eq!(
            has_asked,
            options.contains('i') && !options.contains("in") && !options.starts_with("--"),
            "{options}"
        );
    }
    fs::write(here.path().join("s"), "new").unwrap();
    let mut command = underpass();
    command.args(["cp", "-i", "-", "b"]).current_dir(here.path());
    Running::start(command).finish().failed(2, &["-i", "standard input"]);
}

#[test]
fn an_algorithm_that_was_taken_for_a_url_is_noticed() {
    for name in ["md5", "sha-256", "SHA512"] {
        let finished = run(["get", "--digest-print", name, "http://127.0.0.1:9/file"]);
        finished.failed(2, &[&name.to_lowercase(), "--digest-print=ALG"]);
    }
}

#[test]
fn options_of_other_programs_lead_to_ours() {
    for (words, advice) in [
        (&["get", "-O", "http://h/x"][..], "the file gets the name in the URL"),
        (&["get", "--limit-rate", "5M", "http://h/x"], "use --rate"),
        (&["get", "-sSL", "http://h/x"], "use -q"),
        (&["put", "-T", "f", "http://h/"], "put FILE URL"),
        (&["serve", "--root", "."], "serve DIR"),
        (&["upload", "f", "http://h/"], "use put"),
        (&["cp", "-avz", "a", "b"], "nothing is compressed"),
        (&["cp", "-a", "--partial", "a", "b"], "use --resume"),
        (&["serve", "--bind", "8080"], "--port 8080"),
    ] {
        let mut command = underpass();
        command.args(words);
        Running::start(command).finish().failed(2, &[advice]);
    }
}
