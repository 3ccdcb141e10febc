//! Attributes, ACLs, owners, modes and times: kept whatever the mode is, or reported.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use rustix::fs::{XattrFlags, getxattr, setxattr};

use crate::cp::bytes::traced_in;
use crate::cp::cp_in;
use crate::rig::{folder, has};
use crate::users::{cp_as_user, give_to_user};
use underpass_testkit::{is_root, skip};

/// Sets an attribute; false where the file system has none.
pub(crate) fn mark(path: &Path, name: &str, value: &[u8]) -> bool {
    setxattr(path, name, value, XattrFlags::empty()).is_ok()
}

pub(crate) fn value(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut found = [0; 2000];
    getxattr(path, name, &mut found[..]).ok().map(|len| found[..len].to_vec())
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// An ACL: read for the owner and user 1000, nothing for others.
pub(crate) const READ_ONLY_ACL: [u8; 44] = [
    2, 0, 0, 0, 1, 0, 4, 0, 255, 255, 255, 255, 2, 0, 4, 0, 232, 3, 0, 0, 4, 0, 0, 0, 255, 255,
    255, 255, 16, 0, 4, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255,
];

#[test]
fn attributes_of_what_is_read_only_are_kept_for_a_user() {
    let here = folder();
    set_mode(here.path(), 0o777);
    let a = here.path().join("a");
    fs::create_dir_all(a.join("folder")).unwrap();
    for name in ["file", "folder/inner", "ruled"] {
        fs::write(a.join(name), name).unwrap();
    }
    let marked = ["", "file", "folder", "folder/inner", "ruled"];
    if !marked.iter().all(|name| mark(&a.join(name), "user.colour", b"blue")) {
        return skip("this file system has no extended attributes");
    }
    let has_acl = mark(&a.join("ruled"), "system.posix_acl_access", &READ_ONLY_ACL);
    set_mode(&a.join("file"), 0o444);
    set_mode(&a.join("folder/inner"), 0o400);
    set_mode(&a.join("folder"), 0o555);
    give_to_user(here.path());
    for words in [["-a", "a", "z"], ["-rp", "a", "y"]] {
        let Some(finished) = cp_as_user(here.path(), &words) else { return };
        let finished = finished.succeeded();
        assert!(!finished.stderr.contains("attributes"), "{}", finished.stderr);
        let copy = here.path().join(words[2]);
        for name in marked {
            assert_eq!(
                value(&copy.join(name), "user.colour").unwrap(),
                b"blue",
                "{words:?} {name}"
            );
            let facts = |path: &Path| {
                let found = fs::metadata(path.join(name)).unwrap();
                (found.mode(), found.modified().unwrap())
            };
            assert_eq!(facts(&copy), facts(&a), "{words:?} {name}");
        }
        let acl = value(&copy.join("ruled"), "system.posix_acl_access");
        assert_eq!(acl.is_some(), has_acl, "{words:?}");
        assert!(acl.is_none_or(|acl| acl == READ_ONLY_ACL), "{words:?}");
    }
    for name in ["a/folder", "z/folder", "y/folder"] {
        set_mode(&here.path().join(name), 0o755);
    }
}

#[test]
fn capabilities_outlive_the_change_of_owner() {
    if !is_root() {
        return skip("only root can set capabilities");
    }
    let here = folder();
    let file = here.path().join("a");
    fs::write(&file, "program").unwrap();
    chown(&file, Some(1234), Some(77)).unwrap();
    // Version 2: cap_net_bind_service, permitted and effective.
    let mut capability = [0; 20];
    (capability[0], capability[3], capability[5]) = (1, 2, 4);
    if !mark(&file, "security.capability", &capability) {
        return skip("files cannot have capabilities");
    }
    mark(&file, "user.colour", b"blue");
    set_mode(&file, 0o4555);
    cp_in(here.path(), &["-a", "a", "z"]).succeeded();
    let copy = here.path().join("z");
    assert_eq!(value(&copy, "security.capability").unwrap(), capability);
    let found = fs::metadata(&copy).unwrap();
    assert_eq!((found.uid(), found.gid(), found.mode() & 0o7777), (1234, 77, 0o4555));
}

#[test]
fn an_acl_that_cannot_be_read_never_removes_permissions_silently() {
    if !has("strace") {
        return;
    }
    let here = folder();
    fs::create_dir(here.path().join("a")).unwrap();
    fs::write(here.path().join("a/file"), "bytes").unwrap();
    set_mode(&here.path().join("a/file"), 0o664);
    set_mode(&here.path().join("a"), 0o775);
    let mode = |path: &str| fs::metadata(here.path().join(path)).unwrap().mode() & 0o7777;
    let strace = ["-e", "inject=fgetxattr:error=EIO"];
    let (finished, _) = traced_in(here.path(), &strace, &["a/file", "b"]);
    assert_eq!(finished.code(), Some(1), "{}", finished.stderr);
    assert!(finished.stderr.contains("keeping mode of b"), "{}", finished.stderr);
    let (finished, _) = traced_in(here.path(), &strace, &["-r", "a", "c"]);
    assert_eq!(finished.code(), Some(1), "{}", finished.stderr);
    for says in ["keeping mode of c/file", "keeping mode of c/: "] {
        assert!(finished.stderr.contains(says), "{says}: {}", finished.stderr);
    }
    assert_eq!((mode("b"), mode("c/file"), mode("c")), (0o604, 0o604, 0o705));
    // With -a the mode is that of the original, which turns out to have no ACL.
    let (finished, _) = traced_in(here.path(), &strace, &["-a", "a", "d"]);
    assert_eq!(finished.code(), Some(0), "{}", finished.stderr);
    assert_eq!((mode("d/file"), mode("d")), (0o664, 0o775));
}

#[test]
fn attributes_that_are_requested_by_name_are_required() {
    if !has("strace") {
        return;
    }
    let here = folder();
    fs::write(here.path().join("a"), "bytes").unwrap();
    // No ACL is looked for then.
    set_mode(&here.path().join("a"), 0o644);
    if !mark(&here.path().join("a"), "user.colour", b"blue") {
        return skip("this file system has no extended attributes");
    }
    let refusals = ["EOPNOTSUPP", "EPERM", "EACCES", "EINVAL", "ENOSPC", "ERANGE", "E2BIG", "EIO"];
    for errno in refusals {
        for (words, codes) in [
            (&["--preserve=xattr"][..], [1, 1]),
            (&["--preserve=xattr", "-a"], [1, 1]),
            (&["-a"], if errno == "EIO" { [1, 1] } else { [0, 0] }),
            (&["--preserve=xattr", "--no-preserve=xattr"], [0, 0]),
        ] {
            for (call, code) in ["fsetxattr", "fgetxattr"].into_iter().zip(codes) {
                let inject = format!("inject={call}:error={errno}");
                let all = [words, &["a", "z"]].concat();
                let (finished, _) = traced_in(here.path(), &["-e", &inject], &all);
                let text = format!("{call} {errno} {words:?}: {}", finished.stderr);
                assert_eq!(finished.code(), Some(code), "{text}");
                assert_eq!(fs::read(here.path().join("z")).unwrap(), b"bytes", "{text}");
                fs::remove_file(here.path().join("z")).unwrap();
            }
        }
    }
}

#[test]
fn attributes_that_cannot_be_stored_are_reported_and_the_copy_stays() {
    if !has("strace") {
        return;
    }
    let here = folder();
    let a = here.path().join("a");
    fs::create_dir(&a).unwrap();
    fs::write(a.join("file"), "bytes").unwrap();
    if !mark(&a.join("file"), "user.colour", b"blue") {
        return skip("this file system has no extended attributes");
    }
    // Attributes that a file system does not take: one line, as they belong to no permission.
    let refuse = |call: &str, errno: &str| format!("inject={call}:error={errno}");
    let copied = |call: &str, errno: &str, target: &str| {
        let strace = ["-e".to_owned(), refuse(call, errno)];
        let strace: Vec<&str> = strace.iter().map(String::as_str).collect();
        let (finished, _) = traced_in(here.path(), &strace, &["-a", "--json", "a", target]);
        assert_eq!(fs::read(here.path().join(target).join("file")).unwrap(), b"bytes", "{call}");
        finished
    };
    let finished = copied("fsetxattr", "EOPNOTSUPP", "attributes");
    assert_eq!(finished.code(), Some(0), "{}", finished.stderr);
    let lines: Vec<_> =
        finished.stderr.lines().filter(|line| line.contains("attributes")).collect();
    assert_eq!(lines.len(), 1, "{}", finished.stderr);
    // What decides who may read a file is more than that.
    set_mode(&a.join("file"), 0o4640);
    for (call, says) in
        [("fchmod", "keeping mode of modes/file"), ("utimensat", "keeping times of times/file")]
    {
        let target = if call == "fchmod" { "modes" } else { "times" };
        let finished = copied(call, "EPERM", target);
        assert_eq!(finished.code(), Some(1), "{}", finished.stderr);
        assert!(finished.stderr.contains(says), "{}", finished.stderr);
    }
    if mark(&a.join("file"), "system.posix_acl_access", &READ_ONLY_ACL) {
        let finished = copied("fsetxattr", "EOPNOTSUPP", "rules");
        assert_eq!(finished.code(), Some(1), "{}", finished.stderr);
        assert!(finished.stderr.contains("keeping ACL of rules/file"), "{}", finished.stderr);
        assert_eq!(finished.receipt()["failed"], 1);
    }
    // Root may give files away, so it is reported where even root may not.
    if is_root() {
        chown(a.join("file"), Some(1234), Some(77)).unwrap();
        let finished = copied("fchown", "EPERM", "owners");
        assert_eq!(finished.code(), Some(1), "{}", finished.stderr);
        assert!(finished.stderr.contains("keeping owner of owners/file"), "{}", finished.stderr);
    }
}
