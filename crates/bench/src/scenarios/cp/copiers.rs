//! The command lines of copying programs.

use std::path::Path;

use crate::record::Contender;
use crate::run::CommandWords;

/// Copies `from` to `to`, which does not exist. Ours verifies the copy if `is_verified`.
pub(super) fn copy(
    contender: Contender,
    is_folder: bool,
    is_verified: bool,
    from: &Path,
    to: &Path,
) -> CommandWords {
    let words = match contender {
        Contender::CpArchive => CommandWords::new("cp -a"),
        Contender::Fcp => CommandWords::new("fcp"),
        Contender::Rsync => CommandWords::new("rsync -a"),
        Contender::Tar => CommandWords::new("sh -c").and(TAR).and("sh"),
        Contender::Xcp => CommandWords::new("xcp --no-progress -r"),
        _ if is_verified => CommandWords::new("underpass cp --verify -q -a"),
        _ => CommandWords::new("underpass cp -q -a"),
    };
    match contender {
        // Without slashes, rsync would create a folder of that name in the new one.
        Contender::Rsync if is_folder => words.and(from.join("")).and(to.join("")),
        _ => words.and(from).and(to),
    }
}

/// A file is packed by its name, as a folder is by what is in it.
const TAR: &str = r#"if [ -d "$1" ]; then mkdir "$2" && tar -C "$1" -cf - . | tar -C "$2" -xpf -; else tar -C "${1%/*}" -cf - "${1##*/}" | tar -C "${2%/*}" -xpf - --transform="s,.*,${2##*/},"; fi"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_program_gets_options_for_the_same_copy() {
        let words = |contender, is_folder| {
            copy(contender, is_folder, false, Path::new("from"), Path::new("to")).to_string()
        };
        for (contender, expected) in [
            (Contender::CpArchive, "cp -a from to"),
            (Contender::Fcp, "fcp from to"),
            (Contender::Rsync, "rsync -a from/ to/"),
            (Contender::Tar, TAR),
            (Contender::Xcp, "xcp --no-progress -r from to"),
            (Contender::Underpass, "underpass cp -q -a from to"),
        ] {
            assert_eq!(words(contender, true), expected);
        }
        assert_eq!(words(Contender::Rsync, false), "rsync -a from to");
        let ours = copy(Contender::Underpass, false, true, Path::new("from"), Path::new("to"));
        assert_eq!(ours.to_string(), "underpass cp --verify -q -a from to");
    }
}
