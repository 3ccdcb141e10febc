//! `cp` as a user without privileges.

use std::fs;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::io::FdFlags;

use crate::rig::{Finished, Running, folder, has};
use underpass_testkit::is_root;

/// A user that owns nothing.
pub(crate) const NOBODY: u32 = 65_534;

/// Gives a tree to the user that [`cp_as_user`] copies as.
pub(crate) fn give_to_user(path: &Path) {
    if !is_root() {
        return;
    }
    std::os::unix::fs::lchown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    if fs::symlink_metadata(path).unwrap().is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            give_to_user(&entry.unwrap().path());
        }
    }
}

/// Gives one file or folder to another user than that one; `None` if only root can.
pub(crate) fn take_from_user(path: &Path) -> Option<()> {
    is_root().then(|| chown(path, Some(1234), Some(1234)).unwrap())
}

/// `cp` with these words, in this folder, by a user who is not root. `None` if that cannot be.
pub(crate) fn cp_as_user(here: &Path, words: &[&str]) -> Option<Finished> {
    let program = env!("CARGO_BIN_EXE_underpass");
    let mut command = Command::new("setpriv");
    // Other users may not find the program by its path, so its descriptor is handed over.
    let file = fs::File::open(program).unwrap();
    if is_root() {
        if !has("setpriv") {
            return None;
        }
        rustix::io::fcntl_setfd(&file, FdFlags::empty()).unwrap();
        let user = NOBODY.to_string();
        command.args(["--reuid", &user, "--regid", &user, "--clear-groups", "sh", "-c"]);
        command.arg(r#"exec "/proc/self/fd/$0" cp "$@""#).arg(file.as_raw_fd().to_string());
    } else {
        command = Command::new(program);
        command.arg("cp");
    }
    command.args(words).current_dir(here);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Some(Running::start(command).finish())
}

#[test]
fn paths_from_the_root_need_no_right_to_the_current_folder() {
    if !is_root() {
        return;
    }
    let here = folder();
    let (closed, open) = (here.path().join("closed"), here.path().join("open"));
    for (path, mode) in [(here.path(), 0o755), (&closed, 0o700), (&open, 0o777)] {
        fs::create_dir_all(path).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::write(open.join("f"), "text").unwrap();
    let at = |name: &str| open.join(name).to_str().unwrap().to_owned();
    for (option, target) in [("-p", "g"), ("-r", "h"), ("--parents", "")] {
        let words = [option, &at("f"), &at(target)];
        let Some(finished) = cp_as_user(&closed, &words) else { return };
        finished.succeeded();
    }
    assert_eq!(fs::read(open.join("g")).unwrap(), b"text");
    cp_as_user(&closed, &["f", &at("g")]).unwrap().failed(1, &["Permission denied"]);
}

#[test]
fn folders_that_may_not_be_read_are_written_to_and_searched() {
    let here = folder();
    let at = |path: &str| here.path().join(path);
    for path in ["tree/sub", "k/tree", "drop"] {
        fs::create_dir_all(at(path)).unwrap();
    }
    fs::write(at("tree/sub/file"), "text").unwrap();
    fs::write(at("drop/file"), "old").unwrap();
    give_to_user(here.path());
    let set = |path: &str, mode| fs::set_permissions(at(path), fs::Permissions::from_mode(mode));
    for (path, mode) in [("k/tree", 0o333), ("drop", 0o333)] {
        set(path, mode).unwrap();
    }
    let copies = |words: &[&str]| cp_as_user(here.path(), words).map(Finished::succeeded);
    if copies(&["-r", "tree", "k"]).is_none() {
        return;
    }
    copies(&["-rT", "tree", "k/tree"]);
    copies(&["-b", "tree/sub/file", "drop"]);
    set("tree", 0o111).unwrap();
    copies(&["--parents", "tree/sub/file", "k"]);
    for path in ["tree", "k/tree", "drop"] {
        set(path, 0o755).unwrap();
    }
    assert_eq!(fs::read(at("k/tree/sub/file")).unwrap(), b"text");
    assert_eq!(fs::read(at("drop/file~")).unwrap(), b"old");
}
