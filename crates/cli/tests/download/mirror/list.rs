//! `get -i`, `--parallel` and `--check`: many files, and their digests.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use underpass_testkit::mounts::{FileSystem, Mounted};

use crate::mirror::origin::{Origin, Page};
use crate::mirror::peers::Peer;
use crate::rig::{Finished, Running, folder, free_port, has, names, noise, underpass, until};

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
fn a_line_about_one_of_several_files_names_it() {
    let (here, origin) = (folder(), Origin::start());
    origin.set("/a", Page { status: Some(503), ..Page::default() });
    origin.set("/b", Page::new(b"b", &[]));
    let (a, b) = (&*origin.url("/a"), &*origin.url("/b"));
    for (urls, said) in [
        (&[a][..], "underpass: the server answered 503 "),
        (&[a, b], "underpass: new/a: the server answered 503 "),
    ] {
        let args = [urls, &["-d", "new", "--retries", "1"]].concat();
        let failed = get(here.path(), &args).failed(1, &["503"]);
        assert!(failed.stderr.contains(said), "{}", failed.stderr);
    }
    // The server is asked for names.
    let (first, second) = (origin.url("/?id=1"), origin.url("/?id=2"));
    origin.set("/?id=1", Page { status: Some(503), ..Page::default() });
    origin.set("/?id=2", Page::new(b"b", &[]));
    let failed = get(here.path(), &[&first, &second, "-d", "new", "--retries", "1"]);
    let said = format!("underpass: {first}: the server answered 503 ");
    assert!(failed.stderr.contains(&said), "{}", failed.stderr);
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
    // As with sha256sum, - is standard input.
    for (list, code) in [(sums.as_str(), 0), ("nothing", 1)] {
        let mut command = get_in(here.path(), &["--check", "-", &a, "-o", "c", "--force"]);
        let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(list.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert_eq!(said.contains("standard input has no digests"), code == 1, "{said}");
    }
    fs::remove_file(here.path().join("c")).unwrap();
    get(here.path(), &["--check", "-", "-i", "-"]).failed(2, &["--check -", "list of URLs"]);
    // Existing files are compared, too, and fetched again by --update.
    get(here.path(), &["-N", &a]).succeeded();
    get(here.path(), &["-N", &a, "--check", "sums"]).succeeded();
    fs::write(here.path().join("a"), "jello\n").unwrap();
    get(here.path(), &["-N", &a, "--check", "sums"]).succeeded();
    assert_eq!(fs::read(here.path().join("a")).unwrap(), b"hello\n");
    // A file that is not listed is not fetched.
    origin.set("/c", Page::new(b"hello\n", &[]));
    origin.take_exchanges();
    get(here.path(), &[&origin.url("/c"), "--check", "sums"]).failed(1, &["no digest of c"]);
    assert_eq!(origin.log(), [""; 0]);
    fs::write(here.path().join("none"), "nothing").unwrap();
    get(here.path(), &[&a, "--check", "none"]).failed(1, &["no digests"]);
    get(here.path(), &[&a, "--check", "sums", "-o", "-"]).failed(2, &["standard output"]);
    get(here.path(), &[&a, "--check", &origin.url("/no")]).failed(1, &["404"]);
    // Requests to a busy server are retried.
    origin.set("/SHA256SUMS", Page { status: Some(503), ..Page::default() });
    origin.take_exchanges();
    get(here.path(), &[&a, "--check", &url, "--retries", "1"]).failed(1, &["503"]);
    assert_eq!(origin.log().len(), 2);
    // So are those whose answer breaks off.
    origin.set("/SHA256SUMS", Page { cut: Some(9), ..Page::new(sums.as_bytes(), &[]) });
    origin.take_exchanges();
    get(here.path(), &[&a, "--check", &url, "--retries", "1"]).failed(1, &["receiving from"]);
    assert_eq!(origin.log().len(), 2);
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

#[test]
fn two_urls_do_not_become_one_file() {
    let (origin, here) = (Origin::start(), folder());
    let old = "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT";
    // Size and time do not tell them apart.
    origin.set("/a/f", Page::new(b"one", &[old]));
    origin.set("/b/f", Page::new(b"two", &[old]));
    let (a, b) = (origin.url("/a/f"), origin.url("/b/f"));
    let has = |name: &str| String::from_utf8(fs::read(here.path().join(name)).unwrap()).unwrap();
    for options in [&[][..], &["-f"], &["-N"], &["-f", "--parallel", "2"]] {
        let args = [&[a.as_str(), &b, "-d", "new"], options].concat();
        get(here.path(), &args).failed(1, &["has that name already"]);
        assert!(["one", "two"].contains(&has("new/f").as_str()));
        fs::remove_dir_all(here.path().join("new")).unwrap();
    }
    fs::write(here.path().join("list"), format!("{a}\n{b}\n out=g\n{a}\n")).unwrap();
    get(here.path(), &["-i", "list", "-d", "new", "--parallel", "1"]).succeeded();
    assert_eq!((has("new/f"), has("new/g")), ("one".to_owned(), "two".to_owned()));
}

#[test]
fn two_urls_do_not_become_one_file_where_case_does_not_matter() {
    let Some(mounted) = Mounted::new(FileSystem::NoCase, 128) else { return };
    let origin = Origin::start();
    let old = "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT";
    origin.set("/README", Page::new(b"one", &[old]));
    origin.set("/readme", Page::new(b"two", &[old]));
    let (a, b) = (origin.url("/README"), origin.url("/readme"));
    for (number, options) in
        [&[][..], &["-f"], &["-N"], &["-f", "--parallel", "2"]].into_iter().enumerate()
    {
        let dir = number.to_string();
        let args = [&[a.as_str(), &b, "-d", &dir], options].concat();
        let words = ["has that name already in another case", "name another file"];
        get(&mounted.root(), &args).failed(1, &words);
        let there = names(&mounted.root().join(dir));
        assert!(there == ["README"] || there == ["readme"], "{there:?}");
    }
}

#[test]
fn two_files_in_a_folder_with_two_paths_do_not_count_as_one() {
    let (origin, here) = (Origin::start(), folder());
    origin.set("/a", Page::new(b"one", &[]));
    origin.set("/b", Page::new(b"two", &[]));
    fs::create_dir(here.path().join("dir")).unwrap();
    std::os::unix::fs::symlink("dir", here.path().join("link")).unwrap();
    let (a, b) = (origin.url("/a"), origin.url("/b"));
    fs::write(here.path().join("list"), format!("{a}\n out=dir/f\n{b}\n out=link/f\n")).unwrap();
    get(here.path(), &["-i", "list", "-f"]).failed(1, &["has that name already"]);
    // Two names in one folder, which differ in case, are two files here.
    fs::write(here.path().join("list"), format!("{a}\n out=dir/g\n{b}\n out=link/G\n")).unwrap();
    get(here.path(), &["-i", "list", "-f"]).succeeded();
    assert_eq!(fs::read(here.path().join("dir/g")).unwrap(), b"one");
    assert_eq!(fs::read(here.path().join("dir/G")).unwrap(), b"two");
}

#[test]
fn no_file_has_the_name_of_the_partial_file_of_another() {
    let (origin, here) = (Origin::start(), folder());
    let [whole, part, journal] = ["/a", "/a.part", "/a.part.journal"].map(|path| {
        origin.set(path, Page::new(path.as_bytes(), &[]));
        origin.url(path)
    });
    for (first, second, words) in [
        (&whole, &part, "has that name until it is complete"),
        (&part, &whole, "has the name of its partial file"),
        (&whole, &journal, "has that name until it is complete"),
        (&journal, &whole, "has the name of its partial file"),
    ] {
        get(here.path(), &["-f", first, second]).failed(1, &[words, "name another file"]);
        get(here.path(), &["-f", "--parallel", "2", first, second])
            .failed(1, &["name another file"]);
    }
    get(here.path(), &["-f", &part, &journal]).succeeded();
    get(here.path(), &["-f", &whole]).succeeded();
}

#[test]
fn a_url_that_is_named_twice_is_fetched_once() {
    let (origin, here) = (Origin::start(), folder());
    origin.set("/f", Page::new(b"one", &[]));
    let url = origin.url("/f");
    for options in [&[][..], &["-f"], &["-N"], &["--parallel", "2"], &["-f", "--parallel", "2"]] {
        let before = origin.take_exchanges().len();
        let args = [&[url.as_str(), &url, "-d", "new"], options].concat();
        let said = get(here.path(), &args).succeeded().stderr;
        assert!(said.contains("was named twice"), "{said}");
        assert_eq!(origin.take_exchanges().len() - before, 1, "{options:?}");
        fs::remove_dir_all(here.path().join("new")).unwrap();
    }
    // Of two digests one is wrong. One file at a time: the one that comes first gets the name.
    let digest = "0".repeat(64);
    let list = format!("{url}\n{url}\n checksum=sha-256={digest}\n");
    fs::write(here.path().join("list"), list).unwrap();
    let args = ["-i", "list", "--parallel", "1"];
    get(here.path(), &args).failed(1, &["has that name already", "checksum="]);
}

#[test]
fn a_signal_between_two_files_is_no_success() {
    let (origin, here) = (Origin::start(), folder());
    for path in ["/a", "/b"] {
        origin.set(path, Page::new(b"one", &[]));
    }
    let mut command = get_in(here.path(), &["--json", &origin.url("/a"), &origin.url("/b")]);
    // It blocks on the receipt of the first file until the pipe has room.
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    let room = rustix::pipe::fcntl_setpipe_size(&writer, 4_096).unwrap();
    writer.write_all(&vec![b'\n'; room]).unwrap();
    command.stdout(writer);
    let running = Running::start(command);
    // The command has an end of the pipe until it is dropped with this.
    let pid = running.child.id();
    until("the first file is there, and it waits", || {
        let state = fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
        here.path().join("a").exists() && state.starts_with("1 0x1 ")
    });
    running.signal("INT");
    let drain = std::thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
    running.finish().failed(1, &["cancelled: 1 URL was not fetched"]);
    drain.join().unwrap().unwrap();
    assert_eq!(names(here.path()), ["a"]);
}

#[test]
fn suspicious_download_lists_are_reported() {
    let (origin, here) = (Origin::start(), folder());
    origin.set("/a", Page::new(b"one", &[]));
    let url = origin.url("/a");
    let list = |bytes: &[u8]| {
        fs::write(here.path().join("list"), bytes).unwrap();
        get(here.path(), &["-i", "list"])
    };
    let said = list(b"# none\n").succeeded().stderr;
    assert_eq!(said, "underpass: list has no URLs: nothing was fetched\n");
    list(&[b"# \n", url.as_bytes(), b"\xff"].concat()).failed(2, &["list:2", "UTF-8"]);
    // A list has another form of digests than an option.
    let digest = format!("{url}\n checksum=md5=00\n");
    list(digest.as_bytes()).failed(2, &["list:2", "sha-256=HEX"]);
    list(format!("\u{feff}{url}\r\n").as_bytes()).succeeded();
    assert_eq!(names(here.path()), ["a", "list"]);
    // Digests that are not all read could lack those of a file.
    let sums = fs::File::create(here.path().join("list")).unwrap();
    sums.set_len((64 << 20) + 1).unwrap();
    get(here.path(), &["--check", "list", &url]).failed(1, &["longer than 64 MiB"]);
}

#[test]
fn a_url_without_a_name_is_reported_before_anything_is_fetched() {
    let (origin, here) = (Origin::start(), folder());
    for path in ["/a", "/b%2Fc"] {
        origin.set(path, Page::new(b"one", &[]));
    }
    origin.set("/d%2Fe", Page::new(b"two", &["Content-Disposition: attachment; filename=f"]));
    let [file, nameless, suggested] = ["/a", "/b%2Fc", "/d%2Fe"].map(|path| origin.url(path));
    for options in [&["--parallel", "1"][..], &["--parallel", "2"], &["-d", "new"]] {
        let args = [&[&*file, &suggested, &nameless], options].concat();
        get(here.path(), &args).failed(2, &[&nameless, "does not end in a possible file name"]);
        assert_eq!(names(here.path()), [""; 0], "{options:?}");
    }
    // A server that does not answer concerns its own URL only.
    let dead = format!("http://127.0.0.1:{}/g%2Fh", free_port());
    get(here.path(), &[&file, &dead, "--retries", "0"]).failed(2, &[&dead, "possible file name"]);
    assert_eq!(names(here.path()), ["a"]);
    fs::remove_file(here.path().join("a")).unwrap();
    assert_eq!(origin.take_exchanges().last().unwrap().request.method, "GET");
    let folders = [origin.url("/x/"), origin.url("/y%2Fz/")];
    get(here.path(), &["-r", &folders[0], &folders[1]]).failed(2, &["cannot be a folder"]);
    assert!(origin.take_exchanges().iter().all(|it| it.request.method == "HEAD"));
    get(here.path(), &[&file, &suggested]).succeeded();
    assert_eq!(names(here.path()), ["a", "f"]);
    assert_eq!(origin.log(), ["HEAD /d%2Fe 200 0", "GET /a 200 3", "GET /d%2Fe 200 3"]);
}
