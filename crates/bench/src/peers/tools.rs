//! The programs without which there is no peer, and what they call themselves.

use std::path::PathBuf;
use std::process::Command;

use super::Peer;
use crate::transfer::find;

/// What a peer is made with, or is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tool {
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

impl Peer {
    /// What it takes; nothing if the bench does it itself.
    pub(crate) const fn tool(self) -> Option<Tool> {
        match self {
            Self::BareSendfile | Self::MemoryCopy => None,
            Self::CMmap | Self::CMmapLease | Self::CReadWrite | Self::CSendfile => Some(Tool::C),
            Self::Iperf3 => Some(Tool::Iperf3),
            Self::JavaStream | Self::JavaTransferTo => Some(Tool::Java),
            Self::Nc => Some(Tool::Nc),
            Self::PythonSendall | Self::PythonSendfile => Some(Tool::Python),
        }
    }
}

impl Tool {
    /// The programs that have to be in PATH.
    const fn programs(self) -> &'static [&'static str] {
        match self {
            Self::C => &["cc"],
            Self::Iperf3 => &["iperf3"],
            Self::Java => &["javac", "java"],
            Self::Nc => &["nc"],
            Self::Python => &["python3"],
        }
    }

    /// The name of one that is not there.
    pub(crate) fn lacks(self) -> Option<&'static str> {
        self.programs().iter().copied().find(|program| find(program).is_none())
    }

    /// The program that is run, by its whole path. What stands in PATH for Python may be a script
    /// that looks for it.
    pub(crate) fn program(self) -> PathBuf {
        let name = self.programs()[self.programs().len() - 1];
        let found = find(name).unwrap_or_else(|| name.into());
        if self != Self::Python {
            return found;
        }
        let asked = Command::new(&found).args(["-c", "import sys; print(sys.executable)"]).output();
        let told = asked.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
        told.ok().map(PathBuf::from).filter(|path| path.is_file()).unwrap_or(found)
    }

    /// What it calls itself; none if it cannot be asked.
    pub(crate) fn version(self) -> Option<String> {
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
