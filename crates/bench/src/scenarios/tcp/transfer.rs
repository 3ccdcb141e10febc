//! A transfer of a file from a sender to a receiver, and the reports of both.

use std::fs::File;
use std::net::SocketAddrV4;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::error::{BenchError, Result, WithPath, plain};
use crate::peers::{PeerPrograms, PeerReport, measure_iperf};
use crate::record::{
    Cell, Contender, Description, Environment, Receivers, Role, Side, SinkKind, Step, Tally, Thread,
};
use crate::run::{
    Context, Cores, Finished, Folder, Link, Measured, Noise, Running, Scenario, ThreadRun, Tracer,
    Verdict, copy_memory, digest, drop_cached, send_bare, traced,
};
use crate::scenarios::{checked_receipt, declined};

/// A file over TCP.
#[derive(Debug)]
pub(super) struct Transfer<'a> {
    /// What is measured.
    pub(super) about: &'static Description,
    /// What the program gives the run.
    pub(super) context: &'a Context<'a>,
    /// Where the source is.
    pub(super) source: Folder,
    /// Where a target is.
    pub(super) target: Folder,
    /// What the source is made of.
    pub(super) noise: Noise,
    /// The programs of peers, if any take part.
    pub(super) programs: Option<PeerPrograms>,
    /// What lies between sender and receiver.
    pub(super) link: Link,
    /// Whose mechanism is varied.
    pub(super) side: Role,
    /// Where the receiver puts the bytes.
    pub(super) sink: SinkKind,
    /// Whose receivers take what peers send.
    pub(super) receivers: Receivers,
    /// Whether the source is to be out of the page cache.
    pub(super) cold: bool,
    /// Counts system calls, if they are to be counted.
    pub(super) tracer: Option<Tracer>,
    /// Where the two processes run.
    pub(super) cores: Cores,
    /// The source's digest.
    pub(super) sha256: String,
    /// The congestion control that the connections had.
    pub(super) seen_congestion: Option<String>,
}

/// What came of a transfer.
enum TransferOutcome {
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
        if let TransferOutcome::Declined(errno) = self.transfer(cell, Some(&file), None)? {
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
            TransferOutcome::Moved(sides) => Ok(sides),
            TransferOutcome::Declined(errno) => {
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
    ) -> Result<TransferOutcome> {
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

    /// Returns the command of the receiver of what a contender sends.
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

    /// Returns the receiver of the peer, if it has one and it is to be used.
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

    /// Returns what came of a transfer, by what both sides report.
    fn judge(
        &mut self,
        cell: &Cell,
        sender: Sender,
        receiver: &Finished,
    ) -> Result<TransferOutcome> {
        let variant = cell.variant;
        let varied = match (&sender, self.side) {
            (_, Role::Receiver) => Some(receiver),
            (Sender::Process(finished), _) => Some(finished),
            (Sender::Thread(_), _) => None,
        };
        if let Some(finished) = varied.filter(|finished| !finished.status.success())
            && let Some(errno) = declined(&finished.stdout, variant.contender)
        {
            return Ok(TransferOutcome::Declined(errno));
        }
        if let Sender::Process(finished) = &sender {
            // The side whose peer failed only reports that.
            let was_left =
                ["reset", "Broken pipe"].iter().any(|word| finished.stderr.contains(word));
            let is_guilty = !was_left || receiver.status.success();
            if !finished.status.success() && is_guilty {
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
        Ok(TransferOutcome::Moved(Box::new([sender, receiver])))
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

/// Returns what a peer's process did, by its own words.
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

/// The source's name in its folder.
const SOURCE: &str = "source";

/// The target's name in its folder.
const TARGET: &str = "target";

/// How long a receiver may take to notice that its sender has failed.
const MAX_WAIT: Duration = Duration::from_secs(2);

/// After this many seconds in which nothing moved, a process fails.
const TIMEOUT_S: &str = "60";
