//! Builds the programs of `peers/`, which this program has with it, and knows their arguments.

use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::Deserialize;

use super::{Peer, Tool};
use crate::child::Finished;
use crate::counted::Missing;
use crate::data::Folder;
use crate::error::{BenchError, Result, WithPath};
use crate::way::Way;

/// Programs that are ready to be run.
#[derive(Debug)]
pub(crate) struct Workshop {
    folder: PathBuf,
    /// Those that are ready, with the program that is run.
    tools: Vec<(Tool, PathBuf)>,
    /// What the programs used, or made with, call themselves.
    pub(crate) versions: Vec<String>,
    /// Those that could not be had, and why.
    pub(crate) missing: Vec<Missing>,
}

/// What a program of `peers/` tells of its work.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq)]
pub(crate) struct Told {
    /// Bytes that it moved.
    pub(crate) bytes: u64,
    /// Seconds by its own clock.
    pub(crate) elapsed_s: f64,
}

impl Workshop {
    /// Builds what these ways need in a folder below that of the run.
    pub(crate) fn open(folder: &Folder, ways: impl IntoIterator<Item = Way>) -> Result<Self> {
        let place = folder.file("peers");
        fs::create_dir(&place).with_path("creating", &place)?;
        // Some are run with another current folder.
        let place = fs::canonicalize(&place).with_path("looking at", &place)?;
        let mut shop =
            Self { folder: place, tools: Vec::new(), versions: Vec::new(), missing: Vec::new() };
        let mut seen: Vec<(Tool, Option<String>)> = Vec::new();
        for peer in ways.into_iter().filter_map(Way::peer) {
            let Some(tool) = peer.tool() else { continue };
            let known = seen.iter().find(|(seen, _)| *seen == tool).map(|(_, why)| why.clone());
            let why = match known {
                Some(why) => why,
                None => {
                    let why = shop.prepare(tool)?;
                    seen.push((tool, why.clone()));
                    why
                }
            };
            if let Some(why) = why {
                shop.missing.push(Missing { name: peer.to_string(), why });
            }
        }
        Ok(shop)
    }

    /// Makes the programs of a tool, or says why there are none.
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

    /// The program of a peer that is installed.
    pub(crate) fn program(&self, peer: Peer) -> PathBuf {
        let ready = self.tools.iter().find(|(tool, _)| Some(*tool) == peer.tool());
        ready.map_or_else(|| peer.name().into(), |(_, program)| program.clone())
    }

    /// Whether a way can be measured. Those that are no peers can.
    pub(crate) fn has(&self, way: Way) -> bool {
        let tool = way.peer().and_then(Peer::tool);
        tool.is_none_or(|tool| self.tools.iter().any(|(ready, _)| *ready == tool))
    }

    /// The command that sends a file in pieces of `chunk` bytes, 0 for as many as it likes. None if
    /// the peer is no such program.
    pub(crate) fn sender(
        &self,
        peer: Peer,
        chunk: u64,
        file: &Path,
        to: SocketAddrV4,
    ) -> Option<Command> {
        let mut command = self.command(peer)?;
        match peer {
            Peer::CMmap => command.arg("mmap"),
            Peer::CMmapLease => command.arg("mmap_lease"),
            Peer::CReadWrite => command.arg("read_write"),
            Peer::CSendfile => command.arg("sendfile"),
            Peer::JavaStream | Peer::JavaTransferTo => command.arg("send"),
            Peer::PythonSendall => command.arg("sendall"),
            Peer::PythonSendfile => command.arg("sendfile"),
            Peer::Nc => {
                command.arg("-N").arg(to.ip().to_string()).arg(to.port().to_string());
                return Some(command);
            }
            Peer::BareSendfile | Peer::Iperf3 | Peer::MemoryCopy => return None,
        };
        command.arg(file).arg(to.ip().to_string()).arg(to.port().to_string());
        command.arg(chunk.to_string());
        Some(command)
    }

    /// The command that receives what a peer sends as the articles do, into a file or nothing. None
    /// if the peer has none that says where it listens.
    pub(crate) fn receiver(
        &self,
        peer: Peer,
        host: Ipv4Addr,
        file: Option<&Path>,
    ) -> Option<Command> {
        let mut command = match peer.tool()? {
            Tool::C => Command::new(self.folder.join("receive")),
            Tool::Java | Tool::Python => {
                let mut command = self.command(peer)?;
                command.arg("receive");
                command
            }
            Tool::Iperf3 | Tool::Nc => return None,
        };
        command.arg(host.to_string()).arg(file.unwrap_or(Path::new("-")));
        command.arg(match peer.tool()? {
            Tool::Java => TRADITIONAL_BUFFER,
            _ => PYTHON_BUFFER,
        });
        Some(command)
    }

    /// The command that copies a file through a buffer of so many bytes, 0 for as many as there are.
    pub(crate) fn copier(
        &self,
        peer: Peer,
        buffer: u64,
        from: &Path,
        to: &Path,
    ) -> Option<Command> {
        let way = match peer {
            Peer::CReadWrite => "read_write",
            Peer::CSendfile => "sendfile",
            _ => return None,
        };
        let mut command = Command::new(self.folder.join("copy"));
        command.arg(way).arg(from).arg(to).arg(buffer.to_string());
        Some(command)
    }

    /// A peer's program without arguments.
    fn command(&self, peer: Peer) -> Option<Command> {
        let tool = peer.tool()?;
        let (_, program) = self.tools.iter().find(|(ready, _)| *ready == tool)?;
        let mut command = match tool {
            Tool::C => Command::new(self.folder.join("send")),
            _ => Command::new(program),
        };
        match peer {
            Peer::JavaStream => command.arg("-cp").arg(&self.folder).arg("StreamCopy"),
            Peer::JavaTransferTo => command.arg("-cp").arg(&self.folder).arg("TransferTo"),
            Peer::PythonSendall | Peer::PythonSendfile => {
                command.arg("-I").arg(self.folder.join("stream.py"))
            }
            _ => &mut command,
        };
        Some(command)
    }
}

impl Told {
    /// What a process that has succeeded told, if it moved `size` bytes.
    pub(crate) fn read(finished: &Finished, what: &str, size: u64) -> Result<Self> {
        let told: Self = serde_json::from_str(&finished.stdout)
            .map_err(std::io::Error::from)
            .with_path("reading", "what a peer told of its work")?;
        if told.bytes == size {
            return Ok(told);
        }
        let ran = format!("{} bytes instead of {size}", told.bytes);
        Err(BenchError::Other { what: what.to_owned(), ran })
    }
}

/// The files that a tool needs, by name.
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
