//! How many instructions a response takes, on the whole machine and in the server alone.
//!
//! The emulator runs with `-icount shift=0`: its clock advances by a nanosecond per instruction and
//! not otherwise, so that a duration in the machine is a number of instructions. `rig/count` boots
//! it that way. Instructions are not time: they measure the work, not how long it takes.

use std::fs;
use std::net::TcpStream;
use std::time::Instant;

use rustix::net::RecvFlags;
use rustls::CipherSuite;
use serde_json::{Value, json};

use crate::checks::MIB;
use crate::peer::Peer;
use crate::place::Place;
use crate::program::Server;
use crate::{Result, pattern, terms};

const LEN: u64 = 256 * MIB;

/// Counts a response without TLS and one with each suite, and prints the counts.
pub(crate) fn all(place: &Place) -> Result<()> {
    pattern::file(&place.served().join("file"), LEN)?;
    if place.in_kernel() {
        let server = Server::plain(place, &["--workers", "1"])?;
        print(json!({ "tls": "none" }), || plain(&server), &server)?;
    }
    for suite in [CipherSuite::TLS13_AES_128_GCM_SHA256, CipherSuite::TLS13_AES_256_GCM_SHA384] {
        let server = Server::start(place, &["--workers", "1"])?;
        let what = json!({ "tls": place.wanted.receipt(), "suite": format!("{suite:?}") });
        print(what, || secured(&server, suite), &server)?;
        let lines = server.end()?;
        println!("count-mechanisms {}", lines.last().ok_or("an empty log")?["mechanisms"]);
    }
    Ok(())
}

/// Requests the file, and returns the connection before any of the response is read.
fn plain(server: &Server) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port))?;
    let head = b"GET /file HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    std::io::Write::write_all(&mut stream, head)?;
    Ok(stream)
}

/// Opens a connection over TLS. The client does not decrypt, so only the server's side is counted.
fn secured(server: &Server, suite: CipherSuite) -> Result<TcpStream> {
    let mut peer = Peer::on(server.port, terms::client(Some(suite))?)?;
    peer.ask("GET", "/file", "Connection: close\r\n")?;
    Ok(peer.socket().try_clone()?)
}

/// Counts the instructions for sending the file, and prints them as one line of JSON.
fn print(mut what: Value, ask: impl Fn() -> Result<TcpStream>, server: &Server) -> Result<()> {
    // The first response finds all caches cold.
    discard(&ask()?)?;
    let stream = ask()?;
    let before = (Counted::now(server)?, Instant::now());
    let received = discard(&stream)?;
    let (after, clock) = (Counted::now(server)?, before.1.elapsed().as_nanos());
    if received < LEN {
        return Err(format!("{received} bytes instead of {LEN} and more").into());
    }
    let idle = u128::from(after.idle - before.0.idle);
    let per_byte = |count: u64| (count as f64 / LEN as f64 * 1000.0).round() / 1000.0;
    let machine = u64::try_from(clock.saturating_sub(idle))?;
    let of_server = after.server - before.0.server;
    what["bytes"] = LEN.into();
    what["machine_instructions"] = machine.into();
    what["server_instructions"] = of_server.into();
    what["machine_instructions_per_byte"] = per_byte(machine).into();
    what["server_instructions_per_byte"] = per_byte(of_server).into();
    println!("count {what}");
    Ok(())
}

/// Reads to the end, letting the kernel discard the bytes.
fn discard(stream: &TcpStream) -> Result<u64> {
    let mut buffer = vec![0; 1 << 20];
    let mut all = 0;
    loop {
        let (_, got) = rustix::net::recv(stream, &mut buffer[..], RecvFlags::TRUNC)?;
        if got == 0 {
            return Ok(all);
        }
        all += got as u64;
    }
}

/// Nanoseconds, which are instructions here.
#[derive(Debug)]
struct Counted {
    /// When the machine was idle, in steps of ten milliseconds.
    idle: u64,
    /// When the server's threads ran, including in the kernel.
    server: u64,
}

impl Counted {
    fn now(server: &Server) -> Result<Self> {
        let stat = fs::read_to_string("/proc/stat")?;
        let idle = stat.split_whitespace().nth(4).ok_or("no idle time")?.parse::<u64>()?;
        let mut ran = 0;
        for thread in fs::read_dir(format!("/proc/{}/task", server.process()))? {
            let text = fs::read_to_string(thread?.path().join("schedstat"))?;
            ran += text.split(' ').next().ok_or("no schedstat")?.parse::<u64>()?;
        }
        Ok(Self { idle: idle * 10_000_000, server: ran })
    }
}
