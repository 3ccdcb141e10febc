//! `bench serve idle`: connections by the thousand that are kept alive and ask for nothing, and
//! downloads that do not go on. What does that cost in memory, and how soon is a new request
//! answered meanwhile?

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::client::{Client, Host};
use super::course::{Counting, Spent, Stage, Window};
use super::histogram::Histogram;
use super::record::{Latency, Memory, Served};
use super::responses::Unexpected;
use super::server::Server;
use crate::counted::Tally;
use crate::error::Result;
use crate::plan::Variant;
use crate::record::Role;
use crate::rounds::{Course, Measured, Verdict};

/// Very many connections.
#[derive(Debug)]
pub(crate) struct Idle<'a>(pub(crate) Stage<'a>);

/// What a sample found.
struct Found {
    spent: Spent,
    memory: [Memory; 3],
    answers: Latency,
}

impl Course for Idle<'_> {
    fn prepare(&mut self, size: u64) -> Result<()> {
        self.0.make(SMALL, SMALL_BYTES)?;
        self.0.sha256 = self.0.make(LARGE, size)?;
        Ok(())
    }

    fn verify(&mut self, size: u64, variant: Variant) -> Result<Verdict> {
        self.0.verify(variant.way, LARGE, size)
    }

    fn measure(&mut self, _size: u64, variant: Variant) -> Result<Measured> {
        let work = |server: &Server, host: &Host| self.sample(server, host);
        let (found, all_cpu_s) = self.0.with_server(variant.way, work)?;
        let [start, idle, slow] = found.memory;
        let (measured, peer) = found.spent.sides();
        Ok(Measured {
            wall_s: found.spent.elapsed_s(),
            measured,
            peer: Some(peer),
            served: Some(Served::Idle { start, idle, slow, answers: found.answers }),
            besides_cpu_s: all_cpu_s - found.spent.cpu_s(),
        })
    }

    fn count(&mut self, _size: u64, variant: Variant) -> Result<Vec<Tally>> {
        let work = |counting: &Counting<'_>, host: &Host| {
            let calls = counting.during(|| self.sample(counting.server, host).map(drop))?;
            Ok(Tally::new(Role::Server, calls))
        };
        self.0.counted(variant.way, work)
    }
}

impl Idle<'_> {
    fn sample(&self, server: &Server, host: &Host) -> io::Result<Found> {
        let setting = self.0.setting;
        let small = host.request(&format!("/{SMALL}"));
        let mut sources = Sources::new();
        Client::connect(host, Ipv4Addr::LOCALHOST)?.ask(&small, SMALL_BYTES, |_| {})?;
        let window = Window::open(server);
        let start = server.memory();

        let mut idle = Vec::new();
        for _ in 0..setting.idle.unwrap_or(0) {
            self.interrupted()?;
            let mut client = Client::connect(host, sources.next())?;
            client.ask(&small, SMALL_BYTES, |_| {})?;
            idle.push(client);
        }
        std::thread::sleep(SETTLE);
        let with_idle = server.memory();

        let mut slow = Vec::new();
        for _ in 0..setting.slow.unwrap_or(0) {
            self.interrupted()?;
            slow.push(begin_download(host, sources.next())?);
        }
        std::thread::sleep(SETTLE);
        let with_slow = server.memory();

        let answers = answers(host, &small)?;
        // Those that were idle all the time are still served, so that what was measured was true.
        if let Some(client) = idle.first_mut() {
            client.ask(&small, SMALL_BYTES, |_| {})?;
        }
        let spent = window.close(server);
        drop((idle, slow));
        Ok(Found { spent, memory: [start, with_idle, with_slow], answers })
    }

    fn interrupted(&self) -> io::Result<()> {
        match self.0.cancel.load(Ordering::Relaxed) {
            true => Err(io::ErrorKind::Interrupted.into()),
            false => Ok(()),
        }
    }
}

/// Asks for the large file, takes its begin and then nothing more.
fn begin_download(host: &Host, from: Ipv4Addr) -> io::Result<TcpStream> {
    let mut stream = host.connect(from, Some(SLOW_BUFFER))?;
    stream.write_all(&host.request(&format!("/{LARGE}")))?;
    let mut begin = [0; 4 << 10];
    stream.read_exact(&mut begin)?;
    match begin.starts_with(b"HTTP/1.1 200 ") {
        true => Ok(stream),
        false => {
            let status = begin.split(|byte| *byte == b'\r').next().unwrap_or_default();
            Err(Unexpected::Status(String::from_utf8_lossy(status).into_owned()).into())
        }
    }
}

/// How soon new connections are answered, one after the other.
fn answers(host: &Host, request: &[u8]) -> io::Result<Latency> {
    let mut latencies = Histogram::new();
    for _ in 0..ANSWERS {
        let started = Instant::now();
        Client::connect(host, Ipv4Addr::LOCALHOST)?.ask(request, SMALL_BYTES, |_| {})?;
        latencies.add(started.elapsed());
    }
    latencies.latency().ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

/// The addresses of loopback from which connections come: another one before the ports of one are
/// used up.
#[derive(Debug)]
struct Sources {
    used: u32,
    ports: u32,
}

impl Sources {
    fn new() -> Self {
        let range = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
        Self { used: 0, ports: usable_ports(&range.unwrap_or_default()) }
    }

    fn next(&mut self) -> Ipv4Addr {
        let address = Ipv4Addr::from_bits(Ipv4Addr::LOCALHOST.to_bits() + self.used / self.ports);
        self.used += 1;
        address
    }
}

/// Half of the range `first last`, as others use ports too, and finding the last free one takes
/// long.
fn usable_ports(range: &str) -> u32 {
    let ends: Vec<u32> = range.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    match ends[..] {
        [first, last] if last > first + 1 => (last - first) / 2,
        _ => 10_000,
    }
}

const LARGE: &str = "large";

const SMALL: &str = "small";

/// The size of the file that new connections ask for.
const SMALL_BYTES: u64 = 1 << 10;

/// The receive buffer of a slow client, so that it is the server who has to keep what is sent.
const SLOW_BUFFER: usize = 16 << 10;

/// New connections whose answers are timed.
const ANSWERS: u32 = 50;

/// Until a server has done what it does once for new connections.
const SETTLE: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_address_is_used_before_the_ports_of_one_are_used_up() {
        assert_eq!(usable_ports("32768\t60999\n"), 14_115);
        assert_eq!(usable_ports(""), 10_000);
        let mut sources = Sources { used: 0, ports: 2 };
        let found: Vec<_> = (0..5).map(|_| sources.next().octets()[3]).collect();
        assert_eq!(found, [1, 1, 2, 2, 3]);
    }
}
