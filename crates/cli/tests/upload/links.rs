//! Entries that become links while a folder is sent do not lead out of the folder.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use tempfile::TempDir;
use underpass_testkit::http::{Request, Server, respond};

use crate::rig::{Finished, Running, folder};

/// A folder to send, and a file outside of it that is to stay here.
struct Fixture {
    own: TempDir,
}

impl Fixture {
    fn new() -> Self {
        let own = folder();
        for folder in ["tree/sub", "outside"] {
            fs::create_dir_all(own.path().join(folder)).unwrap();
        }
        fs::write(own.path().join("outside/b"), "SECRET").unwrap();
        Self { own }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.own.path().join(name)
    }

    /// Sends the folder to a server that takes everything, and does this at each request first.
    fn put(
        &self,
        args: &[&str],
        meanwhile: impl Fn(&Request) + Send + Sync + 'static,
    ) -> (Finished, Vec<Request>) {
        let server = Server::start(move |request, stream| {
            meanwhile(request);
            let status = if request.method == "HEAD" { "404 Not Found" } else { "201 Created" };
            respond(request, stream, &format!("HTTP/1.1 {status}"), b"")
        });
        let mut command = crate::rig::underpass();
        command.arg("put").args(args).arg(self.path("tree")).arg(server.url("/"));
        command.env("XDG_STATE_HOME", self.path("state"));
        let finished = Running::start(command).finish();
        (finished, server.requests())
    }
}

/// Returns the paths and bodies that were sent.
fn sent(requests: &[Request]) -> Vec<(&str, &[u8])> {
    let puts = requests.iter().filter(|request| request.method == "PUT");
    puts.map(|request| (request.path.as_str(), request.body.as_slice())).collect()
}

#[test]
fn a_folder_that_becomes_a_link_is_not_followed() {
    let fixture = Fixture::new();
    fs::write(fixture.path("tree/sub/a"), "a").unwrap();
    fs::write(fixture.path("tree/sub/b"), "b").unwrap();
    fs::write(fixture.path("tree/z"), "z").unwrap();
    let paths = ["tree/sub", "moved", "outside"].map(|name| fixture.path(name));
    let (finished, requests) = fixture.put(&["-r"], move |request| {
        if request.path == "/tree/sub/a" {
            let [folder, moved, outside] = &paths;
            fs::rename(folder, moved).unwrap();
            symlink(outside, folder).unwrap();
        }
    });
    assert_eq!(sent(&requests), [("/tree/sub/a", &b"a"[..]), ("/tree/z", b"z")]);
    finished.failed(1, &["tree/sub/b", "link"]);
}

#[test]
fn a_folder_that_becomes_a_link_is_not_entered() {
    let fixture = Fixture::new();
    fs::write(fixture.path("tree/a"), "a").unwrap();
    let paths = ["tree/sub", "outside"].map(|name| fixture.path(name));
    let (finished, requests) = fixture.put(&["-r"], move |request| {
        if request.path == "/tree/a" {
            let [folder, outside] = &paths;
            fs::remove_dir(folder).unwrap();
            symlink(outside, folder).unwrap();
        }
    });
    assert_eq!(sent(&requests), [("/tree/a", &b"a"[..])]);
    assert!(finished.succeeded().stderr.contains("tree/sub: left out: it is a link"));
}

#[test]
fn the_file_that_was_compared_is_the_one_that_is_sent() {
    let fixture = Fixture::new();
    fs::write(fixture.path("tree/b"), "b").unwrap();
    let paths = ["tree/b", "outside/b"].map(|name| fixture.path(name));
    let (finished, requests) = fixture.put(&["-r", "-N"], move |request| {
        if request.method == "HEAD" {
            let [file, outside] = &paths;
            fs::remove_file(file).unwrap();
            symlink(outside, file).unwrap();
        }
    });
    assert_eq!(sent(&requests), [("/tree/b", &b"b"[..])]);
    finished.succeeded();
}
