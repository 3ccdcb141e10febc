//! Who gets in at the real server, and what it costs to turn others away.

#![allow(clippy::unwrap_used)]

mod rig;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::Duration;

use rig::{Running, folder};

/// `secret`, in 32 MiB of memory.
const HASH: &str = "$argon2id$v=19$m=32768,t=1,p=1$c2FsdHN0cmluZw$\
    a7XsjjIZycL0ShHOW+qma7Cmpwx+hgtXyDndbsUPlBY";

/// `me:secret` in Base64.
const RIGHT: &str = "bWU6c2VjcmV0";

/// Digits of Base64, of which any make a wrong password.
const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOP";

/// A server of an empty folder with these options.
fn serve(served: &std::path::Path, args: &[&str]) -> Running {
    let mut command: Command = rig::underpass();
    command.args(["serve", "-q", "-p", "0"]).args(args).arg(served);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    Running::listening(command)
}

fn ask(server: &Running, fields: &str) -> TcpStream {
    let host = server.address.trim_start_matches("http://").trim_end_matches('/');
    let mut stream = TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    let head = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{fields}\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

fn reply(mut stream: TcpStream) -> String {
    let mut text = String::new();
    // A connection may be reset once its reply is there.
    let _ = stream.read_to_string(&mut text);
    text
}

/// The most memory that a process had, in MiB.
fn peak(server: &Running) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

#[test]
fn passwords_are_checked_in_the_memory_of_one_check() {
    let folder = folder();
    let server = serve(folder.path(), &["-a", &format!("me:{HASH}@/")]);
    let before = peak(&server);
    let guessing: Vec<TcpStream> = DIGITS
        .iter()
        .map(|digit| {
            let digit = char::from(*digit);
            ask(&server, &format!("Authorization: Basic bWU6eHh4{digit}{digit}{digit}{digit}\r\n"))
        })
        .collect();
    let right = format!("Authorization: Basic {RIGHT}\r\n");
    assert!(reply(ask(&server, &right)).starts_with("HTTP/1.1 200 "));
    for stream in guessing {
        let reply = reply(stream);
        assert!(reply.starts_with("HTTP/1.1 401 ") || reply.starts_with("HTTP/1.1 429 "));
    }
    let more = peak(&server) - before;
    assert!(more < 96, "{more} MiB for {} passwords of 32 MiB each", DIGITS.len());
}
