//! `get -i`, `--parallel` and `--check`: many files, and their digests.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::origin::{Origin, Page};
use crate::peers::Peer;
use crate::rig::{Finished, Running, folder, has, names, noise, underpass};

fn get_in(here: &Path, args: &[&str]) -> Command {
    let mut command = underpass();
    command.env("HOME", here).env_remove("http_proxy").env_remove("all_proxy");
    command.current_dir(here).arg("get").args(args);
    command
}

fn get(here: &Path, args: &[&str]) -> Finished {
    Running::start(get_in(here, args)).finish()
}

const HELLO: &str = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";

#[test]
fn a_list_is_fetched_several_files_at_once() {
    let (root, here) = (folder(), folder());
    let mut list = "# many\n\n".to_owned();
    for number in 0..30 {
        fs::write(root.path().join(format!("f{number}")), noise(10_000 + number)).unwrap();
    }
    let peer = Peer::ours(root.path());
    for number in 0..30 {
        list += &format!("{}f{number}\n", peer.url);
        if number == 7 {
            list += "  out=below/seven\n";
        }
    }
    fs::write(here.path().join("list"), &list).unwrap();
    let fetched = get(here.path(), &["-i", "list", "-d", "new", "--json"]).succeeded();
    assert_eq!(fetched.text().lines().count(), 30);
    for number in 0..30 {
        let name = if number == 7 { "below/seven".to_owned() } else { format!("f{number}") };
        let found = fs::read(here.path().join("new").join(name)).unwrap();
        assert!(found == noise(10_000 + number), "{number}");
    }
    assert_eq!(peer.requests().len(), 30);
    // Again, from standard input: nothing moves.
    let mut command = get_in(here.path(), &["-i", "-", "-d", "new", "--update", "--json"]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(list.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.matches("\"was_here\":true").count(), 30, "{text}");
    assert_eq!(peer.requests().len(), 60);
    // One that is missing does not keep the others from being fetched.
    fs::remove_dir_all(here.path().join("new")).unwrap();
    fs::remove_file(root.path().join("f3")).unwrap();
    get(here.path(), &["-i", "list", "-d", "new"]).failed(1, &["404", "f3"]);
    assert_eq!(names(&here.path().join("new")).len(), 29);
    // Wrong lists are refused before anything is fetched.
    let before = peer.requests().len();
    for (text, words) in [
        ("http://h/a\n  out=../x\n", "list:2: out=../x leads out"),
        ("http://h/a\n  split=5\n", "list:2: 'split=5' is neither"),
        ("\n\nftp://h/a\n", "list:3: "),
    ] {
        fs::write(here.path().join("list"), text).unwrap();
        get(here.path(), &["-i", "list"]).failed(2, &[words]);
    }
    assert_eq!(peer.requests().len(), before);
    get(here.path(), &["-i", "none"]).failed(1, &["none", "No such file"]);
    get(here.path(), &[]).failed(2, &["URL"]);
}

#[test]
fn a_file_that_is_not_what_the_digests_say_gets_no_name() {
    let (origin, here) = (Origin::start(), folder());
    origin.set("/a", Page::new(b"hello\n", &["ETag: \"1\""]));
    origin.set("/b", Page::new(b"other\n", &["ETag: \"1\""]));
    let (a, b) = (origin.url("/a"), origin.url("/b"));
    let sums = format!("{HELLO}  a\nSHA256 (b) = {HELLO}\n");
    origin.set("/SHA256SUMS", Page::new(sums.as_bytes(), &[]));
    fs::write(here.path().join("sums"), &sums).unwrap();
    let url = origin.url("/SHA256SUMS");
    for check in ["sums", &url] {
        get(here.path(), &["--check", check, &a]).succeeded();
        get(here.path(), &["--check", check, &b]).failed(1, &["b", "sha-256", HELLO]);
        get(here.path(), &["--check", check, &a, &b, "--parallel", "2", "-d", "x"])
            .failed(1, &["sha-256"]);
        assert_eq!(names(here.path()), ["a", "sums", "x"]);
        assert_eq!(names(&here.path().join("x")), ["a"]);
        get(here.path(), &["--check", check, &a, "-o", "c"]).succeeded();
        assert_eq!(fs::read(here.path().join("c")).unwrap(), b"hello\n");
        for name in ["a", "c", "x/a"] {
            fs::remove_file(here.path().join(name)).unwrap();
        }
        fs::remove_dir(here.path().join("x")).unwrap();
    }
    // What is here is compared, too, and fetched again by --update.
    get(here.path(), &["-N", &a]).succeeded();
    get(here.path(), &["-N", &a, "--check", "sums"]).succeeded();
    fs::write(here.path().join("a"), "jello\n").unwrap();
    get(here.path(), &["-N", &a, "--check", "sums"]).succeeded();
    assert_eq!(fs::read(here.path().join("a")).unwrap(), b"hello\n");
    // A file that is not listed is not fetched.
    origin.set("/c", Page::new(b"hello\n", &[]));
    origin.asked();
    get(here.path(), &[&origin.url("/c"), "--check", "sums"]).failed(1, &["no digest of c"]);
    assert_eq!(origin.log(), [""; 0]);
    fs::write(here.path().join("none"), "nothing").unwrap();
    get(here.path(), &[&a, "--check", "none"]).failed(1, &["no digests"]);
    get(here.path(), &[&a, "--check", "sums", "-o", "-"]).failed(2, &["standard output"]);
    get(here.path(), &[&a, "--check", &origin.url("/no")]).failed(1, &["404"]);
    // A list may have digests of its own.
    let list = format!(
        "{a}\n out=right\n checksum=sha-256={HELLO}\n{b}\n out=wrong\n \
        checksum=sha-256={HELLO}\n"
    );
    fs::write(here.path().join("list"), list).unwrap();
    get(here.path(), &["-i", "list", "-d", "y"]).failed(1, &["wrong", "sha-256"]);
    assert_eq!(names(&here.path().join("y")), ["right"]);
}

#[test]
fn digests_of_coreutils_are_understood() {
    if !has("sha256sum") || !has("sha512sum") {
        return;
    }
    let (root, here) = (folder(), folder());
    for name in ["plain", "with space", "back\\slash"] {
        fs::write(root.path().join(name), name).unwrap();
    }
    let peer = Peer::ours(root.path());
    for (program, option) in [("sha256sum", "-t"), ("sha512sum", "-b"), ("sha256sum", "--tag")] {
        let mut command = Command::new(program);
        command.current_dir(root.path()).args([option, "plain", "with space"]);
        if option != "--tag" {
            command.arg("back\\slash");
        }
        let sums = command.output().unwrap().stdout;
        fs::write(here.path().join("sums"), sums).unwrap();
        let urls = ["plain", "with%20space", "back%5Cslash"].map(|it| format!("{}{it}", peer.url));
        let count = if option == "--tag" { 2 } else { 3 };
        let mut args: Vec<_> = urls[..count].iter().map(String::as_str).collect();
        args.extend(["--check", "sums", "--json", "-f"]);
        let fetched = get(here.path(), &args).succeeded();
        assert_eq!(fetched.text().matches("\"matches\":true").count(), count, "{option}");
    }
}
