//! Partial files that are not needed any more.

use std::fs;
use std::path::Path;

use crate::mirror::origin::{Origin, Page};
use crate::rig::{Finished, Running, folder, has, names, noise, traced};

/// `get` in a folder, under strace if it has options, whose log is elsewhere.
fn get(here: &Path, strace: &[&str], args: &[&str]) -> Finished {
    let log = folder();
    let mut command = traced(&log.path().join("trace"), strace);
    command.env("HOME", "/nonexistent").env_remove("http_proxy").env_remove("all_proxy");
    command.current_dir(here).arg("get").args(args);
    Running::start(command).finish()
}

#[test]
fn a_complete_file_keeps_no_second_name() {
    if !has("strace") {
        return;
    }
    let (origin, here) = (Origin::start(), folder());
    let fields = ["ETag: \"1\"", "Accept-Ranges: bytes"];
    origin.set("/file", Page::new(&noise(3 << 20), &fields));
    let url = origin.url("/file");
    // The file system can only link the file to its name, and then does not remove the other one.
    let faults = [
        &["-e", "trace=renameat2,unlinkat", "-e", "inject=renameat2:error=EINVAL"][..],
        &["-e", "inject=unlinkat:error=EIO"],
    ];
    let said = get(here.path(), &faults.concat(), &[&url]).succeeded().stderr;
    let line = "file.part is not needed any more, but cannot be removed: Input/output error";
    assert_eq!(said.matches(line).count(), 1, "{said}");
    assert_eq!(names(here.path()), ["file", "file.part", "file.part.journal"]);
    // The next command does that, and one for another version is not hindered.
    get(here.path(), &[], &[&url]).succeeded();
    assert_eq!(names(here.path()), ["file"]);
    origin.set("/file", Page::new(&noise(2 << 20), &["ETag: \"2\"", "Accept-Ranges: bytes"]));
    get(here.path(), &[], &["--update", &url]).succeeded();
    assert!(fs::read(here.path().join("file")).unwrap() == noise(2 << 20));
}
