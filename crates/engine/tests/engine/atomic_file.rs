//! An atomic file appears whole or not at all, whatever happens meanwhile.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use crate::rig::scratch::{Scratch, Shell, pattern};
use rustix::fs::{CWD, Mode, OFlags, fstatfs, inotify, openat};
use rustix::io::Errno;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter,
};
use underpass_engine::atomic_file::{
    AtomicFile, Existing, hidden_name, ignores_case, listed_name, number_of, remove_folder,
    remove_left_over, try_lock,
};

fn assert_errno<T>(outcome: io::Result<T>, errno: Errno) {
    assert_eq!(outcome.err().and_then(|e| e.raw_os_error()), Some(errno.raw_os_error()));
}

fn land(target: &Path, bytes: &[u8], existing: Existing) -> io::Result<()> {
    let file = AtomicFile::create(target, 0o666)?;
    file.reserve(bytes.len() as u64)?;
    file.file().write_all(bytes)?;
    file.commit(existing)
}

/// The names in a folder.
fn names(folder: &Path) -> Vec<PathBuf> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into()).collect();
    names.sort();
    names
}

/// Runs the check twice: here, and in a thread where the kernel refuses `O_TMPFILE`.
fn with_and_without_unnamed_files(check: impl Fn() + Sync) {
    check();
    thread::scope(|scope| {
        let refused = scope.spawn(|| {
            refuse(libc::SYS_openat, 2, libc::O_TMPFILE as u64, Errno::OPNOTSUPP);
            check();
        });
        refused.join().unwrap();
    });
}

/// Makes a system call fail in this thread if these bits of that argument are set.
fn refuse(call: libc::c_long, argument: u8, bits: u64, errno: Errno) {
    let operator = SeccompCmpOp::MaskedEq(bits);
    let condition =
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, bits).unwrap();
    let rules = BTreeMap::from([(call, vec![SeccompRule::new(vec![condition]).unwrap()])]);
    let answer = SeccompAction::Errno(errno.raw_os_error().cast_unsigned());
    let target = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, answer, target).unwrap();
    apply_filter(&BpfProgram::try_from(filter).unwrap()).unwrap();
}

#[test]
fn a_file_appears_only_when_it_is_whole() {
    with_and_without_unnamed_files(|| {
        let scratch = Scratch::new();
        let target = scratch.path("file");
        let file = AtomicFile::create(&target, 0o666).unwrap();
        file.file().write_all(b"part").unwrap();
        assert!(!target.exists());
        file.commit(Existing::Keep).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"part");
        assert_eq!(names(scratch.folder()), [Path::new("file")]);
    });
}

#[test]
fn a_file_that_is_dropped_leaves_nothing() {
    with_and_without_unnamed_files(|| {
        let scratch = Scratch::new();
        let file = AtomicFile::create(&scratch.path("file"), 0o666).unwrap();
        file.file().write_all(b"part").unwrap();
        drop(file);
        assert_eq!(names(scratch.folder()), [] as [&Path; 0]);
    });
}

#[test]
fn an_existing_file_is_kept_untouched() {
    with_and_without_unnamed_files(|| {
        let scratch = Scratch::new();
        let target = scratch.file("file", 1000);
        assert_errno(land(&target, b"new", Existing::Keep), Errno::EXIST);
        assert_eq!(fs::read(&target).unwrap(), pattern(1000));
        assert_eq!(names(scratch.folder()), [Path::new("file")]);
    });
}

#[test]
fn an_existing_file_is_replaced_and_its_readers_keep_the_old_one() {
    with_and_without_unnamed_files(|| {
        let scratch = Scratch::new();
        let target = scratch.file("file", 1000);
        let mut reader = fs::File::open(&target).unwrap();
        land(&target, b"new", Existing::Replace).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"new");
        let mut old = Vec::new();
        reader.read_to_end(&mut old).unwrap();
        assert_eq!(old, pattern(1000));
        assert_eq!(names(scratch.folder()), [Path::new("file")]);
    });
}

#[test]
fn a_folder_is_not_replaced() {
    with_and_without_unnamed_files(|| {
        let scratch = Scratch::new();
        let target = scratch.path("folder");
        fs::create_dir(&target).unwrap();
        assert_errno(land(&target, b"new", Existing::Replace), Errno::ISDIR);
        assert_errno(land(&target, b"new", Existing::Keep), Errno::EXIST);
        assert_eq!(names(scratch.folder()), [Path::new("folder")]);
    });
}

#[test]
fn a_file_system_that_cannot_rename_without_replacing_links_instead_or_needs_no_links() {
    for has_links in [true, false] {
        let land_three = move || {
            refuse(libc::SYS_openat, 2, libc::O_TMPFILE as u64, Errno::OPNOTSUPP);
            refuse(libc::SYS_renameat2, 4, libc::RENAME_NOREPLACE.into(), Errno::INVAL);
            if !has_links {
                refuse(libc::SYS_linkat, 4, 0, Errno::PERM);
            }
            let scratch = Scratch::new();
            let target = scratch.path("file");
            land(&target, b"first", Existing::Keep).unwrap();
            assert_errno(land(&target, b"second", Existing::Keep), Errno::EXIST);
            assert_eq!(fs::read(&target).unwrap(), b"first");
            land(&target, b"third", Existing::Replace).unwrap();
            assert_eq!(fs::read(&target).unwrap(), b"third");
            assert_eq!(names(scratch.folder()), [Path::new("file")]);
        };
        thread::spawn(land_three).join().unwrap();
    }
}

#[test]
fn one_of_many_keeping_writers_succeeds_and_all_replacing_ones_do() {
    with_and_without_unnamed_files(|| {
        let scratch = Scratch::new();
        let target = scratch.path("file");
        let all = |existing: Existing| {
            thread::scope(|scope| {
                let land_one = |byte: u8| land(&target, &[byte; 10_000], existing).is_ok();
                let threads: Vec<_> =
                    (1..=8).map(|byte| scope.spawn(move || land_one(byte))).collect();
                threads.into_iter().map(|t| t.join().unwrap()).filter(|ok| *ok).count()
            })
        };
        let is_whole = || {
            let bytes = fs::read(&target).unwrap();
            bytes.len() == 10_000 && bytes.iter().all(|byte| *byte == bytes[0])
        };
        assert_eq!(all(Existing::Keep), 1);
        assert!(is_whole());
        for _ in 0..20 {
            assert_eq!(all(Existing::Replace), 8);
            assert!(is_whole());
        }
        assert_eq!(names(scratch.folder()), [Path::new("file")]);
    });
}

/// Runs the test of this name in another process, which is killed once it has written to a file.
fn killed_while_it_writes(test: &str, folder: &Path) {
    let mut child = Shell(
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env(FOLDER, folder)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut lines = String::new();
    let mut output = child.0.stdout.take().unwrap();
    while !lines.contains("written") {
        let mut bytes = [0; 100];
        let len = output.read(&mut bytes).unwrap();
        assert!(len > 0, "{lines}");
        lines.push_str(&String::from_utf8_lossy(&bytes[..len]));
    }
}

/// Runs in the process that is killed.
fn write_until_killed(folder: &Path) {
    let file = AtomicFile::create(&folder.join("file"), 0o666).unwrap();
    file.file().write_all(&pattern(1 << 20)).unwrap();
    println!("written");
    loop {
        thread::park();
    }
}

const FOLDER: &str = "UNDERPASS_TEST_FOLDER";

#[test]
fn a_killed_program_leaves_nothing() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        write_until_killed(Path::new(&folder));
    }
    let scratch = Scratch::new();
    killed_while_it_writes("atomic_file::a_killed_program_leaves_nothing", scratch.folder());
    assert_eq!(names(scratch.folder()), [] as [&Path; 0]);
}

#[test]
fn hidden_files_of_a_killed_program_are_removed_by_the_next_write() {
    const NAME: &str =
        "atomic_file::hidden_files_of_a_killed_program_are_removed_by_the_next_write";
    refuse(libc::SYS_openat, 2, libc::O_TMPFILE as u64, Errno::OPNOTSUPP);
    if let Some(folder) = std::env::var_os(FOLDER) {
        write_until_killed(Path::new(&folder));
    }
    let scratch = Scratch::new();
    for _ in 0..2 {
        killed_while_it_writes(NAME, scratch.folder());
        assert_eq!(names(scratch.folder()).len(), 1);
    }
    land(&scratch.path("file"), b"whole", Existing::Keep).unwrap();
    assert_eq!(names(scratch.folder()), [Path::new("file")]);
}

#[test]
fn hidden_files_of_a_live_program_are_never_removed() {
    thread::spawn(|| {
        refuse(libc::SYS_openat, 2, libc::O_TMPFILE as u64, Errno::OPNOTSUPP);
        let scratch = Scratch::new();
        let target = scratch.path("file");
        let first = AtomicFile::create(&target, 0o666).unwrap();
        let second = AtomicFile::create(&target, 0o666).unwrap();
        first.file().write_all(b"first").unwrap();
        second.file().write_all(b"second").unwrap();
        assert_eq!(names(scratch.folder()).len(), 2);
        second.commit(Existing::Replace).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"second");
        first.commit(Existing::Replace).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"first");
        assert_eq!(names(scratch.folder()), [Path::new("file")]);
    })
    .join()
    .unwrap();
}

#[test]
fn foreign_files_keep_their_hidden_names() {
    thread::spawn(|| {
        refuse(libc::SYS_openat, 2, libc::O_TMPFILE as u64, Errno::OPNOTSUPP);
        let scratch = Scratch::new();
        let target = scratch.path("file");
        let first = number_of(fs::File::open(scratch.folder()).unwrap()).unwrap();
        let hidden = |number: u32| {
            let name = hidden_name(OsStr::new("file"), Some(first.wrapping_add(number)));
            scratch.folder().join(name)
        };
        fs::create_dir(hidden(0)).unwrap();
        symlink("missing", hidden(1)).unwrap();
        // Another program added a second name.
        fs::hard_link(scratch.file("linked", 10), hidden(2)).unwrap();
        assert!(Command::new("mkfifo").arg(hidden(3)).status().unwrap().success());
        fs::write(hidden(4), b"left").unwrap();
        // Any program may give a file such a name.
        fs::write(scratch.path(".file.0.part"), b"own").unwrap();
        let mut before = names(scratch.folder());
        land(&target, b"whole", Existing::Keep).unwrap();
        let mut after = names(scratch.folder());
        after.retain(|name| name != Path::new("file"));
        before.retain(|name| scratch.folder().join(name) != hidden(4));
        assert_eq!(after, before);
        assert_eq!(fs::read(scratch.path("linked")).unwrap(), pattern(10));
    })
    .join()
    .unwrap();
}

#[test]
fn hidden_files_of_another_folder_are_no_leftovers() {
    thread::spawn(|| {
        refuse(libc::SYS_openat, 2, libc::O_TMPFILE as u64, Errno::OPNOTSUPP);
        let (scratch, elsewhere) = (Scratch::new(), Scratch::new());
        let first = number_of(fs::File::open(elsewhere.folder()).unwrap()).unwrap();
        for number in [0, first] {
            let copied = scratch.folder().join(hidden_name(OsStr::new("file"), Some(number)));
            fs::write(copied, b"copied").unwrap();
        }
        for bytes in [b"old", b"new"] {
            land(&scratch.path("file"), bytes, Existing::Replace).unwrap();
        }
        assert_eq!(names(scratch.folder()).len(), 3);
    })
    .join()
    .unwrap();
}

#[test]
fn a_part_that_others_may_write_to_is_not_continued() {
    let scratch = Scratch::new();
    let part = scratch.path("part");
    let open = || {
        let folder = fs::File::open(scratch.folder()).unwrap().into();
        AtomicFile::partial(folder, "file".as_ref(), "part".as_ref(), 0o600, Existing::Replace)
    };
    open().unwrap();
    fs::hard_link(&part, scratch.path("link")).unwrap();
    assert_errno(open(), Errno::PERM);
    fs::remove_file(scratch.path("link")).unwrap();
    // The mode of a new file with umask 022.
    fs::set_permissions(&part, fs::Permissions::from_mode(0o644)).unwrap();
    open().unwrap();
    let mask = underpass_engine::atomic_file::umask().unwrap();
    for mode in [0o620, 0o602, 0o666] {
        fs::set_permissions(&part, fs::Permissions::from_mode(mode)).unwrap();
        match mode & 0o022 & mask {
            0 => drop(open().unwrap()),
            _ => assert_errno(open(), Errno::PERM),
        }
    }
    assert_eq!(names(scratch.folder()), [Path::new("part")]);
}

#[test]
fn a_part_that_has_ended_is_a_leftover() {
    let scratch = Scratch::new();
    let folder = || -> rustix::fd::OwnedFd { fs::File::open(scratch.folder()).unwrap().into() };
    let partial =
        || AtomicFile::partial(folder(), "file".as_ref(), "part".as_ref(), 0o600, Existing::Keep);
    let mut ended = partial().unwrap();
    ended.end_partial().unwrap();
    let left = names(scratch.folder());
    assert_ne!(left, [Path::new("part")]);
    let is_removed = || remove_left_over(&folder(), left[0].as_os_str(), u32::MAX);
    assert!(try_lock(ended.file(), folder(), left[0].as_os_str()) && !is_removed());
    drop(ended);
    // The state after a kill.
    fs::write(scratch.folder().join(&left[0]), b"whole").unwrap();
    assert!(is_removed());
    let mut ended = partial().unwrap();
    ended.end_partial().unwrap();
    ended.commit(Existing::Keep).unwrap();
    assert_eq!(names(scratch.folder()), [Path::new("file")]);
}

#[test]
fn a_folder_that_cannot_be_written_to_is_an_error() {
    // An error other than missing permissions, which do not bind root.
    assert!(AtomicFile::create(Path::new("/proc/self/file"), 0o666).is_err());
    let scratch = Scratch::new();
    assert_errno(AtomicFile::create(&scratch.path("missing/file"), 0o666), Errno::NOENT);
    let file = scratch.file("file", 1);
    assert_errno(AtomicFile::create(&file.join("below"), 0o666), Errno::NOTDIR);
    assert_errno(AtomicFile::create(Path::new("/"), 0o666), Errno::INVAL);
    // A name of a folder cannot name a file.
    for name in ["new/", "new/.", "new//"] {
        assert_errno(AtomicFile::create(&scratch.path(name), 0o666), Errno::NOTDIR);
    }
    assert_errno(AtomicFile::create(&scratch.path(".."), 0o666), Errno::INVAL);
}

#[test]
fn every_name_that_the_file_system_allows_can_be_written() {
    let odd: [&[u8]; 6] = [b"two\nlines", b"\xff\xfe", b" ", b"-", b".hidden.part", &[b'x'; 255]];
    with_and_without_unnamed_files(|| {
        for name in odd {
            let scratch = Scratch::new();
            let target = scratch.folder().join(OsStr::from_bytes(name));
            land(&target, b"old", Existing::Keep).unwrap();
            land(&target, b"new", Existing::Replace).unwrap();
            assert_eq!(fs::read(&target).unwrap(), b"new");
            assert_eq!(names(scratch.folder()), [Path::new(OsStr::from_bytes(name))]);
        }
    });
    let scratch = Scratch::new();
    let target = scratch.path(&"x".repeat(256));
    assert_errno(land(&target, b"", Existing::Keep), Errno::NAMETOOLONG);
}

#[test]
fn a_name_without_a_folder_is_in_the_current_one() {
    const NAME: &str = "atomic_file::a_name_without_a_folder_is_in_the_current_one";
    const ROLE: &str = "UNDERPASS_TEST_RELATIVE";
    if std::env::var_os(ROLE).is_some() {
        return land(Path::new("file"), b"here", Existing::Keep).unwrap();
    }
    let scratch = Scratch::new();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", NAME])
        .env(ROLE, "1")
        .current_dir(scratch.folder())
        .output()
        .unwrap();
    assert!(output.status.success());
    assert_eq!(fs::read(scratch.path("file")).unwrap(), b"here");
}

#[test]
fn permissions_are_the_requested_ones_less_the_umask() {
    const NAME: &str = "atomic_file::permissions_are_the_requested_ones_less_the_umask";
    const FOLDER: &str = "UNDERPASS_TEST_UMASK";
    if let Some(folder) = std::env::var_os(FOLDER) {
        return with_and_without_unnamed_files(|| {
            for (asked, given) in [(0o666, 0o640), (0o600, 0o600), (0o777, 0o750)] {
                let target = Path::new(&folder).join("file");
                let file = AtomicFile::create(&target, asked).unwrap();
                file.commit(Existing::Replace).unwrap();
                let mode = fs::metadata(&target).unwrap().permissions().mode() & 0o7777;
                assert_eq!(mode, given, "{asked:o}");
            }
        });
    }
    let scratch = Scratch::new();
    let output = Command::new("sh")
        .args(["-c", r#"umask 027; exec "$@""#, "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", NAME])
        .env(FOLDER, scratch.folder())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
fn a_file_that_replaced_a_partial_one_is_kept() {
    let scratch = Scratch::new();
    let partial = scratch.path("file.part");
    let root = partial.parent().unwrap();
    for existing in [Existing::Keep, Existing::Replace] {
        let folder = fs::File::open(root).unwrap().into();
        let (name, unfinished) = (OsStr::new("file"), OsStr::new("file.part"));
        let file = AtomicFile::partial(folder, name, unfinished, 0o666, Existing::Replace).unwrap();
        file.file().write_all(b"ours").unwrap();
        fs::write(root.join("other"), "of another").unwrap();
        fs::rename(root.join("other"), &partial).unwrap();
        assert_errno(file.commit(existing), Errno::STALE);
        assert_eq!(fs::read(&partial).unwrap(), b"of another");
        assert_eq!(names(root), [Path::new("file.part")]);
        fs::remove_file(&partial).unwrap();
    }
}

#[test]
fn case_sensitivity_is_seen_in_the_listing_of_an_o_path_folder() {
    let scratch = Scratch::new();
    for name in ["name", "NAME"] {
        fs::write(scratch.path(name), name).unwrap();
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = openat(CWD, scratch.folder(), flags, Mode::empty()).unwrap();
    assert_eq!(ignores_case(folder, b"name"), Some(false));
}

#[test]
fn a_folder_is_not_read_for_names_that_its_file_system_takes_as_they_are() {
    let scratch = Scratch::new();
    let kind = fstatfs(fs::File::open(scratch.folder()).unwrap()).unwrap().f_type;
    if ![0xef53, 0x0102_1994, 0x794c_7630, 0x9123_683e].contains(&kind) {
        return underpass_testkit::skip("another file system");
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = openat(CWD, scratch.folder(), flags, Mode::empty()).unwrap();
    let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
    inotify::add_watch(&watch, scratch.folder(), inotify::WatchFlags::ACCESS).unwrap();
    for name in ["\u{65e5}\u{672c}", "\u{444}\u{43e}\u{442}\u{43e}", "name", "NAME"] {
        fs::write(scratch.path(name), name).unwrap();
        let found = rustix::fs::stat(scratch.path(name)).unwrap();
        assert_eq!(listed_name(&folder, name.as_bytes(), &found), None);
    }
    let mut buffer = [MaybeUninit::uninit(); 512];
    let event = inotify::Reader::new(&watch, &mut buffer).next().map(|event| event.events());
    assert_eq!(event.unwrap_err(), Errno::AGAIN);
}

#[test]
fn a_file_in_a_folder_that_was_removed_says_that_it_is_missing() {
    let scratch = Scratch::new();
    let path = scratch.path("folder");
    fs::create_dir(&path).unwrap();
    let folder = fs::File::open(&path).unwrap();
    fs::remove_dir(&path).unwrap();
    let created = AtomicFile::create_in(folder.into(), OsStr::new("file"), 0o666);
    assert_errno(created, Errno::NOENT);
}

#[test]
fn a_part_of_the_owner_of_the_folder_is_not_continued_by_another_user() {
    if !underpass_testkit::is_root() {
        return underpass_testkit::skip("files cannot be given away");
    }
    let scratch = Scratch::new();
    let root = scratch.path("folder");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("part"), "of the owner of the folder").unwrap();
    for path in [&root, &root.join("part")] {
        std::os::unix::fs::chown(path, Some(1234), Some(1234)).unwrap();
    }
    let (name, part) = (OsStr::new("file"), OsStr::new("part"));
    let open = || {
        let folder = fs::File::open(&root).unwrap().into();
        AtomicFile::partial(folder, name, part, 0o666, Existing::Replace)
    };
    assert_errno(open(), Errno::PERM);
    assert_eq!(names(&root), [Path::new("part")]);
    std::os::unix::fs::chown(root.join("part"), Some(0), None).unwrap();
    open().unwrap().discard();
}

#[test]
fn a_deep_folder_is_removed_with_little_memory_and_few_descriptors() {
    let scratch = Scratch::new();
    let root = scratch.path("folder");
    fs::create_dir(&root).unwrap();
    let mut at: rustix::fd::OwnedFd = fs::File::open(&root).unwrap().into();
    for level in 0..3000 {
        let mode = if level % 100 == 0 { Mode::RUSR } else { Mode::RWXU };
        for name in ["d", "0"] {
            rustix::fs::mkdirat(&at, name, Mode::RWXU).unwrap();
        }
        let next = openat(&at, "d", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
        rustix::fs::fchmod(&at, mode | Mode::XUSR).unwrap();
        at = next;
    }
    let removed = thread::Builder::new().stack_size(128 << 10).spawn(move || {
        let above = fs::File::open(root.parent().unwrap()).unwrap();
        remove_folder(&above, c"folder").map(|()| root.exists())
    });
    assert_eq!(removed.unwrap().join().unwrap(), Ok(false));
}
