//! The program under test: its servers, and its commands.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::Result;
use crate::place::Place;

/// Where the program is.
const PROGRAM: &str = "/bin/underpass";

/// How long a program may take to end. Emulated machines are slow, and this is only reached by
/// what hangs.
const PATIENCE: Duration = Duration::from_secs(1200);

/// A running server, killed when dropped.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    /// Its port on 127.0.0.1.
    pub(crate) port: u16,
    log: PathBuf,
    said: Option<JoinHandle<String>>,
}

impl Server {
    /// Serves the folder of the place, over TLS with a certificate of its own making.
    pub(crate) fn start(place: &Place, options: &[&str]) -> Result<Self> {
        let mut all = vec!["--tls", "self"];
        all.extend(options);
        Self::plain(place, &all)
    }

    /// Serves the folder of the place, without TLS unless the options say so.
    pub(crate) fn plain(place: &Place, options: &[&str]) -> Result<Self> {
        let log = place.folder.join("log");
        let _ = fs::remove_file(&log);
        let mut command = Command::new(PROGRAM);
        command.arg("serve").arg(place.served());
        command.args(["--port", "0", "--log-format", "json", "--sync", "off", "-A", "--log-file"]);
        command.arg(&log).args(options).stderr(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.spawn()?;
        let mut errors = BufReader::new(child.stderr.take().ok_or("no standard error")?);
        let (port, mut said) = listens_at(&mut errors)?;
        let said = std::thread::spawn(move || {
            // What is not text is of no interest.
            let _ = errors.read_to_string(&mut said);
            said
        });
        Ok(Self { child, port, log, said: Some(said) })
    }

    /// The URL of a file.
    pub(crate) fn url(&self, name: &str) -> String {
        format!("https://127.0.0.1:{}/{name}", self.port)
    }

    /// The number of the process.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Ends it as an administrator does, and returns the lines of its log.
    pub(crate) fn end(mut self) -> Result<Vec<Value>> {
        let pid = self.child.id().to_string();
        Command::new("kill").args(["-TERM", &pid]).status()?;
        let status = wait(&mut self.child)?;
        let said = self.said.take().and_then(|reader| reader.join().ok()).unwrap_or_default();
        if !status.success() || said.contains("panicked") {
            return Err(format!("the server ended with {status}: {said}").into());
        }
        let lines = BufReader::new(File::open(&self.log)?).lines();
        lines.map(|line| Ok(serde_json::from_str(&line?)?)).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Ended already, or not wanted any more.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command that waits for a connection, killed when dropped.
#[derive(Debug)]
pub(crate) struct Listening {
    child: Child,
    /// Its port on 127.0.0.1.
    pub(crate) port: u16,
    stdout: JoinHandle<Vec<u8>>,
    stderr: JoinHandle<Vec<u8>>,
}

impl Listening {
    /// Starts it and waits until it says where it listens.
    pub(crate) fn start(args: &[&str]) -> Result<Self> {
        let mut command = Command::new(PROGRAM);
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let stdout = reader(child.stdout.take());
        let mut errors = BufReader::new(child.stderr.take().ok_or("no standard error")?);
        let (port, _) = listens_at(&mut errors)?;
        Ok(Self { child, port, stdout, stderr: reader(Some(errors)) })
    }

    /// Waits for its end, which has to be good, and returns the receipt.
    pub(crate) fn receipt(mut self) -> Result<Value> {
        let status = wait(&mut self.child)?;
        let [stdout, stderr] = [&mut self.stdout, &mut self.stderr].map(|reader| {
            std::mem::replace(reader, std::thread::spawn(Vec::new)).join().unwrap_or_default()
        });
        if !status.success() {
            return Err(format!("{status}: {}", String::from_utf8_lossy(&stderr)).into());
        }
        Ok(serde_json::from_slice(&stdout)?)
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        // Ended already, or not wanted any more.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads what a program says until it says on which port of 127.0.0.1, and returns that and all.
fn listens_at(errors: &mut impl BufRead) -> Result<(u16, String)> {
    let mut said = String::new();
    loop {
        let mut line = String::new();
        if errors.read_line(&mut line)? == 0 {
            return Err(format!("it did not come to listen: {said}").into());
        }
        said += &line;
        if let Some(port) = port(&line) {
            return Ok((port, said));
        }
    }
}

/// The port in a line that says where a server serves.
fn port(line: &str) -> Option<u16> {
    let (_, rest) = line.split_once("127.0.0.1:")?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Waits for the end of a process, but not forever.
fn wait(child: &mut Child) -> Result<std::process::ExitStatus> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if Instant::now() > deadline {
            child.kill()?;
            return Err("a program hangs".into());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs a command of the program to its end, whatever that is.
pub(crate) fn run(args: &[&str]) -> Result<Output> {
    let mut command = Command::new(PROGRAM);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let stdout = reader(child.stdout.take());
    let stderr = reader(child.stderr.take());
    let status = wait(&mut child)?;
    let collect = |reader: JoinHandle<Vec<u8>>| reader.join().unwrap_or_default();
    Ok(Output { status, stdout: collect(stdout), stderr: collect(stderr) })
}

/// Reads what a process says while it runs, so that it never waits for us.
fn reader(source: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut source) = source {
            let _ = source.read_to_end(&mut bytes);
        }
        bytes
    })
}

/// Runs a command that has to succeed, and returns its receipt.
pub(crate) fn receipt(args: &[&str]) -> Result<Value> {
    let args: Vec<_> = args.iter().copied().chain(["--json", "--quiet"]).collect();
    let output = run(&args)?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(format!("underpass {}: {}: {why}", args.join(" "), output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The path as text, for arguments.
pub(crate) fn text(path: &Path) -> Result<&str> {
    Ok(path.to_str().ok_or("a path that is not text")?)
}
