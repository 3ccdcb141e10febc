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

/// The path of the program.
const PROGRAM: &str = "/bin/underpass";

/// How long a program may take to end. Emulated machines are slow, and only a hang takes this long.
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
    /// Serves the folder of the place over TLS with a self-signed certificate.
    pub(crate) fn start(place: &Place, options: &[&str]) -> Result<Self> {
        let mut all = vec!["--tls", "self"];
        all.extend(options);
        Self::plain(place, &all)
    }

    /// Serves the folder of the place, without TLS unless the options request it.
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
            // Output that is not text does not matter.
            let _ = errors.read_to_string(&mut said);
            said
        });
        Ok(Self { child, port, log, said: Some(said) })
    }

    /// Returns the URL of a file.
    pub(crate) fn url(&self, name: &str) -> String {
        format!("https://127.0.0.1:{}/{name}", self.port)
    }

    /// Returns the process ID.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Stops it as an administrator does, and returns the lines of its log.
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
        // It may have ended already.
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
    /// Starts it and waits until it reports where it listens.
    pub(crate) fn start(args: &[&str]) -> Result<Self> {
        let mut command = Command::new(PROGRAM);
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let stdout = reader(child.stdout.take());
        let mut errors = BufReader::new(child.stderr.take().ok_or("no standard error")?);
        let (port, _) = listens_at(&mut errors)?;
        Ok(Self { child, port, stdout, stderr: reader(Some(errors)) })
    }

    /// Waits until it has ended successfully, and returns the receipt.
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
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads the output of a program until it reports its port on 127.0.0.1; returns both.
fn listens_at(errors: &mut impl BufRead) -> Result<(u16, String)> {
    let mut said = String::new();
    loop {
        let mut line = String::new();
        if errors.read_line(&mut line)? == 0 {
            return Err(format!("it does not listen: {said}").into());
        }
        said += &line;
        if let Some(port) = port(&line) {
            return Ok((port, said));
        }
    }
}

/// Returns the port in a line that reports where a server listens.
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

/// Runs a command of the program to its end, whatever the outcome.
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

/// Reads the output of a process while it runs, so that it never blocks on us.
fn reader(source: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut source) = source {
            let _ = source.read_to_end(&mut bytes);
        }
        bytes
    })
}

/// Runs a command that must succeed, and returns its receipt.
pub(crate) fn receipt(args: &[&str]) -> Result<Value> {
    let args: Vec<_> = args.iter().copied().chain(["--json", "--quiet"]).collect();
    let output = run(&args)?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(format!("underpass {}: {}: {why}", args.join(" "), output.status).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Returns the path as text, for arguments.
pub(crate) fn text(path: &Path) -> Result<&str> {
    Ok(path.to_str().ok_or("a path that is not text")?)
}
