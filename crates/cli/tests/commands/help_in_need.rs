//! Output when something differs from the user's expectation: reasons, warnings, limits, file
//! names, and progress on a terminal.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

use underpass_testkit::http::{Client, Reply, Server, respond};

use crate::rig::{Finished, Running, folder, has, names, receiver, run, underpass, until};

/// Our server of a folder, on a free port.
fn serve(root: &Path, args: &[&str]) -> Running {
    crate::rig::serve(root, &[&["-q"], args].concat())
}

/// A client command in a folder, with nothing from the environment.
fn client(folder: &Path, args: &[&str]) -> Finished {
    let mut command = underpass();
    for name in ["http_proxy", "all_proxy", "ALL_PROXY", "NETRC", "HOME", "UNDERPASS_BEARER"] {
        command.env_remove(name);
    }
    command.current_dir(folder).args(args);
    Running::start(command).finish()
}

/// The answer to a request for the file, by this method.
fn ask(server: &Running, method: &str) -> Reply {
    Client::new(server.connect()).ask(method, "/file", &["Connection: close"])
}

/// The line that a failed command has printed last.
fn complaint(finished: &Finished) -> String {
    finished.stderr.lines().last().unwrap_or_default().to_owned()
}

#[test]
fn a_refusal_has_its_own_reason_and_no_wrong_advice() {
    let (served, here) = (folder(), folder());
    fs::create_dir(served.path().join("dir")).unwrap();
    fs::write(served.path().join("file"), "text").unwrap();
    fs::write(here.path().join("small"), "text").unwrap();
    let server = serve(served.path(), &["-A"]);
    for (path, reason) in [(".hidden", "hidden"), ("dir", "folder"), ("no/where", "409")] {
        let url = format!("{}{path}", server.address);
        let line = complaint(&client(here.path(), &["put", "small", &url]).failed(1, &[reason]));
        assert!(!line.contains("--allow-upload"), "{line}");
    }
    let said = ask(&server, "POST");
    assert!(said.status == 405 && !said.text().contains("written"), "{said:?}");
    let closed = serve(served.path(), &[]);
    assert!(ask(&closed, "DELETE").text().contains("--allow-delete"));
    let url = format!("{}new", closed.address);
    client(here.path(), &["put", "small", &url]).failed(1, &["405", "--allow-upload"]);
    // A file is not a folder.
    let url = format!("{}file", closed.address);
    let line = complaint(&client(here.path(), &["get", "-r", &url]).failed(1, &["-r", "file"]));
    // A port may be 40415.
    assert!(!line.replace(&url, "").contains("404"), "{line}");
    let url = format!("{}nothing", closed.address);
    client(here.path(), &["get", "-r", &url]).failed(1, &["404"]);
}

#[test]
fn a_wrong_password_is_not_called_a_missing_one() {
    let (served, here) = (folder(), folder());
    fs::write(served.path().join("file"), "text").unwrap();
    let server = serve(served.path(), &["-a", "me:secret@/:rw", "--allow-upload"]);
    let url = format!("{}file", server.address);
    let missing = complaint(&client(here.path(), &["get", &url]).failed(1, &["401", "--user"]));
    assert!(missing.contains("required"), "{missing}");
    for command in
        [&["get", &url, "-u", "me:wrong"][..], &["put", "/dev/null", &url, "-u", "me:no"]]
    {
        let wrong = complaint(&client(here.path(), command).failed(1, &["401", "wrong"]));
        assert!(!wrong.contains("needed") && !wrong.contains("--user"), "{wrong}");
    }
    client(here.path(), &["get", &url, "-u", "me:secret"]).succeeded();
}

#[test]
fn a_status_is_printed_once() {
    for body in ["Not Found", "404: Not Found", "404 not found\n"] {
        let server = Server::start(move |request, stream| {
            let head = "HTTP/1.1 404 Not Found\nContent-Type: text/plain";
            respond(request, stream, head, body.as_bytes())
        });
        let url = server.url("/x");
        let here = folder();
        let line = complaint(&client(here.path(), &["get", &url]).failed(1, &["404"]));
        assert_eq!(line.to_lowercase().matches("not found").count(), 1, "{body}: {line}");
    }
    // Our own server says it once, too.
    let (served, here) = (folder(), folder());
    let server = serve(served.path(), &[]);
    let url = format!("{}x", server.address);
    let line = complaint(&client(here.path(), &["get", &url]).failed(1, &["404"]));
    assert_eq!(line.matches("Not Found").count(), 1, "{line}");
}

#[test]
fn an_archive_has_the_name_that_the_server_suggests() {
    let (served, here) = (folder(), folder());
    fs::create_dir(served.path().join("photos")).unwrap();
    fs::write(served.path().join("photos/a"), "text").unwrap();
    let server = serve(served.path(), &[]);
    let url = format!("{}photos/?archive=tar", server.address);
    client(here.path(), &["get", &url]).succeeded();
    assert_eq!(names(here.path()), ["photos.tar"]);
    // Like every other name.
    fs::write(here.path().join("photos.tar"), "mine").unwrap();
    client(here.path(), &["get", &url]).failed(1, &["photos.tar", "--force"]);
    client(here.path(), &["get", &url, "-f"]).succeeded();
    assert_ne!(fs::read(here.path().join("photos.tar")).unwrap(), b"mine");
    client(here.path(), &["get", &url, "-o", "mine.tar"]).succeeded();
    client(here.path(), &["get", &url, "-d", "new/folder"]).succeeded();
    assert_eq!(names(&here.path().join("new/folder")), ["photos.tar"]);
    assert_eq!(names(here.path()), ["mine.tar", "new", "photos.tar"]);
    // The end of a path is a name of its own.
    let url = format!("{}photos/a", server.address);
    client(here.path(), &["get", &url]).succeeded();
    assert_eq!(fs::read(here.path().join("a")).unwrap(), b"text");
}

#[test]
fn a_listening_side_gives_up_after_its_timeout() {
    let here = folder();
    let target = here.path().join("target");
    receiver(&["--timeout", "100ms"], &target).finish().failed(1, &["no peer", "100ms"]);
    let mut command = underpass();
    command.args(["send", "--listen", "127.0.0.1:0", "--timeout", "0.1", "/dev/null"]);
    Running::listening(command).finish().failed(1, &["no peer", "100ms"]);
    assert_eq!(names(here.path()), [""; 0]);
}

#[test]
fn a_log_file_is_written_by_a_quiet_server_too() {
    let (served, here) = (folder(), folder());
    let log = here.path().join("log");
    let server = serve(served.path(), &["--log-file", log.to_str().unwrap()]);
    client(here.path(), &["get", &server.address, "-o", "page"]).succeeded();
    until("a line in the log", || fs::read_to_string(&log).unwrap().contains("\"GET / HTTP/1.1\""));
    assert_eq!(server.end().text(), "");
}

#[test]
fn a_mechanism_that_cannot_send_is_refused_at_the_start() {
    for mechanism in ["reflink", "copy_file_range"] {
        run(["serve", "-p", "0", "--mechanism", mechanism, "/"])
            .failed(2, &[mechanism, "sendfile"]);
    }
}

#[test]
fn every_address_is_what_the_help_says() {
    let served = folder();
    if TcpListener::bind("[::1]:0").is_err() {
        return underpass_testkit::skip("this machine has no IPv6");
    }
    let help = run(["serve", "--help"]).succeeded().text();
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains(":: every IPv6 address and no other"), "{help}");
    let port = |server: &Running| {
        let address = server.address.split_once("://").unwrap().1.split('/').next().unwrap();
        address.rsplit_once(':').unwrap().1.parse::<u16>().unwrap()
    };
    let only_ipv6 = serve(served.path(), &["-b", "::"]);
    let at = port(&only_ipv6);
    TcpStream::connect(("::1", at)).unwrap();
    assert!(TcpStream::connect(("127.0.0.1", at)).is_err(), "IPv4 as well");
    drop(only_ipv6);
    let all = serve(served.path(), &["-b", &format!(":{at}")]);
    assert_eq!(port(&all), at);
    for address in ["::1", "127.0.0.1"] {
        TcpStream::connect((address, at)).unwrap();
    }
}

#[test]
fn a_misspelt_variable_is_warned_of() {
    let served = folder();
    let mut command = underpass();
    command.args(["serve", "-q", "-p", "0"]).arg(served.path()).env("UNDERPASS_PROT", "1");
    let mut server = command.spawn().unwrap();
    let mut said = String::new();
    let mut errors = BufReader::new(server.stderr.take().unwrap());
    errors.read_line(&mut said).unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(said.contains("UNDERPASS_PROT") && said.contains("UNDERPASS_PORT"), "{said}");
    let mut command = underpass();
    command
        .args(["serve", "-q"])
        .arg(served.path())
        .envs([("UNDERPASS_PORT", "0"), ("UNDERPASS_ELSEWHERE", "1")]);
    let server = Running::listening(command);
    assert_eq!(server.end().stderr.matches("UNDERPASS").count(), 0);
}

#[test]
fn a_misspelt_variable_of_requests_is_warned_of() {
    let command = |name| {
        let mut command = underpass();
        command.args(["get", "-q", "--retries", "0", "http://127.0.0.1:1/x"]).env(name, "token");
        Running::start(command).finish().stderr
    };
    for name in ["UNDERPASS_BEARRER", "UNDERPASS_bearer"] {
        let said = command(name);
        assert!(said.contains(&format!("{name} is not an option")), "{said}");
        assert!(said.contains("did you mean UNDERPASS_BEARER?"), "{said}");
    }
    for name in ["UNDERPASS_BEARER", "UNDERPASS_HEADER", "UNDERPASS_PORT"] {
        let said = command(name);
        assert!(!said.contains("UNDERPASS"), "{said}");
    }
}

#[test]
fn a_token_cannot_add_a_field() {
    for token in ["secret\nX-Other: 1", "secret\n", ""] {
        run(["get", "--bearer", token, "http://127.0.0.1:1/x"])
            .failed(2, &["--bearer", "line breaks"]);
    }
    let mut command = underpass();
    command.args(["put", "/etc/passwd", "http://127.0.0.1:1/"]).env("UNDERPASS_BEARER", "a\nX: b");
    Running::start(command).finish().failed(2, &["UNDERPASS_BEARER", "line breaks"]);
}

#[test]
fn error_messages_do_not_use_words_of_libraries() {
    let here = folder();
    let file = here.path().join("file");
    fs::write(&file, "x").unwrap();
    let file = file.to_str().unwrap();
    let binary = here.path().join("binary");
    fs::write(&binary, b"/a\xff").unwrap();
    let binary = binary.to_str().unwrap();
    for (args, code, words) in [
        (&["serve", "--port=-1"][..], 2, &["-1 is not between 0 and 65535"][..]),
        (&["get", "-j", "65", "localhost/x"], 2, &["65 is not between 1 and 64"]),
        (&["--write-manpages", file], 1, &["creating", "something else has that name"]),
        (&["explain", "--", "/etc"], 126, &["/etc", "a folder is not a program"]),
        (
            &["serve", "-p", "0", "/dev/null"],
            1,
            &["/dev/null", "neither a folder nor a regular file"],
        ),
        (&["fill", "--node", "localhost:1", "--manifest", binary], 1, &["not text in UTF-8"]),
        (&["get", "s3://"], 2, &["names no bucket"]),
        (&["get", "-r", "s3://"], 2, &["names no bucket"]),
        (&["get", "-o", "none/", "localhost:1/x"], 1, &["none/", "leave out the slash"]),
        (
            &["serve", "-p", "0", "--origin", "http://127.0.0.1:1/", "--cache", file],
            1,
            &["opening", "Not a directory"],
        ),
    ] {
        let finished = run(args).failed(code, words);
        for word in ["..=", "os error", "--force", "chmod"] {
            assert!(!finished.stderr.contains(word), "{}", finished.stderr);
        }
    }
}

#[test]
fn an_option_for_help_after_the_command_help_is_no_mistake() {
    assert_eq!(run(["help", "--help"]).succeeded().text(), run(["help"]).text());
    assert_eq!(run(["help", "get", "-h"]).succeeded().text(), run(["help", "get"]).text());
}

#[test]
fn the_program_alone_prints_its_help() {
    let alone = run([""; 0]);
    assert_eq!(alone.code(), Some(2), "{}", alone.stderr);
    assert!(alone.stderr.contains("\n  serve ") && alone.stdout.is_empty(), "{}", alone.stderr);
}

#[test]
fn wrong_numbers_are_refused_in_plain_words() {
    for args in [
        &["serve", "--port", "x"][..],
        &["serve", "--workers", "1.5"],
        &["serve", "--max-per-address", ""],
        &["serve", "--max-archive-entries", "many"],
        &["get", "--retries", "x", "http://localhost/"],
        &["get", "--connections", "x", "http://localhost/"],
        &["cp", "--jobs", "x", "a", "b"],
        &["bench", "net", "--runs", "x"],
    ] {
        let line = complaint(&run(args).failed(2, &["number"]));
        assert!(!line.contains("digit"), "{line}");
    }
    let line = complaint(&run(["cp", "--jobs", "0", "a", "b"]).failed(2, &["at least 1"]));
    assert!(!line.contains("zero for"), "{line}");
}

#[test]
fn completions_offer_values_where_there_are_some() {
    let bash = run(["--completions", "bash"]).succeeded().text();
    for (option, values) in [
        ("--integrity", "fast detect lease snapshot"),
        ("--mechanism", "reflink copy_file_range sendfile splice mmap read_write"),
        ("--prefer", "reflink copy_file_range sendfile splice mmap read_write"),
        ("--digest-print", "sha-256 sha-512"),
        ("--sync", "on off"),
    ] {
        let case = format!(" {option})\n");
        let offers = bash.split(&case).skip(1);
        let offers: Vec<_> = offers.map(|offer| offer.lines().next().unwrap()).collect();
        assert!(!offers.is_empty(), "{option}");
        for offer in offers {
            assert!(offer.contains(values), "{option}: {offer}");
        }
    }
    assert_eq!(bash.matches(" --digest)\n").count(), 2, "of get and put");
    assert_eq!(bash.matches("\"sha-256 sha-512\"").count(), 2, "of put, and --digest-print");
    let digest = bash.split(" --digest)\n").nth(1).unwrap().lines().next().unwrap();
    assert!(!digest.contains("compgen -f"), "{digest}");
}

#[test]
fn sizes_and_times_have_parts_and_units() {
    let here = folder();
    let (source, target) = (here.path().join("source"), here.path().join("target"));
    fs::write(&source, vec![7; 1536]).unwrap();
    let receiver = receiver(&["--size", "1.5K", "--timeout", "5m"], &target);
    crate::rig::sender(&["--timeout", "1h"], &source, &receiver.address).finish().succeeded();
    receiver.finish().succeeded();
    assert_eq!(fs::read(&target).unwrap().len(), 1536);
    let server = serve(here.path(), &["--timeout", "1m", "--drain", "500ms", "--rate", "1.5M"]);
    server.end();
}

#[test]
fn one_file_is_not_several() {
    let here = folder();
    fs::create_dir(here.path().join("tree")).unwrap();
    fs::write(here.path().join("tree/file"), "text").unwrap();
    let said = client(here.path(), &["cp", "-r", "--explain", "tree", "copy"]).succeeded().stderr;
    assert!(said.contains("1 file") && !said.contains("1 files"), "{said}");
    assert!(said.contains("1 folder") && !said.contains("1 folders"), "{said}");
}

#[test]
fn progress_on_a_terminal_is_one_line_that_fits() {
    if !has("script") {
        return;
    }
    let here = folder();
    let program = env!("CARGO_BIN_EXE_underpass");
    let feed = "for i in 1 2 3 4 5 6 7 8; do head -c 1000 /dev/zero; sleep 0.2; done";
    for columns in [60, 20] {
        let name = "a-name-that-is-rather-long-for-a-terminal";
        let line =
            format!("stty cols {columns} rows 20; ({feed}) | {program} cp - {name}-{columns}");
        let mut command = Command::new("script");
        command.args(["-qec", &line, "/dev/null"]).current_dir(here.path()).env("TERM", "xterm");
        let said = command.stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        let drawn: Vec<_> = said.split('\r').filter(|text| text.contains("a-name-that")).collect();
        assert!(drawn.len() > 2, "{said:?}");
        for text in &drawn {
            let text = text.trim_start_matches("\x1b[J");
            assert!(text.len() < columns && !text.contains('\n'), "{text:?} in {said:?}");
        }
        // What follows the last drawing erases it.
        let last = said.rsplit_once("a-name-that").unwrap().1;
        assert!(last.contains("\r\x1b[J"), "{said:?}");
        if columns == 60 {
            assert!(drawn.iter().any(|text| text.contains(" KiB at ")), "{said:?}");
        }
    }
}
