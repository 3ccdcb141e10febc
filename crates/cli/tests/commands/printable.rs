//! No name or text from a server, archive or file system can control the terminal, forge a line, or
//! reverse the order of letters.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use underpass_testkit::http::{close, serve_until_exit};

use crate::rig::{Finished, Running, folder, has, tar_header, underpass};

/// A colour, the same by C1, a title, overrides, isolates, a line that is none, bytes that are none.
const NASTY: &[u8] =
    "x\x1b[31m\u{9b}31m\x1b]0;t\x07\u{202e}gpj\u{2066}\u{2028}\nforged\r".as_bytes();

/// The same without what a parser of heads would refuse before it is shown.
const NASTY_FIELD: &str = "x\u{9b}31m\u{202e}gpj\u{2066}\u{2028}";

#[track_caller]
fn harmless(finished: &Finished) {
    for (name, text) in [("stdout", finished.text()), ("stderr", finished.stderr.clone())] {
        let bad = |letter: char| {
            letter.is_control() && letter != '\n'
                || ('\u{2028}'..='\u{202e}').contains(&letter)
                || ('\u{2066}'..='\u{2069}').contains(&letter)
        };
        assert!(!text.chars().any(bad), "{name}: {text:?}");
        assert!(!text.lines().any(|line| line.starts_with("forged")), "{name}: {text}");
    }
    assert!(!finished.stderr.contains("panicked"), "{}", finished.stderr);
}

/// A server that sends one response to every request.
fn serve(answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> String {
    let url = serve_until_exit(move |request, stream| {
        stream.write_all(&answer(&request.head))?;
        close()
    });
    url.trim_end_matches('/').to_owned()
}

fn answer(first: &str, fields: &[&str], body: &[u8]) -> Vec<u8> {
    let fields: String = fields.iter().map(|field| format!("{field}\r\n")).collect();
    let len = body.len();
    let head =
        format!("HTTP/1.1 {first}\r\n{fields}Content-Length: {len}\r\nConnection: close\r\n\r\n");
    [head.as_bytes(), body].concat()
}

fn run(place: &Path, args: &[&OsStr]) -> Finished {
    let mut command: Command = underpass();
    command.args(args).current_dir(place).env("XDG_STATE_HOME", place.join("state"));
    Running::start(command).finish()
}

#[test]
fn text_from_servers_is_printed_escaped() {
    let place = folder();
    fs::write(place.path().join("file"), "bytes").unwrap();
    let nasty = String::from_utf8(NASTY.to_vec()).unwrap();
    let field = NASTY_FIELD;
    let answers: Vec<Vec<u8>> = vec![
        answer(&format!("404 {field}"), &[], b""),
        answer(&format!("404 {nasty}"), &[], b""),
        answer("403 Forbidden", &["Content-Type: text/plain; charset=utf-8"], NASTY),
        answer("403 Forbidden", &["Content-Type: text/plain"], b"\xff\xfe\x9b31m"),
        answer("301 Moved", &[&format!("Location: http://[{field}/")], b""),
        answer("301 Moved", &[&format!("Location: {field}://x/")], b""),
        answer("307 Moved", &[&format!("Location: http://a{field}.invalid/")], b""),
        answer("206 Partial", &[&format!("Content-Range: bytes {field}")], b"x"),
        answer("200 OK", &[&format!("Content-Encoding: {field}")], b"x"),
        answer("200 OK", &[&format!("Content-Type: {field}"), &format!("ETag: \"{field}\"")], b"x"),
        answer("200 OK", &[&format!("Repr-Digest: sha-256=:{field}:")], b"x"),
        answer(
            "200 OK",
            &[&format!("Content-Disposition: attachment; filename=\"{field}\"")],
            b"x",
        ),
        answer("503 Busy", &[&format!("Retry-After: {field}"), "Content-Type: text/plain"], NASTY),
        nasty.clone().into_bytes(),
    ];
    for (index, answer) in answers.into_iter().enumerate() {
        let url = serve(move |_| answer.clone()) + "/name";
        let url = OsStr::new(&url);
        let retries = [OsStr::new("--retries"), OsStr::new("1"), OsStr::new("--explain")];
        let word = OsStr::new;
        for args in [
            &[word("get"), url, word("-f")][..],
            &[word("get"), word("-r"), url],
            &[word("get"), url, word("-f"), word("--verify"), word("--json")],
            &[word("put"), word("file"), url],
            &[word("put"), word("file"), url, word("--if-match"), word("x"), word("--json")],
        ] {
            let finished = run(place.path(), &[args, &retries].concat());
            harmless(&finished);
            assert!(finished.stderr.lines().count() < 40, "{index}: {}", finished.stderr);
        }
    }
}

#[test]
fn names_in_listings_and_archives_are_shown_harmlessly() {
    let place = folder();
    let encoded: String = NASTY.iter().map(|byte| format!("%{byte:02X}")).collect();
    // It is a folder there, and a file here.
    fs::create_dir(place.path().join("x")).unwrap();
    fs::create_dir(place.path().join("x").join(OsStr::from_bytes(NASTY))).unwrap();
    let page = format!("<a href=\"{encoded}\">x</a><a href=\"{encoded}%2F..\">y</a>");
    let url = serve(move |head| {
        if head.contains("archive=tar") || head.contains("/x/ ") {
            answer("200 OK", &["Content-Type: text/html"], page.as_bytes())
        } else {
            answer("200 OK", &[], b"bytes")
        }
    }) + "/x/";
    let words = ["get", "-r", &url, "--retries", "0"].map(OsStr::new);
    let finished = run(place.path(), &words);
    harmless(&finished);
    assert!(finished.stderr.contains("left out"), "{}", finished.stderr);

    let header = tar_header(NASTY, b'6');
    let body = [header.as_slice(), &[0; 1024]].concat();
    let url = serve(move |head| {
        let body = if head.starts_with("HEAD") { &b""[..] } else { &body };
        let len = 1536;
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/x-tar\r\nContent-Length: {len}\r\n\
             ETag: \"e\"\r\nConnection: close\r\n\r\n"
        );
        [head.as_bytes(), body].concat()
    }) + "/y/";
    let finished = run(place.path(), &["get", "-r", &url, "--retries", "0"].map(OsStr::new));
    harmless(&finished);
    assert!(finished.stderr.contains("left out"), "{}", finished.stderr);
}

#[test]
fn names_in_certificates_are_shown_harmlessly() {
    if !has("openssl") {
        return;
    }
    let place = folder();
    fs::write(place.path().join("file"), "bytes").unwrap();
    let (certificate, key) = (place.path().join("cert.pem"), place.path().join("key.pem"));
    let nasty = String::from_utf8(NASTY.to_vec()).unwrap();
    // A name of DNS with bytes that none can have: openssl makes it only from DER.
    let name = [&[0x82, NASTY.len() as u8], NASTY].concat();
    let names: String = [&[0x30, name.len() as u8], &name[..]]
        .concat()
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"])
        .args(["-days", "2", "-utf8", "-subj", &format!("/CN={nasty}")])
        .args(["-addext", &format!("2.5.29.17=DER:{names}"), "-keyout"])
        .args([key.as_os_str(), OsStr::new("-out"), certificate.as_os_str()])
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let (one, other) = (certificate.to_str().unwrap(), key.to_str().unwrap());
    let server = crate::rig::serve(&place, &["--tls-cert", one, "--tls-key", other]);
    let url = format!("{}file", server.address);
    let word = |text: &'static str| OsStr::new(text);
    let (url, retries) = (OsStr::new(&url), [word("--retries"), word("0")]);
    for trust in [&[word("--cacert"), certificate.as_os_str()][..], &[]] {
        for args in [
            &[word("get"), url, word("-o"), word("copy")][..],
            &[word("get"), url, word("-o"), word("copy"), word("--json")],
            &[word("get"), word("-r"), url],
            &[word("put"), word("file"), url],
        ] {
            let finished = run(place.path(), &[args, trust, &retries].concat());
            assert_ne!(finished.code(), Some(0));
            harmless(&finished);
            // The command gets the existing names.
            let tells = finished.stderr.contains("\\u{202e}");
            assert_eq!(tells, !trust.is_empty(), "{}", finished.stderr);
        }
    }
    server.signal("TERM");
    harmless(&server.finish());
}

#[test]
fn names_here_are_shown_harmlessly() {
    let place = folder();
    let mut name = NASTY.to_vec();
    name.extend(b"\xff\xfe");
    let name = OsStr::from_bytes(&name);
    let url = serve(|_| answer("404 Not Found", &[], b""));
    let words = |words: &[&OsStr]| words.iter().map(|word| word.to_os_string()).collect::<Vec<_>>();
    let word = OsStr::new;
    let cases: Vec<Vec<OsString>> = vec![
        words(&[word("cp"), name, word("copy")]),
        words(&[word("cp"), word("--json"), name, word("copy")]),
        words(&[word("cp"), word("-r"), word("."), name]),
        words(&[word("put"), name, word(&url)]),
        words(&[word("put"), word("-r"), word("."), word(&url)]),
        words(&[word("get"), word("-o"), name, word(&url)]),
        words(&[word("get"), word("--json"), word("-d"), name, word(&url)]),
        words(&[word("send"), name, word("127.0.0.1:1")]),
        words(&[word("recv"), word("127.0.0.1:1"), name]),
        words(&[word("serve"), name]),
        words(&[word("doctor"), word("--from"), name]),
        words(&[word("explain"), word("--"), word("cat"), name]),
        words(&[name]),
        words(&[word("get"), name]),
    ];
    for is_there in [false, true] {
        if is_there {
            fs::write(place.path().join(name), "bytes").unwrap();
        }
        for case in &cases {
            let case: Vec<_> = case.iter().map(OsString::as_os_str).collect();
            match case[0].to_str() {
                // It would serve the file, and the doctor would measure it.
                Some("serve" | "doctor") if is_there => {}
                Some("explain") => harmless_without_the_program(&run(place.path(), &case)),
                _ => harmless(&run(place.path(), &case)),
            }
        }
    }
}

/// Like [`harmless`], for our own output: the explained program may print anything.
fn harmless_without_the_program(finished: &Finished) {
    let own = |line: &&str| !line.starts_with("cat: ") && !line.starts_with("forged");
    let stderr = finished.stderr.lines().filter(own).collect::<Vec<_>>().join("\n");
    harmless(&Finished { status: finished.status, stdout: finished.stdout.clone(), stderr });
}
