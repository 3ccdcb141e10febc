//! `bench chain`: a header and a small file over one TCP connection, many times, as a server of
//! many small files does it. One buffer costs a copy of the file; `MSG_MORE` and sendfile cost a
//! call more. Where the second becomes the cheaper one is what [`SMALL_TRANSFER`] is set to.
//!
//! Two threads on a core each, client and server. The client asks ahead, a byte for each response,
//! so that the server is as busy as one with many clients and does not pay for sleeping.
//!
//! [`SMALL_TRANSFER`]: underpass_engine::SMALL_TRANSFER

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sha2::{Digest, Sha256};
use underpass_engine::{
    Chain, Error, Mechanism, Options, Policy, Report, Sink, Source, Status, Transfer, Usage,
};

use super::child::{Cores, stay_on};
use super::data::{Folder, Noise, hex};
use super::net::SOURCE;
use super::plan::Variant;
use super::record::{Role, Side, Thread};
use super::rounds::{Course, Measured, Verdict};
use super::way::Way;
use crate::congestion;
use crate::error::{BenchError, Result, WithPath};
use crate::receipt::MechanismReceipt;

/// A header and a small file, many times.
#[derive(Debug)]
pub(crate) struct SmallFiles<'a> {
    /// Where the file is.
    pub(crate) source: Folder,
    /// What it is made of.
    pub(crate) noise: Noise,
    /// Responses of one sample.
    pub(crate) responses: u32,
    /// The congestion control asked for.
    pub(crate) congestion: String,
    /// Where the two threads run.
    pub(crate) cores: Cores,
    /// Set by a signal.
    pub(crate) cancel: &'a AtomicBool,
    /// The file's digest.
    pub(crate) sha256: String,
    /// The congestion control that the connections had.
    pub(crate) seen_congestion: Option<String>,
}

/// What the two threads found.
struct Exchange {
    wall: Duration,
    report: Report,
    server: Usage,
    client: Usage,
    /// Digest of the last body.
    sha256: String,
}

impl Course for SmallFiles<'_> {
    fn prepare(&mut self, size: u64) -> Result<()> {
        self.sha256 = self.noise.write(&self.source.file(SOURCE), size)?;
        Ok(())
    }

    fn verify(&mut self, size: u64, variant: Variant) -> Result<Verdict> {
        let exchange = self.exchange(size, variant, 1)?;
        if exchange.sha256 == self.sha256 {
            return Ok(Verdict::Arrived(exchange.sha256));
        }
        Err(BenchError::Differs { what: variant.to_string() })
    }

    fn measure(&mut self, size: u64, variant: Variant) -> Result<Measured> {
        let exchange = self.exchange(size, variant, self.responses)?;
        let elapsed_s = exchange.wall.as_secs_f64();
        let server = thread(&exchange.report, exchange.server);
        let client = thread(&Report::default(), exchange.client);
        let side = |role, thread| Side { role, elapsed_s, thread: Some(thread), process: None };
        let (measured, peer) = (side(Role::Sender, server), side(Role::Receiver, client));
        Ok(Measured::new(elapsed_s, measured, Some(peer)))
    }
}

impl SmallFiles<'_> {
    /// So many responses over a new connection.
    fn exchange(&mut self, size: u64, variant: Variant, responses: u32) -> Result<Exchange> {
        let path = self.source.file(SOURCE);
        let file = File::open(&path).with_path("opening", &path)?;
        let network = |source| BenchError::Network {
            action: "connecting to",
            address: "loopback".into(),
            source,
        };
        let (server, client) = connection().map_err(network)?;
        self.seen_congestion = congestion::choose(&server, &self.congestion)?;
        congestion::choose(&client, &self.congestion)?;
        let (cores, cancel) = (self.cores, self.cancel);
        let (served, asked) = std::thread::scope(|scope| {
            let serving = scope.spawn(move || {
                stay_on(cores.first);
                serve(&file, server, variant.way, responses)
            });
            let asking = scope.spawn(move || {
                stay_on(cores.second);
                ask(client, size, responses, cancel)
            });
            let join = "neither thread panics";
            (serving.join().expect(join), asking.join().expect(join))
        });
        if cancel.load(Ordering::Relaxed) {
            return Err(BenchError::Interrupted);
        }
        let failed = |said: String| BenchError::Child { what: variant.to_string(), said };
        let (report, server) = served.map_err(|error| failed(error.to_string()))?;
        let (wall, client, sha256) = asked.map_err(|error| failed(error.to_string()))?;
        let exchange = Exchange { wall, report, server, client, sha256 };
        exchange.require(variant.way, size * u64::from(responses))
    }
}

impl Exchange {
    /// Itself, if the files went the required way.
    fn require(self, way: Way, bytes: u64) -> Result<Self> {
        let mechanism = match way {
            Way::OneBuffer => Mechanism::ReadWrite,
            Way::Only(mechanism) => mechanism,
            _ => return Ok(self),
        };
        let moved = self.report.by(mechanism).bytes;
        // What a full socket did not take of one buffer goes on by sendfile.
        let enough = if way == Way::OneBuffer { bytes - bytes / 100 } else { bytes };
        if moved >= enough {
            return Ok(self);
        }
        let ran = format!("{moved} of {bytes} bytes by {mechanism}");
        Err(BenchError::Other { what: way.to_string(), ran })
    }
}

/// Both ends of a new connection: the server's, which sends at once whatever it is given, and the
/// client's.
fn connection() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let client = TcpStream::connect(listener.local_addr()?)?;
    let server = listener.accept()?.0;
    server.set_nodelay(true)?;
    client.set_nodelay(true)?;
    server.set_nonblocking(true)?;
    Ok((server, client))
}

/// Answers each request with a header and the file, and tells what that cost this thread.
fn serve(
    file: &File,
    mut socket: TcpStream,
    way: Way,
    responses: u32,
) -> std::result::Result<(Report, Usage), Error> {
    let failed = |source| Error::Io { mechanism: None, source, report: Box::default() };
    let len = file.metadata().map_err(failed)?.len();
    let before = Usage::of_this_thread();
    let mut total = Report::default();
    let mut asked = 0;
    for _ in 0..responses {
        if asked == 0 {
            asked = requests(&mut socket).map_err(failed)?;
        }
        asked -= 1;
        let chain = Chain::new().bytes(&HEADER[..]).source(Source::range(file, 0, len));
        let mut transfer = Transfer::new(chain, Sink::socket(&socket)).options(options(way));
        while let Status::Waiting(_) = transfer.advance()? {
            wait_for(&socket, PollFlags::OUT);
        }
        total.add(transfer.report());
    }
    Ok((total, Usage::of_this_thread() - before))
}

/// The engine's options that force a way.
fn options<'a>(way: Way) -> Options<'a> {
    match way {
        Way::OneBuffer => Options::default().small(usize::MAX),
        Way::Only(mechanism) => Options::default().policy(Policy::Require(mechanism)),
        _ => Options::default(),
    }
}

/// Waits for at least one request, and says how many there were.
fn requests(socket: &mut TcpStream) -> io::Result<usize> {
    loop {
        match socket.read(&mut [0; MAX_AHEAD]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => return Ok(count),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                wait_for(socket, PollFlags::IN);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Waits for an event, for a second at the most: whoever asks tries again anyway.
fn wait_for(socket: &TcpStream, event: PollFlags) {
    let second = Timespec { tv_sec: 1, tv_nsec: 0 };
    let _ = poll(&mut [PollFd::new(socket, event)], Some(&second));
}

/// Asks, reads the responses and drops them, again and again; digests the last body.
fn ask(
    mut socket: TcpStream,
    size: u64,
    responses: u32,
    cancel: &AtomicBool,
) -> io::Result<(Duration, Usage, String)> {
    let size = usize::try_from(size).map_err(|_| ErrorKind::FileTooLarge)?;
    let mut response = vec![0; HEADER.len() + size];
    let (before, started) = (Usage::of_this_thread(), Instant::now());
    let batch = batch(response.len());
    // Two batches are on their way, so that the server always has one to answer.
    let mut left = ask_for(&mut socket, batch, responses)?;
    for done in 0..responses {
        if done % batch == 0 {
            if cancel.load(Ordering::Relaxed) {
                return Err(ErrorKind::Interrupted.into());
            }
            left = ask_for(&mut socket, batch, left)?;
        }
        socket.read_exact(&mut response)?;
    }
    let (wall, usage) = (started.elapsed(), Usage::of_this_thread() - before);
    Ok((wall, usage, hex(&Sha256::digest(&response[HEADER.len()..]))))
}

/// How many responses are asked for at once: many small ones, but of large ones no more than the
/// socket's buffer takes, as a server would not get rid of them otherwise.
fn batch(response: usize) -> u32 {
    u32::try_from((AHEAD_BYTES / response).clamp(1, MAX_AHEAD)).unwrap_or(1)
}

/// Asks for a batch, or for what is left of all; returns what is left afterwards.
fn ask_for(socket: &mut TcpStream, batch: u32, left: u32) -> io::Result<u32> {
    let count = batch.min(left);
    socket.write_all(&[b'?'; MAX_AHEAD][..count as usize])?;
    Ok(left - count)
}

/// A thread's part of the record.
pub(crate) fn thread(report: &Report, usage: Usage) -> Thread {
    Thread {
        user_s: usage.user.as_secs_f64(),
        system_s: usage.system.as_secs_f64(),
        voluntary_switches: usage.voluntary_switches,
        involuntary_switches: usage.involuntary_switches,
        minor_faults: usage.minor_faults,
        major_faults: usage.major_faults,
        calls: report.calls(),
        mechanisms: report
            .mechanisms()
            .map(|(mechanism, moved)| MechanismReceipt {
                name: mechanism.to_string(),
                bytes: moved.bytes,
                calls: moved.calls,
            })
            .collect(),
        user_space_bytes: report.user_space_bytes(),
    }
}

/// Responses asked for at once, at most.
const MAX_AHEAD: usize = 16;

/// Bytes of responses asked for at once, unless one alone has more.
const AHEAD_BYTES: usize = 256 << 10;

/// As long as the header of an ordinary HTTP response.
const HEADER: [u8; 250] = [b'h'; 250];
