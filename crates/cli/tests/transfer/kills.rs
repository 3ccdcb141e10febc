//! Downloads and uploads that are killed at random moments, client and server in turn, and resumed:
//! the bytes are correct, hardly any moves twice, and nothing else is left.
//!
//! `UNDERPASS_KILLS` says how often each is killed, instead of a few times; `UNDERPASS_KILLS_MIB` how
//! large the file is.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::rig::{Running, folder, names, noise_file, receiver, sender, underpass, until};
use serde_json::Value;

/// Bytes of the file.
fn size() -> usize {
    std::env::var("UNDERPASS_KILLS_MIB").map_or(256, |text| text.parse().unwrap()) << 20
}

const PAGE: usize = 4 << 10;

/// The number of bytes that each connection may move twice.
const TWICE: u64 = 1 << 20;

/// Moments at random, the same for the same seed.
struct Dice(u64);

impl Dice {
    fn new() -> Self {
        let seed = std::env::var("UNDERPASS_SEED").ok().and_then(|text| text.parse().ok());
        let now = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
        let seed = seed.unwrap_or_else(now) | 1;
        println!("UNDERPASS_SEED={seed}");
        Self(seed)
    }

    /// A moment within `time`.
    fn moment(&mut self, time: Duration) -> Duration {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        time.mul_f64((self.0 >> 11) as f64 / (1_u64 << 53) as f64)
    }
}

fn rounds() -> u32 {
    std::env::var("UNDERPASS_KILLS").map_or(4, |text| text.parse().unwrap())
}

/// A server that can be killed and started again at the same address.
struct Server<'a> {
    root: &'a Path,
    running: Running,
    port: String,
}

impl<'a> Server<'a> {
    fn start(root: &'a Path) -> Self {
        let running = Self::serve(root, "0");
        let address = running.address.trim_end_matches('/');
        let port = address.rsplit(':').next().unwrap().to_owned();
        Self { root, running, port }
    }

    fn serve(root: &Path, port: &str) -> Running {
        let mut command = underpass();
        command.args(["serve", "--bind", "127.0.0.1", "--allow-upload", "--sync", "off", "-q"]);
        command.args(["--port", port]).arg(root);
        Running::listening(command)
    }

    fn url(&self, name: &str) -> String {
        format!("http://127.0.0.1:{}/{name}", self.port)
    }

    /// Kills it and starts it again.
    fn kill(&mut self) {
        self.running.signal("KILL");
        self.running.child.wait().unwrap();
        self.running = Self::serve(self.root, &self.port);
    }
}

fn kill(client: &mut Running) {
    client.signal("KILL");
    client.child.wait().unwrap();
}

fn get(server: &Server<'_>, to: &Path) -> Command {
    let mut command = underpass();
    command.args(["get", "-q", "--json", "-o"]).arg(to).arg(server.url("file"));
    command
}

fn put(server: &Server<'_>, from: &Path, state: &Path) -> Command {
    let mut command = underpass();
    command.args(["put", "-q", "--json"]).arg(from).arg(server.url("file"));
    command.env("XDG_STATE_HOME", state);
    command
}

/// The number of correct bytes of a file, by pages: space may be reserved beyond.
fn right_bytes(path: &Path, expected: &[u8]) -> u64 {
    let found = fs::read(path).unwrap_or_default();
    let pages = found.chunks(PAGE).zip(expected.chunks(PAGE));
    pages.filter(|(found, expected)| found == expected).map(|(page, _)| page.len() as u64).sum()
}

fn number(receipt: &Value, name: &str) -> u64 {
    receipt[name].as_u64().unwrap_or_else(|| panic!("no {name} in {receipt}"))
}

/// Waits for a client whose server was killed. One that was refused or cut off before the server had
/// ever answered says so at once, and is started again.
fn finish(client: Running, again: impl Fn() -> Command) -> crate::rig::Finished {
    let finished = client.finish();
    let words = ["Connection refused", "Connection reset", "without a response"];
    let is_unmet = words.iter().any(|word| finished.stderr.contains(word));
    if is_unmet && finished.code() == Some(1) {
        Running::start(again()).finish().succeeded()
    } else {
        finished.succeeded()
    }
}

/// How long it takes undisturbed.
fn time(command: Command) -> Duration {
    let started = Instant::now();
    Running::start(command).finish().succeeded();
    started.elapsed()
}

#[test]
fn downloads_that_are_killed_are_resumed() {
    let (site, here) = (folder(), folder());
    let source = noise_file(site.path(), "file", size());
    let (target, part) = (here.path().join("file"), here.path().join("file.part"));
    let expected = fs::read(&source).unwrap();
    let mut server = Server::start(site.path());
    let usual = time(get(&server, &target));
    let mut dice = Dice::new();
    let mut resumed = 0;
    for round in 0..rounds() {
        fs::remove_file(&target).unwrap();
        let mut client = Running::start(get(&server, &target));
        std::thread::sleep(dice.moment(usual));
        let finished = if round % 2 == 0 {
            kill(&mut client);
            let here_before = right_bytes(&part, &expected);
            let finished = Running::start(get(&server, &target)).finish().succeeded();
            let receipt = finished.receipt();
            if !target_was_complete(&receipt) {
                let (at, connections) =
                    (number(&receipt, "resumed_at"), number(&receipt, "connections"));
                let again = here_before.saturating_sub(at);
                assert!(again <= TWICE * connections.max(1), "{again} bytes twice: {receipt}");
                resumed += u32::from(at > 0);
            }
            finished
        } else {
            server.kill();
            finish(client, || get(&server, &target))
        };
        let receipt = finished.receipt();
        let moved = number(&receipt, "bytes") + number(&receipt, "resumed_at");
        let connections = number(&receipt, "connections").max(1);
        assert!(moved <= size() as u64 + TWICE * connections, "{moved} bytes moved: {receipt}");
        assert!(fs::read(&target).unwrap() == expected, "round {round}: other bytes");
        assert_eq!(names(here.path()), ["file"], "round {round}");
    }
    println!("{resumed} downloads went on from where a killed client had left them");
}

/// Whether the first client had finished before it was killed.
fn target_was_complete(receipt: &Value) -> bool {
    receipt["bytes"] == 0
}

#[test]
fn uploads_that_are_killed_are_resumed() {
    let (site, here, state) = (folder(), folder(), folder());
    let source = noise_file(here.path(), "file", size());
    let target = site.path().join("file");
    let expected = fs::read(&source).unwrap();
    let mut server = Server::start(site.path());
    let usual = time(put(&server, &source, state.path()));
    let mut dice = Dice::new();
    let mut resumed = 0;
    for round in 0..rounds() {
        fs::remove_file(&target).unwrap();
        let mut client = Running::start(put(&server, &source, state.path()));
        std::thread::sleep(dice.moment(usual));
        let finished = if round % 2 == 0 {
            kill(&mut client);
            Running::start(put(&server, &source, state.path())).finish().succeeded()
        } else {
            server.kill();
            finish(client, || put(&server, &source, state.path()))
        };
        let receipt = finished.receipt();
        let (moved, at) = (number(&receipt, "bytes"), number(&receipt, "resumed_at"));
        resumed += u32::from(at > 0);
        assert!(moved + at <= size() as u64 + TWICE, "{moved} bytes moved: {receipt}");
        assert!(fs::read(&target).unwrap() == expected, "round {round}: other bytes");
        assert_eq!(names(site.path()), ["file"], "round {round}");
        if (round + 1) % 100 == 0 {
            println!("{} rounds, {resumed} of them resumed", round + 1);
        }
    }
    println!("{resumed} uploads went on from where they had been broken off");
}

/// The bytes that clients of a port have sent and that its server has not acknowledged (proc(5)).
fn queued_for(port: &str) -> u64 {
    let port = format!(":{:04X}", port.parse::<u16>().unwrap());
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let queues = table.lines().filter_map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        let (sent, _) = words[4].split_once(':').filter(|_| words[2].ends_with(&port))?;
        u64::from_str_radix(sent, 16).ok()
    });
    queues.sum()
}

#[test]
fn a_server_that_is_killed_while_all_buffers_are_full_loses_little() {
    let (site, here, state) = (folder(), folder(), folder());
    let source = noise_file(here.path(), "file", 64 << 20);
    let mut server = Server::start(site.path());
    for round in 0..rounds().min(20) {
        let _ = fs::remove_file(site.path().join("file"));
        let client = Running::start(put(&server, &source, state.path()));
        until("it sends", || queued_for(&server.port) > 0 || site.path().join("file").exists());
        server.running.signal("STOP");
        let (mut before, mut same) = (0, 0);
        until("all buffers are full", || {
            std::thread::sleep(Duration::from_millis(10));
            let now = queued_for(&server.port);
            same = if now == before { same + 1 } else { 0 };
            before = now;
            same == 20
        });
        server.kill();
        let receipt = finish(client, || put(&server, &source, state.path())).receipt();
        let (moved, at) = (number(&receipt, "bytes"), number(&receipt, "resumed_at"));
        assert!(moved + at <= (64 << 20) + TWICE, "round {round}: {moved} bytes: {receipt}");
    }
}

#[test]
fn a_killed_receiver_leaves_the_whole_file_or_nothing() {
    let (there, here) = (folder(), folder());
    let source = noise_file(there.path(), "file", size());
    let target = here.path().join("file");
    let expected = fs::read(&source).unwrap();
    let transfer = || {
        let receiver = receiver(&[], &target);
        let sender = sender(&["-q"], &source, &receiver.address);
        (receiver, sender)
    };
    let started = Instant::now();
    let (receiver, sender) = transfer();
    sender.finish().succeeded();
    receiver.finish().succeeded();
    let usual = started.elapsed();
    let mut dice = Dice::new();
    let (mut without, mut whole) = (0, 0);
    for round in 0..rounds() {
        fs::remove_file(&target).unwrap();
        let (mut receiver, sender) = transfer();
        std::thread::sleep(dice.moment(usual));
        kill(&mut receiver);
        // It fails, unless all was received.
        sender.finish();
        if names(here.path()).is_empty() {
            without += 1;
            let (receiver, sender) = transfer();
            sender.finish().succeeded();
            receiver.finish().succeeded();
        } else {
            whole += 1;
        }
        assert!(fs::read(&target).unwrap() == expected, "round {round}: other bytes");
        assert_eq!(names(here.path()), ["file"], "round {round}");
    }
    println!("{without} killed receivers left nothing, {whole} the whole file");
}
