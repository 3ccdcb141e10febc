//! Restricts threads of the tests themselves.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream};
use std::thread;

use underpass_engine::atomic_file::{AtomicFile, Existing};

use super::*;

/// Runs a test in a separate thread, to which the rules are limited.
fn confined(bounds: AllowedAccess, test: impl FnOnce() + Send + 'static) {
    let thread = thread::spawn(move || match bounds.confine() {
        Landlock::Confined { .. } => test(),
        other => {
            assert!(env::var_os("CI").is_none(), "{other}");
            eprintln!("skipped: {other}");
        }
    });
    thread.join().unwrap();
}

fn bounds(root: &Path) -> AllowedAccess {
    bounds_with(root, |_| ())
}

fn bounds_with(root: &Path, change: impl FnOnce(&mut AllowedRoot)) -> AllowedAccess {
    let mut root = AllowedRoot { path: root.to_owned(), ..AllowedRoot::default() };
    change(&mut root);
    AllowedAccess { roots: vec![root], ..AllowedAccess::default() }
}

fn is_denied<T>(outcome: io::Result<T>) -> bool {
    outcome.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
}

#[test]
fn a_confined_process_reads_beneath_the_root_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let (inside, outside) = (folder.path().join("inside"), folder.path().join("outside"));
    fs::create_dir(&inside).unwrap();
    fs::write(inside.join("file"), "x").unwrap();
    fs::write(&outside, "x").unwrap();
    confined(bounds(&inside), move || {
        assert!(File::open(inside.join("file")).is_ok());
        assert!(fs::read_dir(&inside).is_ok());
        assert!(is_denied(File::open(&outside)));
        assert!(is_denied(fs::read_dir(inside.parent().unwrap())));
        assert!(is_denied(File::create(inside.join("new"))));
        assert!(is_denied(fs::remove_file(inside.join("file"))));
    });
}

#[test]
fn a_confined_process_serves_a_single_file() {
    let folder = tempfile::tempdir().unwrap();
    let (file, other) = (folder.path().join("file"), folder.path().join("other"));
    fs::write(&file, "x").unwrap();
    fs::write(&other, "x").unwrap();
    confined(bounds(&file), move || {
        assert!(File::open(file).is_ok());
        assert!(is_denied(File::open(other)));
    });
}

#[test]
fn links_that_lead_out_can_be_followed_if_that_was_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    fs::create_dir(&root).unwrap();
    let outside = folder.path().join("outside");
    fs::write(&outside, "x").unwrap();
    confined(AllowedAccess { reads_everywhere: true, ..bounds(&root) }, move || {
        assert!(File::open(&outside).is_ok());
        assert!(is_denied(File::create(root.join("new"))));
        assert!(is_denied(fs::write(&outside, "y")));
    });
}

#[test]
fn the_log_can_be_reopened_and_the_socket_removed() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| {
        let path = folder.path().join(name);
        fs::create_dir(&path).unwrap();
        path
    };
    let (root, log, run) = (at("root"), at("log"), at("run"));
    fs::write(run.join("socket"), "").unwrap();
    let bounds =
        AllowedAccess { log: Some(log.clone()), sockets: vec![run.clone()], ..bounds(&root) };
    confined(bounds, move || {
        let open = || File::options().append(true).create(true).open(log.join("access"));
        assert!(open().is_ok());
        assert!(open().is_ok());
        assert!(is_denied(fs::remove_file(log.join("access"))));
        assert!(fs::remove_file(run.join("socket")).is_ok());
    });
}

#[test]
fn allowed_access_is_described_and_only_missing_rights_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let other = bounds(folder.path());
    let path = PathBuf::from;
    let bounds = AllowedAccess {
        reads_everywhere: true,
        log: Some(path("/logs")),
        sockets: vec![path("/run/a"), path("/run/b")],
        ..bounds(Path::new("/srv"))
    };
    let text = bounds.to_string();
    let words =
        ", writing below /logs for the log, removing files below /run/a and /run/b for sockets";
    assert!(text.ends_with(words), "{text}");
    assert_eq!(bounds.lacks(&other), None);
    let uploads = bounds_with(folder.path(), |root| root.uploads = true);
    assert!(bounds.lacks(&uploads).is_some());
}

#[test]
fn renewed_certificates_can_be_read_but_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let (root, keys) = (folder.path().join("root"), folder.path().join("keys"));
    fs::create_dir(&root).unwrap();
    fs::create_dir(&keys).unwrap();
    fs::write(keys.join("old"), "old").unwrap();
    fs::write(folder.path().join("outside"), "x").unwrap();
    // As an external program that renews certificates does.
    let (ready, renewed) = (std::sync::mpsc::channel(), std::sync::mpsc::channel());
    let thread = thread::spawn({
        let keys = keys.clone();
        move || {
            if ready.1.recv().is_ok() {
                fs::write(keys.join("new"), "new").unwrap();
                fs::rename(keys.join("new"), keys.join("old")).unwrap();
            }
            let _ = renewed.0.send(());
        }
    });
    let bounds = AllowedAccess { reread: vec![keys.clone()], ..bounds(&root) };
    confined(bounds, move || {
        ready.0.send(()).unwrap();
        renewed.1.recv().unwrap();
        assert_eq!(fs::read(keys.join("old")).unwrap(), b"new");
        assert!(is_denied(fs::write(keys.join("old"), "mine")));
        assert!(is_denied(fs::read(keys.parent().unwrap().join("outside"))));
    });
    thread.join().unwrap();
}

#[test]
fn unnamed_clones_can_be_created_where_snapshots_need_them() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_owned();
    confined(bounds_with(&root, |root| root.clones = true), move || {
        use rustix::fs::{Mode, OFlags};
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let clone = rustix::fs::open(&root, flags, Mode::RUSR | Mode::WUSR);
        assert!(!matches!(clone, Err(rustix::io::Errno::ACCESS)), "{clone:?}");
        assert!(is_denied(File::create(root.join("new"))));
    });
}

/// Creates a file that gets its name at the end, as uploads do.
fn land(folder: &Path, name: &str) -> io::Result<()> {
    use rustix::fs::{CWD, Mode, OFlags, openat};
    use std::io::Write;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = openat(CWD, folder, flags, Mode::empty())?;
    let atomic = AtomicFile::create_in(folder, name.as_ref(), 0o666)?;
    atomic.file().write_all(b"new")?;
    atomic.commit(Existing::Replace)
}

#[test]
fn uploads_and_copies_of_folders_are_allowed_only_beneath_the_root() {
    let folder = tempfile::tempdir().unwrap();
    let (root, outside) = (folder.path().join("root"), folder.path().join("outside"));
    fs::create_dir(&root).unwrap();
    fs::create_dir_all(outside.join("empty")).unwrap();
    fs::create_dir(root.join("empty")).unwrap();
    confined(bounds_with(&root, |root| root.uploads = true), move || {
        land(&root, "file").unwrap();
        land(&root, "file").unwrap();
        assert_eq!(fs::read(root.join("file")).unwrap(), b"new");
        fs::create_dir(root.join("made")).unwrap();
        let partial = File::options().write(true).open(root.join("file")).unwrap();
        partial.set_len(1).unwrap();
        // A copied folder gets its name once it is complete.
        fs::rename(root.join("made"), root.join("copy")).unwrap();
        assert!(fs::rename(root.join("copy"), root.join("empty/copy")).is_err(), "EXDEV");
        assert!(is_denied(fs::remove_dir(outside.join("empty"))));
        assert!(is_denied(land(&outside, "file")));
        assert!(is_denied(fs::create_dir(outside.join("made"))));
    });
}

#[test]
fn writable_trees_allow_moving_and_removing() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_owned();
    fs::create_dir_all(root.join("a/b")).unwrap();
    fs::write(root.join("a/b/file"), "x").unwrap();
    confined(bounds_with(&root, |root| (root.uploads, root.deletes) = (true, true)), move || {
        fs::rename(root.join("a/b/file"), root.join("a/file")).unwrap();
        fs::rename(root.join("a/b"), root.join("b")).unwrap();
        fs::remove_file(root.join("a/file")).unwrap();
        fs::remove_dir(root.join("b")).unwrap();
    });
}

#[test]
fn where_only_removing_is_allowed_nothing_can_be_written() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_owned();
    fs::write(root.join("file"), "x").unwrap();
    fs::create_dir(root.join("empty")).unwrap();
    confined(bounds_with(&root, |root| root.deletes = true), move || {
        assert!(is_denied(land(&root, "new")));
        assert!(is_denied(fs::write(root.join("file"), "y")));
        fs::remove_file(root.join("file")).unwrap();
        fs::rename(root.join("empty"), root.join("aside")).unwrap();
        fs::remove_dir(root.join("aside")).unwrap();
    });
}

#[test]
fn a_confined_process_accepts_but_does_not_connect() {
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let peer = TcpStream::connect(address).unwrap();
    confined(bounds(folder.path()), move || {
        assert!(listener.accept().is_ok());
        assert!(is_denied(TcpStream::connect(address)));
        assert!(is_denied(TcpListener::bind("127.0.0.1:0")));
    });
    drop(peer);
}

#[test]
fn names_can_be_resolved_by_replaced_files_and_over_tcp() {
    let folder = tempfile::tempdir().unwrap();
    // Any file there may become one for name resolution.
    let any = "/etc/passwd";
    confined(bounds(folder.path()), move || assert!(is_denied(File::open(any))));
    confined(bounds_with(folder.path(), |root| root.caches = true), move || {
        assert!(File::open(any).is_ok());
        assert!(is_denied(fs::read_dir("/etc")));
        assert!(!is_denied(TcpStream::connect(("127.0.0.1", 53))));
        assert!(is_denied(TcpStream::connect(("127.0.0.1", 54))));
    });
}
