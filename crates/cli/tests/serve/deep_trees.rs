//! Trees with more levels than there are descriptors, at both ends.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::rig::{Running, folder, has, piped};

/// Levels of the tree: more than the descriptors of each program.
const LEVELS: usize = 300;

/// The program with this many descriptors.
fn limited(descriptors: usize, args: &[&str]) -> Command {
    let mut command = crate::rig::limited(&format!("-n {descriptors}"));
    command.args(args);
    command
}

/// The status of a request, and for errors the text.
fn ask(server: &Running, verb: &str, path: &str, to: &str) -> String {
    let mut curl = piped("curl");
    curl.args(["-sS", "-X", verb, "-o", "-", "-w", "%{http_code}"]);
    curl.args(["-H", &format!("Destination: {to}")]).arg(format!("{}{path}", server.address));
    Running::start(curl).finish().succeeded().text()
}

#[test]
fn trees_deeper_than_there_are_descriptors_are_changed_sent_and_fetched_whole() {
    if !has("curl") {
        return;
    }
    let (served, local) = (folder(), folder());
    let down = "d/".repeat(LEVELS);
    let bottom = |top: &Path, name: &str| top.join(name).join(&down).join("file");
    fs::create_dir_all(bottom(served.path(), "deep").parent().unwrap()).unwrap();
    fs::write(bottom(served.path(), "deep"), b"at the bottom").unwrap();
    let is_whole = |top: &Path, name| fs::read(bottom(top, name)).unwrap() == b"at the bottom";

    let root = served.path().to_str().unwrap();
    let mut command =
        limited(200, &["serve", "-p", "0", "--workers", "1", "--max-connections", "5"]);
    command.args(["--allow-upload", "--allow-delete", "--sync", "off", root]);
    let server = Running::listening(command);
    assert_eq!(ask(&server, "COPY", "deep", "/copy"), "201");
    assert!(is_whole(served.path(), "copy"));
    assert_eq!(ask(&server, "MOVE", "copy", "/moved"), "201");
    assert!(is_whole(served.path(), "moved"));

    let fetched = local.path().join("fetched");
    let url = format!("{}deep/", server.address);
    let mut get = limited(64, &["get", "-q", "-r", &url]);
    get.current_dir(local.path());
    Running::start(get).finish().succeeded();
    fs::rename(local.path().join("deep"), &fetched).unwrap();
    assert!(is_whole(local.path(), "fetched"));
    let put = limited(64, &["put", "-q", "-r", fetched.to_str().unwrap(), &server.address]);
    Running::start(put).finish().succeeded();
    assert!(is_whole(served.path(), "fetched"));

    for name in ["deep", "moved", "fetched"] {
        assert_eq!(ask(&server, "DELETE", name, "/"), "204");
        assert!(!served.path().join(name).exists());
    }
    server.end();
}
