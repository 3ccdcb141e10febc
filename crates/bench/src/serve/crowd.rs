//! Many connections on one thread, each of which asks again as soon as it has its response.
//!
//! The load has to cost as little as possible, as it must not be what is measured: requests are made
//! beforehand, heads are read with whatever of the body comes along, and the rest of a body is
//! dropped by the kernel (`MSG_TRUNC`) without being copied.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use super::client::Host;
use super::histogram::Histogram;
use super::record::Load;
use super::responses::{Responses, Unexpected};
use super::trail::Trail;
use super::wire::Wire;

/// Connections that ask all the time.
pub(crate) struct Crowd<'a> {
    epoll: rustix::fd::OwnedFd,
    members: Vec<Member>,
    tallies: [Tally; 2],
    /// For heads, and the begins of bodies.
    buffer: Vec<u8>,
    /// As long as what the kernel may drop at once. Nothing is ever written into it.
    dropped: Vec<u8>,
    /// Whom members connect to for each of their requests, if they do.
    anew: Option<Host>,
    cancel: &'a AtomicBool,
}

/// What a member asks for.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    /// The path of the file.
    pub(crate) path: String,
    /// Its size.
    pub(crate) size: u64,
    /// How its responses are counted, and whose turn is first.
    pub(crate) class: Class,
}

/// Members that are counted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Those whose latency matters.
    Hot,
    /// Those that stream cold files beside them.
    Stream,
}

struct Member {
    wire: Wire,
    class: Class,
    request: Arc<[u8]>,
    asked: Instant,
    responses: Responses,
    /// Keeps what it has read out of the page cache.
    trail: Option<Trail>,
}

/// What one class has got.
#[derive(Debug)]
struct Tally {
    latencies: Histogram,
    bytes: u64,
}

impl<'a> Crowd<'a> {
    /// Nobody yet.
    pub(crate) fn new(cancel: &'a AtomicBool) -> io::Result<Self> {
        Ok(Self {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            members: Vec::new(),
            tallies: [Tally::new(), Tally::new()],
            buffer: vec![0; PIECE],
            dropped: vec![0; DROPPED],
            anew: None,
            cancel,
        })
    }

    /// Connects a new member, which asks at once.
    pub(crate) fn join(
        &mut self,
        host: &Host,
        wish: &Wish,
        trail: Option<Trail>,
    ) -> io::Result<()> {
        let mut member = Member {
            wire: connect(&self.epoll, host, self.members.len())?,
            class: wish.class,
            request: host.request(&wish.path).into(),
            asked: Instant::now(),
            responses: Responses::new(wish.size),
            trail,
        };
        member.ask()?;
        self.members.push(member);
        Ok(())
    }

    /// From now on every member leaves when it has its response, and comes anew.
    pub(crate) fn come_anew(&mut self, host: &Host) {
        self.anew = Some(host.clone());
    }

    /// Asks for so long; forgets what was counted before, but goes on with the responses that were
    /// under way.
    pub(crate) fn run_for(&mut self, time: Duration) -> io::Result<()> {
        self.tallies = [Tally::new(), Tally::new()];
        let start = Instant::now();
        let (mut now, mut heard) = (start, start);
        let mut events = Vec::with_capacity(EVENTS);
        let moment = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        while now.duration_since(start) < time {
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
            } else if now.duration_since(heard) > PATIENCE {
                return Err(Unexpected::Silence.into());
            }
            if self.cancel.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::Interrupted.into());
            }
        }
        Ok(())
    }

    /// Those of a class for whom something has arrived.
    fn serve(&mut self, events: &[epoll::Event], class: Class) -> io::Result<()> {
        for event in events {
            let index = event.data.u64() as usize;
            let member = &mut self.members[index];
            if member.class == class {
                let tally = &mut self.tallies[class as usize];
                let is_answered = member.turn(tally, &mut self.buffer, &mut self.dropped)?;
                if !is_answered {
                    continue;
                }
                if let Some(host) = &self.anew {
                    member.wire.close();
                    member.asked = Instant::now();
                    member.wire = connect(&self.epoll, host, index)?;
                }
                member.ask()?;
            }
        }
        Ok(())
    }

    /// Bytes of bodies that all of them have got in the last run.
    pub(crate) fn bytes(&self) -> u64 {
        self.tallies.iter().map(|tally| tally.bytes).sum()
    }

    /// What a class has got in the last run, which took so long.
    pub(crate) fn load(&self, class: Class, elapsed_s: f64) -> Load {
        let tally = &self.tallies[class as usize];
        let members = self.members.iter().filter(|member| member.class == class);
        Load {
            connections: u32::try_from(members.count()).unwrap_or(u32::MAX),
            elapsed_s,
            responses: tally.latencies.total(),
            bytes: tally.bytes,
            latency: tally.latencies.latency(),
        }
    }
}

impl Tally {
    fn new() -> Self {
        Self { latencies: Histogram::new(), bytes: 0 }
    }
}

impl Member {
    fn ask(&mut self) -> io::Result<()> {
        self.wire.ask(&self.request)
    }

    /// Reads until its response is whole, which it tells, or until nothing more is there; but only
    /// a few times, as others wait. What TLS has read of the socket has to be taken, as nothing
    /// else tells that it is there.
    fn turn(
        &mut self,
        tally: &mut Tally,
        buffer: &mut [u8],
        dropped: &mut [u8],
    ) -> io::Result<bool> {
        let reads = if self.wire.is_encrypted() { usize::MAX } else { READS };
        for _ in 0..reads {
            let finished = self.responses.finished();
            let before = self.responses.body_bytes();
            match self.read(buffer, dropped) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                outcome => outcome?,
            }
            let arrived = self.responses.body_bytes() - before;
            tally.bytes += arrived;
            if let Some(trail) = &mut self.trail {
                trail.go(arrived)?;
            }
            match self.responses.finished() - finished {
                0 => {}
                1 if self.responses.is_between() => {
                    let now = Instant::now();
                    tally.latencies.add(now.duration_since(self.asked));
                    self.asked = now;
                    return Ok(true);
                }
                _ => return Err(Unexpected::Surplus.into()),
            }
        }
        Ok(false)
    }

    /// Reads once.
    fn read(&mut self, buffer: &mut [u8], dropped: &mut [u8]) -> io::Result<()> {
        let outcome = match self.responses.left() {
            None => match self.wire.read(buffer)? {
                0 => Err(Unexpected::End),
                len => self.responses.take(&buffer[..len], |_| {}),
            },
            Some(left) => {
                let len = usize::try_from(left).unwrap_or(usize::MAX).min(dropped.len());
                match self.wire.skip(&mut dropped[..len])? {
                    0 => Err(Unexpected::End),
                    len => self.responses.skip(len as u64),
                }
            }
        };
        Ok(outcome?)
    }
}

/// A new connection, of which the epoll tells under this number.
fn connect(epoll: &rustix::fd::OwnedFd, host: &Host, index: usize) -> io::Result<Wire> {
    let wire = Wire::new(host.connect(Ipv4Addr::LOCALHOST, None)?, host.tls.as_ref())?;
    let data = epoll::EventData::new_u64(index as u64);
    epoll::add(epoll, &wire.socket, data, epoll::EventFlags::IN)?;
    Ok(wire)
}

/// Read at once of a head and the begin of its body: a response of 10 KiB as a whole.
const PIECE: usize = 16 << 10;

/// Dropped at once, at most: what a stream may do while others wait.
const DROPPED: usize = 256 << 10;

/// Reads of a member before others have their turn.
const READS: usize = 4;

/// Events taken from the kernel at once.
const EVENTS: usize = 256;

/// How long all connections together may be silent.
const PATIENCE: Duration = Duration::from_secs(30);
