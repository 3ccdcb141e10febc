//! A file from a sender, ours or a peer, to a receiver which is the same for all. It is the receiver's
//! clock that counts: it runs from the connection to its end, whoever sends.

use std::fs::File;
use std::net::SocketAddrV4;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::threads::{Done, copy_memory, send_bare};
use crate::child::{Cores, Finished, Running, this_program};
use crate::counted::Tally;
use crate::counter::{Counter, watched};
use crate::data::{Folder, Noise, chill, digest};
use crate::error::{BenchError, Result, WithPath, plain};
use crate::iperf;
use crate::link::Link;
use crate::net::{SOURCE, TARGET, checked_receipt, declined, declined_now};
use crate::peers::{Peer, Told, Workshop};
use crate::plan::Variant;
use crate::record::{Receivers, Role, Side, Thread};
use crate::rounds::{Course, Measured, Verdict};
use crate::way::{Step, Way};

/// A file over TCP.
#[derive(Debug)]
pub(crate) struct Sending<'a> {
    /// Where source and target are.
    pub(crate) folder: Folder,
    /// What the source is made of.
    pub(crate) noise: Noise,
    /// The peers.
    pub(crate) workshop: Workshop,
    /// What lies in between.
    pub(crate) link: Link,
    /// Whose receivers there are.
    pub(crate) receivers: Receivers,
    /// Whether the source is to be out of the page cache.
    pub(crate) cold: bool,
    /// Who counts, if somebody does.
    pub(crate) counter: Option<Counter>,
    /// Where the two processes run.
    pub(crate) cores: Cores,
    /// Set by a signal.
    pub(crate) cancel: &'a AtomicBool,
    /// The source's digest.
    pub(crate) sha256: String,
}

/// What came of a transfer.
enum Outcome {
    /// Both have done their work.
    Moved(Box<Pair>),
    /// The kernel declined the required mechanism.
    Declined(String),
}

/// Sender and receiver, who have succeeded.
struct Pair {
    sender: Side,
    receiver: Side,
}

/// How the sender ended.
enum Sender {
    /// A process.
    Process(Finished),
    /// A thread of the bench.
    Thread(std::io::Result<Done>),
}

impl Course for Sending<'_> {
    fn prepare(&mut self, size: u64) -> Result<()> {
        self.sha256 = self.noise.write(&self.folder.file(SOURCE), size)?;
        Ok(())
    }

    fn verify(&mut self, size: u64, variant: Variant) -> Result<Verdict> {
        if let Way::Peer(Peer::Iperf3 | Peer::MemoryCopy) = variant.way {
            return Ok(Verdict::Unknown);
        }
        let file = self.folder.file(TARGET);
        self.folder.clear(&file)?;
        if let Outcome::Declined(errno) = self.transfer(size, variant, Some(&file), None)? {
            return Ok(Verdict::Declined(errno));
        }
        let arrived = digest(&file)?;
        self.folder.clear(&file)?;
        match arrived == self.sha256 {
            true => Ok(Verdict::Arrived(arrived)),
            false => Err(BenchError::Differs { what: variant.to_string() }),
        }
    }

    fn measure(&mut self, size: u64, variant: Variant) -> Result<Measured> {
        if self.cold {
            chill(&self.folder.file(SOURCE))?;
        }
        match variant.way {
            Way::Peer(Peer::MemoryCopy) => {
                let done = copy_memory(self.cores.first.into(), size);
                let side = thread_side(done.map_err(|error| failed(variant, &error))?);
                Ok(Measured::new(side.elapsed_s, side, None))
            }
            Way::Peer(Peer::Iperf3) => {
                iperf::measure(&self.workshop, &self.link, self.cores, size, self.cancel)
            }
            _ => match self.transfer(size, variant, None, None)? {
                Outcome::Declined(errno) => Err(declined_now(variant, &errno)),
                Outcome::Moved(pair) => {
                    let Pair { sender, receiver } = *pair;
                    Ok(Measured::new(receiver.elapsed_s, sender, Some(receiver)))
                }
            },
        }
    }

    fn count(&mut self, size: u64, variant: Variant) -> Result<Vec<Tally>> {
        let Some(counter) = &self.counter else { return Ok(Vec::new()) };
        if let Way::Peer(Peer::Iperf3 | Peer::MemoryCopy) = variant.way {
            return Ok(Vec::new());
        }
        if let Outcome::Declined(_) = self.transfer(size, variant, None, Some(counter))? {
            return Ok(Vec::new());
        }
        let mut counted = Vec::new();
        if variant.way != Way::Peer(Peer::BareSendfile) {
            counted.push(counter.tally(Role::Sender)?);
        }
        counted.push(counter.tally(Role::Receiver)?);
        Ok(counted)
    }
}

impl Sending<'_> {
    /// One file from a sender to a receiver, into a file or nothing; counted if asked for.
    fn transfer(
        &self,
        size: u64,
        variant: Variant,
        target: Option<&Path>,
        counter: Option<&Counter>,
    ) -> Result<Outcome> {
        let what = variant.to_string();
        let command = self.receiver(variant.way, target);
        let command = watched(counter, command, Role::Receiver);
        let mut receiver = Running::start(command, self.link.receiver(self.cores.second))?;
        let line = receiver.next_error_line();
        let address = line.strip_prefix("listening on ").and_then(|text| text.parse().ok());
        let Some(address) = address else {
            return Err(receiver.finish(Some(PATIENCE), self.cancel)?.failure(what));
        };
        let sender = self.send(size, variant, address, counter)?;
        // One whose sender has failed may wait for ever.
        let patience = (!sender.has_succeeded()).then_some(PATIENCE);
        let receiver = receiver.finish(patience, self.cancel)?;
        self.judge(size, variant, sender, &receiver)
    }

    /// The command of the receiver of what a way sends.
    fn receiver(&self, way: Way, target: Option<&Path>) -> Command {
        if let Some(command) = self.own_receiver(way, target) {
            return command;
        }
        let mut command = this_program();
        command.args(["recv", "--listen", &format!("{}:0", self.link.host), "--force", "--json"]);
        command.args(["--timeout", TIMEOUT_S, "--congestion", &self.link.congestion]);
        command.arg(target.unwrap_or(Path::new("/dev/null")));
        command
    }

    /// The receiver of the peer, if it has one and it is to be used.
    fn own_receiver(&self, way: Way, target: Option<&Path>) -> Option<Command> {
        match (self.receivers, way) {
            (Receivers::Own, Way::Peer(peer)) => {
                self.workshop.receiver(peer, self.link.host, target)
            }
            _ => None,
        }
    }

    /// Sends the source in a way.
    fn send(
        &self,
        size: u64,
        variant: Variant,
        to: SocketAddrV4,
        counter: Option<&Counter>,
    ) -> Result<Sender> {
        let (source, place) = (self.folder.file(SOURCE), self.link.sender(self.cores.first));
        let command = match variant.way {
            Way::Peer(Peer::BareSendfile) => {
                let chunk = chunk(variant.step).unwrap_or(size);
                return Ok(Sender::Thread(send_bare(place, &source, chunk, to)));
            }
            Way::Peer(peer) => {
                let chunk = chunk(variant.step).unwrap_or(0);
                let command = self.workshop.sender(peer, chunk, &source, to);
                command.ok_or_else(|| failed(variant, &std::io::ErrorKind::Unsupported.into()))?
            }
            _ => {
                let mut command = this_program();
                command.args(["send", "--json", "--timeout", TIMEOUT_S]);
                command.args(["--congestion", &self.link.congestion]);
                command.args(variant.arguments(size)).arg(&source).arg(to.to_string());
                command
            }
        };
        let input = match variant.way {
            Way::Peer(Peer::Nc) => File::open(&source).with_path("opening", &source)?.into(),
            _ => Stdio::null(),
        };
        let command = watched(counter, command, Role::Sender);
        let sender = Running::start_with(command, place, input)?;
        Ok(Sender::Process(sender.finish(None, self.cancel)?))
    }

    /// What came of a transfer, by what both sides told.
    fn judge(
        &self,
        size: u64,
        variant: Variant,
        sender: Sender,
        receiver: &Finished,
    ) -> Result<Outcome> {
        if let Sender::Process(finished) = &sender
            && !finished.status.success()
        {
            return match declined(&finished.stdout, variant.way) {
                Some(errno) => Ok(Outcome::Declined(errno)),
                None => Err(finished.failure(variant.to_string())),
            };
        }
        let sender = match sender {
            Sender::Thread(done) => thread_side(done.map_err(|error| failed(variant, &error))?),
            Sender::Process(finished) => sender_side(&finished, variant, size)?,
        };
        if !receiver.status.success() {
            return Err(receiver.failure(variant.to_string()));
        }
        let is_own = self.own_receiver(variant.way, None).is_some();
        let receiver = match is_own {
            true => {
                let told = Told::read(receiver, "the receiver", size)?;
                side(Role::Receiver, told.elapsed_s, None, receiver)
            }
            false => {
                let receipt = checked_receipt(receiver, size, None)?;
                let thread = Some(Thread::from(&receipt));
                side(Role::Receiver, receipt.elapsed_s, thread, receiver)
            }
        };
        Ok(Outcome::Moved(Box::new(Pair { sender, receiver })))
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

/// What a sender's process did, by its receipt or its own words, if it has any.
fn sender_side(finished: &Finished, variant: Variant, size: u64) -> Result<Side> {
    let (elapsed_s, thread) = match variant.way {
        Way::Peer(Peer::Nc) => (finished.cost.wall_s, None),
        Way::Peer(_) => (Told::read(finished, &variant.to_string(), size)?.elapsed_s, None),
        way => {
            let receipt = checked_receipt(finished, size, Some(way))?;
            (receipt.elapsed_s, Some(Thread::from(&receipt)))
        }
    };
    Ok(side(Role::Sender, elapsed_s, thread, finished))
}

fn side(role: Role, elapsed_s: f64, thread: Option<Thread>, finished: &Finished) -> Side {
    Side { role, elapsed_s, thread, process: Some(finished.cost) }
}

fn thread_side(done: Done) -> Side {
    let elapsed_s = done.elapsed.as_secs_f64();
    Side { role: Role::Sender, elapsed_s, thread: Some(done.spent), process: None }
}

/// Bytes of a piece, if that is not all of the file.
const fn chunk(step: Step) -> Option<u64> {
    match step {
        Step::Bytes(bytes) => Some(bytes),
        Step::Default | Step::Whole => None,
    }
}

fn failed(variant: Variant, error: &std::io::Error) -> BenchError {
    BenchError::Child { what: variant.to_string(), said: plain(error) }
}

/// How long a receiver may take to notice that its sender has failed.
const PATIENCE: Duration = Duration::from_secs(2);

/// After so many seconds in which nothing moved, a process fails.
const TIMEOUT_S: &str = "60";
