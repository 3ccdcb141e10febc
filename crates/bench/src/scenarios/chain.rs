//! `bench chain`: a header and a small file over one TCP connection, many times, as a server of
//! many small files does it. One buffer costs a copy of the file; `MSG_MORE` and sendfile cost one
//! more call. [`SMALL_TRANSFER`] is set to the size from which the second is cheaper.
//!
//! Client and server are threads on a core each. The client pipelines requests of one byte, so that
//! the server is as busy as one with many clients and does not pay for sleeping.
//!
//! [`SMALL_TRANSFER`]: underpass_engine::SMALL_TRANSFER

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use rustix::event::{PollFd, PollFlags};
use sha2::{Digest, Sha256};
use underpass_engine::ktls::loopback_pair;
use underpass_engine::socket::set_congestion;
use underpass_engine::wait::poll;
use underpass_engine::{
    Chain, Error, Mechanism, Options, Policy, Report, Sink, Source, Status, Transfer, Usage,
};

use crate::error::{BenchError, Result, UsageError, WithPath};
use crate::options::{Measure, bytes, number};
use crate::record::{
    CALLS, CPU, Cell, Contender, Description, Environment, PEER_CPU, Record, Role, SWITCHES, Side,
    SinkKind, TIME, ThreadCost, USER_SPACE, Variant, short_size,
};
use crate::run::{Measured, SampleEnds, Scenario, Start, Verification, hex, on_core, stay_on};

/// The arguments of `bench chain`.
#[derive(Debug, Args)]
pub struct ChainArgs {
    /// Measure files of these sizes
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = bytes)]
    #[arg(default_value = "256,512,1K,2K,4K,8K,16K,32K,64K,128K,256K")]
    sizes: Vec<u64>,

    /// Send N responses in each sample
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = number(1))]
    responses: u32,

    /// Set the congestion control of the connections; auto keeps the system's own, unless it paces
    #[arg(long, value_name = "NAME", default_value = "auto")]
    congestion: String,
}

impl Measure for ChainArgs {
    fn measure(&self, start: Start<'_>) -> Result<Record> {
        let (ends, mut plan) = SampleEnds::open(start, None, &self.sizes, false, true)?;
        plan.arguments.mechanisms = vec![SENDFILE];
        plan.arguments.sink = Some(SinkKind::Drop);
        plan.arguments.responses = Some(self.responses);
        let baseline = Variant::plain(Contender::OneBuffer);
        plan.for_sizes(&[baseline, Variant::plain(SENDFILE)]);
        let (responses, congestion) = (self.responses, self.congestion.clone());
        let mut small_files = SmallFiles { ends, responses, congestion, seen_congestion: None };
        plan.measure(&CHAIN, &mut small_files, baseline)
    }
}

#[derive(Debug)]
struct SmallFiles<'a> {
    ends: SampleEnds<'a>,
    responses: u32,
    congestion: String,
    /// The congestion control that the connections had.
    seen_congestion: Option<String>,
}

struct ChainResult {
    wall: Duration,
    report: Report,
    server: Usage,
    client: Usage,
    sha256: String,
}

impl Scenario for SmallFiles<'_> {
    fn prepare(&mut self, cell: &Cell) -> Result<()> {
        self.ends.create_source(cell.size)
    }

    fn verify(&mut self, cell: &Cell) -> Result<Verification> {
        let exchange = self.exchange(cell.size, cell.variant, 1)?;
        Verification::compare(exchange.sha256, &self.ends.sha256, cell.variant)
    }

    fn sample(&mut self, cell: &Cell) -> Result<Measured> {
        let exchange = self.exchange(cell.size, cell.variant, self.responses)?;
        let elapsed_s = exchange.wall.as_secs_f64();
        let side = |role, report: &Report, usage| Side {
            thread: Some(ThreadCost::of(report, usage)),
            ..Side::new(role, elapsed_s)
        };
        let server = side(Role::Sender, &exchange.report, exchange.server);
        let client = side(Role::Receiver, &Report::default(), exchange.client);
        Ok(Measured::new(elapsed_s, server, Some(client)))
    }

    fn finish(&self, environment: &mut Environment) {
        environment.congestion.clone_from(&self.seen_congestion);
    }
}

impl SmallFiles<'_> {
    /// Exchanges requests and responses over a new connection.
    fn exchange(&mut self, size: u64, variant: Variant, responses: u32) -> Result<ChainResult> {
        let path = self.ends.from();
        let file = File::open(&path).with_path("opening", &path)?;
        let (server, client) = connection().with_path("connecting to", "loopback")?;
        let set = |socket| set_congestion(socket, &self.congestion).map_err(UsageError::from);
        self.seen_congestion = set(&server)?;
        set(&client)?;
        let (cores, cancel) = (self.ends.cores, self.ends.context.cancel);
        let (served, requests) = std::thread::scope(|scope| {
            let serving = scope.spawn(move || {
                stay_on(cores.first);
                serve(&file, server, variant.contender, responses)
            });
            let requests = on_core(cores.second, || ask(client, size, responses, cancel));
            (serving.join().expect("the server does not panic"), requests)
        });
        if cancel.load(Ordering::Relaxed) {
            return Err(BenchError::Interrupted);
        }
        let failed = |why: String| BenchError::measuring(variant, why);
        let (report, server) = served.map_err(|error| failed(error.to_string()))?;
        let (wall, client, sha256) = requests.map_err(|error| failed(error.to_string()))?;
        let exchange = ChainResult { wall, report, server, client, sha256 };
        exchange.require(variant.contender, size * u64::from(responses))
    }
}

impl ChainResult {
    /// Returns itself if the required mechanism moved the files.
    fn require(self, contender: Contender, bytes: u64) -> Result<Self> {
        let mechanism = match contender {
            Contender::OneBuffer => Mechanism::ReadWrite,
            Contender::Only(mechanism) => mechanism,
            _ => return Ok(self),
        };
        let moved = self.report.by(mechanism).bytes;
        // If a full socket accepts only a part of one buffer, sendfile sends the rest.
        let least = if contender == Contender::OneBuffer { bytes - bytes / 100 } else { bytes };
        if moved >= least {
            return Ok(self);
        }
        let ran = format!("{moved} of {bytes} bytes by {mechanism}");
        Err(BenchError::other(contender, &ran))
    }
}

/// Opens a connection and returns the server's end, which sends without delay, and the client's.
fn connection() -> io::Result<(TcpStream, TcpStream)> {
    let (client, server) = loopback_pair()?;
    server.set_nodelay(true)?;
    client.set_nodelay(true)?;
    server.set_nonblocking(true)?;
    Ok((server, client))
}

/// Answers each request with a header and the file, and returns what that cost this thread.
fn serve(
    file: &File,
    mut socket: TcpStream,
    contender: Contender,
    responses: u32,
) -> std::result::Result<(Report, Usage), Error> {
    let failed = |source| Error::Io { mechanism: None, source, report: Box::default() };
    let len = file.metadata().map_err(failed)?.len();
    let before = Usage::of_this_thread();
    let mut total = Report::default();
    let mut requests = 0;
    for _ in 0..responses {
        if requests == 0 {
            requests = pending(&mut socket).map_err(failed)?;
        }
        requests -= 1;
        let chain = Chain::new().bytes(&HEADER[..]).source(Source::range(file, 0, len));
        let mut transfer = Transfer::new(chain, Sink::socket(&socket)).options(options(contender));
        while let Status::Waiting(_) = transfer.advance()? {
            wait_for(&socket, PollFlags::OUT);
        }
        total.add(transfer.report());
    }
    Ok((total, Usage::of_this_thread() - before))
}

/// Returns the options of the engine that force a contender.
fn options<'a>(contender: Contender) -> Options<'a> {
    match contender {
        Contender::OneBuffer => Options::default().max_small(usize::MAX),
        Contender::Only(mechanism) => Options::default().policy(Policy::Require(mechanism)),
        _ => Options::default(),
    }
}

/// Waits for at least one request, and returns how many arrived.
fn pending(socket: &mut TcpStream) -> io::Result<usize> {
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

/// Waits at most a second for an event: the caller tries again anyway.
fn wait_for(socket: &TcpStream, event: PollFlags) {
    poll(&mut [PollFd::new(socket, event)], Some(Duration::from_secs(1)));
}

/// Sends requests, reads the responses and drops them, over and over; digests the last body.
fn ask(
    mut socket: TcpStream,
    size: u64,
    responses: u32,
    cancel: &AtomicBool,
) -> io::Result<(Duration, Usage, String)> {
    let size = usize::try_from(size).map_err(|_| ErrorKind::FileTooLarge)?;
    let mut response = vec![0; HEADER.len() + size];
    let (before, started) = (Usage::of_this_thread(), Instant::now());
    // Many small ones at once, but not more large ones than fit into the socket's buffer, or the
    // server would wait.
    let batch = (AHEAD_BYTES / response.len()).clamp(1, MAX_AHEAD);
    let mut left = responses as usize;
    let mut request = |socket: &mut TcpStream| {
        let count = batch.min(left);
        left -= count;
        socket.write_all(&[b'?'; MAX_AHEAD][..count])
    };
    // Two batches are in flight, so that the server always has one to respond to.
    request(&mut socket)?;
    for done in 0..responses as usize {
        if done % batch == 0 {
            if cancel.load(Ordering::Relaxed) {
                return Err(ErrorKind::Interrupted.into());
            }
            request(&mut socket)?;
        }
        socket.read_exact(&mut response)?;
    }
    let (wall, usage) = (started.elapsed(), Usage::of_this_thread() - before);
    Ok((wall, usage, hex(&Sha256::digest(&response[HEADER.len()..]))))
}

/// The maximum number of responses requested at once.
const MAX_AHEAD: usize = 16;

/// The maximum number of bytes of responses requested at once, unless one alone has more.
const AHEAD_BYTES: usize = 256 << 10;

/// The length of the header, which is that of an ordinary HTTP response.
const HEADER: [u8; 250] = [b'h'; 250];

const SENDFILE: Contender = Contender::Only(Mechanism::Sendfile);

pub(super) const CHAIN: Description = Description {
    name: "chain",
    command: "chain",
    by_thread: true,
    cores: Some("sender and receiver"),
    subject: |record| {
        let source = &record.environment.source_file_system;
        format!("header and file on {source} to TCP on loopback")
    },
    caption: |record| {
        let crossover = match record.crossover(SENDFILE) {
            0 => "One buffer is the cheaper one at no size".to_owned(),
            limit => format!("One buffer costs the server less up to {}", short_size(limit)),
        };
        let responses = record.arguments.responses.unwrap_or(1);
        format!("Each of {responses} responses over one connection. {crossover}")
    },
    metrics: &[&TIME, &CPU, &PEER_CPU, &CALLS, &SWITCHES, &USER_SPACE],
    ..Description::NONE
};
