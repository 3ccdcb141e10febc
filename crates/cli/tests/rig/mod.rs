//! The shared parts of the program's tests: the real binary, peers, files, and their ends.

#![allow(dead_code, unreachable_pub, unused_imports)] // each test program uses a part of it

pub mod fuse;
pub mod lease;
pub mod nginx;
pub mod site;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

pub use underpass_testkit::{
    folder, free_port, has, is_installed, names, noise, noise_file, skip, wait_until as until,
};

/// A program that reads nothing, and whose output is read.
pub fn piped(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The program.
pub fn underpass() -> Command {
    piped(env!("CARGO_BIN_EXE_underpass"))
}

/// The program under another, such as strace with its options, or by itself.
pub fn under(words: &[&str]) -> Command {
    let Some((other, args)) = words.split_first() else { return underpass() };
    let mut command = piped(other);
    command.args(args).arg(env!("CARGO_BIN_EXE_underpass"));
    command
}

/// A server of a folder on a free port, with these arguments.
pub fn serve(root: impl AsRef<Path>, args: &[&str]) -> Running {
    serve_by(underpass(), root, args)
}

/// The same by a command in which the program is under another.
pub fn serve_by(mut command: Command, root: impl AsRef<Path>, args: &[&str]) -> Running {
    command.args(["serve", "--port", "0"]).args(args).arg(root.as_ref());
    Running::listening(command)
}

/// Ends a server; its end, and the lines of its log.
pub fn end(server: Running) -> (Finished, Vec<Value>) {
    let finished = server.end();
    let log = finished.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (finished, log)
}

/// The program with a limit of the shell, such as `-n 64`.
pub fn limited(limit: &str) -> Command {
    under(&["sh", "-c", &format!(r#"ulimit {limit} && exec "$0" "$@""#)])
}

/// The program under strace with these options, or by itself if there are none.
pub fn traced(trace: &Path, options: &[&str]) -> Command {
    if options.is_empty() {
        return underpass();
    }
    let mut command = piped("strace");
    // The program is the child, and strace its tracer from elsewhere: signals reach the former.
    command.args(["-D", "-f", "-qq", "-o"]).arg(trace).args(options);
    command.arg(env!("CARGO_BIN_EXE_underpass"));
    command
}

/// A finished process.
#[derive(Debug)]
pub struct Finished {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Finished {
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// The receipt on standard output.
    pub fn receipt(&self) -> Value {
        serde_json::from_slice(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}: {} {}", self.text(), self.stderr))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    #[track_caller]
    pub fn succeeded(self) -> Self {
        assert_eq!(self.code(), Some(0), "{}", self.stderr);
        self
    }

    /// Checks that it failed with this code, and that its last line contains all of `words`.
    #[track_caller]
    pub fn failed(self, code: i32, words: &[&str]) -> Self {
        assert_eq!(self.code(), Some(code), "{}", self.stderr);
        let complaint =
            self.stderr.lines().rfind(|line| !line.starts_with("listening on")).unwrap_or_default();
        for word in words {
            assert!(complaint.contains(word), "'{word}' is not in: {}", self.stderr);
        }
        self
    }
}

/// A running process whose output is read continuously. Killed when dropped.
#[derive(Debug)]
pub struct Running {
    pub child: Child,
    /// Where it listens, if it said so.
    pub address: String,
    stdout: Option<JoinHandle<Vec<u8>>>,
    stderr: Option<JoinHandle<String>>,
}

impl Running {
    /// Starts a command.
    pub fn start(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let errors = BufReader::new(child.stderr.take().unwrap());
        Self::read(child, String::new(), errors, String::new())
    }

    /// Starts a command that says where it serves, or listens, and waits until it does. The port of one
    /// that is started again may belong to a connection of another test for a moment.
    pub fn listening(mut command: Command) -> Self {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let mut child = command.spawn().unwrap();
            let mut errors = BufReader::new(child.stderr.take().unwrap());
            // Warnings come first.
            let (mut said, mut line, mut address) = (String::new(), String::new(), None);
            while address.is_none() && errors.read_line(&mut line).unwrap() > 0 {
                let at = line.trim().strip_prefix("listening on ");
                let at = at.or_else(|| line.trim().split_once(" at ").map(|(_, at)| at));
                address = at.map(str::to_owned);
                said += &std::mem::take(&mut line);
            }
            if said.contains("Address already in use") && Instant::now() < deadline {
                child.wait().unwrap();
                std::thread::sleep(Duration::from_millis(50));
                continue;
            }
            let address = address.unwrap_or_else(|| panic!("says no address: {said}"));
            return Self::read(child, address, errors, said);
        }
    }

    /// The most memory that the process has had resident so far, in KiB; `None` once it has ended.
    ///
    /// While a process is being started, the figure may still be that of the test itself: of
    /// several readings, the last one counts, not the greatest.
    pub fn peak_kib(&self) -> Option<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        peak.trim().trim_end_matches(" kB").parse().ok()
    }

    /// A process that has said where it listens, and more.
    pub fn watched(child: Child, address: String, errors: BufReader<ChildStderr>) -> Self {
        Self::read(child, address, errors, String::new())
    }

    fn read(
        mut child: Child,
        address: String,
        mut errors: BufReader<ChildStderr>,
        said: String,
    ) -> Self {
        let stderr = std::thread::spawn(move || {
            let mut rest = Vec::new();
            errors.read_to_end(&mut rest).unwrap();
            said + &String::from_utf8_lossy(&rest)
        });
        let stdout = child.stdout.take().map(|mut output| {
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                output.read_to_end(&mut bytes).unwrap();
                bytes
            })
        });
        Self { child, address, stdout, stderr: Some(stderr) }
    }

    /// The host and the port where it listens.
    pub fn host(&self) -> &str {
        let address = self.address.trim_start_matches("http://").trim_start_matches("https://");
        address.split('/').next().unwrap()
    }

    pub fn connect(&self) -> TcpStream {
        TcpStream::connect(self.host()).unwrap()
    }

    /// Waits for its end.
    pub fn finish(mut self) -> Finished {
        drop(self.child.stdin.take());
        let deadline = Instant::now() + Duration::from_secs(300);
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "still running after five minutes");
            std::thread::sleep(Duration::from_millis(2));
        };
        let stdout = self.stdout.take().map(|reader| reader.join().unwrap()).unwrap_or_default();
        let stderr = self.stderr.take().map(|reader| reader.join().unwrap()).unwrap_or_default();
        Finished { status, stdout, stderr }
    }

    /// Ends it as a service manager does.
    #[track_caller]
    pub fn end(self) -> Finished {
        self.signal("TERM");
        self.finish().succeeded()
    }

    /// Sends it a signal by name.
    pub fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended already, or is no longer needed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs the program to its end.
pub fn run<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Finished {
    let args: Vec<S> = args.into_iter().collect();
    let is_bench = args.first().is_some_and(|arg| arg.as_ref() == "bench");
    let _alone = is_bench.then(one_bench_at_a_time);
    let mut command = underpass();
    command.args(args);
    Running::start(command).finish()
}

/// Waits until no other test runs a bench: one that changes the system's congestion control refuses
/// all others meanwhile.
pub fn one_bench_at_a_time() -> MutexGuard<'static, ()> {
    static BENCH: Mutex<()> = Mutex::new(());
    BENCH.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a bench in a folder of the test's own, and returns what it printed and its record.
pub fn bench(folder: &Path, args: &[&str]) -> (Finished, Value) {
    let record = folder.join("record.json");
    let place = ["--dir", folder.to_str().unwrap(), "--json", record.to_str().unwrap()];
    let finished = run(["bench"].iter().chain(args).chain(&place)).succeeded();
    assert_eq!(names(folder), ["record.json"], "files were left behind");
    let text = fs::read_to_string(&record).unwrap();
    assert!(!text.contains(folder.to_str().unwrap()), "the record names a folder");
    // The table is drawn from the record alone.
    let shown = run(["bench", "show", record.to_str().unwrap()]).succeeded();
    assert_eq!(shown.text(), finished.text());
    (finished, serde_json::from_str(&text).unwrap())
}

/// Starts a bench, sends it a signal a while after it has begun, and returns its folder, in which
/// it must have left nothing.
pub fn interrupt_bench(
    args: &[&str],
    is_begun: impl Fn(&Path) -> bool,
    (millis, signal): (u64, &str),
) -> TempDir {
    let (folder, _alone) = (folder(), one_bench_at_a_time());
    let mut command = underpass();
    command.arg("bench").args(args).arg("--dir").arg(folder.path());
    let running = Running::start(command);
    until("a bench that has begun", || is_begun(folder.path()));
    std::thread::sleep(Duration::from_millis(millis));
    running.signal(signal);
    let finished = running.finish();
    assert_eq!(finished.code(), Some(1), "{}", finished.stderr);
    assert!(finished.stderr.contains("interrupted"), "{}", finished.stderr);
    assert!(names(folder.path()).is_empty());
    folder
}

/// A receiver that listens on a free port, with these arguments in front of its target.
pub fn receiver(args: &[&str], target: &Path) -> Running {
    let mut command = underpass();
    command.args(["recv", "--listen", "127.0.0.1:0"]).args(args).arg(target);
    Running::listening(command)
}

/// A sender to this address, with these arguments.
pub fn sender(args: &[&str], source: &Path, address: &str) -> Running {
    let mut command = underpass();
    command.arg("send").args(args).arg(source).arg(address);
    Running::start(command)
}

/// The sum of what a file of a receipt's list says under `name`.
pub fn bytes_by(receipt: &Value, name: &str) -> u64 {
    let moved = receipt["mechanisms"].as_array().unwrap();
    moved
        .iter()
        .filter(|each| each["name"] == name)
        .map(|each| each["bytes"].as_u64().unwrap())
        .sum()
}

/// A header of tar, as ustar has it, for a member without contents.
pub fn tar_header(name: &[u8], kind: u8) -> [u8; 512] {
    let mut block = [0; 512];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &name[..name.len().min(100)]);
    put(100, b"0000755\0");
    put(124, b"00000000000\0");
    put(136, b"00000000000\0");
    put(148, b"        ");
    put(156, &[kind]);
    put(257, b"ustar\x0000");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

/// Checks that the guide of a command, which may have several pages, has every option of its help.
#[track_caller]
pub fn assert_guide_has_options(command: &str) {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let pages: &[&str] =
        if command == "serve" { &["serve", "tls", "access", "operating"] } else { &[command] };
    let page = |name: &&str| fs::read_to_string(docs.join(format!("{name}.md"))).unwrap();
    let guide: String = pages.iter().map(page).collect();
    let help = run([command, "--help"]).succeeded().text();
    for word in help.split_whitespace().filter(|word| word.starts_with("--")) {
        let end = word.find(|c: char| !c.is_ascii_alphanumeric() && c != '-');
        let option = &word[..end.unwrap_or(word.len())];
        assert!(guide.contains(&format!("`{option}")), "{option} is not in docs/{command}.md");
    }
}

/// Whether a program is installed that no distribution has and that takes minutes to build: tests
/// must not require it.
pub fn has_rare(program: &str) -> bool {
    let found = is_installed(program);
    if !found {
        tell(&format!("{program} is not installed, and is no package of Debian"));
    }
    found
}

/// Prints past the test harness, so that a skipped test does not look passed.
fn tell(reason: &str) {
    let _ =
        writeln!(File::options().append(true).open("/dev/stderr").unwrap(), "skipped: {reason}");
}
