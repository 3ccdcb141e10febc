//! The programs that copy: what they are asked to do, and which of them there are.

use std::ffi::OsString;
use std::fmt;
use std::path::Path;
use std::process::Command;

use crate::child::this_program;
use crate::way::Way;

/// A way to copy that is nothing else's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Copier {
    /// `cp -a` of coreutils.
    Cp,
    /// `underpass cp -a` of a file that has the same bytes, but no holes.
    Dense,
    /// fcp, which copies in parallel.
    Fcp,
    /// `rsync -a`.
    Rsync,
    /// One tar that packs, and another one that unpacks.
    Tar,
    /// `xcp -r`, which copies in parallel.
    Xcp,
}

impl Copier {
    /// All of them.
    pub(crate) const ALL: [Self; 6] =
        [Self::Cp, Self::Dense, Self::Fcp, Self::Rsync, Self::Tar, Self::Xcp];

    /// Its name in records.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Cp => "cp_a",
            Self::Dense => "underpass_dense",
            Self::Fcp => "fcp",
            Self::Rsync => "rsync_a",
            Self::Tar => "tar",
            Self::Xcp => "xcp",
        }
    }
}

/// A program with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Words {
    program: &'static str,
    arguments: Vec<OsString>,
}

impl Words {
    /// Copies `from` to `to`, which is not there.
    pub(crate) fn new(way: Way, is_folder: bool, from: &Path, to: &Path) -> Self {
        let (program, options): (_, &[&str]) = match way {
            Way::Copier(Copier::Cp) => ("cp", &["-a"]),
            Way::Copier(Copier::Fcp) => ("fcp", &[]),
            Way::Copier(Copier::Rsync) => ("rsync", &["-a"]),
            Way::Copier(Copier::Tar) => ("sh", &["-c", TAR, "sh"]),
            Way::Copier(Copier::Xcp) => ("xcp", &["--no-progress", "-r"]),
            _ => (OURS, &["cp", "-q", "-a"]),
        };
        let ends = match way {
            // Else it would make a folder of that name in the new one.
            Way::Copier(Copier::Rsync) if is_folder => [from.join(""), to.join("")],
            _ => [from.to_owned(), to.to_owned()],
        };
        let options = options.iter().map(Into::into);
        Self { program, arguments: options.chain(ends.map(Into::into)).collect() }
    }

    /// The same, and it compares afterwards, if it is ours.
    pub(crate) fn verifying(mut self) -> Self {
        if self.program == OURS {
            self.arguments.insert(1, "--verify".into());
        }
        self
    }

    /// The command.
    pub(crate) fn command(&self) -> Command {
        let mut command = match self.program {
            OURS => this_program(),
            program => Command::new(program),
        };
        command.args(&self.arguments);
        command
    }
}

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.program == "sh" {
            return f.write_str(TAR);
        }
        f.write_str(self.program)?;
        self.arguments.iter().try_for_each(|word| write!(f, " {}", word.to_string_lossy()))
    }
}

/// The program that a way needs besides this one.
pub(crate) const fn program(way: Way) -> Option<&'static str> {
    match way {
        Way::Copier(Copier::Cp) => Some("cp"),
        Way::Copier(Copier::Fcp) => Some("fcp"),
        Way::Copier(Copier::Rsync) => Some("rsync"),
        Way::Copier(Copier::Tar) => Some("tar"),
        Way::Copier(Copier::Xcp) => Some("xcp"),
        _ => None,
    }
}

/// Whether it is one of ours.
pub(crate) const fn is_ours(way: Way) -> bool {
    program(way).is_none()
}

/// A file is packed by its name, as a folder is by what is in it.
const TAR: &str = r#"if [ -d "$1" ]; then mkdir "$2" && tar -C "$1" -cf - . | tar -C "$2" -xpf -; else tar -C "${1%/*}" -cf - "${1##*/}" | tar -C "${2%/*}" -xpf - --transform="s,.*,${2##*/},"; fi"#;

const OURS: &str = "underpass";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_program_is_told_to_make_the_same_copy() {
        let words = |way, is_folder| {
            Words::new(way, is_folder, Path::new("from"), Path::new("to")).to_string()
        };
        for (way, said) in [
            (Way::Copier(Copier::Cp), "cp -a from to"),
            (Way::Copier(Copier::Fcp), "fcp from to"),
            (Way::Copier(Copier::Rsync), "rsync -a from/ to/"),
            (Way::Copier(Copier::Tar), TAR),
            (Way::Copier(Copier::Xcp), "xcp --no-progress -r from to"),
            (Way::Underpass, "underpass cp -q -a from to"),
        ] {
            assert_eq!(words(way, true), said);
        }
        assert_eq!(words(Way::Copier(Copier::Rsync), false), "rsync -a from to");
        let ours = Words::new(Way::Underpass, false, Path::new("from"), Path::new("to"));
        assert_eq!(ours.verifying().to_string(), "underpass cp --verify -q -a from to");
    }
}
