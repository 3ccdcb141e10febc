//! The command lines of copying programs.

use std::ffi::OsString;
use std::fmt;
use std::path::Path;
use std::process::Command;

use crate::record::Contender;
use crate::run::Context;

/// A program with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CopyCommand {
    program: &'static str,
    arguments: Vec<OsString>,
}

impl CopyCommand {
    /// Copies `from` to `to`, which is not there.
    pub(super) fn new(contender: Contender, is_folder: bool, from: &Path, to: &Path) -> Self {
        let (program, options): (_, &[&str]) = match contender {
            Contender::CpArchive => ("cp", &["-a"]),
            Contender::Fcp => ("fcp", &[]),
            Contender::Rsync => ("rsync", &["-a"]),
            Contender::Tar => ("sh", &["-c", TAR, "sh"]),
            Contender::Xcp => ("xcp", &["--no-progress", "-r"]),
            _ => (OURS, &["cp", "-q", "-a"]),
        };
        let ends = match contender {
            // Else it would make a folder of that name in the new one.
            Contender::Rsync if is_folder => [from.join(""), to.join("")],
            _ => [from.to_owned(), to.to_owned()],
        };
        let options = options.iter().map(Into::into);
        Self { program, arguments: options.chain(ends.map(Into::into)).collect() }
    }

    /// Adds verification afterwards, if the program is ours.
    pub(super) fn verifying(mut self) -> Self {
        if self.program == OURS {
            self.arguments.insert(1, "--verify".into());
        }
        self
    }

    pub(super) fn command(&self, context: &Context<'_>) -> Command {
        let mut command = match self.program {
            OURS => context.program(),
            program => Command::new(program),
        };
        command.args(&self.arguments);
        command
    }
}

impl fmt::Display for CopyCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.program == "sh" {
            return f.write_str(TAR);
        }
        f.write_str(self.program)?;
        self.arguments.iter().try_for_each(|word| write!(f, " {}", word.to_string_lossy()))
    }
}

/// A file is packed by its name, as a folder is by what is in it.
const TAR: &str = r#"if [ -d "$1" ]; then mkdir "$2" && tar -C "$1" -cf - . | tar -C "$2" -xpf -; else tar -C "${1%/*}" -cf - "${1##*/}" | tar -C "${2%/*}" -xpf - --transform="s,.*,${2##*/},"; fi"#;

const OURS: &str = "underpass";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_program_is_told_to_make_the_same_copy() {
        let words = |contender, is_folder| {
            CopyCommand::new(contender, is_folder, Path::new("from"), Path::new("to")).to_string()
        };
        for (contender, said) in [
            (Contender::CpArchive, "cp -a from to"),
            (Contender::Fcp, "fcp from to"),
            (Contender::Rsync, "rsync -a from/ to/"),
            (Contender::Tar, TAR),
            (Contender::Xcp, "xcp --no-progress -r from to"),
            (Contender::Underpass, "underpass cp -q -a from to"),
        ] {
            assert_eq!(words(contender, true), said);
        }
        assert_eq!(words(Contender::Rsync, false), "rsync -a from to");
        let ours =
            CopyCommand::new(Contender::Underpass, false, Path::new("from"), Path::new("to"));
        assert_eq!(ours.verifying().to_string(), "underpass cp --verify -q -a from to");
    }
}
