//! The link between a sender and its receiver: loopback, or a pair of virtual network cards
//! between two unnamed network namespaces, which vanish with the processes that hold them,
//! however the bench ends.

use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};

use super::process::{Placement, Running, run_to_end};
use super::system::{CONGESTION, SystemCongestion, is_root};
use crate::error::{BenchError, Result, UsageError, WithPath};
use crate::record::NetworkKind;

/// Where senders and receivers are, and how they reach each other.
#[derive(Debug)]
pub(crate) struct Link {
    /// The address at which receivers listen.
    pub(crate) host: Ipv4Addr,
    /// The congestion control with which connections begin.
    pub(crate) congestion: String,
    /// The namespaces of sender and receiver.
    ends: Option<[Namespace; 2]>,
    /// Restored on drop.
    _system: SystemCongestion,
}

/// A network namespace, which exists as long as this does.
#[derive(Debug)]
struct Namespace {
    network: File,
    /// A process that reads standard input until that ends, at the latest with the bench.
    holder: Running,
}

impl Link {
    /// Creates the link, with this congestion control as the system's default during the run;
    /// `auto` keeps the current one, unless it paces.
    pub(crate) fn open(over: NetworkKind, congestion: &str) -> Result<Self> {
        let (host, system) = match over {
            NetworkKind::Loopback => (Ipv4Addr::LOCALHOST, SystemCongestion::choose(congestion)?),
            NetworkKind::Veth if is_root() => (RECEIVER, SystemCongestion::leave(congestion)),
            NetworkKind::Veth => return Err(UsageError::NotRoot.into()),
        };
        let congestion = system.name.clone();
        let ends = (over == NetworkKind::Veth).then(|| pair(&congestion)).transpose()?;
        Ok(Self { host, congestion, ends, _system: system })
    }

    /// Uses loopback unchanged: each connection sets its congestion control itself.
    pub(crate) fn plain(congestion: &str) -> Self {
        let system = SystemCongestion::leave(congestion);
        let congestion = congestion.to_owned();
        Self { host: Ipv4Addr::LOCALHOST, congestion, ends: None, _system: system }
    }

    pub(crate) fn sender(&self, core: usize) -> Placement<'_> {
        let network = self.ends.as_ref().map(|[sender, _]| &sender.network);
        Placement { core: Some(core), network }
    }

    pub(crate) fn receiver(&self, core: usize) -> Placement<'_> {
        let network = self.ends.as_ref().map(|[_, receiver]| &receiver.network);
        Placement { core: Some(core), network }
    }
}

/// Creates two namespaces with a virtual card each, which are connected.
fn pair(congestion: &str) -> Result<[Namespace; 2]> {
    let [sender, receiver] = [Namespace::create()?, Namespace::create()?];
    let other = receiver.holder.pid();
    sender.run(&[
        &format!("link add sender mtu {MTU} type veth peer name receiver mtu {MTU} netns {other}"),
        &format!("address add {SENDER}/30 dev sender"),
        "link set sender up",
    ])?;
    receiver.run(&[&format!("address add {RECEIVER}/30 dev receiver"), "link set receiver up"])?;
    for end in [&sender, &receiver] {
        let set = end.place().within(|| fs::write(CONGESTION, congestion));
        set.with_path("writing", CONGESTION)?;
    }
    Ok([sender, receiver])
}

impl Namespace {
    fn create() -> Result<Self> {
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", "echo ready >&2 && exec cat"]);
        let mut holder = Running::start_with(command, None, Stdio::piped())?;
        let line = holder.next_error_line();
        if line != "ready" {
            return Err(failed(&line));
        }
        let place = format!("/proc/{}/ns/net", holder.pid());
        let network = File::open(&place).with_path("opening", place)?;
        Ok(Self { network, holder })
    }

    fn place(&self) -> Placement<'_> {
        Placement { core: None, network: Some(&self.network) }
    }

    /// Runs `ip` with these words each.
    fn run(&self, lines: &[&str]) -> Result<()> {
        for line in lines {
            let mut command = Command::new("ip");
            command.args(line.split(' '));
            let finished = run_to_end(command, self.place())?;
            if !finished.status.success() {
                return Err(failed(&format!("ip {line}: {}", finished.stderr.trim())));
            }
        }
        Ok(())
    }
}

fn failed(why: &str) -> BenchError {
    BenchError::measuring("network namespaces", why)
}

/// Addresses of TEST-NET-1, RFC 5737.
const SENDER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

const RECEIVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);

const MTU: u32 = 1500;

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn two_namespaces_reach_only_each_other_and_are_gone_afterwards() {
        if !is_root() {
            let failure = Link::open(NetworkKind::Veth, "auto").unwrap_err();
            assert!(failure.to_string().contains("root"), "{failure}");
            return;
        }
        let link = Link::open(NetworkKind::Veth, "auto").unwrap();
        let [sender, receiver] = link.ends.as_ref().unwrap();
        let listener = receiver.place().within(|| TcpListener::bind((link.host, 0))).unwrap();
        let address = listener.local_addr().unwrap();
        let outside = TcpStream::connect_timeout(&address, std::time::Duration::from_millis(50));
        assert!(outside.is_err(), "{outside:?}");
        sender.place().within(|| TcpStream::connect(address)?.write_all(b"bytes")).unwrap();
        let mut arrived = String::new();
        listener.accept().unwrap().0.read_to_string(&mut arrived).unwrap();
        assert_eq!(arrived, "bytes");
        let control = sender.place().within(|| fs::read_to_string(CONGESTION)).unwrap();
        assert_eq!(control.trim(), link.congestion);
        let holders = [sender.holder.pid(), receiver.holder.pid()];
        drop(link);
        for holder in holders {
            assert!(!std::path::Path::new(&format!("/proc/{holder}/ns/net")).exists());
        }
    }
}
