//! Folders that cannot be created on the server.

use std::fs;

use serde_json::Value;
use underpass_testkit::http::{Server, respond};

use crate::rig::{Running, folder, underpass};

#[test]
fn a_failure_names_what_was_to_be_sent() {
    let own = folder();
    for name in ["tree", "sub"] {
        fs::create_dir(own.path().join(name)).unwrap();
    }
    fs::write(own.path().join("file"), "").unwrap();
    let server = Server::start(|request, stream| {
        let status = match (request.path.as_str(), &*request.method) {
            ("/sub", "HEAD") => "200 OK",
            ("/sub/", "HEAD") => "404 Not Found",
            ("/sub/", "MKCOL") => "405 Method Not Allowed",
            _ => "403 Forbidden",
        };
        respond(request, stream, &format!("HTTP/1.1 {status}"), b"")
    });
    let cases: [(&[&str], &str, &str, &str); 5] = [
        (&["-r"], "tree", "/", "/tree/"),
        (&["-r", "--update"], "tree", "/", "/tree/"),
        (&["-r", "--create-parents"], "tree", "/new/", "/new/"),
        (&["--create-parents"], "file", "/new/", "/new/"),
        (&["-r"], "sub", "/", "/sub/"),
    ];
    for (options, name, target, refused) in cases {
        let put = |more: &[&str]| {
            let mut command = underpass();
            command.arg("put").args(options).args(more).arg(own.path().join(name));
            command.arg(server.url(target)).env("XDG_STATE_HOME", own.path().join("state"));
            Running::start(command).finish()
        };
        let (path, url) = (own.path().join(name).display().to_string(), server.url(refused));
        put(&[]).failed(1, &[&path, &url]);
        let receipt: Value = put(&["--json"]).failed(1, &[&path]).receipt();
        assert_eq!((&receipt["file"], &receipt["url"]), (&path.into(), &url.into()), "{options:?}");
        assert!(receipt["error"].is_string(), "{receipt}");
    }
    let mut command = underpass();
    command.args(["put", "--create-parents", "-", &server.url("/new/file")]);
    Running::start(command).finish().failed(1, &["standard input", "/new/"]);
}
