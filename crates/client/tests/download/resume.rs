//! Partial files and journals of earlier processes.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use rustix::fs::{XattrFlags, getxattr, removexattr, setxattr};
use rustix::io::Errno;
use underpass_client::Credentials;
use underpass_client::download::{DownloadError, DownloadFailed, IfExists, TargetError};
use underpass_testkit::edit_journal;

use crate::rig::{Client, Server, TAG, give, hang_up, head, noise, say};

const LEN: usize = 24 << 20;

/// A server that sends `first` bytes once, and everything as soon as `is_well` is set.
fn server(bytes: &Arc<Vec<u8>>, first: usize, is_well: &Arc<AtomicBool>) -> Server {
    let (body, is_well) = (Arc::clone(bytes), Arc::clone(is_well));
    Server::start(move |request, stream| {
        if is_well.load(Ordering::Relaxed) {
            return give(request, stream, &body, TAG);
        }
        if request.number > 0 {
            return hang_up();
        }
        let (head, range) = head(request, &body, TAG);
        say(stream, &head)?;
        stream.write_all(&body[range.start..range.start + first])?;
        hang_up()
    })
}

/// A client that has received `first` bytes, and its server, which works again.
fn broken_off(bytes: &Arc<Vec<u8>>, first: usize) -> (Client, Server, DownloadFailed) {
    let is_well = Arc::new(AtomicBool::new(false));
    let server = server(bytes, first, &is_well);
    let mut client = Client::new();
    client.options.retries = 0;
    let failed = client.get(&server.url("/")).unwrap_err();
    is_well.store(true, Ordering::Relaxed);
    (client, server, failed)
}

#[test]
fn a_digest_that_was_sent_once_is_compared_by_the_process_that_resumes() {
    let bytes = noise(LEN);
    let server = Server::start(move |request, stream| {
        let (head, range) = head(request, &bytes, TAG);
        if request.number > 0 {
            return give(request, stream, &bytes, TAG);
        }
        let wrong = "Repr-Digest: sha-256=:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=:";
        say(stream, &format!("{}\n{wrong}\n\n", head.trim_end()))?;
        stream.write_all(&bytes[range.start..range.start + (4 << 20)])?;
        hang_up()
    });
    let mut client = Client::with(1);
    client.options.retries = 0;
    let failed = client.get(&server.url("/")).unwrap_err();
    assert!(failed.kept.is_some(), "{failed:?}");
    let failed = client.fails(&server.url("/"), "sha-256");
    assert!(matches!(failed.error, DownloadError::Digest(_)), "{failed:?}");
    assert_eq!(server.requests()[1].range(LEN), Some(4 << 20..LEN));
}

#[test]
fn a_failure_tells_what_was_there_before() {
    let body = noise(LEN);
    let server = Server::start(move |request, stream| {
        let (head, range) = head(request, &body, TAG);
        say(stream, &head)?;
        let end = if request.number == 0 { 12_000_000 } else { 15_000_000 };
        stream.write_all(&body[range.start..end])?;
        hang_up()
    });
    let mut client = Client::new();
    client.options.retries = 0;
    assert_eq!(client.get(&server.url("/")).unwrap_err().resumed_at, 0);
    let failed = client.get(&server.url("/")).unwrap_err();
    assert_eq!((failed.resumed_at, failed.kept.unwrap().bytes), (12_000_000, 15_000_000));
}

#[test]
fn bytes_of_the_partial_file_are_not_fetched_again() {
    let bytes = noise(LEN);
    let (client, server, failed) = broken_off(&bytes, 10_000_000);
    let kept = failed.kept.unwrap();
    assert_eq!((kept.name.to_str(), kept.bytes), (Some("file.part"), 10_000_000));
    assert_eq!(client.names(), ["file.part", "file.part.journal"]);
    let done = client.gets(&server.url("/"), &bytes);
    assert_eq!(done.resumed_at, 10_000_000);
    assert_eq!(done.report.bytes(), LEN as u64 - 10_000_000);
    let last = server.requests().pop().unwrap();
    assert_eq!(last.field("if-range"), Some(TAG));
    assert_eq!(last.range(LEN).unwrap(), 10_000_000..LEN);
}

#[test]
fn the_time_of_a_file_is_remembered_with_its_parts() {
    let bytes = noise(LEN);
    let body = Arc::clone(&bytes);
    let server = Server::start(move |request, stream| {
        let (head, range) = head(request, &body, TAG);
        if request.number > 0 {
            // Only the tag must be repeated (RFC 9110 15.3.7).
            return give(request, stream, &body, TAG);
        }
        let date = "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\n\n";
        say(stream, &head.replace("\n\n", &format!("\n{date}")))?;
        stream.write_all(&body[range.start..range.start + 10_000_000])?;
        hang_up()
    });
    let mut client = Client::new();
    client.options.retries = 0;
    client.get(&server.url("/")).unwrap_err();
    client.gets(&server.url("/"), &bytes);
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
    assert_eq!(fs::metadata(client.path()).unwrap().modified().unwrap(), time);
}

#[test]
fn a_server_that_ignores_ranges_has_no_other_version() {
    let bytes = noise(LEN);
    let body = Arc::clone(&bytes);
    let server = Server::start(move |request, stream| {
        if request.number == 0 {
            let (head, range) = head(request, &body, TAG);
            say(stream, &head)?;
            stream.write_all(&body[range.start..10_000_000])?;
            return hang_up();
        }
        say(stream, &format!("HTTP/1.1 200 OK\nETag: {TAG}\nContent-Length: {LEN}\n\n"))?;
        stream.write_all(&body)
    });
    let client = Client::with(1);
    client.gets(&server.url("/"), &bytes);
    assert_eq!(client.events("StartingOver { error: Missing(Ranges) }"), 1, "{:?}", client.events);
    assert_eq!(client.events("StartingOver"), 1);
}

#[test]
fn another_version_starts_over() {
    let bytes = noise(LEN);
    let (client, server, _) = broken_off(&bytes, 10_000_000);
    let path = server.url("/");
    drop(server);
    let new: Arc<Vec<u8>> = Arc::new(bytes.iter().map(|byte| !byte).collect());
    let body = Arc::clone(&new);
    // The new server has the same address, because the journal contains the URL.
    let server = Server::start(move |request, stream| give(request, stream, &body, "\"v2\""));
    let journal = client.folder.path().join("file.part.journal");
    let (old_port, new_port) = (path.port().unwrap(), server.address.port());
    edit_journal(&journal, |line| line.replace(&format!(":{old_port}/"), &format!(":{new_port}/")));
    let done = client.gets(&server.url("/"), &new);
    assert_eq!(done.resumed_at, 0);
    assert_eq!(client.events("StartingOver"), 1);
}

#[test]
fn the_partial_file_of_another_url_is_not_trusted() {
    let bytes = noise(LEN);
    let (client, server, _) = broken_off(&bytes, 10_000_000);
    let done = client.gets(&server.url("/other"), &bytes);
    assert_eq!(done.resumed_at, 0);
}

#[test]
fn a_part_changed_by_another_program_is_not_trusted() {
    let bytes = noise(LEN);
    for touch in ["cut", "written to"] {
        let (client, server, _) = broken_off(&bytes, 10_000_000);
        let part = client.folder.path().join("file.part");
        let part = fs::File::options().write(true).open(&part).unwrap();
        match touch {
            "cut" => part.set_len(100).unwrap(),
            _ => {
                part.write_at(&[0; 1000], 5000).unwrap();
                // The clock of the file system may not have advanced since.
                part.set_modified(SystemTime::UNIX_EPOCH).unwrap();
            }
        }
        assert_eq!(client.gets(&server.url("/"), &bytes).resumed_at, 0, "{touch}");
    }
}

#[test]
fn a_file_in_the_place_of_a_part_with_a_journal_is_left_alone() {
    let bytes = noise(LEN);
    let (client, server, _) = broken_off(&bytes, 10_000_000);
    let part = client.folder.path().join("file.part");
    let other = client.folder.path().join("other");
    fs::write(&other, "of another").unwrap();
    fs::rename(&other, &part).unwrap();
    let failed = client.get(&server.url("/")).unwrap_err();
    assert!(
        matches!(failed.error, DownloadError::Target(TargetError::Foreign { .. })),
        "{failed:?}"
    );
    assert_eq!(fs::read(&part).unwrap(), b"of another");
}

#[test]
fn a_file_in_the_place_of_the_journal_is_left_alone() {
    let bytes = noise(LEN);
    let (client, server) = (Client::new(), Server::of(&bytes));
    let journal = client.folder.path().join("file.part.journal");
    for name in ["file.part.journal", "file.part.journal.new"] {
        let path = client.folder.path().join(name);
        fs::write(&path, "of another").unwrap();
        let failed = client.get(&server.url("/")).unwrap_err();
        assert!(
            matches!(failed.error, DownloadError::Target(TargetError::Foreign { .. })),
            "{failed:?}"
        );
        assert_eq!(fs::read(&path).unwrap(), b"of another");
        assert_eq!(client.names(), [name]);
        fs::remove_file(path).unwrap();
    }
    assert!(Command::new("mkfifo").arg(&journal).status().unwrap().success());
    let failed = client.get(&server.url("/")).unwrap_err();
    assert!(
        matches!(failed.error, DownloadError::Target(TargetError::Foreign { .. })),
        "{failed:?}"
    );
    assert_eq!(client.names(), ["file.part.journal"]);
    fs::remove_file(&journal).unwrap();
    // A power cut leaves zeros in place of a journal.
    fs::write(&journal, [0; 128]).unwrap();
    client.gets(&server.url("/"), &bytes);
    assert_eq!(client.names(), ["file"]);
}

#[test]
fn a_folder_or_link_in_the_place_of_a_part_is_named_and_left_alone() {
    let bytes = noise(LEN);
    let (client, server) = (Client::new(), Server::of(&bytes));
    let part = client.folder.path().join("file.part");
    let makers: [fn(&Path) -> io::Result<()>; 3] = [
        |part| fs::create_dir(part),
        |part| std::os::unix::fs::symlink("elsewhere", part),
        |part| std::os::unix::net::UnixListener::bind(part).map(drop),
    ];
    for make in makers {
        make(&part).unwrap();
        let kind = fs::symlink_metadata(&part).unwrap().file_type();
        let failed = client.get(&server.url("/")).unwrap_err();
        let DownloadError::Target(TargetError::Foreign { name, .. }) = &failed.error else {
            panic!("{kind:?} {failed:?}")
        };
        assert_eq!(name, "file.part");
        assert_eq!(fs::symlink_metadata(&part).unwrap().file_type(), kind);
        if kind.is_dir() { fs::remove_dir(&part) } else { fs::remove_file(&part) }.unwrap();
    }
    client.gets(&server.url("/"), &bytes);
}

#[test]
fn a_part_without_a_journal_is_left_alone() {
    let bytes = noise(LEN);
    let (client, server, _) = broken_off(&bytes, 10_000_000);
    fs::remove_file(client.folder.path().join("file.part.journal")).unwrap();
    let failed = client.get(&server.url("/")).unwrap_err();
    assert!(
        matches!(failed.error, DownloadError::Target(TargetError::Foreign { .. })),
        "{failed:?}"
    );
    assert_eq!(client.names(), ["file.part"]);
    assert_eq!(fs::metadata(client.folder.path().join("file.part")).unwrap().len(), 10_000_000);
}

#[test]
fn a_partial_file_whose_own_journal_is_damaged_starts_over() {
    let bytes = noise(LEN);
    let (client, server, _) = broken_off(&bytes, 10_000_000);
    let journal = client.folder.path().join("file.part.journal");
    let text = fs::read_to_string(&journal).unwrap();
    let end = text.find("\"boot\":").unwrap();
    fs::write(&journal, &text[..end]).unwrap();
    assert_eq!(client.gets(&server.url("/"), &bytes).resumed_at, 0);
    assert_eq!(client.names(), ["file"]);
}

#[test]
fn a_partial_file_with_an_unrelated_journal_is_left_alone_and_both_are_named() {
    let bytes = noise(LEN);
    let (client, server, _) = broken_off(&bytes, 10_000_000);
    let journal = client.folder.path().join("file.part.journal");
    // As a power cut may leave it, and the journal of another file.
    let text = fs::read_to_string(&journal).unwrap();
    for damaged in ["\0".repeat(128), text.replace("\"inode\":", "\"inode\":9")] {
        fs::write(&journal, damaged[..damaged.len() - 10].replace("\"boot\":", "")).unwrap();
        let failed = client.get(&server.url("/")).unwrap_err().to_string();
        for name in ["file.part ", "file.part.journal"] {
            assert!(failed.contains(name), "{failed}");
        }
        assert_eq!(client.names(), ["file.part", "file.part.journal"]);
    }
}

#[test]
fn small_unfinished_downloads_are_not_kept() {
    let bytes = noise(1 << 20);
    let (client, server, failed) = broken_off(&bytes, 1 << 19);
    assert_eq!(failed.kept, None);
    assert_eq!(client.names(), [""; 0]);
    client.gets(&server.url("/"), &bytes);
}

#[test]
fn two_downloads_do_not_write_to_one_file() {
    let bytes = noise(LEN);
    let server = Server::of(&bytes);
    let mut client = Client::new();
    client.options.rate = Some(8 << 20);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| client.get(&server.url("/")));
        while !client.names().iter().any(|name| name.ends_with(".journal")) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let second = client.get(&server.url("/")).unwrap_err();
        assert!(matches!(second.error, DownloadError::Target(TargetError::Busy)), "{second:?}");
        first.join().unwrap().unwrap();
    });
    assert!(fs::read(client.path()).unwrap() == *bytes);
    assert_eq!(client.names(), ["file"]);
}

#[test]
fn a_process_killed_before_it_could_remove_the_journal_was_done() {
    let bytes = noise(LEN);
    let (client, server, _) = broken_off(&bytes, LEN - 1);
    let journal = client.folder.path().join("file.part.journal");
    let text = fs::read(&journal).unwrap();
    client.gets(&server.url("/"), &bytes);
    // The state before the last step: complete and renamed, with the journal still there.
    fs::write(&journal, text).unwrap();
    let all = format!("0 {LEN}");
    edit_journal(&journal, |line| line.replace(&format!("0 {}", LEN - 1), &all));
    let before = server.requests().len();
    let done = client.get(&server.url("/")).unwrap();
    assert!(done.was_here);
    assert_eq!(client.names(), ["file"]);
    assert!(server.requests()[before..].iter().all(|request| request.head.starts_with("HEAD")));
}

#[test]
fn a_body_without_a_length_can_be_resumed_too() {
    let bytes = noise(LEN);
    let body = Arc::clone(&bytes);
    let server = Server::start(move |request, stream| {
        if request.number > 0 {
            return give(request, stream, &body, TAG);
        }
        let fields = format!("ETag: {TAG}\nAccept-Ranges: bytes\nTransfer-Encoding: chunked");
        say(stream, &format!("HTTP/1.1 200 OK\n{fields}\n\n{:x}\n", 8 << 20))?;
        stream.write_all(&body[..8 << 20])?;
        hang_up()
    });
    let done = Client::new().gets(&server.url("/"), &bytes);
    assert_eq!(done.report.bytes(), LEN as u64);
    assert_eq!(server.requests()[1].range(LEN).unwrap(), 8 << 20..LEN);
}

#[test]
fn an_unneeded_partial_file_is_removed() {
    // A process was killed before it could write the journal; the file is then small, or complete.
    let small = noise(1000);
    let mut client = Client::new();
    let part = client.folder.path().join("file.part");
    fs::write(&part, "").unwrap();
    client.gets(&Server::of(&small).url("/"), &small);
    let body = Arc::clone(&small);
    let server = Server::start(move |request, stream| match request.field("if-none-match") {
        Some(_) => say(stream, &format!("HTTP/1.1 304 x\nETag: {TAG}\n\n")),
        None => give(request, stream, &body, TAG),
    });
    client.if_exists = IfExists::Update;
    client.gets(&server.url("/"), &small);
    fs::write(&part, "").unwrap();
    client.get(&server.url("/")).unwrap();
    assert_eq!(client.names(), ["file"]);
    // A partial file of another program may be needed.
    fs::write(&part, "x").unwrap();
    client.get(&server.url("/")).unwrap();
    assert_eq!(client.names(), ["file", "file.part"]);
}

#[test]
fn a_file_that_replaces_the_partial_file_is_left_alone() {
    let bytes = noise(LEN);
    let client = Client::with(1);
    let part = client.folder.path().join("file.part");
    let (body, there, other) = (Arc::clone(&bytes), part.clone(), part.with_extension("other"));
    let server = Server::start(move |request, stream| {
        let (head, range) = head(request, &body, TAG);
        say(stream, &head)?;
        let half = range.start + range.len() / 2;
        stream.write_all(&body[range.start..half])?;
        // It exists by now, because half of the file fits into no buffer.
        fs::write(&other, "of another")?;
        fs::rename(&other, &there)?;
        stream.write_all(&body[half..range.end])
    });
    let failed = client.get(&server.url("/")).unwrap_err();
    assert!(matches!(failed.error, DownloadError::Target(TargetError::Replaced)), "{failed:?}");
    assert_eq!(failed.kept, None);
    assert_eq!(fs::read(&part).unwrap(), b"of another");
    assert_eq!(client.names(), ["file.part"]);
}

#[test]
fn no_password_reaches_the_disk() {
    let bytes = noise(8 << 20);
    let body = bytes.clone();
    let server = Server::start(move |request, stream| {
        if request.number > 0 {
            return give(request, stream, &body, TAG);
        }
        let (head, range) = head(request, &body, TAG);
        say(stream, &head)?;
        stream.write_all(&body[range][..4 << 20])?;
        hang_up()
    });
    let mut client = Client::with(1);
    client.options.retries = 0;
    let mut url = server.url("/big");
    url.set_username("me").unwrap();
    url.set_password(Some("SECRET")).unwrap();
    let failed = client.get(&url).expect_err("half of it");
    assert!(failed.kept.is_some(), "{failed}");
    for name in client.names() {
        let text = fs::read(client.folder.path().join(&name)).unwrap();
        assert!(!text.windows(6).any(|part| part == b"SECRET"), "{name}");
    }
    // The same password given separately does not change the URL.
    let [user, password] = ["me", "SECRET"].map(str::to_owned);
    client.credentials = Credentials::Basic { user, password };
    assert!(client.gets(&server.url("/big"), &bytes).resumed_at > 1 << 20);
}

#[test]
fn a_file_of_unknown_length_starts_over_as_a_whole() {
    let bytes = noise(3 << 20);
    let body = bytes.clone();
    let server = Server::start(move |request, stream| {
        let len = body.len();
        if let Some(range) = request.field("range") {
            let start: usize = range["bytes=".len()..].split('-').next().unwrap().parse().unwrap();
            let part = &body[start..];
            let range = format!("Content-Range: bytes {start}-{}/*", len - 1);
            let length = format!("Content-Length: {}", part.len());
            say(stream, &format!("HTTP/1.1 206 x\nETag: {TAG}\n{range}\n{length}\n\n"))?;
            return stream.write_all(part);
        }
        let head = format!("HTTP/1.1 200 OK\nAccept-Ranges: bytes\nETag: {TAG}");
        say(stream, &format!("{head}\nTransfer-Encoding: chunked\n\n{len:x}\n"))?;
        if request.number == 0 {
            stream.write_all(&body[..2 << 20])?;
            return hang_up();
        }
        stream.write_all(&body)?;
        say(stream, "\n0\n\n")
    });
    let mut client = Client::with(1);
    client.options.retries = 0;
    let failed = client.get(&server.url("/")).unwrap_err();
    assert!(failed.kept.is_some(), "{failed:?}");
    assert_eq!(client.gets(&server.url("/"), &bytes).resumed_at, 0);
}

#[test]
fn partial_files_of_other_users_are_not_trusted() {
    let bytes = noise(LEN);
    let (client, server, _) = broken_off(&bytes, 10_000_000);
    let journal = client.folder.path().join("file.part.journal");
    if chown(&journal, Some(1234), None).is_err() {
        return;
    }
    assert_eq!(client.gets(&server.url("/"), &bytes).resumed_at, 0);
    let server = Server::of(&bytes);
    let mut client = Client::new();
    client.if_exists = IfExists::Update;
    client.gets(&server.url("/"), &bytes);
    // Every user may create files there, but not replace those of others.
    fs::set_permissions(client.folder.path(), Permissions::from_mode(0o1777)).unwrap();
    chown(client.path(), Some(1234), None).unwrap();
    fs::set_permissions(client.path(), Permissions::from_mode(0o666)).unwrap();
    chown(client.path(), None, Some(1234)).unwrap();
    let done = client.gets(&server.url("/"), &bytes);
    assert!(!done.was_here);
    let found = fs::metadata(client.path()).unwrap();
    assert_ne!(found.uid(), 1234);
    // That user must not decide who may write to it.
    assert_ne!(found.gid(), 1234);
    assert_eq!(found.mode() & 0o022, 0);
    chown(client.path(), Some(1234), None).unwrap();
    client.if_exists = IfExists::SameIsFine;
    let failed = client.get(&server.url("/")).unwrap_err();
    assert!(matches!(failed.error, DownloadError::Target(TargetError::Exists)), "{failed:?}");
}

#[test]
fn replacing_a_private_file_keeps_the_part_and_the_new_file_private() {
    let bytes = noise(LEN);
    let is_well = Arc::new(AtomicBool::new(false));
    let server = server(&bytes, 10_000_000, &is_well);
    let mut client = Client::new();
    client.options.retries = 0;
    // By default, user 65534 may read and write.
    let entries = [(1, 6, !0), (2, 6, 65534), (4, 4, !0), (16, 6, !0), (32, 0, !0)];
    let entry = |(tag, may, user): (u16, u16, u32)| {
        [&tag.to_le_bytes()[..], &may.to_le_bytes(), &user.to_le_bytes()].concat()
    };
    let acl = [vec![2, 0, 0, 0], entries.map(entry).concat()].concat();
    let name = "system.posix_acl_default";
    if setxattr(client.folder.path(), name, &acl, XattrFlags::empty()).is_err() {
        return;
    }
    let name = "system.posix_acl_access";
    fs::write(client.path(), "old").unwrap();
    removexattr(client.path(), name).unwrap();
    fs::set_permissions(client.path(), Permissions::from_mode(0o640)).unwrap();
    let check = |path: &Path| {
        assert_eq!(getxattr(path, name, &mut [0; 100][..]), Err(Errno::NODATA), "{path:?}");
        assert_eq!(fs::metadata(path).unwrap().mode() & 0o777, 0o640, "{path:?}");
    };
    client.get(&server.url("/")).unwrap_err();
    check(&client.folder.path().join("file.part"));
    is_well.store(true, Ordering::Relaxed);
    client.gets(&server.url("/"), &bytes);
    check(&client.path());
}

#[test]
fn a_complete_file_whose_name_is_taken_meanwhile_is_kept() {
    let bytes = noise(LEN);
    let body = Arc::clone(&bytes);
    let mut client = Client::with(1);
    client.if_exists = IfExists::SameIsFine;
    let path = client.path();
    let server = Server::start(move |request, stream| {
        if request.number == 0 {
            fs::write(&path, "precious")?;
        }
        give(request, stream, &body, TAG)
    });
    let failed = client.get(&server.url("/")).unwrap_err();
    assert!(matches!(failed.error, DownloadError::Target(TargetError::Exists)), "{failed:?}");
    assert_eq!(failed.kept.unwrap().bytes, LEN as u64);
    assert_eq!(client.names(), ["file", "file.part", "file.part.journal"]);
    assert_eq!(fs::read(client.path()).unwrap(), b"precious");
    // The same if a folder has the name.
    fs::remove_file(client.path()).unwrap();
    fs::create_dir(client.path()).unwrap();
    client.get(&server.url("/")).unwrap_err();
    fs::remove_dir(client.path()).unwrap();
    client.if_exists = IfExists::Replace;
    assert_eq!(client.gets(&server.url("/"), &bytes).resumed_at, LEN as u64);
}
