//! `bench net`: a file from one process over loopback TCP to another, which drops it or writes it
//! to a new file. The two are ordinary `underpass send` and `underpass recv`, and the figures are
//! those of their receipts.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::child::{Cores, Finished, Running, this_program};
use super::counted::Tally;
use super::counter::{Counter, watched};
use super::data::{Folder, Noise, chill, digest};
use super::link::Link;
use super::plan::Variant;
use super::record::{Role, Side, SinkKind, Thread};
use super::rounds::{Course, Measured, Verdict};
use super::way::Way;
use crate::error::{BenchError, Result, WithPath};
use crate::receipt::Receipt;

/// A file over TCP.
#[derive(Debug)]
pub(crate) struct Net<'a> {
    /// Where the source is.
    pub(crate) source: Folder,
    /// Where a target is.
    pub(crate) target: Folder,
    /// What the source is made of.
    pub(crate) noise: Noise,
    /// Whose mechanism is varied.
    pub(crate) side: Role,
    /// Where the receiver puts the bytes.
    pub(crate) sink: SinkKind,
    /// Whether the source is to be out of the page cache.
    pub(crate) cold: bool,
    /// The congestion control asked for.
    pub(crate) congestion: String,
    /// What lies in between, if that is not simply loopback.
    pub(crate) link: Option<Link>,
    /// Who counts, if somebody does.
    pub(crate) counter: Option<Counter>,
    /// Where the two processes run.
    pub(crate) cores: Cores,
    /// Set by a signal.
    pub(crate) cancel: &'a AtomicBool,
    /// The source's digest.
    pub(crate) sha256: String,
    /// The congestion control that the connections had.
    pub(crate) seen_congestion: Option<String>,
}

/// How a pair of processes ended.
enum Outcome {
    /// Both have done their work.
    Moved(Box<Pair>),
    /// The kernel declined the required mechanism.
    Declined(String),
}

/// Two processes that have succeeded.
struct Pair {
    sender: Ended,
    receiver: Ended,
}

/// A process that has succeeded.
struct Ended {
    receipt: Receipt,
    finished: Finished,
}

impl Course for Net<'_> {
    fn prepare(&mut self, size: u64) -> Result<()> {
        self.sha256 = self.noise.write(&self.source.file(SOURCE), size)?;
        Ok(())
    }

    fn verify(&mut self, size: u64, variant: Variant) -> Result<Verdict> {
        let file = self.target.file(TARGET);
        self.target.clear(&file)?;
        let outcome = self.transfer(size, variant, &file, None)?;
        if let Outcome::Declined(errno) = outcome {
            return Ok(Verdict::Declined(errno));
        }
        let arrived = digest(&file)?;
        self.target.clear(&file)?;
        if arrived == self.sha256 {
            return Ok(Verdict::Arrived(arrived));
        }
        Err(BenchError::Differs { what: variant.to_string() })
    }

    fn measure(&mut self, size: u64, variant: Variant) -> Result<Measured> {
        let Pair { sender, receiver } = *self.moved(size, variant, None)?;
        let wall_s = sender.receipt.elapsed_s.max(receiver.receipt.elapsed_s);
        self.seen_congestion.clone_from(&sender.receipt.congestion);
        let (sender, receiver) = (sender.side(Role::Sender), receiver.side(Role::Receiver));
        let (measured, peer) = match self.side {
            Role::Receiver => (receiver, sender),
            _ => (sender, receiver),
        };
        Ok(Measured::new(wall_s, measured, Some(peer)))
    }

    fn count(&mut self, size: u64, variant: Variant) -> Result<Vec<Tally>> {
        let Some(counter) = &self.counter else { return Ok(Vec::new()) };
        self.moved(size, variant, Some(counter))?;
        Ok(vec![counter.tally(Role::Sender)?, counter.tally(Role::Receiver)?])
    }
}

impl Net<'_> {
    /// One file to where it is to go, by a mechanism that the kernel has not declined before.
    fn moved(&self, size: u64, variant: Variant, counter: Option<&Counter>) -> Result<Box<Pair>> {
        let target = match self.sink {
            SinkKind::Drop => PathBuf::from("/dev/null"),
            SinkKind::File => {
                let file = self.target.file(TARGET);
                self.target.clear(&file)?;
                file
            }
        };
        if self.cold {
            chill(&self.source.file(SOURCE))?;
        }
        match self.transfer(size, variant, &target, counter)? {
            Outcome::Moved(pair) => Ok(pair),
            Outcome::Declined(errno) => Err(declined_now(variant, &errno)),
        }
    }

    /// One file from one process to another.
    fn transfer(
        &self,
        size: u64,
        variant: Variant,
        target: &Path,
        counter: Option<&Counter>,
    ) -> Result<Outcome> {
        let what = variant.to_string();
        let varied = variant.arguments(size);
        let host = self.link.as_ref().map_or(Ipv4Addr::LOCALHOST, |link| link.host);
        let (first, second) = (self.cores.first, self.cores.second);
        let (from, to) = match &self.link {
            Some(link) => (link.sender(first), link.receiver(second)),
            None => (first.into(), second.into()),
        };
        let mut command = self.command(&["recv", "--listen", &format!("{host}:0"), "--force"]);
        command.args(if self.side == Role::Receiver { &varied } else { [].as_slice() }).arg(target);
        let command = watched(counter, command, Role::Receiver);
        let mut receiver = Running::start(command, to)?;
        let line = receiver.next_error_line();
        let Some(address) = line.strip_prefix("listening on ") else {
            return Err(receiver.finish(None, self.cancel)?.failure(what));
        };
        let mut command = self.command(&["send"]);
        command.args(if self.side == Role::Sender { &varied } else { [].as_slice() });
        command.arg(self.source.file(SOURCE)).arg(address);
        let command = watched(counter, command, Role::Sender);
        let sender = Running::start(command, from)?.finish(None, self.cancel)?;
        // One whose sender has failed may wait for ever.
        let patience = (!sender.status.success()).then_some(PATIENCE);
        let receiver = receiver.finish(patience, self.cancel)?;
        self.judge(size, variant, sender, receiver)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = this_program();
        command.args(arguments).args(["--json", "--timeout", TIMEOUT_S, "--congestion"]);
        command.arg(&self.congestion);
        command
    }

    /// What came of a transfer, by the receipts of both sides.
    fn judge(
        &self,
        size: u64,
        variant: Variant,
        sender: Finished,
        receiver: Finished,
    ) -> Result<Outcome> {
        if sender.status.success() && receiver.status.success() {
            let is_sender = self.side == Role::Sender;
            let sender = Ended::new(sender, size, is_sender.then_some(variant.way))?;
            let receiver = Ended::new(receiver, size, (!is_sender).then_some(variant.way))?;
            return Ok(Outcome::Moved(Box::new(Pair { sender, receiver })));
        }
        let varied = if self.side == Role::Receiver { &receiver } else { &sender };
        if let Some(errno) = declined(&varied.stdout, variant.way) {
            return Ok(Outcome::Declined(errno));
        }
        // The one that was left alone only says that it was.
        let was_left = ["reset", "Broken pipe"].iter().any(|word| sender.stderr.contains(word));
        let guilty = if sender.status.success() || was_left { &receiver } else { &sender };
        Err(guilty.failure(variant.to_string()))
    }
}

impl Ended {
    /// Takes the receipt, if it says that `way` moved all of the bytes.
    fn new(finished: Finished, size: u64, way: Option<Way>) -> Result<Self> {
        Ok(Self { receipt: checked_receipt(&finished, size, way)?, finished })
    }

    fn side(&self, role: Role) -> Side {
        Side {
            role,
            elapsed_s: self.receipt.elapsed_s,
            thread: Some(Thread::from(&self.receipt)),
            process: Some(self.finished.cost),
        }
    }
}

/// The receipt of a process that has succeeded, if it moved `size` bytes, and all of them by the
/// mechanism of `way` if that names one.
pub(crate) fn checked_receipt(finished: &Finished, size: u64, way: Option<Way>) -> Result<Receipt> {
    let receipt: Receipt = serde_json::from_str(&finished.stdout)
        .map_err(std::io::Error::from)
        .with_path("reading", "the receipt of a process")?;
    let name = match way {
        Some(Way::Only(mechanism)) => Some(mechanism.name()),
        _ => None,
    };
    let moved: Vec<_> = receipt.mechanisms.iter().map(|by| (by.bytes, by.name.as_str())).collect();
    let is_right = match name {
        Some(name) => moved == [(size, name)],
        None => receipt.bytes == size,
    };
    if is_right {
        return Ok(receipt);
    }
    let ran: Vec<_> =
        moved.iter().map(|(bytes, name)| format!("{bytes} bytes by {name}")).collect();
    let what = way.map_or_else(|| "the other side".to_owned(), |way| way.to_string());
    Err(BenchError::Other { what, ran: ran.join(", ") })
}

/// The kernel's answer by which it declined the mechanism of `way`, according to the receipt of
/// a process that has failed.
pub(crate) fn declined(stdout: &str, way: Way) -> Option<String> {
    let Way::Only(mechanism) = way else { return None };
    let receipt: Receipt = serde_json::from_str(stdout).ok()?;
    let mut declined = receipt.declined.into_iter();
    declined.find(|decline| decline.mechanism == mechanism.name()).map(|decline| decline.errno)
}

/// The failure of a mechanism that the kernel declines only after it was verified.
pub(crate) fn declined_now(variant: Variant, errno: &str) -> BenchError {
    let ran = format!("declined {errno}, which it did not before");
    BenchError::Other { what: variant.to_string(), ran }
}

/// The source's name in its folder.
pub(crate) const SOURCE: &str = "source";

/// The target's name in its folder.
pub(crate) const TARGET: &str = "target";

/// How long a receiver may take to notice that its sender has failed.
const PATIENCE: Duration = Duration::from_secs(2);

/// After so many seconds in which nothing moved, a process fails.
const TIMEOUT_S: &str = "60";
