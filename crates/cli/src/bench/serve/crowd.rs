//! Many connections on one thread, each of which asks again as soon as it has its response.
//!
//! The load has to cost as little as possible, as it must not be what is measured: requests are made
//! beforehand, heads are read with whatever of the body comes along, and the rest of a body is
//! dropped by the kernel (`MSG_TRUNC`) without being copied.

use std::io;
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::client::Host;
use super::histogram::Histogram;
use super::record::Load;
use super::responses::{Responses, Unexpected};
use super::trail::Trail;

/// Connections that ask all the time.
pub(crate) struct Crowd<'a> {
    epoll: rustix::fd::OwnedFd,
    members: Vec<Member>,
    tallies: [Tally; 2],
    /// For heads, and the begins of bodies.
    buffer: Vec<u8>,
    /// As long as what the kernel may drop at once. Nothing is ever written into it.
    dropped: Vec<u8>,
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
    socket: TcpStream,
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
        let socket = host.connect(Ipv4Addr::LOCALHOST, None)?;
        socket.set_nonblocking(true)?;
        let data = epoll::EventData::new_u64(self.members.len() as u64);
        epoll::add(&self.epoll, &socket, data, epoll::EventFlags::IN)?;
        let mut member = Member {
            socket,
            class: wish.class,
            request: host.request(&wish.path).into(),
            asked: Instant::now(),
            responses: Responses::new(wish.size),
            trail,
        };
        member.ask(Instant::now())?;
        self.members.push(member);
        Ok(())
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
                member.turn(tally, &mut self.buffer, &mut self.dropped)?;
            }
        }
        Ok(())
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
    /// Sends the request; a connection on which nothing is under way always takes it whole.
    fn ask(&mut self, now: Instant) -> io::Result<()> {
        self.asked = now;
        match send(&self.socket, &self.request, SendFlags::NOSIGNAL)? {
            sent if sent == self.request.len() => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    }

    /// Reads until its response is whole and asks again, or until nothing more is there; but only
    /// a few times, as others wait.
    fn turn(&mut self, tally: &mut Tally, buffer: &mut [u8], dropped: &mut [u8]) -> io::Result<()> {
        for _ in 0..READS {
            let finished = self.responses.finished();
            let before = self.responses.body_bytes();
            match self.read(buffer, dropped) {
                Err(Errno::AGAIN) => return Ok(()),
                Err(errno) => return Err(errno.into()),
                Ok(outcome) => outcome?,
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
                    return self.ask(now);
                }
                _ => return Err(Unexpected::Surplus.into()),
            }
        }
        Ok(())
    }

    /// Reads once.
    fn read(
        &mut self,
        buffer: &mut [u8],
        dropped: &mut [u8],
    ) -> Result<Result<(), Unexpected>, Errno> {
        let Some(left) = self.responses.left() else {
            let (len, _) = recv(&self.socket, &mut *buffer, RecvFlags::empty())?;
            return Ok(match len {
                0 => Err(Unexpected::End),
                len => self.responses.take(&buffer[..len], |_| {}),
            });
        };
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(dropped.len());
        let (_, len) = recv(&self.socket, &mut dropped[..len], RecvFlags::TRUNC)?;
        Ok(match len {
            0 => Err(Unexpected::End),
            len => self.responses.skip(len as u64),
        })
    }
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
