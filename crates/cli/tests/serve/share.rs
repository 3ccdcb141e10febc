//! `share`: one URL for one download, the end of the share, and the addresses for other devices.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output};

use crate::rig::{Finished, Running, folder, has, names, run, serve, underpass};
use underpass_testkit::{noise, skip};

const LEN: usize = 8 << 20;

/// Shares on loopback.
fn share(here: &Path, args: &[&str]) -> Running {
    let mut command = underpass();
    command.args(["share", "-b", "127.0.0.1", "--json"]).args(args).current_dir(here);
    Running::listening(command)
}

fn curl(here: &Path, args: &[&str], url: &str) -> Output {
    let mut command = Command::new("curl");
    command.args(["-sS", "--max-time", "60"]).args(args).arg(url).current_dir(here);
    command.output().unwrap()
}

fn status(here: &Path, args: &[&str], url: &str) -> String {
    let args = [&["-o", "/dev/null", "-w", "%{http_code}"], args].concat();
    String::from_utf8(curl(here, &args, url).stdout).unwrap()
}

/// Begins a download, reads `len` bytes of it, and resets the connection.
fn cut(url: &str, len: usize) {
    let (host, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(host).unwrap();
    write!(stream, "GET /{path} HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
    let mut got = vec![0; len];
    stream.read_exact(&mut got).unwrap();
}

fn counts(finished: &Finished) -> (u64, u64) {
    let receipt = finished.receipt();
    (receipt["downloads"].as_u64().unwrap(), receipt["uploads"].as_u64().unwrap())
}

#[test]
fn a_share_that_cannot_begin_has_a_receipt_unless_the_usage_is_wrong() {
    let missing = run(["share", "--json", "no/such/file"]);
    let error = missing.failed(1, &["serving no/such/file"]).receipt()["error"].take();
    assert!(error.as_str().unwrap().starts_with("serving no/such/file: No such file"), "{error}");
    let here = folder();
    fs::write(here.path().join("f"), "bytes").unwrap();
    let file = here.path().join("f");
    let file = file.to_str().unwrap();
    let elsewhere = run(["share", "--json", "-b", "192.0.2.1", file]);
    let receipt = elsewhere.failed(1, &["192.0.2.1"]).receipt();
    assert!(receipt["error"].as_str().unwrap().starts_with("listening on 192.0.2.1:"), "{receipt}");
    assert_eq!((&receipt["downloads"], &receipt["bytes"]), (&0.into(), &0.into()));
    let wrong = run(["share", "--json", "--upload", file]).failed(2, &["needs a folder"]);
    assert!(wrong.stdout.is_empty(), "{wrong:?}");
    assert!(run(["share", "no/such/file"]).failed(1, &[]).stdout.is_empty());
}

#[test]
fn a_file_is_shared_until_it_was_fetched_whole() {
    if !has("curl") {
        return skip("curl is not there");
    }
    let here = folder();
    let bytes = noise(LEN);
    fs::write(here.path().join("f"), &bytes).unwrap();
    let server = share(here.path(), &["f"]);
    // The address has the name under which clients save the file, and needs none.
    let url = server.address.strip_suffix('f').unwrap().to_owned();
    let secret = url.trim_end_matches('/').rsplit('/').next().unwrap();
    assert!(secret.len() == 32 && secret.bytes().all(|byte| byte.is_ascii_hexdigit()), "{url}");
    // Nothing else is there, and what is not a whole download does not count.
    let root = url.strip_suffix(&format!("{secret}/")).unwrap();
    for path in ["", "f", ".underpass/health", "0123456789abcdef0123456789abcdef/"] {
        assert_eq!(status(here.path(), &[], &format!("{root}{path}")), "404", "{path}");
    }
    assert_eq!(status(here.path(), &["-I"], &url), "200");
    assert_eq!(status(here.path(), &["-r", "0-99"], &url), "206");
    cut(&url, 100_000);
    assert_eq!(status(here.path(), &["-r", "1000-"], &format!("{url}?x")), "206");
    // Both together are the whole of it; this download has everything by itself.
    let finished = server.finish().succeeded();
    assert_eq!(counts(&finished), (1, 0), "{}", finished.stderr);

    let server = share(here.path(), &["f"]);
    fs::create_dir(here.path().join("to")).unwrap();
    let got = curl(&here.path().join("to"), &["-O"], &server.address);
    let finished = server.finish().succeeded();
    assert!(got.status.success() && fs::read(here.path().join("to/f")).unwrap() == bytes);
    assert_eq!(counts(&finished), (1, 0));
    let receipt = finished.receipt();
    assert_eq!(receipt["bytes"], LEN as u64);
    // The engine may write a few bytes by themselves, so that they are acknowledged at once.
    assert!(receipt["user_space_bytes"].as_u64().unwrap() < 100, "{receipt}");
    assert!(TcpStream::connect(root.trim_start_matches("http://").trim_end_matches('/')).is_err());
}

#[test]
fn a_connection_that_goes_on_gets_no_more_than_was_shared() {
    if !has("curl") {
        return skip("curl is not there");
    }
    let here = folder();
    fs::write(here.path().join("f"), noise(1000)).unwrap();
    for times in ["1", "2"] {
        let server = share(here.path(), &["--times", times, "f"]);
        let url = server.address.as_str();
        let all = curl(here.path(), &[url, url, url, url], url);
        assert_eq!(all.stdout.len().to_string(), format!("{times}000"), "{all:?}");
        assert_eq!(counts(&server.finish().succeeded()).0.to_string(), times);
    }
    let taking = share(here.path(), &["--upload", "--times", "1", "."]);
    let url = |name| format!("{}{name}", taking.address);
    let _ = curl(here.path(), &["-T", "f", &url("a"), "-T", "f", &url("b"), "-T", "f"], &url("c"));
    assert_eq!(counts(&taking.finish().succeeded()), (0, 1));
    assert!(here.path().join("a").exists());
    assert!(!here.path().join("b").exists() && !here.path().join("c").exists());
}

#[test]
fn a_cut_download_is_resumed_and_counts_once() {
    if !has("curl") {
        return skip("curl is not there");
    }
    let here = folder();
    let bytes = noise(LEN);
    fs::write(here.path().join("f"), &bytes).unwrap();
    fs::write(here.path().join("got"), &bytes[..LEN / 2]).unwrap();
    let server = share(here.path(), &["f"]);
    // A reset can overtake what the client has read last.
    cut(&server.address, LEN / 4 * 3);
    let resumed = curl(here.path(), &["-C", "-", "-o", "got"], &server.address);
    assert!(resumed.status.success(), "{resumed:?}");
    assert_eq!(counts(&server.finish().succeeded()), (1, 0));
    assert!(fs::read(here.path().join("got")).unwrap() == bytes);
}

#[test]
fn a_share_for_two_downloads_of_a_folder_ends_after_both() {
    if !has("curl") {
        return skip("curl is not there");
    }
    let here = folder();
    fs::create_dir_all(here.path().join("d/deep")).unwrap();
    fs::write(here.path().join("d/f"), noise(LEN)).unwrap();
    let server = share(here.path(), &["--times", "2", "d"]);
    // Neither the page nor a file is all of it.
    assert_eq!(status(here.path(), &[], &server.address), "200");
    assert_eq!(status(here.path(), &[], &format!("{}f", server.address)), "200");
    // Nor are a folder in it and a selection, even if that has everything.
    for part in ["deep/?archive=zip", "?archive=zip&entry=f&entry=deep"] {
        let url = format!("{}{part}", server.address);
        assert_eq!(status(here.path(), &[], &url), "200", "{part}");
    }
    std::thread::scope(|scope| {
        for form in ["tar", "zip"] {
            let url = format!("{}?archive={form}", server.address);
            scope.spawn(move || {
                assert_eq!(status(Path::new("/"), &[], &url), "200");
            });
        }
    });
    assert_eq!(counts(&server.finish().succeeded()), (2, 0));
}

#[test]
fn files_are_taken_until_there_are_enough() {
    if !has("curl") {
        return skip("curl is not there");
    }
    let here = folder();
    fs::create_dir(here.path().join("inbox")).unwrap();
    fs::write(here.path().join("a"), noise(LEN)).unwrap();
    let server = share(here.path(), &["--upload", "--times", "2", "inbox"]);
    for name in ["one", "two"] {
        let url = format!("{}{name}", server.address);
        assert!(curl(here.path(), &["-f", "-T", "a"], &url).status.success());
    }
    let finished = server.finish().succeeded();
    assert_eq!(counts(&finished), (0, 2));
    assert_eq!(names(&here.path().join("inbox")), ["one", "two"]);
    // Without --upload nothing is taken.
    let server = share(here.path(), &["inbox"]);
    let refused = status(here.path(), &["-T", "a"], &format!("{}three", server.address));
    assert!(refused.starts_with('4'), "{refused}");
    server.signal("TERM");
    let finished = server.finish();
    assert_eq!(finished.code(), Some(1));
    assert_eq!(counts(&finished), (0, 0));
}

#[test]
fn a_share_ends_with_its_terminal() {
    let here = folder();
    fs::write(here.path().join("f"), "x").unwrap();
    let server = share(here.path(), &["f"]);
    server.signal("HUP");
    assert_eq!(server.finish().code(), Some(1));
}

#[test]
fn a_share_ends_with_an_error_after_its_time() {
    let here = folder();
    fs::write(here.path().join("f"), "x").unwrap();
    let says = "the share ended before a transfer was complete";
    let finished = share(here.path(), &["--for", "1", "f"]).finish();
    assert_eq!(finished.failed(1, &[says]).receipt()["error"], says);
    if has("curl") {
        let server = share(here.path(), &["--for", "3", "f"]);
        for _ in 0..2 {
            assert_eq!(status(here.path(), &[], &server.address), "200");
        }
        assert_eq!(counts(&server.finish().succeeded()), (2, 0));
    }
}

#[test]
fn wrong_inputs_are_one_line() {
    let here = folder();
    fs::write(here.path().join("f"), "x").unwrap();
    let file = here.path().join("f");
    let file = file.to_str().unwrap();
    for (args, code, words) in [
        (&["share"][..], 2, &["FILE or DIR"][..]),
        (&["share", "/nowhere"], 1, &["/nowhere", "No such file"]),
        (&["share", "--upload", file], 2, &["--upload", "needs a folder"]),
        (&["share", "--times", "0", file], 2, &["--times"]),
        (&["share", "--for", "soon", file], 2, &["--for", "soon"]),
        (&["share", "--for", "0m", file], 2, &["--for", "0 is not a valid time"]),
        (&["share", "--bind", "/x", file], 2, &["/x"]),
    ] {
        let finished = run(args).failed(code, words);
        assert_eq!(finished.stderr.lines().count(), 1, "{}", finished.stderr);
    }
}

#[test]
fn a_server_on_every_address_prints_those_for_other_devices() {
    let here = folder();
    let said = serve(&here, &["-b", "0.0.0.0", "--qr", "always"]).end().stderr;
    assert!(!said.contains("on other devices: http://127."), "{said}");
    assert!(!said.contains("on other devices: http://169.254."), "{said}");
    // A machine without a network has none.
    let has_address = said.contains("on other devices: http://");
    assert_eq!(said.contains('▀'), has_address, "{said}");
    // One with its own address prints nothing more.
    let said = serve(&here, &["-b", "127.0.0.1", "--qr", "always"]).end().stderr;
    assert!(!said.contains("on other devices") && !said.contains('▀'), "{said}");
}
