//! Permissions of copies are never wider than those that coreutils gives.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::Mode;

use crate::rig::{Running, folder, has, skip, traced, underpass};

/// The mode of `n` after a command line, which runs in a shell with this umask.
fn mode(here: &Path, mask: u32, line: &str) -> u32 {
    let script = format!("umask {mask:o}; {line}");
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).current_dir(here).stdin(Stdio::null());
    shell.stdout(Stdio::piped()).stderr(Stdio::piped());
    Running::start(shell).finish().succeeded();
    fs::metadata(here.join("n")).unwrap().permissions().mode() & 0o7777
}

/// Prepares a target and a FIFO that a writer waits at.
fn prepare(here: &Path, existing: Option<u32>) {
    let target = here.join("n");
    let _ = fs::remove_file(&target);
    if let Some(existing) = existing {
        fs::write(&target, "old").unwrap();
        fs::set_permissions(&target, fs::Permissions::from_mode(existing)).unwrap();
    }
}

#[test]
fn files_from_streams_get_the_mode_that_coreutils_gives() {
    let ours = format!("{} cp", underpass().get_program().display());
    let here = folder();
    for (name, mode) in [("wide", 0o666), ("narrow", 0o640), ("run", 0o755)] {
        fs::write(here.path().join(name), "bytes").unwrap();
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(here.path().join(name), mode).unwrap();
    }
    let fifo = "rm -f p; mkfifo -m 660 p; echo bytes > p & CP p n; wait";
    let lines = [
        "CP /dev/null n",
        "CP /dev/stdin n < wide",
        "CP /dev/stdin n < narrow",
        "CP /dev/stdin n < run",
        "echo bytes | CP /dev/stdin n",
        fifo,
    ];
    for line in lines {
        for existing in [None, Some(0o644), Some(0o600), Some(0o666)] {
            for mask in [0o000, 0o022, 0o027, 0o077] {
                prepare(here.path(), existing);
                let theirs = mode(here.path(), mask, &line.replace("CP", "cp"));
                for dash in [false, true] {
                    let line = if dash { line.replace("/dev/stdin", "-") } else { line.to_owned() };
                    // A file that is named, by whichever name, keeps its mode.
                    if !dash && line.contains("/dev/stdin n <") {
                        continue;
                    }
                    prepare(here.path(), existing);
                    let mine = mode(here.path(), mask, &line.replace("CP", &ours));
                    assert_eq!(mine, theirs, "{line} with umask {mask:o} on {existing:?}");
                }
            }
        }
    }
    prepare(here.path(), None);
    assert_eq!(mode(here.path(), 0o022, &format!("{ours} -p /dev/null n")), 0o666);
}

#[test]
fn a_file_that_a_stream_replaces_keeps_its_owner() {
    let ours = format!("{} cp", underpass().get_program().display());
    let here = folder();
    for line in ["CP /dev/null n", "echo bytes | CP - n", "mkfifo p; echo bytes > p & CP p n; wait"]
    {
        prepare(here.path(), Some(0o640));
        if chown(here.path().join("n"), Some(1234), Some(1235)).is_err() {
            skip("only root may give files away");
            return;
        }
        assert_eq!(mode(here.path(), 0o022, &line.replace("CP", &ours)), 0o640, "{line}");
        let found = fs::metadata(here.path().join("n")).unwrap();
        assert_eq!((found.uid(), found.gid()), (1234, 1235), "{line}");
    }
}

#[test]
fn a_stream_gives_the_owner_of_coreutils_if_one_is_requested_or_the_old_file_is_removed() {
    let ours = format!("{} cp", underpass().get_program().display());
    let here = folder();
    fs::write(here.path().join("s"), "secret").unwrap();
    fs::set_permissions(here.path().join("s"), fs::Permissions::from_mode(0o600)).unwrap();
    let fifo = "rm -f p; mkfifo -m 660 p; chown 77:78 p; echo bytes > p & CP WORDS p n; wait";
    let fifo = |words| fifo.replace("WORDS", words);
    let lines = [
        "CP --preserve=ownership /dev/null n".to_owned(),
        fifo("--preserve=ownership"),
        fifo("-p --no-preserve=mode"),
        fifo("-p"),
        fifo("--remove-destination"),
        "CP --remove-destination /dev/null n".to_owned(),
        "CP -b /dev/null n".to_owned(),
        "CP -p /dev/stdin n < s".to_owned(),
        "CP --preserve=ownership /dev/stdin n < s".to_owned(),
        "CP --remove-destination /dev/stdin n < s".to_owned(),
        "echo bytes | CP --remove-destination /dev/stdin n".to_owned(),
    ];
    for line in lines {
        let [theirs, mine] = ["cp", &ours].map(|program| {
            prepare(here.path(), Some(0o640));
            chown(here.path().join("n"), Some(1234), Some(1235)).ok()?;
            let line = line.replace("CP", program);
            let line = if program == "cp" { line } else { line.replace("/dev/stdin", "-") };
            let mode = mode(here.path(), 0o022, &line);
            let found = fs::metadata(here.path().join("n")).unwrap();
            Some((mode, found.uid(), found.gid()))
        });
        if theirs.is_none() {
            return skip("only root may give files away");
        }
        assert_eq!(mine, theirs, "{line}");
    }
}

/// An ACL by which one user may write, and the group may do nothing.
pub(crate) fn acl() -> Vec<u8> {
    let entry = |tag: u16, may: u16, number: u32| {
        [tag.to_le_bytes().to_vec(), may.to_le_bytes().to_vec(), number.to_le_bytes().to_vec()]
            .concat()
    };
    let none = u32::MAX;
    let entries = [(1, 6, none), (2, 6, 1234), (4, 0, none), (16, 6, none), (32, 0, none)];
    let entries = entries.map(|(tag, may, number)| entry(tag, may, number));
    [vec![2, 0, 0, 0], entries.concat()].concat()
}

#[test]
fn the_mask_of_an_acl_does_not_become_a_right_of_the_group() {
    let here = folder();
    let file = here.path().join("s/file");
    fs::create_dir(here.path().join("s")).unwrap();
    fs::write(&file, "bytes").unwrap();
    let name = c"system.posix_acl_access";
    let set = |path: &Path, acl: &[u8]| {
        rustix::fs::setxattr(path, name, acl, rustix::fs::XattrFlags::empty())
    };
    if set(&file, &acl()).is_err() {
        return skip("this file system has no ACLs");
    }
    set(&here.path().join("s"), &acl()).unwrap();
    let mode =
        |path: &str| fs::metadata(here.path().join(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("s/file"), 0o660);
    crate::cp::cp_in(here.path(), &["s/file", "n"]).succeeded();
    assert_eq!(mode("n"), 0o600);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        here.path().join("s/fifo"),
        rustix::fs::FileType::Fifo,
        Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    set(&here.path().join("s/fifo"), &acl()).unwrap();
    crate::cp::cp_in(here.path(), &["-r", "s", "t"]).succeeded();
    assert_eq!((mode("t"), mode("t/file"), mode("t/fifo")), (0o600, 0o600, 0o600));
    crate::cp::cp_in(here.path(), &["-a", "s", "u"]).succeeded();
    assert_eq!((mode("u"), mode("u/file"), mode("u/fifo")), (0o660, 0o660, 0o660));
    let mut value = [0; 100];
    let len = rustix::fs::getxattr(here.path().join("u/file"), name, &mut value).unwrap();
    assert_eq!(value[..len], acl());
    // As a stream, too, and where such a file is replaced.
    let mut command = underpass();
    command.args(["cp", "-", "m"]).current_dir(here.path()).stdin(fs::File::open(&file).unwrap());
    Running::start(command).finish().succeeded();
    assert_eq!(mode("m"), 0o600);
    crate::cp::cp_in(here.path(), &["/dev/null", "s/file"]).succeeded();
    let len = rustix::fs::getxattr(&file, name, &mut value).unwrap();
    assert_eq!(value[..len], acl());
    // With -p the mode of the source is that of the group, and not of the ACL of another file.
    let mut command = underpass();
    let from = fs::File::open(here.path().join("m")).unwrap();
    command.args(["cp", "-p", "-", "s/file"]).current_dir(here.path()).stdin(from);
    Running::start(command).finish().succeeded();
    assert!(rustix::fs::getxattr(&file, name, &mut value).is_err());
}

#[test]
fn an_inherited_acl_that_stays_is_an_error() {
    let here = folder();
    let at = |name: &str| here.path().join(name);
    for folder in ["new", "s"] {
        fs::create_dir(at(folder)).unwrap();
    }
    fs::write(at("s/f"), "secret").unwrap();
    let name = c"system.posix_acl_default";
    if rustix::fs::setxattr(at("new"), name, &acl(), rustix::fs::XattrFlags::empty()).is_err() {
        return skip("the file system has no ACLs");
    }
    if !has("strace") {
        return;
    }
    let inject = ["-e", "trace=fremovexattr", "-e", "inject=fremovexattr:error=EIO"];
    for words in [&["-p", "s/f", "new"][..], &["-a", "s", "new"]] {
        let mut command = traced(&at("trace"), &inject);
        command.arg("cp").args(words).current_dir(here.path());
        let said = Running::start(command).finish().failed(1, &[]).stderr;
        assert!(said.contains("keeping mode of") && said.contains("Input/output"), "{said}");
    }
}

#[test]
fn a_dry_run_leaves_the_acl_of_a_folder_in_which_it_would_make_another() {
    let here = folder();
    for path in ["s/d/new", "k/d"] {
        fs::create_dir_all(here.path().join(path)).unwrap();
    }
    let (name, d) = (c"system.posix_acl_default", here.path().join("k/d"));
    if rustix::fs::setxattr(&d, name, &acl(), rustix::fs::XattrFlags::empty()).is_err() {
        return skip("this file system has no ACLs");
    }
    crate::cp::cp_in(here.path(), &["-aT", "--dry-run", "s", "k"]).succeeded();
    assert!(rustix::fs::getxattr(&d, name, &mut [0; 100][..]).is_ok());
}
