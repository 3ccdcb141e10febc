//! Many connections on one thread, each of which sends a new request once it has its response.
//!
//! The load must cost as little as possible, to not affect the measurement: requests are built
//! beforehand, a head is read together with the first bytes of its body, and the kernel drops the
//! rest of the body (`MSG_TRUNC`) without copying it.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use super::client::Host;
use super::connection::LoadConnection;
use super::drop_behind::DropBehind;
use super::responses::{ResponseFault, Responses};
use crate::record::{Latency, Load};

/// Connections that send requests all the time.
pub(crate) struct LoadGenerator<'a> {
    epoll: rustix::fd::OwnedFd,
    requesters: Vec<Requester>,
    tallies: [ClassTotals; 2],
    /// The buffer for heads, and for the beginnings of bodies.
    buffer: Vec<u8>,
    /// A buffer as long as the kernel may drop at once. Nothing is ever written into it.
    dropped: Vec<u8>,
    /// The server that requesters connect to for each of their requests, if they do.
    pub(crate) reconnects: Option<Host>,
    cancel: &'a AtomicBool,
}

/// The request that a requester repeats.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestSpec<'a> {
    /// The file of the site.
    pub(crate) name: &'a str,
    pub(crate) size: u64,
    /// The class of its responses, by which they are counted and scheduled.
    pub(crate) class: Class,
}

/// Peers that are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// The connections whose latency matters.
    Hot,
    /// Connections that stream cold files meanwhile.
    Stream,
}

struct Requester {
    connection: LoadConnection,
    class: Class,
    request: Arc<[u8]>,
    sent_at: Instant,
    responses: Responses,
    /// Keeps what it has read out of the page cache.
    drop_behind: Option<DropBehind>,
}

#[derive(Debug, Default)]
struct ClassTotals {
    latencies: Latencies,
    bytes: u64,
}

impl<'a> LoadGenerator<'a> {
    pub(crate) fn new(cancel: &'a AtomicBool) -> io::Result<Self> {
        Ok(Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            requesters: Vec::new(),
            tallies: Default::default(),
            buffer: vec![0; PIECE],
            dropped: vec![0; DROPPED],
            reconnects: None,
            cancel,
        })
    }

    /// Connects a new requester, which sends its request at once.
    pub(crate) fn join(
        &mut self,
        host: &Host,
        spec: RequestSpec<'_>,
        drop_behind: Option<DropBehind>,
    ) -> io::Result<()> {
        let mut requester = Requester {
            connection: connect(&self.epoll, host, self.requesters.len())?,
            class: spec.class,
            request: host.request(&format!("/{}", spec.name)).into(),
            sent_at: Instant::now(),
            responses: Responses::new(spec.size),
            drop_behind,
        };
        requester.ask()?;
        self.requesters.push(requester);
        Ok(())
    }

    /// Sends requests for this time, and on a busy machine until the server has sent something;
    /// drops earlier counts, but continues with the pending responses.
    pub(crate) fn run_for(&mut self, time: Duration) -> io::Result<()> {
        self.tallies = Default::default();
        let start = Instant::now();
        let (mut now, mut heard) = (start, start);
        let mut events = Vec::with_capacity(EVENTS);
        let moment = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        while now.duration_since(start) < time || heard == start {
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&moment)) {
                Err(Errno::INTR) => {}
                outcome => drop(outcome?),
            }
            for class in [Class::Hot, Class::Stream] {
                self.serve(&events, class)?;
            }
            now = Instant::now();
            if !events.is_empty() {
                heard = now;
            } else if now.duration_since(heard) > MAX_SILENCE {
                return Err(ResponseFault::Silence.into());
            }
            if self.cancel.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::Interrupted.into());
            }
        }
        Ok(())
    }

    /// Serves those of a class for which something has arrived.
    fn serve(&mut self, events: &[epoll::Event], class: Class) -> io::Result<()> {
        for event in events {
            let index = event.data.u64() as usize;
            let requester = &mut self.requesters[index];
            if requester.class == class {
                let tally = &mut self.tallies[class as usize];
                let is_answered = requester.turn(tally, &mut self.buffer, &mut self.dropped)?;
                if !is_answered {
                    continue;
                }
                if let Some(host) = &self.reconnects {
                    requester.connection.close();
                    requester.sent_at = Instant::now();
                    requester.connection = connect(&self.epoll, host, index)?;
                }
                requester.ask()?;
            }
        }
        Ok(())
    }

    /// Returns the bytes of bodies that all requesters received in the last run.
    pub(crate) fn bytes(&self) -> u64 {
        self.tallies.iter().map(|tally| tally.bytes).sum()
    }

    /// Returns what a class received in the last run, which took `elapsed_s`.
    pub(crate) fn load(&self, class: Class, elapsed_s: f64) -> Load {
        let tally = &self.tallies[class as usize];
        let requesters = self.requesters.iter().filter(|requester| requester.class == class);
        Load {
            connections: u32::try_from(requesters.count()).unwrap_or(u32::MAX),
            elapsed_s,
            responses: tally.latencies.total(),
            bytes: tally.bytes,
            latency: tally.latencies.latency(),
            machine_s: None,
        }
    }
}

impl Requester {
    fn ask(&mut self) -> io::Result<()> {
        self.connection.ask(&self.request)
    }

    /// Reads until the response is complete, which it returns, or until nothing more is
    /// available; but only a few times, as other connections wait. Bytes that TLS has read from
    /// the socket must be consumed, as no event announces them.
    fn turn(
        &mut self,
        tally: &mut ClassTotals,
        buffer: &mut [u8],
        dropped: &mut [u8],
    ) -> io::Result<bool> {
        let reads = if self.connection.is_encrypted() { usize::MAX } else { READS };
        for _ in 0..reads {
            let finished = self.responses.finished;
            let before = self.responses.body_bytes;
            match self.read(buffer, dropped) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                outcome => outcome?,
            }
            let arrived = self.responses.body_bytes - before;
            tally.bytes += arrived;
            if let Some(drop_behind) = &mut self.drop_behind {
                drop_behind.read(arrived)?;
            }
            match self.responses.finished - finished {
                0 => {}
                1 if self.responses.is_between() => {
                    let now = Instant::now();
                    tally.latencies.add(now.duration_since(self.sent_at));
                    self.sent_at = now;
                    return Ok(true);
                }
                _ => return Err(ResponseFault::Surplus.into()),
            }
        }
        Ok(false)
    }

    fn read(&mut self, buffer: &mut [u8], dropped: &mut [u8]) -> io::Result<()> {
        let outcome = match self.responses.left {
            None => match self.connection.read(buffer)? {
                0 => Err(ResponseFault::End),
                len => self.responses.feed(&buffer[..len], |_| {}),
            },
            Some(left) => {
                let len = usize::try_from(left).unwrap_or(usize::MAX).min(dropped.len());
                match self.connection.skip(&mut dropped[..len])? {
                    0 => Err(ResponseFault::End),
                    len => self.responses.skip(len as u64),
                }
            }
        };
        Ok(outcome?)
    }
}

/// A histogram of millions of latencies in a few pages; its values are at most 1 % too large.
#[derive(Debug)]
pub(crate) struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        Self(Histogram::new(2).expect("two digits are a precision that there is"))
    }
}

impl Latencies {
    pub(crate) fn add(&mut self, latency: Duration) {
        // The histogram grows automatically, so no latency of a run is out of range.
        let _ = self.0.record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
    }

    pub(crate) fn total(&self) -> u64 {
        self.0.len()
    }

    /// Returns the latency for the record; none if there are no values.
    pub(crate) fn latency(&self) -> Option<Latency> {
        let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
        (!self.0.is_empty()).then(|| Latency {
            p50_s: seconds(self.0.value_at_quantile(0.5)),
            p99_s: seconds(self.0.value_at_quantile(0.99)),
            max_s: seconds(self.0.max()),
        })
    }
}

/// Returns a new connection, which the epoll reports under this number.
fn connect(epoll: &rustix::fd::OwnedFd, host: &Host, index: usize) -> io::Result<LoadConnection> {
    let connection = LoadConnection::to(host, Ipv4Addr::LOCALHOST)?;
    let data = epoll::EventData::new_u64(index as u64);
    epoll::add(epoll, &connection.socket, data, epoll::EventFlags::IN)?;
    Ok(connection)
}

/// The number of bytes of a head and its body read at once: all of a response of 10 KiB.
const PIECE: usize = 16 << 10;

/// The maximum number of bytes that a stream drops at once, while others wait.
const DROPPED: usize = 256 << 10;

/// The maximum number of reads of a requester per turn.
const READS: usize = 4;

/// The number of events read from the kernel at once.
const EVENTS: usize = 256;

/// The maximum time for which no connection receives anything.
const MAX_SILENCE: Duration = Duration::from_secs(30);
