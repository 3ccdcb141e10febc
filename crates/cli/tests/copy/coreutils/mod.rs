//! `cp` compared with the system's: each case is set up twice and copied by both programs; success
//! and resulting files are compared. Where they differ on purpose, the case gives the reason, and
//! the test fails if they no longer differ.

mod cases;
mod options;
mod product;

use std::ffi::OsString;
use std::io::{Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{XattrFlags, lgetxattr, setxattr};

use crate::rig::{Finished, Running, folder};
use crate::users::{NOBODY, cp_as_user, give_to_user};
use cases::{CASES, Case};
use underpass_testkit::{Content, TreeEntry, is_root, skip};

/// The files after a copy: a line for each name.
fn tree(root: &Path, with_times: bool) -> Vec<String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let mut found = Vec::new();
    for (path, TreeEntry { content, facts }) in underpass_testkit::tree(root) {
        let kind = facts.file_type();
        let content = match content {
            Content::Folder => "folder".to_owned(),
            Content::Link(target) => format!("link to {}", target.display()),
            Content::File(bytes) => {
                let sum = bytes
                    .iter()
                    .fold(7_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
                let has_holes = facts.blocks() * 512 + 65_536 < facts.len();
                format!("file {} {sum:x} holes {has_holes} names {}", facts.len(), facts.nlink())
            }
            Content::Other if kind.is_fifo() => "fifo".to_owned(),
            Content::Other if kind.is_socket() => "socket".to_owned(),
            Content::Other => format!("device {:x}", facts.rdev()),
        };
        let mode = if kind.is_symlink() { 0 } else { facts.mode() & 0o7777 };
        let owner = (facts.uid(), facts.gid());
        let attributes = ["user.colour", "system.posix_acl_access", "system.posix_acl_default"]
            .map(|name| {
                let mut value = [0; 200];
                let len = lgetxattr(root.join(&path), name, &mut value[..]).unwrap_or(0);
                value[..len].iter().map(|byte| format!("{byte:02x}")).collect::<String>()
            });
        // The folder that is copied into has the time at which that was done.
        let is_target = path == Path::new("t");
        let time = facts.mtime().cast_unsigned();
        // One that was not copied is that of the copy, and the copies are made one after the
        // other.
        let is_new = time.abs_diff(now) < 3600;
        let time = if with_times && !is_target && !is_new { time } else { 0 };
        let line = format!("{} {content} {mode:o} {owner:?} {time} {attributes:?}", path.display());
        found.push(line);
    }
    found.sort();
    found
}

/// Both trees are made one after the other, and compared with their times.
const SAME_TIME: &str = "find . -newermt @1500000000 -exec touch -h -d @1000000000 {} +";

/// Sets attributes and ACLs, for which no program is certain to be installed.
fn mark(case: &Case, file: &Path) {
    // Read and write for the owner, read for user 1000, the mask, and others.
    let acl: &[u8] = &[
        2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 2, 0, 4, 0, 232, 3, 0, 0, 4, 0, 4, 0, 255, 255,
        255, 255, 16, 0, 4, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255,
    ];
    // For every new file: the same ACL, with write permission in the mask.
    let inherited: &[u8] = &[
        2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 2, 0, 6, 0, 232, 3, 0, 0, 4, 0, 5, 0, 255, 255,
        255, 255, 16, 0, 7, 0, 255, 255, 255, 255, 32, 0, 4, 0, 255, 255, 255, 255,
    ];
    if case.name.contains("inherited") {
        let folder = file.with_file_name("t");
        let _ = setxattr(&folder, "system.posix_acl_default", inherited, XattrFlags::empty());
    }
    // A file system without them is no failure: both programs then copy the same.
    for (word, name, value) in
        [("attributes", "user.colour", b"blue".as_slice()), ("ACL", "system.posix_acl_access", acl)]
    {
        if case.name.contains(word) {
            let _ = setxattr(file, name, value, XattrFlags::empty());
        }
    }
}

/// The result of one of the programs.
struct Copied {
    code: Option<i32>,
    errors: String,
    lines: Vec<String>,
    tree: Vec<String>,
}

/// Returns standard input that says this.
fn answers(text: &str) -> Stdio {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file.rewind().unwrap();
    file.into()
}

/// Runs one of the programs in its own copy of the tree.
fn copied(case: &Case, here: &Path, ours: bool) -> Copied {
    let setup = Command::new("sh")
        .args(["-ec", &format!("umask 022; {}; {SAME_TIME}", case.setup)])
        .current_dir(here)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&setup.stderr);
    assert!(setup.status.success(), "{}: {said}", case.name);
    mark(case, &here.join("f"));
    let words: Vec<&str> =
        case.words.split_whitespace().map(|word| if word == "''" { "" } else { word }).collect();
    let finished: Finished = match (case.is_user, ours) {
        (true, true) => {
            give_to_user(here);
            cp_as_user(here, &words).unwrap()
        }
        (is_user, ours) => {
            let mut command = if ours {
                let mut command = crate::rig::underpass();
                command.arg("cp");
                command
            } else if is_user && is_root() {
                give_to_user(here);
                let (user, mut command) = (NOBODY.to_string(), Command::new("setpriv"));
                command.args(["--reuid", &user, "--regid", &user, "--clear-groups", "cp"]);
                command
            } else {
                Command::new("cp")
            };
            command.args(words).current_dir(here).env("LC_ALL", "C");
            command.envs(case.variable);
            command.stdin(answers(case.input)).stdout(Stdio::piped()).stderr(Stdio::piped());
            Running::start(command).finish()
        }
    };
    let with_times = case
        .words
        .split_whitespace()
        .any(|word| word.starts_with('-') && !word.starts_with("--") && word.contains(['a', 'p']));
    let with_times = with_times
        || case.words.contains("=timestamps")
        || case.words.contains(",timestamps")
        || case.words.contains("=all");
    let mut lines: Vec<_> = finished.text().lines().map(|line| line.replace("./", "")).collect();
    // Several threads copy.
    lines.sort();
    Copied {
        code: finished.code(),
        errors: finished.stderr.clone(),
        lines,
        tree: tree(here, with_times),
    }
}

/// The differences between both, a line each.
fn differences(case: &Case) -> Vec<String> {
    let (theirs, ours) = (folder(), folder());
    let (their, our) = (copied(case, theirs.path(), false), copied(case, ours.path(), true));
    let mut differences = Vec::new();
    // For wrong usage our exit code is 2.
    let code = |code: Option<i32>| code.map(|code| code.min(1));
    if code(their.code) != code(our.code) {
        differences.push(format!(
            "exit code {:?} ({}) and {:?} ({})",
            their.code,
            their.errors.trim(),
            our.code,
            our.errors.trim()
        ));
    }
    for (theirs, ours) in [(&their.tree, &our.tree), (&their.lines, &our.lines)] {
        for line in theirs.iter().filter(|line| !ours.contains(line)) {
            differences.push(format!("theirs alone: {line}"));
        }
        for line in ours.iter().filter(|line| !theirs.contains(line)) {
            differences.push(format!("ours alone:   {line}"));
        }
    }
    for place in [theirs, ours] {
        // Without root, modes that were taken away would prevent cleaning up.
        let _ = Command::new("chmod").args(["-R", "u+rwx"]).arg(place.path()).output();
    }
    differences
}

/// The fault of a case: an unintended difference, or an intended one that is missing.
fn verdict(case: &Case) -> Option<String> {
    let differences = differences(case);
    match (case.differs, differences.is_empty()) {
        (None, true) | (Some(_), false) => None,
        (None, false) => {
            let differences = differences.join("\n  ");
            Some(format!("{} (cp {}):\n  {differences}", case.name, case.words))
        }
        (Some(reason), true) => Some(format!("{}: the same by now, though {reason}", case.name)),
    }
}

/// Whether the system's cp is that of coreutils.
fn has_coreutils() -> bool {
    let version = Command::new("cp").arg("--version").output();
    version.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("coreutils"))
}

#[test]
fn modes_and_acls_are_those_of_the_systems_cp() {
    if !has_coreutils() {
        return skip("the system's cp is not that of coreutils");
    }
    let (mut wrong, mut count) = (Vec::new(), 0);
    for case in product::cases() {
        count += 1;
        wrong.extend(verdict(&case));
    }
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn copies_are_those_of_the_systems_cp() {
    if !has_coreutils() {
        return skip("the system's cp is not that of coreutils");
    }
    let mut wrong = Vec::new();
    let mut seen: Vec<OsString> = Vec::new();
    let abbreviations: Vec<_> = options::abbreviations().collect();
    for case in CASES.iter().chain(options::CASES).chain(&abbreviations) {
        assert!(!seen.iter().any(|name| name.as_bytes() == case.name.as_bytes()), "{}", case.name);
        seen.push(case.name.into());
        let has_selinux = Path::new("/sys/fs/selinux/enforce").exists();
        if case.needs_root && !is_root() || case.name.ends_with("without SELinux") && has_selinux {
            continue;
        }
        wrong.extend(verdict(case));
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), seen.len(), wrong.join("\n"));
    println!("{} cases", seen.len());
}
