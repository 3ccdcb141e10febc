//! Cases that the system's `cp` cannot verify: newer options, receipts, and refusals.

use std::fs::{self, File};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use crate::cp::cp_in;
use crate::rig::lease::hold_lease;
use crate::rig::{Running, folder, has, names, underpass};

fn plant(here: &Path) {
    for (name, text) in [("f", "new"), ("g", "old")] {
        fs::write(here.join(name), text).unwrap();
    }
}

#[test]
fn existing_files_are_replaced_as_the_last_option_says() {
    for (words, code, replaced) in [
        (&["--update=none"][..], 0, false),
        (&["--update=none-fail"], 1, false),
        (&["--update=all"], 0, true),
        (&["--update=none", "--update=all"], 0, true),
        (&["--update=all", "--update=none-fail"], 1, false),
        (&["--update=none", "-u"], 0, true),
        (&["-n", "--update=all"], 0, false),
        (&["--update=none-fail", "-n"], 0, false),
        (&["-i", "--update=none"], 0, false),
        // Standard input ends without an answer.
        (&["--update=none-fail", "-i"], 0, false),
    ] {
        let here = folder();
        plant(here.path());
        let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1000);
        File::options().write(true).open(here.path().join("g")).unwrap().set_modified(old).unwrap();
        let finished = cp_in(here.path(), &[words, &["f", "g"]].concat());
        assert_eq!(finished.code(), Some(code), "{words:?}: {}", finished.stderr);
        assert_eq!(finished.stderr.contains("g exists: not replaced"), code == 1, "{words:?}");
        let text = fs::read_to_string(here.path().join("g")).unwrap();
        assert_eq!(text == "new", replaced, "{words:?}");
    }
}

#[test]
fn no_clobber_keeps_targets_for_every_kind_of_source() {
    let here = folder();
    plant(here.path());
    let fifo = here.path().join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    fs::create_dir(here.path().join("folder")).unwrap();
    for name in ["fifo", "g"] {
        fs::write(here.path().join("folder").join(name), "old").unwrap();
    }
    let before = names(here.path());
    for words in [
        // Neither the FIFO nor standard input has a writer.
        "-n fifo g",
        "-n fifo g folder",
        "-n - g",
        "-n /dev/null g",
        "-nf /dev/null g",
    ] {
        cp_in(here.path(), &words.split(' ').collect::<Vec<_>>()).succeeded();
        assert_eq!(fs::read_to_string(here.path().join("f")).unwrap(), "new", "{words}");
        assert_eq!(fs::read_to_string(here.path().join("g")).unwrap(), "old", "{words}");
        assert_eq!(names(here.path()), before, "{words}");
        assert_eq!(fs::read(here.path().join("folder/fifo")).unwrap(), b"old", "{words}");
    }
    // The error is reported without waiting for bytes.
    cp_in(here.path(), &["-n", "missing", "fifo"]).failed(1, &["missing"]);
    cp_in(here.path(), &["-T", "fifo", "folder"]).failed(1, &["folder", "directory"]);
}

#[test]
fn a_file_is_not_made_where_a_folder_is_named() {
    let here = folder();
    plant(here.path());
    for words in [["f", "new/"], ["-", "new/"], ["-", "new/."], ["/dev/null", "new/"], ["-", "g/"]]
    {
        cp_in(here.path(), &words).failed(1, &[words[1], "Not a directory"]);
        assert_eq!(names(here.path()), ["f", "g"], "{words:?}");
    }
}

#[test]
fn a_copy_that_succeeds_is_silent() {
    let here = folder();
    plant(here.path());
    let finished = cp_in(here.path(), &["f", "n"]).succeeded();
    assert!(finished.stdout.is_empty() && finished.stderr.is_empty(), "{}", finished.stderr);
    let finished = cp_in(here.path(), &["--progress", "f", "o"]).succeeded();
    assert!(finished.stderr.contains("1 file"), "{}", finished.stderr);
}

#[test]
fn receipts_count_links_and_no_bytes() {
    let here = folder();
    plant(here.path());
    for (words, field) in [
        (&["-l", "f", "hard"][..], "hard_links"),
        (&["-s", "f", "soft"], "links"),
        (&["--attributes-only", "f", "empty"], "files"),
        (&["--attributes-only", "-p", "f", "g"], "files"),
    ] {
        let receipt = cp_in(here.path(), &[&["--json"], words].concat()).succeeded().receipt();
        assert_eq!((&receipt[field], &receipt["bytes"]), (&1.into(), &0.into()), "{receipt}");
        assert_eq!((&receipt["calls"], &receipt["user_space_bytes"]), (&0.into(), &0.into()));
    }
    assert_eq!(fs::read_to_string(here.path().join("g")).unwrap(), "old");
    assert_eq!(fs::read_to_string(here.path().join("empty")).unwrap(), "");
}

#[test]
fn options_that_contradict_are_one_line() {
    let here = folder();
    plant(here.path());
    for words in [
        "-v --json",
        "-l -s",
        "-l --verify",
        "-s --resume",
        "-l --in-place",
        "-s --attributes-only",
        "--attributes-only --resume",
        "--attributes-only --verify",
        "-b -n",
        "-b --update=none",
        "-b --update=none-fail",
        "-b --in-place",
        "--remove-destination --in-place",
        "--delete",
        "-r --delete --backup",
        "-r --delete --parents",
        "--parents -T",
        "--parents",
        "--backup=always",
        "--preserve=colour",
        "--update=some",
    ] {
        let words: Vec<_> = words.split(' ').chain(["f", "g"]).collect();
        let finished = cp_in(here.path(), &words);
        assert_eq!(finished.code(), Some(2), "{words:?}: {}", finished.stderr);
        assert_eq!(finished.stderr.lines().count(), 1, "{words:?}: {}", finished.stderr);
        assert_eq!(fs::read_to_string(here.path().join("g")).unwrap(), "old", "{words:?}");
        assert_eq!(names(here.path()), ["f", "g"], "{words:?}");
    }
}

#[test]
fn answers_belong_to_sources_in_their_order() {
    let here = folder();
    let names: Vec<String> = (10..50).map(|number| format!("f{number}")).collect();
    let (new, old) = (here.path().join("new"), here.path().join("old"));
    for (at, text) in [(&new, "new"), (&old, "old")] {
        fs::create_dir(at).unwrap();
        names.iter().for_each(|name| fs::write(at.join(name), text).unwrap());
    }
    let answers: String = (0..names.len()).map(|at| ["y\n", "n\n"][at / 3 % 2]).collect();
    fs::write(here.path().join("answers"), answers).unwrap();
    let mut command = underpass();
    command.args(["cp", "-i", "-j", "4", "-t", "../old"]).args(&names).current_dir(&new);
    command.stdin(File::open(here.path().join("answers")).unwrap());
    assert!(command.stderr(Stdio::null()).status().unwrap().success());
    for (at, name) in names.iter().enumerate() {
        assert_eq!(
            fs::read_to_string(old.join(name)).unwrap(),
            ["new", "old"][at / 3 % 2],
            "{name}"
        );
    }
}

#[test]
fn a_folder_that_has_the_name_of_a_file_is_left_where_a_file_would_be() {
    let here = folder();
    fs::create_dir_all(here.path().join("into/f")).unwrap();
    plant(here.path());
    let age = |seconds| {
        let time = SystemTime::now() - Duration::from_secs(seconds);
        File::open(here.path().join("f")).unwrap().set_modified(time).unwrap();
    };
    // Like coreutils: an entry that must not be replaced is no error, whatever its type.
    for (option, seconds, answer, code) in [
        ("-n", 0, "", 0),
        ("-u", 3600, "", 0),
        ("-i", 0, "n\n", 0),
        ("-i", 0, "y\n", 1),
        ("-v", 3600, "", 1),
    ] {
        age(seconds);
        fs::write(here.path().join("answer"), answer).unwrap();
        let mut command = underpass();
        command.args(["cp", option, "f", "into"]).current_dir(here.path());
        command.stdin(File::open(here.path().join("answer")).unwrap());
        let done = command.stderr(Stdio::null()).stdout(Stdio::null()).status().unwrap();
        assert_eq!(done.code(), Some(code), "{option} {answer}");
        assert!(here.path().join("into/f").is_dir());
    }
    fs::remove_dir(here.path().join("into/f")).unwrap();
    cp_in(here.path(), &["-n", "f", "into"]).succeeded();
    assert_eq!(fs::read(here.path().join("into/f")).unwrap(), b"new");
}

#[test]
fn a_device_or_fifo_is_not_written_to_before_the_answer_is_yes() {
    let here = folder();
    plant(here.path());
    let fifo = here.path().join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let mut end = File::options().read(true).write(true).open(&fifo).unwrap();
    for (option, answer, target, code) in [
        ("-i", "n\n", "/dev/null", 0),
        ("-i", "n\n", "fifo", 0),
        ("-i", "\u{ff}\n", "fifo", 0),
        ("--update=none-fail", "", "fifo", 1),
        ("--update=none-fail", "", "/dev/null", 1),
        ("-i", "y\n", "/dev/null", 0),
    ] {
        // An answer need not be UTF-8.
        let answer: Vec<u8> = answer.chars().map(|letter| letter as u8).collect();
        fs::write(here.path().join("answer"), answer).unwrap();
        let mut command = underpass();
        command.args(["cp", option, "g", target]).current_dir(here.path());
        command.stdin(File::open(here.path().join("answer")).unwrap());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let finished = Running::start(command).finish();
        assert_eq!(finished.code(), Some(code), "{option} {target}: {}", finished.stderr);
        let asks = finished.stderr.contains(&format!("replace {target}?"));
        assert_eq!(asks, option == "-i", "{target}: {}", finished.stderr);
    }
    // Nothing was written to it before.
    fs::write(&fifo, "!").unwrap();
    let mut text = [0];
    std::io::Read::read_exact(&mut end, &mut text).unwrap();
    assert_eq!(&text, b"!");
}

#[test]
fn a_socket_is_replaced_with_force_only() {
    let here = folder();
    fs::write(here.path().join("f"), "new").unwrap();
    let _socket = UnixListener::bind(here.path().join("k")).unwrap();
    for words in [["-p", "f", "k"], ["-a", "f", "k"]] {
        let refused = cp_in(here.path(), &words).failed(1, &[]).stderr;
        assert!(refused.contains("socket k: ") && refused.contains("--force"), "{refused}");
    }
    cp_in(here.path(), &["-", "k"]).failed(1, &["opening k: No such device or address"]);
    // The socket is newer.
    cp_in(here.path(), &["-u", "f", "k"]).succeeded();
    assert!(fs::read(here.path().join("k")).is_err());
    cp_in(here.path(), &["-f", "f", "k"]).succeeded();
    assert_eq!(fs::read_to_string(here.path().join("k")).unwrap(), "new");
}

#[test]
fn files_with_a_lease_of_another_program_are_waited_for() {
    if !has("python3") {
        return;
    }
    let here = folder();
    plant(here.path());
    for (words, leased) in
        [(&["f", "h"][..], "f"), (&["-r", "f", "i"], "f"), (&["--attributes-only", "f", "g"], "g")]
    {
        let holder = hold_lease(&here.path().join(leased));
        cp_in(here.path(), words).succeeded();
        holder.finish().succeeded();
    }
    let text = |name: &str| fs::read_to_string(here.path().join(name)).unwrap();
    assert_eq!(["g", "h", "i"].map(text), ["old", "new", "new"]);
}

#[test]
fn attributes_only_makes_no_links_of_existing_files() {
    let here = folder();
    let at = |path: &str| here.path().join(path);
    for (path, text) in [("s/a", "text"), ("k/a", "keepA"), ("k/b", "keepB")] {
        fs::create_dir_all(at(path).parent().unwrap()).unwrap();
        fs::write(at(path), text).unwrap();
    }
    fs::hard_link(at("s/a"), at("s/b")).unwrap();
    cp_in(here.path(), &["-a", "--attributes-only", "-T", "s", "k"]).succeeded();
    for (path, text) in [("k/a", "keepA"), ("k/b", "keepB")] {
        assert_eq!(fs::read_to_string(at(path)).unwrap(), text);
    }
}

#[test]
fn options_that_read_twice_refuse_a_fifo() {
    let here = folder();
    plant(here.path());
    let fifo = here.path().join("fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let before = names(here.path());
    for option in
        ["--verify", "--verify=direct", "--resume", "-u", "--sparse=always", "--reflink=always"]
    {
        for from in ["fifo", "/dev/null"] {
            // The FIFO has no writer: opening it would block.
            cp_in(here.path(), &[option, from, "out"]).failed(2, &["needs files"]);
            cp_in(here.path(), &[option, "f", from, "."]).failed(2, &["needs files"]);
        }
        assert_eq!(names(here.path()), before, "{option}");
    }
    // With -r it is no source of bytes.
    cp_in(here.path(), &["-a", "--verify", "fifo", "out"]).succeeded();
}

#[test]
fn a_fifo_in_a_folder_gets_the_bytes_of_the_file_of_its_name() {
    for words in [&["f", "folder"][..], &["-t", "folder", "f"], &["-T", "f", "folder/f"]] {
        let here = folder();
        fs::create_dir(here.path().join("folder")).unwrap();
        fs::write(here.path().join("f"), "bytes").unwrap();
        let fifo = here.path().join("folder/f");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let reader = {
            let fifo = fifo.clone();
            std::thread::spawn(move || fs::read(fifo).unwrap())
        };
        cp_in(here.path(), words).succeeded();
        assert_eq!(reader.join().unwrap(), b"bytes", "{words:?}");
    }
}

#[test]
fn only_the_entry_with_the_name_of_the_copy_is_checked() {
    let here = folder();
    fs::create_dir_all(here.path().join("a")).unwrap();
    fs::create_dir(here.path().join("folder")).unwrap();
    fs::write(here.path().join("a/f"), "bytes").unwrap();
    let fifo = here.path().join("folder/f");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    cp_in(here.path(), &["--parents", "a/f", "folder"]).succeeded();
    assert_eq!(fs::read(here.path().join("folder/a/f")).unwrap(), b"bytes");
    // `-` is standard output, also beside a folder of that name.
    fs::create_dir(here.path().join("-")).unwrap();
    assert_eq!(cp_in(here.path(), &["a/f", "-"]).succeeded().stdout, b"bytes");
    assert!(names(&here.path().join("-")).is_empty());
}

#[test]
fn patterns_count_from_the_source_with_parents_too() {
    let here = folder();
    for file in ["a/b/src/build/x", "a/b/src/a/x.o", "a/b/src/b/build/x"] {
        fs::create_dir_all(here.path().join(file).parent().unwrap()).unwrap();
        fs::write(here.path().join(file), "").unwrap();
    }
    fs::create_dir(here.path().join("z")).unwrap();
    let absolute = here.path().join("a/b/src");
    for source in ["a/b/src", absolute.to_str().unwrap()] {
        let words =
            ["-r", "--parents", "--exclude", "/build", "--exclude", "a/*.o", "--json", source, "z"];
        assert_eq!(cp_in(here.path(), &words).succeeded().receipt()["excluded"], 2, "{source}");
        let copy = here.path().join("z").join(source.trim_start_matches('/'));
        assert_eq!(names(&copy), ["a", "b"]);
        assert!(copy.join("b/build/x").exists());
    }
}
