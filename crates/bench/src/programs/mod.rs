//! The programs without HTTP that the bench compares with: those in `peers/`, whose sources are
//! embedded and built when needed, and installed ones.

mod iperf;

use std::fmt::Display;
use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use crate::error::{BenchError, Result, WithPath};
use crate::record::{Contender, Variant, unique};
use crate::run::{Finished, RunFolder, RunPlan, build, find, first_line};

pub(crate) use iperf::measure as measure_iperf;

/// Programs that are ready to be run.
#[derive(Debug)]
pub(crate) struct SocketPrograms {
    folder: PathBuf,
    /// The tools of the contenders, each with its program, or why there is none.
    tools: Vec<(&'static Tool, std::result::Result<PathBuf, String>)>,
}

impl SocketPrograms {
    /// Builds what these variants need in a folder below that of the run, and removes those that
    /// cannot be measured. The plan notes why, and the versions of programs and compilers.
    pub(crate) fn open(
        run: &RunFolder,
        variants: &mut Vec<Variant>,
        plan: &mut RunPlan<'_>,
    ) -> Result<Self> {
        let folder = run.file("peers");
        fs::create_dir(&folder).with_path("creating", &folder)?;
        // Some programs run in another current folder.
        let folder = fs::canonicalize(&folder).with_path("looking at", &folder)?;
        let mut programs = Self { folder, tools: Vec::new() };
        for contender in unique(variants.iter().map(|variant| variant.contender)) {
            let Some(SocketProgram { tool, .. }) = SocketProgram::of(contender) else { continue };
            if programs.tool(tool).is_none() {
                let why = tool.build(&programs.folder)?;
                let program = why.map_or_else(|| Ok(tool.program()), Err);
                let version = program.as_ref().ok().and_then(|it| first_line(it, tool.version));
                plan.environment.programs.extend(version.map(|line| line.replace('"', "")));
                programs.tools.push((tool, program));
            }
            if let Some(Err(why)) = programs.tool(tool) {
                plan.add_missing([contender.name()], why);
                variants.retain(|variant| variant.contender != contender);
            }
        }
        Ok(programs)
    }

    fn tool(&self, tool: &Tool) -> Option<&std::result::Result<PathBuf, String>> {
        self.tools.iter().find(|(known, _)| *known == tool).map(|(_, program)| program)
    }

    fn command(&self, program: &SocketProgram, words: &str) -> Option<Command> {
        let program = self.tool(program.tool)?.as_ref().ok()?;
        let mut words = words.split(' ').map(|word| match word.strip_prefix("FOLDER") {
            _ if word == "PROGRAM" => program.as_os_str().to_owned(),
            Some(rest) => self.folder.join(rest.trim_start_matches('/')).into_os_string(),
            None => word.into(),
        });
        let mut command = Command::new(words.next()?);
        command.args(words);
        Some(command)
    }

    /// Returns the command of a contender without its arguments.
    pub(crate) fn plain(&self, contender: Contender) -> Option<Command> {
        let program = SocketProgram::of(contender)?;
        self.command(&program, program.command)
    }

    /// Returns the command that sends a file in pieces of `chunk` bytes, 0 for its
    /// default. `None` if the contender is no such program.
    pub(crate) fn sender(
        &self,
        contender: Contender,
        chunk: u64,
        file: &Path,
        to: SocketAddrV4,
    ) -> Option<Command> {
        let program = SocketProgram::of(contender)?;
        let mut command = self.command(&program, program.command)?;
        if !program.sends.is_empty() {
            command.arg(program.sends).arg(file);
        }
        command.arg(to.ip().to_string()).arg(to.port().to_string());
        if !program.sends.is_empty() {
            command.arg(chunk.to_string());
        }
        Some(command)
    }

    /// Returns the command that receives what a contender sends as the articles do, into a file or
    /// nothing. `None` if the contender has none that reports where it listens.
    pub(crate) fn receiver(
        &self,
        contender: Contender,
        host: Ipv4Addr,
        file: Option<&Path>,
    ) -> Option<Command> {
        let program = SocketProgram::of(contender)?;
        let buffer = program.tool.receives?;
        let words = if program.tool == &C {
            "FOLDER/receive".to_owned()
        } else {
            format!("{} receive", program.command)
        };
        let mut command = self.command(&program, &words)?;
        command.arg(host.to_string()).arg(file.unwrap_or(Path::new("-"))).arg(buffer);
        Some(command)
    }

    /// Returns the command that copies a file through a buffer of `buffer` bytes, 0 for all.
    pub(crate) fn copier(
        &self,
        contender: Contender,
        buffer: u64,
        from: &Path,
        to: &Path,
    ) -> Option<Command> {
        if !matches!(contender, Contender::CReadWrite | Contender::CSendfile) {
            return None;
        }
        let program = SocketProgram::of(contender)?;
        let mut command = self.command(&program, "FOLDER/copy")?;
        command.arg(program.sends).arg(from).arg(to).arg(buffer.to_string());
        Some(command)
    }
}

/// Returns the seconds that a program of `peers/` took by its own clock, if it moved `size` bytes.
pub(crate) fn reported_seconds(finished: &Finished, what: impl Display, size: u64) -> Result<f64> {
    #[derive(Deserialize)]
    struct ProgramReport {
        bytes: u64,
        elapsed_s: f64,
    }
    let report: ProgramReport = serde_json::from_str(&finished.stdout)
        .map_err(std::io::Error::from)
        .with_path("reading", "the report of a contender")?;
    if report.bytes == size {
        return Ok(report.elapsed_s);
    }
    let ran = format!("{} bytes instead of {size}", report.bytes);
    Err(BenchError::other(what, &ran))
}

/// A contender that is a program: what runs it, where PROGRAM and FOLDER stand for the program of
/// its tool and for the folder of what was built, and the word by which it sends.
struct SocketProgram {
    tool: &'static Tool,
    command: &'static str,
    sends: &'static str,
}

impl SocketProgram {
    /// Returns the program of a contender; `None` if the bench does its work itself.
    fn of(contender: Contender) -> Option<Self> {
        let (tool, command, sends) = match contender {
            Contender::CMmap => (&C, "FOLDER/send", "mmap"),
            Contender::CMmapLease => (&C, "FOLDER/send", "mmap_lease"),
            Contender::CReadWrite => (&C, "FOLDER/send", "read_write"),
            Contender::CSendfile => (&C, "FOLDER/send", "sendfile"),
            Contender::Iperf3 => (&IPERF3, "PROGRAM", ""),
            Contender::JavaStream => (&JAVA, "PROGRAM -cp FOLDER StreamCopy", "send"),
            Contender::JavaTransferTo => (&JAVA, "PROGRAM -cp FOLDER TransferTo", "send"),
            Contender::Nc => (&NC, "PROGRAM -N", ""),
            Contender::PythonSendall => (&PYTHON, "PROGRAM -I FOLDER/stream.py", "sendall"),
            Contender::PythonSendfile => (&PYTHON, "PROGRAM -I FOLDER/stream.py", "sendfile"),
            _ => return None,
        };
        Some(Self { tool, command, sends })
    }
}

/// A tool that runs or builds programs.
#[derive(Debug, PartialEq)]
struct Tool {
    /// The programs that have to be in PATH. The last one is run.
    programs: &'static [&'static str],
    version: &'static str,
    sources: &'static [(&'static str, &'static str)],
    builds: &'static [&'static str],
    /// The number of bytes that its receiver reads at once, if it has one.
    receives: Option<&'static str>,
}

const C: Tool = Tool {
    programs: &["cc"],
    version: "--version",
    sources: &[
        ("peer.h", include_str!("../../../../peers/c/peer.h")),
        ("send.c", include_str!("../../../../peers/c/send.c")),
        ("receive.c", include_str!("../../../../peers/c/receive.c")),
        ("copy.c", include_str!("../../../../peers/c/copy.c")),
    ],
    builds: &[
        "cc -std=c11 -O2 -o send send.c",
        "cc -std=c11 -O2 -o receive receive.c",
        "cc -std=c11 -O2 -o copy copy.c",
    ],
    // The receiver reads 64 KiB at a time, as the one in Python does.
    receives: Some("65536"),
};

const IPERF3: Tool = Tool { programs: &["iperf3"], version: "--version", ..NC };

const JAVA: Tool = Tool {
    programs: &["javac", "java"],
    version: "-version",
    sources: &[
        ("StreamCopy.java", include_str!("../../../../peers/java/StreamCopy.java")),
        ("TransferTo.java", include_str!("../../../../peers/java/TransferTo.java")),
    ],
    builds: &["javac -d . StreamCopy.java TransferTo.java"],
    // As many bytes as the article's servers.
    receives: Some("4096"),
};

const NC: Tool =
    Tool { programs: &["nc"], version: "-h", sources: &[], builds: &[], receives: None };

const PYTHON: Tool = Tool {
    programs: &["python3"],
    version: "--version",
    sources: &[("stream.py", include_str!("../../../../peers/python/stream.py"))],
    builds: &[],
    // As many bytes as the article's client.
    receives: Some("65536"),
};

impl Tool {
    /// Builds its programs; returns why that is not possible.
    fn build(&self, folder: &Path) -> Result<Option<String>> {
        match self.programs.iter().find(|program| find(program).is_none()) {
            Some(program) => Ok(Some(format!("{program} is not installed"))),
            None => build(folder, self.sources, self.builds),
        }
    }

    /// Returns the absolute path of the program. For Python, the file in PATH may be a script that
    /// searches for the real one.
    fn program(&self) -> PathBuf {
        let name = self.programs[self.programs.len() - 1];
        let found = find(name).unwrap_or_else(|| name.into());
        if self != &PYTHON {
            return found;
        }
        let output =
            Command::new(&found).args(["-c", "import sys; print(sys.executable)"]).output();
        let path = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
        path.ok().map(PathBuf::from).filter(|path| path.is_file()).unwrap_or(found)
    }
}
