//! What `--resume` finds under the name of a copy: other options apply to it, too, and all of it is
//! compared.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use crate::cp::cp_in;
use crate::cp::stored::{READ_ONLY_ACL, mark, value};
use crate::rig::{folder, skip};
use crate::users::{cp_as_user, give_to_user};
use underpass_testkit::is_root;

fn long_ago() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000)
}

/// A file of this name in `s`, and another one of the same size and time in `k`.
fn plant(here: &Path, name: &str) {
    for (side, text) in [("s", "new"), ("k", "old")] {
        let path = here.join(side).join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        File::options().write(true).open(&path).unwrap().set_modified(long_ago()).unwrap();
    }
}

#[test]
fn a_file_that_differs_is_replaced_only_where_the_other_options_allow_it() {
    for (words, code, text) in [
        (&["-n"][..], 0, "old"),
        (&["--update=none"], 0, "old"),
        (&["--update=none-fail"], 1, "old"),
        // Standard input ends without an answer.
        (&["-i"], 0, "old"),
        (&["-u"], 0, "new"),
        (&["-f"], 0, "new"),
        (&[], 0, "new"),
    ] {
        let here = folder();
        plant(here.path(), "f");
        fs::set_permissions(here.path().join("k/f"), fs::Permissions::from_mode(0o644)).unwrap();
        let finished = cp_in(here.path(), &[words, &["--resume", "s/f", "k/"]].concat());
        assert_eq!(finished.code(), Some(code), "{words:?}: {}", finished.stderr);
        assert_eq!(fs::read_to_string(here.path().join("k/f")).unwrap(), text, "{words:?}");
    }
}

#[test]
fn a_dry_run_prints_and_counts_only_what_is_missing() {
    let here = folder();
    fs::create_dir(here.path().join("s")).unwrap();
    for name in ["a", "b"] {
        fs::write(here.path().join("s").join(name), name).unwrap();
    }
    symlink("a", here.path().join("s/link")).unwrap();
    cp_in(here.path(), &["-aT", "s", "k"]).succeeded();
    fs::remove_file(here.path().join("k/b")).unwrap();
    let words = ["-aT", "--resume", "--dry-run", "s", "k"];
    assert_eq!(cp_in(here.path(), &words).succeeded().text(), "s/b -> k/b\n");
    let receipt = cp_in(here.path(), &[&words[..], &["--json"]].concat()).succeeded().receipt();
    let counts = ["files", "links", "resumed"].map(|count| receipt[count].as_u64().unwrap());
    assert_eq!(counts, [1, 0, 2], "{receipt}");
}

#[test]
fn a_file_that_differs_and_is_not_writable_needs_force() {
    let here = folder();
    fs::set_permissions(here.path(), fs::Permissions::from_mode(0o777)).unwrap();
    plant(here.path(), "f");
    fs::set_permissions(here.path().join("k/f"), fs::Permissions::from_mode(0o444)).unwrap();
    give_to_user(here.path());
    let Some(refused) = cp_as_user(here.path(), &["--resume", "s/f", "k/"]) else { return };
    refused.failed(1, &["k/f", "Permission denied"]);
    assert_eq!(fs::read_to_string(here.path().join("k/f")).unwrap(), "old");
    cp_as_user(here.path(), &["-f", "--resume", "s/f", "k/"]).unwrap().succeeded();
    assert_eq!(fs::read_to_string(here.path().join("k/f")).unwrap(), "new");
}

#[test]
fn names_of_one_file_do_not_replace_files_that_are_to_be_left() {
    for words in [["-anT", "--resume", "s", "k"], ["-aiT", "--resume", "s", "k"]] {
        let here = folder();
        plant(here.path(), "a");
        plant(here.path(), "b");
        let at = |path: &str| here.path().join(path);
        fs::remove_file(at("s/b")).unwrap();
        fs::hard_link(at("s/a"), at("s/b")).unwrap();
        // The first name is complete, so that the second one could be linked to it.
        cp_in(here.path(), &["-p", "s/a", "k/a"]).succeeded();
        cp_in(here.path(), &words).succeeded();
        assert_eq!(fs::read_to_string(at("k/b")).unwrap(), "old", "{words:?}");
        let inode = |path: &str| fs::metadata(at(path)).unwrap().ino();
        assert_ne!(inode("k/a"), inode("k/b"), "{words:?}");
    }
}

#[test]
fn links_that_lead_elsewhere_and_other_devices_are_made_again() {
    let here = folder();
    let at = |path: &str| here.path().join(path);
    fs::create_dir(at("s")).unwrap();
    let device = |minor: &str| {
        let made = Command::new("mknod").arg(at("s/n")).args(["c", "1", minor]).status();
        made.unwrap().success()
    };
    let age = |name: &str| {
        let touched = Command::new("touch").args(["-hd", "2020-01-01"]).arg(at(name)).status();
        assert!(touched.unwrap().success());
    };
    let has_device = is_root() && device("3");
    symlink("v1", at("s/l")).unwrap();
    age("s/l");
    if has_device {
        age("s/n");
    }
    for words in [&["-aT", "--resume", "s", "k"][..], &["-aT", "--resume", "--verify", "s", "k"]] {
        cp_in(here.path(), &["-aT", "s", "k"]).succeeded();
        let other = format!("v{}", words.len());
        fs::remove_file(at("s/l")).unwrap();
        symlink(&other, at("s/l")).unwrap();
        age("s/l");
        if has_device {
            fs::remove_file(at("s/n")).unwrap();
            assert!(device(&words.len().to_string()));
            age("s/n");
        }
        cp_in(here.path(), words).succeeded();
        assert_eq!(fs::read_link(at("k/l")).unwrap(), Path::new(&other), "{words:?}");
        if has_device {
            let number = |path: &str| fs::metadata(at(path)).unwrap().rdev();
            assert_eq!(number("k/n"), number("s/n"), "{words:?}");
        }
    }
}

#[test]
fn resume_adds_attributes_that_the_first_run_left_out() {
    let here = folder();
    let at = |path: &str| here.path().join(path);
    fs::create_dir(at("s")).unwrap();
    fs::write(at("s/f"), "text").unwrap();
    fs::write(at("s/ruled"), "text").unwrap();
    symlink("f", at("s/l")).unwrap();
    if !mark(&at("s/f"), "user.colour", b"blue") {
        return skip("this file system has no extended attributes");
    }
    let has_acl = mark(&at("s/ruled"), "system.posix_acl_access", &READ_ONLY_ACL);
    cp_in(here.path(), &["-r", "--resume", "-T", "s", "k"]).succeeded();
    if is_root() {
        std::os::unix::fs::lchown(at("s/l"), Some(1234), Some(1234)).unwrap();
        chown(at("s/f"), Some(1234), Some(1234)).unwrap();
    }
    let receipt = cp_in(here.path(), &["-a", "--json", "--resume", "-T", "s", "k"]).succeeded();
    let receipt = receipt.receipt();
    assert_eq!((&receipt["resumed"], &receipt["files"]), (&3.into(), &0.into()), "{receipt}");
    assert_eq!(value(&at("k/f"), "user.colour").unwrap(), b"blue");
    let acl = |path: &str| value(&at(path), "system.posix_acl_access");
    assert!(!has_acl || acl("k/ruled") == acl("s/ruled"));
    for name in ["f", "l"] {
        let owner = |side: &str| fs::symlink_metadata(at(side).join(name)).unwrap().uid();
        assert_eq!(owner("k"), owner("s"), "{name}");
    }
}
