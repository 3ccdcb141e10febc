//! A transfer of a file from a sender to a receiver, and the reports of both.

use std::fs::File;
use std::net::SocketAddrV4;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::error::{BenchError, Result, WithPath, plain};
use crate::programs::{SocketPrograms, measure_iperf, reported_seconds};
use crate::record::{
    Cell, Contender, Counted, Environment, Receipt, Receivers, Role, Side, SinkKind, ThreadCost,
};
use crate::run::{
    CallTracer, Finished, Link, Measured, Running, SampleEnds, Scenario, Verification, copy_memory,
    send_bare, traced,
};
use crate::scenarios::{checked_receipt, declined};

#[derive(Debug)]
pub(super) struct TcpTransfer<'a> {
    pub(super) ends: SampleEnds<'a>,
    pub(super) programs: Option<SocketPrograms>,
    pub(super) link: Link,
    /// Whose mechanism is varied.
    pub(super) side: Role,
    pub(super) sink: SinkKind,
    pub(super) receivers: Receivers,
    /// The congestion control that the connections had.
    pub(super) seen_congestion: Option<String>,
}

/// What sender and receiver did, or the kernel's answer by which it declined the required mechanism.
type TransferOutcome = std::result::Result<[Side; 2], String>;

enum Sender {
    Process(Finished),
    Thread(std::io::Result<Side>),
}

impl Scenario for TcpTransfer<'_> {
    fn prepare(&mut self, cell: &Cell) -> Result<()> {
        self.ends.create_source(cell.size)
    }

    fn verify(&mut self, cell: &Cell) -> Result<Verification> {
        if let Contender::Iperf3 | Contender::MemoryCopy = cell.variant.contender {
            return Ok(Verification::Unknown);
        }
        self.ends.reset()?;
        match self.transfer(cell, Some(&self.ends.to()), None)? {
            Err(errno) => Ok(Verification::Declined(errno)),
            Ok(_) => self.ends.verify(cell.variant),
        }
    }

    fn sample(&mut self, cell: &Cell) -> Result<Measured> {
        match (cell.variant.contender, &self.programs) {
            (Contender::MemoryCopy, _) => {
                let done = copy_memory(Some(self.ends.cores.first).into(), cell.size);
                let side = done.map_err(|error| failed(cell, &error))?;
                Ok(Measured::new(side.elapsed_s, side, None))
            }
            (Contender::Iperf3, Some(programs)) => {
                self.ends.evict()?;
                let cancel = self.ends.context.cancel;
                measure_iperf(programs, &self.link, self.ends.cores, cell.size, cancel)
            }
            _ => {
                let [sender, receiver] = self.moved(cell, None)?;
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

    fn count(&mut self, cell: &Cell, tracer: &CallTracer) -> Result<Vec<Counted>> {
        let contender = cell.variant.contender;
        if let Contender::Iperf3 | Contender::MemoryCopy = contender {
            return Ok(Vec::new());
        }
        self.moved(cell, Some(tracer))?;
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

impl TcpTransfer<'_> {
    /// Moves one file to its target, by a mechanism that the kernel has not declined before.
    fn moved(&mut self, cell: &Cell, tracer: Option<&CallTracer>) -> Result<[Side; 2]> {
        let target = (self.sink == SinkKind::File).then(|| self.ends.to());
        match target {
            Some(_) => self.ends.reset()?,
            None => self.ends.evict()?,
        }
        self.transfer(cell, target.as_deref(), tracer)?.map_err(|errno| {
            let ran = format!("declined {errno}, which it did not before");
            BenchError::other(cell.variant, &ran)
        })
    }

    /// Moves one file to a receiver, which writes or drops it; counts calls if there is a tracer.
    fn transfer(
        &mut self,
        cell: &Cell,
        target: Option<&Path>,
        tracer: Option<&CallTracer>,
    ) -> Result<TransferOutcome> {
        let command = traced(tracer, self.receiver(cell, target), Role::Receiver);
        let mut receiver = Running::start(command, self.link.receiver(self.ends.cores.second))?;
        let line = receiver.next_error_line();
        let address = line.strip_prefix("listening on ").and_then(|text| text.parse().ok());
        let Some(address) = address else {
            let ended = receiver.finish(Some(MAX_WAIT), self.ends.context.cancel)?;
            return Err(ended.failure(cell.variant.to_string()));
        };
        let sender = self.send(cell, address, tracer)?;
        // A receiver whose sender has failed may never end.
        let has_failed = match &sender {
            Sender::Process(finished) => !finished.status.success(),
            Sender::Thread(done) => done.is_err(),
        };
        let limit = has_failed.then_some(MAX_WAIT);
        let receiver = receiver.finish(limit, self.ends.context.cancel)?;
        self.outcome(cell, sender, &receiver)
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

    /// Returns the receiver of a contender, if it has one and it is to be used.
    fn own_receiver(&self, contender: Contender, target: Option<&Path>) -> Option<Command> {
        let programs = self.programs.as_ref().filter(|_| self.receivers == Receivers::Own)?;
        programs.receiver(contender, self.link.host, target)
    }

    fn ours(&self, arguments: &[&str]) -> Command {
        let mut command = self.ends.context.program();
        command.args(arguments).args(["--json", "--timeout", TIMEOUT_S, "--congestion"]);
        command.arg(&self.link.congestion);
        command
    }

    fn send(&self, cell: &Cell, to: SocketAddrV4, tracer: Option<&CallTracer>) -> Result<Sender> {
        let (source, place) = (self.ends.from(), self.link.sender(self.ends.cores.first));
        let contender = cell.variant.contender;
        let chunk = cell.variant.step.bytes();
        let command = match contender {
            Contender::BareSendfile => {
                let chunk = chunk.unwrap_or(cell.size);
                return Ok(Sender::Thread(send_bare(place, &source, chunk, to)));
            }
            _ if contender.is_socket_program() => {
                let programs = self.programs.as_ref();
                let command = programs.and_then(|programs| {
                    programs.sender(contender, chunk.unwrap_or(0), &source, to)
                });
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
        Ok(Sender::Process(sender.finish(None, self.ends.context.cancel)?))
    }

    /// Returns the outcome of a transfer, by what both sides report.
    fn outcome(
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
        if let Some(errno) = varied.and_then(|finished| declined(finished, variant.contender)) {
            return Ok(Err(errno));
        }
        if let Sender::Process(finished) = &sender {
            // A side whose peer has failed reports nothing else.
            let was_left =
                ["reset", "Broken pipe"].iter().any(|word| finished.stderr.contains(word));
            let is_own_failure = !was_left || receiver.status.success();
            if !finished.status.success() && is_own_failure {
                return Err(finished.failure(variant.to_string()));
            }
        }
        if !receiver.status.success() {
            return Err(receiver.failure(variant.to_string()));
        }
        let required = |role| (self.side == role).then_some(variant.contender);
        let sender = match sender {
            Sender::Thread(done) => done.map_err(|error| failed(cell, &error))?,
            Sender::Process(finished) if variant.contender == Contender::Nc => {
                Side::process(Role::Sender, finished.cost.wall_s, finished.cost)
            }
            Sender::Process(finished) if variant.contender.is_socket_program() => {
                reported(Role::Sender, &finished, cell)?
            }
            Sender::Process(finished) => {
                let receipt = checked_receipt(&finished, cell.size, required(Role::Sender))?;
                self.seen_congestion.clone_from(&receipt.congestion);
                side_of(Role::Sender, &receipt, &finished)
            }
        };
        let receiver = match self.own_receiver(variant.contender, None) {
            Some(_) => reported(Role::Receiver, receiver, cell)?,
            None => {
                let receipt = checked_receipt(receiver, cell.size, required(Role::Receiver))?;
                side_of(Role::Receiver, &receipt, receiver)
            }
        };
        Ok(Ok([sender, receiver]))
    }
}

/// Returns the cost of an `underpass` process, by its receipt.
fn side_of(role: Role, receipt: &Receipt, finished: &Finished) -> Side {
    let side = Side::process(role, receipt.elapsed_s, finished.cost);
    Side { thread: Some(ThreadCost::from(receipt)), ..side }
}

/// Returns the cost of a contender's process, by its report.
fn reported(role: Role, finished: &Finished, cell: &Cell) -> Result<Side> {
    let elapsed_s = reported_seconds(finished, cell.variant, cell.size)?;
    Ok(Side::process(role, elapsed_s, finished.cost))
}

fn failed(cell: &Cell, error: &std::io::Error) -> BenchError {
    BenchError::measuring(cell.variant, plain(error))
}

/// The time that a receiver may take to notice that its sender has failed.
const MAX_WAIT: Duration = Duration::from_secs(2);

/// After this many seconds in which nothing moved, a process fails.
const TIMEOUT_S: &str = "60";
