//! `bench net`, `article-table`, `article-chunks` and `limit`: a file from one process over TCP to
//! another, which drops it or writes it to a new file. Ours are ordinary `underpass send` and
//! `underpass recv`; the others are programs of the articles, sent to a receiver that is the same for
//! all, whose clock is the one that counts then: it runs from the connection to its end.

use std::fs::File;
use std::net::SocketAddrV4;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use clap::{Args, ValueEnum};
use underpass_engine::Mechanism;

use super::{TRADITIONAL, checked_receipt, declined, first, usual_step, without};
use crate::error::{BenchError, Result, WithPath, plain};
use crate::options::{Benchmark, RunArgs, StepArgs, SystemArgs, bytes};
use crate::peers::{PeerPrograms, PeerReport, measure_iperf};
use crate::record::{
    Arguments, CALLS, CPU, Cell, Choice, Contender, Cpu, Description, Environment, FAULTS, Metric,
    Over, PEER_CPU, PEERS, Receivers, Record, Role, SPEED, SWITCHES, Side, SinkKind, Step, TIME,
    Tally, Thread, USER_SPACE, Variant, at_steps, chosen, once,
};
use crate::run::{
    Context, Cores, Finished, Folder, Link, Measured, Noise, Plan, Running, Scenario, ThreadRun,
    Tracer, Verdict, copy_memory, digest, drop_cached, folders, largest, send_bare, survey, traced,
};

/// What can be typed after `bench net`.
#[derive(Debug, Args)]
pub struct NetArgs {
    /// Sizes of the files
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = bytes)]
    #[arg(default_value = "7M,21M,63M,98M,200M,350M,700M,1G")]
    sizes: Vec<u64>,

    /// Where the receiver puts the bytes
    #[arg(long, value_enum, default_value = "drop")]
    sink: SinkKind,

    /// Whose mechanism is varied; the other side chooses by itself
    #[arg(long, value_enum, default_value = "sender")]
    side: SideArg,

    /// What lies between sender and receiver
    #[arg(long, value_enum, default_value = "loopback")]
    over: Over,

    /// Congestion control of the connections; auto is the system's own, unless it paces
    #[arg(long, value_name = "NAME", default_value = "auto")]
    congestion: String,

    /// Do not count system calls in a pass of its own
    #[arg(long)]
    no_count: bool,

    #[command(flatten)]
    steps: StepArgs,

    #[command(flatten)]
    run: RunArgs,
}

/// The sides of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SideArg {
    /// It reads from the file
    Sender,
    /// It reads from the connection
    Receiver,
}

/// What can be typed after `bench article-table`.
#[derive(Debug, Args)]
pub struct TableArgs {
    /// Sizes of the files
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = bytes)]
    #[arg(default_value = "7M,21M,63M,98M,200M,350M,700M,1G")]
    sizes: Vec<u64>,

    /// Bytes that we ask for in one system call
    #[arg(long, value_name = "LIST", default_value = "default", value_delimiter = ',')]
    step: Vec<Step>,

    /// Our mechanisms, each required; auto: whatever is best
    #[arg(long, value_name = "LIST", default_value = "auto", value_delimiter = ',')]
    mechanism: Vec<Choice>,

    /// The programs beside ours
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = peer)]
    #[arg(default_value = "java_stream,java_transfer_to,c_read_write,c_sendfile")]
    peer: Vec<Contender>,

    #[command(flatten)]
    line: LineArgs,
}

/// What can be typed after `bench article-chunks`.
#[derive(Debug, Args)]
pub struct ChunksArgs {
    /// Sizes of the files
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = bytes)]
    #[arg(default_value = "2G")]
    sizes: Vec<u64>,

    /// Bytes asked for in one system call, by all; whole: as many as it takes
    #[arg(long, value_name = "LIST", default_value = "4096,65535,1M,whole", value_delimiter = ',')]
    step: Vec<Step>,

    /// Our mechanisms, each required; auto: whatever is best, which takes no step
    #[arg(long, value_name = "LIST", default_value = "auto,sendfile", value_delimiter = ',')]
    mechanism: Vec<Choice>,

    /// The programs beside ours
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = peer)]
    #[arg(
        default_value = "python_sendall,python_sendfile,c_read_write,c_mmap,c_mmap_lease,c_sendfile"
    )]
    peer: Vec<Contender>,

    #[command(flatten)]
    line: LineArgs,
}

/// What can be typed after `bench limit`.
#[derive(Debug, Args)]
pub struct LimitArgs {
    /// Sizes of the files
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = bytes)]
    #[arg(default_value = "2G")]
    sizes: Vec<u64>,

    /// Bytes asked for in one system call, by the bare loops and by our mechanisms
    #[arg(long, value_name = "LIST", default_value = "64K,256K,1M,whole", value_delimiter = ',')]
    step: Vec<Step>,

    /// Our mechanisms, each required; auto: whatever is best, which takes no step
    #[arg(long, value_name = "LIST", default_value = "auto", value_delimiter = ',')]
    mechanism: Vec<Choice>,

    /// The programs beside ours and beside the bare loop
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = peer)]
    #[arg(default_value = "c_sendfile,iperf3,nc,memory_copy")]
    peer: Vec<Contender>,

    #[command(flatten)]
    line: LineArgs,
}

/// What the scenarios of the articles with connections have in common.
#[derive(Debug, Args)]
struct LineArgs {
    /// What lies between sender and receiver
    #[arg(long, value_enum, default_value = "loopback")]
    over: Over,

    /// Whose receivers take what peers send
    #[arg(long, value_enum, default_value = "ours")]
    receivers: Receivers,

    /// Drop the source from the page cache before each sample
    #[arg(long)]
    cold: bool,

    #[command(flatten)]
    system: SystemArgs,
}

/// A peer by its name.
fn peer(text: &str) -> std::result::Result<Contender, String> {
    let found = text.parse().ok().filter(|peer: &Contender| peer.is_peer());
    found.ok_or_else(|| format!("peers are {}", PEERS.map(Contender::name).join(", ")))
}

impl Benchmark for NetArgs {
    fn json(&self) -> Option<&Path> {
        self.run.json.as_deref()
    }

    fn measure(&self, context: &Context<'_>) -> Result<Record> {
        let (side, all, baseline) = match self.side {
            SideArg::Receiver => {
                let baseline = Variant::mechanism(Mechanism::ReadWrite, 64 << 10);
                (Role::Receiver, FROM_SOCKET, baseline)
            }
            SideArg::Sender => (Role::Sender, TO_SOCKET, TRADITIONAL),
        };
        let (source, target) = folders(&self.run.dir, self.steps.to.as_deref(), &self.sizes)?;
        let cores = Cores::available();
        let written = (self.sink == SinkKind::File).then_some(target.path());
        let environment = survey(cores, source.path(), written);
        // Namespaces begin with a congestion control of their own; on loopback each connection
        // sets its own.
        let link = match self.over {
            Over::Loopback => Link::plain(&self.congestion),
            Over::Veth => Link::open(self.over, &self.congestion)?,
        };
        let contenders = chosen(&self.steps.mechanism, all);
        let variants = once([baseline].into_iter().chain(at_steps(&contenders, &self.steps.step)));
        let (tracer, missing) = Tracer::unless(self.no_count, &target);
        let arguments = Arguments {
            mechanisms: contenders,
            steps: self.steps.step.clone(),
            cold: self.steps.cold,
            side,
            sink: Some(self.sink),
            over: self.over,
            ..self.run.arguments(&self.sizes)
        };
        let mut plan = Plan { arguments, environment, missing, ..Plan::default() };
        plan.for_sizes(&variants);
        let mut transfer = Transfer {
            about: &NET,
            context,
            source,
            target,
            noise: Noise::new(largest(&self.sizes))?,
            programs: None,
            link,
            side,
            sink: self.sink,
            receivers: Receivers::Ours,
            cold: self.steps.cold,
            tracer,
            cores,
            sha256: String::new(),
            seen_congestion: None,
        };
        plan.measure(&mut transfer, baseline, context)
    }
}

impl Benchmark for TableArgs {
    fn json(&self) -> Option<&Path> {
        self.line.system.run.json.as_deref()
    }

    fn measure(&self, context: &Context<'_>) -> Result<Record> {
        let peers = self.peer.iter().map(|peer| Variant::new(*peer, usual_step(*peer)));
        let ours = at_steps(&chosen(&self.mechanism, TO_SOCKET), &self.step);
        let variants = peers.chain(ours).collect();
        self.line.measure(&TABLE, &self.sizes, &self.step, variants, context)
    }
}

impl Benchmark for ChunksArgs {
    fn json(&self) -> Option<&Path> {
        self.line.system.run.json.as_deref()
    }

    fn measure(&self, context: &Context<'_>) -> Result<Record> {
        let peers = self.peer.iter().flat_map(|peer| without(*peer, &self.step));
        let ours = at_steps(&chosen(&self.mechanism, TO_SOCKET), &self.step);
        let variants = peers.chain(ours).collect();
        self.line.measure(&CHUNKS, &self.sizes, &self.step, variants, context)
    }
}

impl Benchmark for LimitArgs {
    fn json(&self) -> Option<&Path> {
        self.line.system.run.json.as_deref()
    }

    fn measure(&self, context: &Context<'_>) -> Result<Record> {
        // The bare loop is measured at our own step first.
        let own = Variant::new(Contender::BareSendfile, Step::Bytes(OWN_STEP));
        let bare = without(Contender::BareSendfile, &self.step);
        let peers = self.peer.iter().map(|peer| match peer {
            Contender::CSendfile => Variant::new(*peer, Step::Bytes(OWN_STEP)),
            peer => Variant::new(*peer, usual_step(*peer)),
        });
        let ours = at_steps(&chosen(&self.mechanism, TO_SOCKET), &self.step);
        let variants = once([own].into_iter().chain(bare).chain(peers).chain(ours));
        self.line.measure(&LIMIT, &self.sizes, &self.step, variants, context)
    }
}

impl LineArgs {
    /// Measures those variants that can be, the first of which is the baseline.
    fn measure(
        &self,
        about: &'static Description,
        sizes: &[u64],
        steps: &[Step],
        variants: Vec<Variant>,
        context: &Context<'_>,
    ) -> Result<Record> {
        let run = &self.system.run;
        // The target of the verifying pass is as large as its source.
        let (source, target) = folders(&run.dir, None, sizes)?;
        let cores = Cores::available();
        // Before anything of the system is set.
        let found = survey(cores, source.path(), None);
        let link = Link::open(self.over, &self.system.congestion)?;
        let programs =
            PeerPrograms::open(&source, variants.iter().map(|variant| variant.contender))?;
        let can = |variant: &Variant| programs.has(variant.contender);
        let variants: Vec<_> = variants.into_iter().filter(can).collect();
        let baseline = first(&variants)?;
        let (tracer, mut missing) = Tracer::unless(self.system.no_count, &source);
        missing.extend(programs.missing.iter().cloned());
        let environment = Environment {
            congestion: Some(link.congestion.clone()),
            programs: programs.versions.clone(),
            ..found
        };
        let arguments = Arguments {
            mechanisms: once(variants.iter().map(|variant| variant.contender)),
            steps: steps.to_vec(),
            cold: self.cold,
            sink: Some(SinkKind::Drop),
            over: self.over,
            receivers: self.receivers,
            ..run.arguments(sizes)
        };
        let mut plan = Plan { arguments, environment, missing, ..Plan::default() };
        plan.for_sizes(&variants);
        let mut transfer = Transfer {
            about,
            context,
            source,
            target,
            noise: Noise::new(largest(sizes))?,
            programs: Some(programs),
            link,
            side: Role::Sender,
            sink: SinkKind::Drop,
            receivers: self.receivers,
            cold: self.cold,
            tracer,
            cores,
            sha256: String::new(),
            seen_congestion: None,
        };
        plan.measure(&mut transfer, baseline, context)
    }
}

/// A file over TCP.
#[derive(Debug)]
struct Transfer<'a> {
    about: &'static Description,
    context: &'a Context<'a>,
    source: Folder,
    target: Folder,
    noise: Noise,
    /// The programs of peers, if any take part.
    programs: Option<PeerPrograms>,
    link: Link,
    /// Whose mechanism is varied.
    side: Role,
    sink: SinkKind,
    receivers: Receivers,
    /// Whether the source is to be out of the page cache.
    cold: bool,
    tracer: Option<Tracer>,
    cores: Cores,
    /// The source's digest.
    sha256: String,
    /// The congestion control that the connections had.
    seen_congestion: Option<String>,
}

/// What came of a transfer.
enum Outcome {
    /// Sender and receiver have done their work.
    Moved(Box<[Side; 2]>),
    /// The kernel declined the required mechanism.
    Declined(String),
}

/// How the sender ended.
enum Sender {
    /// A process.
    Process(Finished),
    /// A thread of the bench.
    Thread(std::io::Result<ThreadRun>),
}

impl Scenario for Transfer<'_> {
    fn description(&self) -> &'static Description {
        self.about
    }

    fn prepare(&mut self, cell: &Cell) -> Result<()> {
        self.sha256 = self.noise.write(&self.source.file(SOURCE), cell.size)?;
        Ok(())
    }

    fn verify(&mut self, cell: &Cell) -> Result<Verdict> {
        if let Contender::Iperf3 | Contender::MemoryCopy = cell.variant.contender {
            return Ok(Verdict::Unknown);
        }
        let file = self.target.file(TARGET);
        self.target.clear(&file)?;
        if let Outcome::Declined(errno) = self.transfer(cell, Some(&file), None)? {
            return Ok(Verdict::Declined(errno));
        }
        let arrived = digest(&file)?;
        self.target.clear(&file)?;
        Verdict::compare(arrived, &self.sha256, cell.variant)
    }

    fn sample(&mut self, cell: &Cell) -> Result<Measured> {
        match (cell.variant.contender, &self.programs) {
            (Contender::MemoryCopy, _) => {
                let done = copy_memory(self.cores.first.into(), cell.size);
                let side = thread_side(done.map_err(|error| failed(cell, &error))?);
                Ok(Measured::new(side.elapsed_s, side, None))
            }
            (Contender::Iperf3, Some(programs)) => {
                self.chill()?;
                let cancel = self.context.cancel;
                measure_iperf(programs, &self.link, self.cores, cell.size, cancel)
            }
            _ => {
                let [sender, receiver] = *self.moved(cell, None)?;
                let wall_s = match self.programs {
                    Some(_) => receiver.elapsed_s,
                    None => sender.elapsed_s.max(receiver.elapsed_s),
                };
                let (measured, peer) = match self.side {
                    Role::Receiver => (receiver, sender),
                    _ => (sender, receiver),
                };
                Ok(Measured::new(wall_s, measured, Some(peer)))
            }
        }
    }

    fn count(&mut self, cell: &Cell) -> Result<Vec<Tally>> {
        let Some(tracer) = self.tracer.clone() else { return Ok(Vec::new()) };
        let contender = cell.variant.contender;
        if let Contender::Iperf3 | Contender::MemoryCopy = contender {
            return Ok(Vec::new());
        }
        self.moved(cell, Some(&tracer))?;
        let mut tallies = Vec::new();
        if contender != Contender::BareSendfile {
            tallies.push(tracer.tally(Role::Sender)?);
        }
        tallies.push(tracer.tally(Role::Receiver)?);
        Ok(tallies)
    }

    fn finish(&self, environment: &mut Environment) {
        if self.programs.is_none() {
            environment.congestion.clone_from(&self.seen_congestion);
        }
    }
}

impl Transfer<'_> {
    /// Drops the source from the page cache, if it is to be cold.
    fn chill(&self) -> Result<()> {
        if self.cold { drop_cached(&self.source.file(SOURCE)) } else { Ok(()) }
    }

    /// One file to where it is to go, by a mechanism that the kernel has not declined before.
    fn moved(&mut self, cell: &Cell, tracer: Option<&Tracer>) -> Result<Box<[Side; 2]>> {
        let target = (self.sink == SinkKind::File).then(|| self.target.file(TARGET));
        if let Some(file) = &target {
            self.target.clear(file)?;
        }
        self.chill()?;
        match self.transfer(cell, target.as_deref(), tracer)? {
            Outcome::Moved(sides) => Ok(sides),
            Outcome::Declined(errno) => {
                let ran = format!("declined {errno}, which it did not before");
                Err(BenchError::other(cell.variant, &ran))
            }
        }
    }

    /// One file from a sender to a receiver, into a file or nothing; counted if there is a tracer.
    fn transfer(
        &mut self,
        cell: &Cell,
        target: Option<&Path>,
        tracer: Option<&Tracer>,
    ) -> Result<Outcome> {
        let command = traced(tracer, self.receiver(cell, target), Role::Receiver);
        let mut receiver = Running::start(command, self.link.receiver(self.cores.second))?;
        let line = receiver.next_error_line();
        let address = line.strip_prefix("listening on ").and_then(|text| text.parse().ok());
        let Some(address) = address else {
            let ended = receiver.finish(Some(MAX_WAIT), self.context.cancel)?;
            return Err(ended.failure(cell.variant.to_string()));
        };
        let sender = self.send(cell, address, tracer)?;
        // One whose sender has failed may wait for ever.
        let limit = (!sender.has_succeeded()).then_some(MAX_WAIT);
        let receiver = receiver.finish(limit, self.context.cancel)?;
        self.judge(cell, sender, &receiver)
    }

    /// The command of the receiver of what a contender sends.
    fn receiver(&self, cell: &Cell, target: Option<&Path>) -> Command {
        if let Some(command) = self.own_receiver(cell.variant.contender, target) {
            return command;
        }
        let mut command = self.ours(&["recv", "--listen", &format!("{}:0", self.link.host)]);
        if self.side == Role::Receiver {
            command.args(cell.variant.arguments(cell.size));
        }
        command.arg("--force").arg(target.unwrap_or(Path::new("/dev/null")));
        command
    }

    /// The receiver of the peer, if it has one and it is to be used.
    fn own_receiver(&self, peer: Contender, target: Option<&Path>) -> Option<Command> {
        let programs = self.programs.as_ref().filter(|_| self.receivers == Receivers::Own)?;
        programs.receiver(peer, self.link.host, target)
    }

    fn ours(&self, arguments: &[&str]) -> Command {
        let mut command = self.context.program();
        command.args(arguments).args(["--json", "--timeout", TIMEOUT_S, "--congestion"]);
        command.arg(&self.link.congestion);
        command
    }

    /// Sends the source.
    fn send(&self, cell: &Cell, to: SocketAddrV4, tracer: Option<&Tracer>) -> Result<Sender> {
        let (source, place) = (self.source.file(SOURCE), self.link.sender(self.cores.first));
        let contender = cell.variant.contender;
        let chunk = match cell.variant.step {
            Step::Bytes(bytes) => Some(bytes),
            Step::Default | Step::Whole => None,
        };
        let command = match contender {
            Contender::BareSendfile => {
                let chunk = chunk.unwrap_or(cell.size);
                return Ok(Sender::Thread(send_bare(place, &source, chunk, to)));
            }
            peer if peer.is_peer() => {
                let programs = self.programs.as_ref();
                let command = programs
                    .and_then(|programs| programs.sender(peer, chunk.unwrap_or(0), &source, to));
                command.ok_or_else(|| failed(cell, &std::io::ErrorKind::Unsupported.into()))?
            }
            _ => {
                let mut command = self.ours(&["send"]);
                if self.side == Role::Sender {
                    command.args(cell.variant.arguments(cell.size));
                }
                command.arg(&source).arg(to.to_string());
                command
            }
        };
        let input = match contender {
            Contender::Nc => File::open(&source).with_path("opening", &source)?.into(),
            _ => Stdio::null(),
        };
        let sender = Running::start_with(traced(tracer, command, Role::Sender), place, input)?;
        Ok(Sender::Process(sender.finish(None, self.context.cancel)?))
    }

    /// What came of a transfer, by what both sides report.
    fn judge(&mut self, cell: &Cell, sender: Sender, receiver: &Finished) -> Result<Outcome> {
        let variant = cell.variant;
        let varied = match (&sender, self.side) {
            (_, Role::Receiver) => Some(receiver),
            (Sender::Process(finished), _) => Some(finished),
            (Sender::Thread(_), _) => None,
        };
        if let Some(finished) = varied.filter(|finished| !finished.status.success())
            && let Some(errno) = declined(&finished.stdout, variant.contender)
        {
            return Ok(Outcome::Declined(errno));
        }
        if let Sender::Process(finished) = &sender {
            // The one that was left alone only says that it was.
            let was_left =
                ["reset", "Broken pipe"].iter().any(|word| finished.stderr.contains(word));
            if !finished.status.success() && !(was_left && !receiver.status.success()) {
                return Err(finished.failure(variant.to_string()));
            }
        }
        if !receiver.status.success() {
            return Err(receiver.failure(variant.to_string()));
        }
        let required = |role| (self.side == role).then_some(variant.contender);
        let sender = match sender {
            Sender::Thread(done) => thread_side(done.map_err(|error| failed(cell, &error))?),
            Sender::Process(finished) if variant.contender == Contender::Nc => {
                Side::process(Role::Sender, finished.cost.wall_s, finished.cost)
            }
            Sender::Process(finished) if variant.contender.is_peer() => {
                reported(Role::Sender, &finished, cell)?
            }
            Sender::Process(finished) => {
                let receipt = checked_receipt(&finished, cell.size, required(Role::Sender))?;
                self.seen_congestion.clone_from(&receipt.congestion);
                let side = Side::process(Role::Sender, receipt.elapsed_s, finished.cost);
                Side { thread: Some(Thread::from(&receipt)), ..side }
            }
        };
        let receiver = match self.own_receiver(variant.contender, None) {
            Some(_) => reported(Role::Receiver, receiver, cell)?,
            None => {
                let receipt = checked_receipt(receiver, cell.size, required(Role::Receiver))?;
                let side = Side::process(Role::Receiver, receipt.elapsed_s, receiver.cost);
                Side { thread: Some(Thread::from(&receipt)), ..side }
            }
        };
        Ok(Outcome::Moved(Box::new([sender, receiver])))
    }
}

impl Sender {
    fn has_succeeded(&self) -> bool {
        match self {
            Self::Process(finished) => finished.status.success(),
            Self::Thread(done) => done.is_ok(),
        }
    }
}

/// What a peer's process did, by its own words.
fn reported(role: Role, finished: &Finished, cell: &Cell) -> Result<Side> {
    let report = PeerReport::read(finished, cell.variant, cell.size)?;
    Ok(Side::process(role, report.elapsed_s, finished.cost))
}

fn thread_side(done: ThreadRun) -> Side {
    let elapsed_s = done.elapsed.as_secs_f64();
    Side { thread: Some(done.spent), ..Side::new(Role::Sender, elapsed_s) }
}

fn failed(cell: &Cell, error: &std::io::Error) -> BenchError {
    BenchError::measuring(cell.variant, plain(error))
}

/// From where to where bytes move.
fn subject(record: &Record) -> String {
    let source = &record.environment.source_file_system;
    let link = match record.arguments.over {
        Over::Loopback => "loopback",
        Over::Veth => "a veth pair",
    };
    let target = match record.arguments.sink {
        Some(SinkKind::File) => {
            let target = record.environment.target_file_system.as_deref().unwrap_or_default();
            format!(" to file on {target}")
        }
        _ => ", dropped there".to_owned(),
    };
    format!("file on {source} to TCP on {link}{target}")
}

const METRICS: &[&Metric] =
    &[&TIME, &CPU, &PEER_CPU, &CALLS, &SWITCHES, &FAULTS, &USER_SPACE, &SPEED];

/// `bench net`.
pub(super) const NET: Description = Description {
    name: "net",
    command: "net",
    cpu: Cpu::Thread,
    cores: Some("sender and receiver"),
    subject,
    caption: |_| "Time of sender or receiver, whichever took longer".to_owned(),
    metrics: METRICS,
    ..Description::NONE
};

/// `bench article-table`.
pub(super) const TABLE: Description = Description {
    name: "article_table",
    command: "article-table",
    cpu: Cpu::ProcessOrThread,
    caption: |_| "Time by the clock of the receiver".to_owned(),
    ..NET
};

/// `bench article-chunks`.
pub(super) const CHUNKS: Description =
    Description { name: "article_chunks", command: "article-chunks", ..TABLE };

/// `bench limit`.
pub(super) const LIMIT: Description = Description { name: "limit", command: "limit", ..TABLE };

/// The contenders from a file to a socket.
const TO_SOCKET: &[Contender] = &[
    Contender::Auto,
    Contender::Only(Mechanism::Sendfile),
    Contender::Only(Mechanism::Splice),
    Contender::Only(Mechanism::Mmap),
    Contender::Only(Mechanism::ReadWrite),
];

/// The contenders from a socket to a file.
const FROM_SOCKET: &[Contender] =
    &[Contender::Auto, Contender::Only(Mechanism::Splice), Contender::Only(Mechanism::ReadWrite)];

/// What sendfile takes at a time by itself, in ours.
const OWN_STEP: u64 = 1 << 20;

/// The source's name in its folder.
const SOURCE: &str = "source";

/// The target's name in its folder.
const TARGET: &str = "target";

/// How long a receiver may take to notice that its sender has failed.
const MAX_WAIT: Duration = Duration::from_secs(2);

/// After this many seconds in which nothing moved, a process fails.
const TIMEOUT_S: &str = "60";
