//! Builds the programs of `peers/`, which are embedded in this program, and has their arguments.

use std::fmt::Display;
use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;

use crate::error::{BenchError, Result, WithPath};
use crate::record::{Contender, Missing};
use crate::run::{Finished, Folder, find};

/// Programs that are ready to be run.
#[derive(Debug)]
pub(crate) struct PeerPrograms {
    folder: PathBuf,
    /// The contenders that are ready, each with the program that is run.
    tools: Vec<(Tool, PathBuf)>,
    /// What the programs used, or made with, call themselves.
    pub(crate) versions: Vec<String>,
    /// The contenders that are missing, and why.
    pub(crate) missing: Vec<Missing>,
}

/// What a program of `peers/` reports of its work.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
pub(crate) struct PeerReport {
    /// Bytes that it moved.
    pub(crate) bytes: u64,
    /// Seconds by its own clock.
    pub(crate) elapsed_s: f64,
}

impl PeerPrograms {
    /// Builds what these ways need in a folder below that of the run.
    pub(crate) fn open(
        run: &Folder,
        contenders: impl IntoIterator<Item = Contender>,
    ) -> Result<Self> {
        let folder = run.file("peers");
        fs::create_dir(&folder).with_path("creating", &folder)?;
        // Some are run with another current folder.
        let folder = fs::canonicalize(&folder).with_path("looking at", &folder)?;
        let mut programs =
            Self { folder, tools: Vec::new(), versions: Vec::new(), missing: Vec::new() };
        let mut seen: Vec<(Tool, Option<String>)> = Vec::new();
        for peer in contenders {
            let Some(tool) = Tool::of(peer) else { continue };
            let known = seen.iter().find(|(seen, _)| *seen == tool).map(|(_, why)| why.clone());
            let why = match known {
                Some(why) => why,
                None => {
                    let why = programs.prepare(tool)?;
                    seen.push((tool, why.clone()));
                    why
                }
            };
            if let Some(why) = why {
                programs.missing.push(Missing { name: peer.to_string(), why });
            }
        }
        Ok(programs)
    }

    /// Builds the programs of a tool, or returns why it has none.
    fn prepare(&mut self, tool: Tool) -> Result<Option<String>> {
        if let Some(program) = tool.lacks() {
            return Ok(Some(format!("{program} is not installed")));
        }
        for (name, text) in sources(tool) {
            let path = self.folder.join(name);
            fs::write(&path, text).with_path("writing", path)?;
        }
        for mut command in self.builds(tool) {
            let program = command.get_program().to_string_lossy().into_owned();
            let output = command.stdin(Stdio::null()).output().with_path("starting", &program)?;
            if !output.status.success() {
                let said = String::from_utf8_lossy(&output.stderr);
                let said = said.lines().find(|line| line.contains("error")).unwrap_or_default();
                return Ok(Some(format!("{program} could not build it: {said}")));
            }
        }
        self.tools.push((tool, tool.program()));
        self.versions.extend(tool.version());
        Ok(None)
    }

    fn builds(&self, tool: Tool) -> Vec<Command> {
        let mut commands = Vec::new();
        match tool {
            Tool::C => {
                for name in ["send", "receive", "copy"] {
                    let mut command = Command::new("cc");
                    command.args(["-std=c11", "-O2", "-o", name, &format!("{name}.c")]);
                    commands.push(command);
                }
            }
            Tool::Java => {
                let mut command = Command::new("javac");
                command.args(["-d", ".", "StreamCopy.java", "TransferTo.java"]);
                commands.push(command);
            }
            Tool::Iperf3 | Tool::Nc | Tool::Python => {}
        }
        for command in &mut commands {
            // Messages are to be the same everywhere.
            command.current_dir(&self.folder).env("LC_ALL", "C");
        }
        commands
    }

    /// Returns the program of a peer that is installed.
    pub(crate) fn program(&self, peer: Contender) -> PathBuf {
        let ready = self.tools.iter().find(|(tool, _)| Some(*tool) == Tool::of(peer));
        ready.map_or_else(|| peer.name().into(), |(_, program)| program.clone())
    }

    /// Returns whether a contender can be measured. Those that need no program of a peer can.
    pub(crate) fn has(&self, contender: Contender) -> bool {
        Tool::of(contender).is_none_or(|tool| self.tools.iter().any(|(ready, _)| *ready == tool))
    }

    /// Returns the command that sends a file in pieces of `chunk` bytes, 0 for as many as it
    /// likes. None if the peer is no such program.
    pub(crate) fn sender(
        &self,
        peer: Contender,
        chunk: u64,
        file: &Path,
        to: SocketAddrV4,
    ) -> Option<Command> {
        let mut command = self.command(peer)?;
        match peer {
            Contender::CMmap => command.arg("mmap"),
            Contender::CMmapLease => command.arg("mmap_lease"),
            Contender::CReadWrite => command.arg("read_write"),
            Contender::CSendfile => command.arg("sendfile"),
            Contender::JavaStream | Contender::JavaTransferTo => command.arg("send"),
            Contender::PythonSendall => command.arg("sendall"),
            Contender::PythonSendfile => command.arg("sendfile"),
            Contender::Nc => {
                command.arg("-N").arg(to.ip().to_string()).arg(to.port().to_string());
                return Some(command);
            }
            _ => return None,
        };
        command.arg(file).arg(to.ip().to_string()).arg(to.port().to_string());
        command.arg(chunk.to_string());
        Some(command)
    }

    /// Returns the command that receives what a peer sends as the articles do, into a file or
    /// nothing. None if the peer has none that reports where it listens.
    pub(crate) fn receiver(
        &self,
        peer: Contender,
        host: Ipv4Addr,
        file: Option<&Path>,
    ) -> Option<Command> {
        let mut command = match Tool::of(peer)? {
            Tool::C => Command::new(self.folder.join("receive")),
            Tool::Java | Tool::Python => {
                let mut command = self.command(peer)?;
                command.arg("receive");
                command
            }
            Tool::Iperf3 | Tool::Nc => return None,
        };
        command.arg(host.to_string()).arg(file.unwrap_or(Path::new("-")));
        command.arg(match Tool::of(peer)? {
            Tool::Java => TRADITIONAL_BUFFER,
            _ => PYTHON_BUFFER,
        });
        Some(command)
    }

    /// Returns the command that copies a file through a buffer of `buffer` bytes, 0 for as many
    /// as there are.
    pub(crate) fn copier(
        &self,
        peer: Contender,
        buffer: u64,
        from: &Path,
        to: &Path,
    ) -> Option<Command> {
        let mechanism = match peer {
            Contender::CReadWrite => "read_write",
            Contender::CSendfile => "sendfile",
            _ => return None,
        };
        let mut command = Command::new(self.folder.join("copy"));
        command.arg(mechanism).arg(from).arg(to).arg(buffer.to_string());
        Some(command)
    }

    /// Returns a peer's program without arguments.
    fn command(&self, peer: Contender) -> Option<Command> {
        let tool = Tool::of(peer)?;
        let (_, program) = self.tools.iter().find(|(ready, _)| *ready == tool)?;
        let mut command = match tool {
            Tool::C => Command::new(self.folder.join("send")),
            _ => Command::new(program),
        };
        match peer {
            Contender::JavaStream => command.arg("-cp").arg(&self.folder).arg("StreamCopy"),
            Contender::JavaTransferTo => command.arg("-cp").arg(&self.folder).arg("TransferTo"),
            Contender::PythonSendall | Contender::PythonSendfile => {
                command.arg("-I").arg(self.folder.join("stream.py"))
            }
            _ => &mut command,
        };
        Some(command)
    }
}

impl PeerReport {
    /// Returns what a process that has succeeded reported, if it moved `size` bytes.
    pub(crate) fn read(finished: &Finished, what: impl Display, size: u64) -> Result<Self> {
        let report: Self = serde_json::from_str(&finished.stdout)
            .map_err(std::io::Error::from)
            .with_path("reading", "what a peer reports of its work")?;
        if report.bytes == size {
            return Ok(report);
        }
        let ran = format!("{} bytes instead of {size}", report.bytes);
        Err(BenchError::other(what, &ran))
    }
}

/// What a peer is made with, or is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tool {
    /// A compiler of C.
    C,
    /// iperf3.
    Iperf3,
    /// A Java Development Kit.
    Java,
    /// netcat.
    Nc,
    /// Python 3.
    Python,
}

impl Tool {
    /// Returns what a contender takes; nothing if it is no peer, or the bench does it itself.
    fn of(contender: Contender) -> Option<Self> {
        match (contender.is_peer(), contender.programs().first().copied()?) {
            (true, "cc") => Some(Self::C),
            (true, "iperf3") => Some(Self::Iperf3),
            (true, "javac") => Some(Self::Java),
            (true, "nc") => Some(Self::Nc),
            (true, "python3") => Some(Self::Python),
            _ => None,
        }
    }

    /// Returns the programs that have to be in PATH.
    const fn programs(self) -> &'static [&'static str] {
        match self {
            Self::C => &["cc"],
            Self::Iperf3 => &["iperf3"],
            Self::Java => &["javac", "java"],
            Self::Nc => &["nc"],
            Self::Python => &["python3"],
        }
    }

    /// Returns the name of one that is not there.
    fn lacks(self) -> Option<&'static str> {
        self.programs().iter().copied().find(|program| find(program).is_none())
    }

    /// Returns the program that is run, by its whole path. What stands in PATH for Python may be
    /// a script that looks for it.
    fn program(self) -> PathBuf {
        let name = self.programs()[self.programs().len() - 1];
        let found = find(name).unwrap_or_else(|| name.into());
        if self != Self::Python {
            return found;
        }
        let asked = Command::new(&found).args(["-c", "import sys; print(sys.executable)"]).output();
        let path = asked.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
        path.ok().map(PathBuf::from).filter(|path| path.is_file()).unwrap_or(found)
    }

    /// Returns its version text; none if it does not report one.
    fn version(self) -> Option<String> {
        let option = match self {
            Self::Java => "-version",
            Self::Nc => "-h",
            Self::C | Self::Iperf3 | Self::Python => "--version",
        };
        let output = Command::new(self.program()).arg(option).output().ok()?;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).replace('"', "");
        text.lines().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
    }
}

/// Returns the files that a tool needs, by name.
const fn sources(tool: Tool) -> &'static [(&'static str, &'static str)] {
    match tool {
        Tool::C => &[
            ("peer.h", include_str!("../../../../peers/c/peer.h")),
            ("send.c", include_str!("../../../../peers/c/send.c")),
            ("receive.c", include_str!("../../../../peers/c/receive.c")),
            ("copy.c", include_str!("../../../../peers/c/copy.c")),
        ],
        Tool::Java => &[
            ("StreamCopy.java", include_str!("../../../../peers/java/StreamCopy.java")),
            ("TransferTo.java", include_str!("../../../../peers/java/TransferTo.java")),
        ],
        Tool::Python => &[("stream.py", include_str!("../../../../peers/python/stream.py"))],
        Tool::Iperf3 | Tool::Nc => &[],
    }
}

/// Bytes that the article's servers read at once.
const TRADITIONAL_BUFFER: &str = "4096";

/// Bytes that the other article's client reads at once; the programs in C do as it does.
const PYTHON_BUFFER: &str = "65536";
