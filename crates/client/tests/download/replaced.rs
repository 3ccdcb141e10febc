//! A partial file that another program has replaced, with the same inode number.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use underpass_client::download::{DownloadError, TargetError};
use underpass_testkit::edit_journal;

use crate::rig::{Client, Server, TAG, give, hang_up, head, noise, say};

const LEN: usize = 24 << 20;

/// A client with a part of a file, and its server, which works again.
fn broken_off(bytes: &Arc<Vec<u8>>) -> (Client, Server) {
    let body = Arc::clone(bytes);
    let server = Server::start(move |request, stream| {
        if request.number > 0 {
            return give(request, stream, &body, TAG);
        }
        let (head, range) = head(request, &body, TAG);
        say(stream, &head)?;
        stream.write_all(&body[range.start..range.start + 10_000_000])?;
        hang_up()
    });
    let mut client = Client::with(1);
    client.options.retries = 0;
    client.get(&server.url("/")).unwrap_err();
    (client, server)
}

/// Changes the value of a field of the journal; `None` removes it.
fn change(journal: &Path, name: &str, value: Option<&str>) {
    edit_journal(journal, |line| {
        let Some((head, rest)) = line.split_once(&format!("\"{name}\":")) else {
            return line.to_owned();
        };
        let is_list = rest.starts_with('[');
        let end = if is_list { rest.find(']').unwrap() + 1 } else { rest.find(',').unwrap() };
        let rest = &rest[end..];
        match value {
            Some(value) => format!("{head}\"{name}\":{value}{rest}"),
            None => format!("{head}{}", &rest[1..]),
        }
    });
}

#[test]
fn a_part_that_was_replaced_is_not_resumed() {
    let bytes = noise(LEN);
    let (client, server) = broken_off(&bytes);
    let [part, journal, other] =
        ["file.part", "file.part.journal", "other"].map(|name| client.folder.path().join(name));
    // File systems may have a coarse clock.
    thread::sleep(Duration::from_millis(50));
    fs::write(&other, vec![7; LEN + 1]).unwrap();
    fs::rename(&other, &part).unwrap();
    let inode = fs::metadata(&part).unwrap().ino();
    change(&journal, "inode", Some(&inode.to_string()));
    // As if the process had been killed.
    change(&journal, "left", Some("null"));
    let failed = client.get(&server.url("/")).unwrap_err();
    assert!(
        matches!(failed.error, DownloadError::Target(TargetError::Foreign { .. })),
        "{failed:?}"
    );
    assert!(fs::read(&part).unwrap() == vec![7; LEN + 1], "it was changed");
}

#[test]
fn the_journals_of_older_versions_are_no_error() {
    let bytes = noise(LEN);
    for was_killed in [false, true] {
        let (client, server) = broken_off(&bytes);
        let journal = client.folder.path().join("file.part.journal");
        change(&journal, "born", None);
        if was_killed {
            change(&journal, "left", Some("null"));
        }
        let done = client.gets(&server.url("/"), &bytes);
        assert_eq!(done.resumed_at > 0, !was_killed);
    }
}
