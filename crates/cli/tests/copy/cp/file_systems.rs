//! All tests of `cp` on one file system after the other, and tests that need a separate one: full
//! disks, other devices, immutable files, entries that only root may create.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, UNIX_EPOCH};

use rustix::fs::{
    CWD, FileType, Mode, XattrFlags, getxattr, listxattr, makedev, mknodat, setxattr,
};

use crate::cp::cp_in;
use crate::rig::{Running, folder, has, names, noise, noise_file, traced, until};
use underpass_testkit::mounts::{FileSystem, Mounted};
use underpass_testkit::{is_full, is_root, skip};

const ALL: [FileSystem; 5] =
    [FileSystem::Btrfs, FileSystem::Ext4, FileSystem::Overlay, FileSystem::Tmpfs, FileSystem::Xfs];

/// This very program, without the tests that mount: each test on one file system besides that of
/// its own folder, or on all with `UNDERPASS_FULL`.
fn run_all_on(kind: FileSystem) {
    let Some(mounted) = Mounted::new(kind, 1600) else { return };
    let program = std::env::current_exe().unwrap();
    let list =
        Command::new(&program).args(["--list", "--skip", "file_systems::"]).output().unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    let place = ALL.iter().position(|one| *one == kind).unwrap();
    let is_here = |number: usize| is_full() || (number + place).is_multiple_of(ALL.len());
    let tests = list.lines().filter_map(|line| line.strip_suffix(": test"));
    let tests = tests.filter(|test| test.starts_with("cp::"));
    let here: Vec<_> =
        (0..).zip(tests).filter(|(number, _)| is_here(*number)).map(|one| one.1).collect();
    let mut command = Command::new(program);
    command.args(["--exact", "--test-threads", "2"]).args(&here);
    command.env("UNDERPASS_TEST_FOLDER", mounted.root()).env("UNDERPASS_KILLS", "2");
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "on {kind:?}: {text}");
    assert!(here.len() > 20 && text.contains(&format!(" {} passed", here.len())), "{text}");
}

#[test]
fn all_options_work_on_btrfs() {
    run_all_on(FileSystem::Btrfs);
}

#[test]
fn all_options_work_on_ext4() {
    run_all_on(FileSystem::Ext4);
}

#[test]
fn all_options_work_on_overlay() {
    run_all_on(FileSystem::Overlay);
}

#[test]
fn all_options_work_on_tmpfs() {
    run_all_on(FileSystem::Tmpfs);
}

#[test]
fn all_options_work_on_xfs() {
    run_all_on(FileSystem::Xfs);
}

#[test]
fn a_mirror_keeps_what_differs_in_case_only() {
    let Some(mounted) = Mounted::new(FileSystem::NoCase, 16) else { return };
    let (here, target) = (folder(), mounted.root().join("t"));
    let words = ["-rT", "--delete", "a", target.to_str().unwrap()];
    for path in ["a/Photos/Old", "a/photos"] {
        fs::create_dir_all(here.path().join(path)).unwrap();
    }
    for file in ["a/READ.me", "a/Photos/One", "a/Photos/Old/X", "a/photos/Two"] {
        fs::write(here.path().join(file), file).unwrap();
    }
    for round in 0..2 {
        cp_in(here.path(), &words).succeeded();
        assert_eq!(names(&target), ["photos", "read.me"], "round {round}");
        assert_eq!(names(&target.join("photos")), ["old", "one", "two"], "round {round}");
        assert_eq!(fs::read_to_string(target.join("photos/old/x")).unwrap(), "a/Photos/Old/X");
    }
    // Entries that are in no source are removed, at all levels.
    fs::write(target.join("stale"), "").unwrap();
    fs::write(target.join("photos/old/stale"), "").unwrap();
    fs::remove_file(here.path().join("a/photos/Two")).unwrap();
    let receipt = cp_in(here.path(), &[&["--json"], &words[..]].concat()).succeeded().receipt();
    assert_eq!(receipt["deleted"], 3, "{receipt}");
    assert_eq!(names(&target.join("photos")), ["old", "one"]);
    assert_eq!(names(&target.join("photos/old")), ["x"]);
    // Sources that lie beside each other, of which two are one folder in the target.
    let target = target.to_str().unwrap();
    let words = ["--json", "-r", "--delete", "a/.", "b/OTHER", "b/PHOTOS", target];
    fs::create_dir_all(here.path().join("b/PHOTOS")).unwrap();
    fs::write(here.path().join("b/PHOTOS/Three"), "three").unwrap();
    fs::write(here.path().join("b/OTHER"), "other").unwrap();
    let receipt = cp_in(here.path(), &words).succeeded().receipt();
    assert_eq!(receipt["deleted"], 0, "{receipt}");
    assert_eq!(names(&mounted.root().join("t/photos")), ["old", "one", "three"]);
}

#[test]
fn names_that_differ_in_case_only_never_replace_each_other() {
    let Some(mounted) = Mounted::new(FileSystem::NoCase, 16) else { return };
    let here = folder();
    fs::create_dir(here.path().join("a")).unwrap();
    fs::create_dir(here.path().join("b")).unwrap();
    for file in ["a/README", "a/readme", "b/Readme", "a/one", "b/two"] {
        fs::write(here.path().join(file), file).unwrap();
    }
    for (number, args) in [
        &["-rT", "a"][..],
        &["-rT", "--in-place", "a"],
        &["-aT", "a"],
        &["-rsT", "--force", "a"],
        &["a/README", "a/readme", "a/one"],
        &["a/one", "a/README", "b/Readme"],
    ]
    .into_iter()
    .enumerate()
    {
        for is_there in [false, true] {
            let target = mounted.root().join(format!("t{number}{is_there}"));
            fs::create_dir(&target).unwrap();
            if is_there {
                fs::write(target.join("readme"), "old").unwrap();
            }
            let path = |arg: &&str| {
                if arg.starts_with(['a', 'b']) {
                    here.path().join(arg).into_os_string().into_string().unwrap()
                } else {
                    (*arg).to_owned()
                }
            };
            let mut args: Vec<_> = args.iter().map(path).collect();
            args.push(target.to_str().unwrap().to_owned());
            let args: Vec<_> = args.iter().map(String::as_str).collect();
            let finished = cp_in(here.path(), &args);
            assert_eq!(finished.code(), Some(1), "{args:?} {is_there}: {}", finished.stderr);
            let said = finished.stderr.to_lowercase();
            assert!(said.matches("readme").count() >= 2, "{said}");
            assert_ne!(fs::read_to_string(target.join("readme")).unwrap(), "old");
            assert_eq!(names(&target), ["one", "readme"]);
        }
    }
}

#[test]
fn names_that_differ_in_case_only_are_not_written_in_place_of_each_other_in_a_new_folder() {
    let Some(mounted) = Mounted::new(FileSystem::NoCase, 16) else { return };
    let here = folder();
    fs::create_dir(here.path().join("a")).unwrap();
    for file in ["a/README", "a/readme"] {
        fs::write(here.path().join(file), file).unwrap();
    }
    let target = mounted.root().join("new");
    let words = ["-rT", "--in-place", "a", target.to_str().unwrap()];
    let finished = cp_in(here.path(), &words);
    assert_eq!(finished.code(), Some(1), "{}", finished.stderr);
    assert!(finished.stderr.contains("just created"), "{}", finished.stderr);
    assert_eq!(names(&target), ["readme"]);
}

#[test]
fn a_name_that_differs_in_case_only_is_not_treated_as_an_existing_file() {
    let Some(mounted) = Mounted::new(FileSystem::NoCase, 16) else { return };
    let here = folder();
    fs::create_dir(here.path().join("a")).unwrap();
    for file in ["a/README", "a/readme"] {
        fs::write(here.path().join(file), "the same length").unwrap();
    }
    for (number, option) in ["-n", "-u"].into_iter().enumerate() {
        for is_there in [false, true] {
            let target = mounted.root().join(format!("t{number}{is_there}"));
            let words = ["-rT", option, "a", target.to_str().unwrap()];
            if is_there {
                fs::create_dir(&target).unwrap();
                fs::write(target.join("other"), "old").unwrap();
            }
            let finished = cp_in(here.path(), &words);
            assert_eq!(finished.code(), Some(1), "{words:?}: {}", finished.stderr);
            assert!(finished.stderr.contains("just created"), "{}", finished.stderr);
        }
    }
}

/// lowntfs-3g lists only the first names of a folder if the buffer is small.
#[test]
fn all_names_of_a_large_folder_are_seen() {
    let Some(mounted) = Mounted::new(FileSystem::NoCase, 16) else { return };
    let here = folder();
    fs::create_dir(here.path().join("a")).unwrap();
    for number in 0..100 {
        fs::write(mounted.root().join(format!("f{number}")), "extra").unwrap();
    }
    let root = mounted.root();
    let words = ["-rT", "--delete", "--json", "a", root.to_str().unwrap()];
    assert_eq!(cp_in(here.path(), &words).succeeded().receipt()["deleted"], 100);
    assert!(names(&mounted.root()).is_empty());
}

/// A file that is open has two links for a while after it got its name there.
#[test]
fn a_second_copy_that_is_being_read_is_not_replaced() {
    let Some(mounted) = Mounted::new(FileSystem::NoCase, 16) else { return };
    if !has("strace") {
        return;
    }
    let here = folder();
    for (dir, file) in [("a", "README"), ("b", "Readme")] {
        fs::create_dir(here.path().join(dir)).unwrap();
        fs::write(here.path().join(dir).join(file), file).unwrap();
    }
    let target = mounted.root().join("t");
    fs::create_dir(&target).unwrap();
    fs::write(target.join("readme"), "old").unwrap();
    let inject = "inject=renameat,renameat2:delay_enter=300000";
    let mut command = traced(Path::new("/dev/null"), &["-e", inject]);
    command.current_dir(here.path()).args(["cp", "a/README", "b/Readme"]).arg(&target);
    let copy = Running::start(command);
    let mut held = None;
    until("the part is there", || {
        let part = fs::read_dir(&target).unwrap().find_map(|entry| {
            let entry = entry.unwrap();
            let is_part = entry.file_name().as_bytes().ends_with(b".part");
            is_part.then(|| File::open(entry.path()).ok()).flatten()
        });
        held = part;
        held.is_some()
    });
    let finished = copy.finish();
    assert_eq!(finished.code(), Some(1), "{}", finished.stderr);
    assert!(finished.stderr.contains("just created"), "{}", finished.stderr);
}

#[test]
fn folders_that_differ_in_case_only_lose_no_file() {
    let Some(mounted) = Mounted::new(FileSystem::NoCase, 16) else { return };
    let here = folder();
    for path in ["a/Photos/Old", "a/photos/old"] {
        fs::create_dir_all(here.path().join(path)).unwrap();
    }
    for file in ["a/Photos/x", "a/photos/X", "a/Photos/y", "a/photos/z"] {
        fs::write(here.path().join(file), file).unwrap();
    }
    fs::write(here.path().join("a/Photos/Old/deep"), "one").unwrap();
    fs::write(here.path().join("a/photos/old/Deep"), "two").unwrap();
    for (number, args) in
        [&["-rT", "a"][..], &["-rTj8", "a"], &["-r", "a/Photos", "a/photos"]].iter().enumerate()
    {
        for is_there in [false, true] {
            let target = mounted.root().join(format!("t{number}{is_there}"));
            if is_there || number == 2 {
                fs::create_dir_all(target.join("photos")).unwrap();
                fs::write(target.join("photos/x"), "old").unwrap();
            }
            let args = [args, &[target.to_str().unwrap()][..]].concat();
            let finished = cp_in(here.path(), &args);
            assert_eq!(finished.code(), Some(1), "{args:?}: {}", finished.stderr);
            assert_eq!(finished.stderr.matches("just created").count(), 2, "{}", finished.stderr);
            assert_eq!(names(&target), ["photos"], "{args:?}: {}", finished.stderr);
            assert_eq!(names(&target.join("photos")), ["old", "x", "y", "z"]);
            assert_eq!(names(&target.join("photos/old")), ["deep"]);
        }
    }
}

#[test]
fn a_copy_is_as_new_as_its_original_where_times_are_rounded() {
    for kind in [FileSystem::NoCase, FileSystem::WholeSeconds] {
        let Some(mounted) = Mounted::new(kind, 16) else { continue };
        let (here, target) = (folder(), mounted.root());
        let target = target.to_str().unwrap();
        let write = |name: &str, seconds: u64| {
            let file = File::create(here.path().join("s").join(name)).unwrap();
            (&file).write_all(name.as_bytes()).unwrap();
            file.set_modified(UNIX_EPOCH + Duration::new(seconds, 987_654_321)).unwrap();
        };
        fs::create_dir(here.path().join("s")).unwrap();
        write("a", 1_600_000_001);
        write("b", 1_600_000_002);
        let words = ["--json", "-r", "--preserve=timestamps", "s", target];
        let copied = |more: &[&str]| cp_in(here.path(), &[more, &words].concat()).succeeded();
        assert_eq!(copied(&[]).receipt()["files"], 2, "{kind:?}");
        for option in ["-u", "--resume"] {
            assert_eq!(copied(&[option]).receipt()["files"], 0, "{kind:?} {option}");
        }
        write("a", 1_600_000_002);
        for option in ["-u", "--resume"] {
            assert_eq!(copied(&[option, "--backup=numbered"]).receipt()["files"], 1, "{kind:?}");
            write("a", 1_600_000_003);
        }
    }
}

#[test]
fn a_full_disk_leaves_whole_files_and_is_resumed() {
    let (Some(source), Some(small)) =
        (Mounted::new(FileSystem::Tmpfs, 64), Mounted::new(FileSystem::Tmpfs, 8))
    else {
        return;
    };
    let (a, z) = (source.root().join("a"), small.root().join("z"));
    for folder in 0..4 {
        fs::create_dir_all(a.join(folder.to_string())).unwrap();
        for file in 0..100 {
            noise_file(&a.join(folder.to_string()), &file.to_string(), 40_000);
        }
    }
    let words = ["-aT", "--resume", a.to_str().unwrap(), z.to_str().unwrap()];
    let finished = cp_in(&source.root(), &words);
    assert_eq!(finished.code(), Some(1), "{}", finished.stderr);
    assert!(finished.stderr.contains("the disk is full"), "{}", finished.stderr);
    let mut whole = 0;
    // Besides them there is the marker of an unfinished copy.
    for folder in names(&z).into_iter().filter(|name| z.join(name).is_dir()) {
        assert!(folder.starts_with('.') || names(&z.join(&folder)).len() == 100, "{folder}");
        for file in names(&z.join(&folder)) {
            let bytes = fs::read(z.join(&folder).join(&file)).unwrap();
            assert!(bytes == noise(40_000), "{folder}/{file}: {} bytes", bytes.len());
            whole += 1;
        }
    }
    assert!(whole > 100, "{whole}");
    let grown = ["-o", "remount,size=64m"];
    assert!(Command::new("mount").args(grown).arg(small.root()).status().unwrap().success());
    cp_in(&source.root(), &words).succeeded();
    assert_eq!((names(&z), names(&z.join("3")).len()), (names(&a), 100));
}

#[test]
fn a_full_disk_that_is_the_target_itself_ends_the_copy() {
    let Some(small) = Mounted::new(FileSystem::Tmpfs, 8) else { return };
    let (here, root) = (folder(), small.root());
    for number in 0..6 {
        let inner = here.path().join(number.to_string());
        fs::create_dir(&inner).unwrap();
        for file in 0..40 {
            noise_file(&inner, &file.to_string(), 100_000);
        }
    }
    let finished = cp_in(here.path(), &["-aT", ".", root.to_str().unwrap()]);
    assert_eq!(finished.code(), Some(1), "{}", finished.stderr);
    assert!(finished.stderr.lines().count() < 20, "{}", finished.stderr);
    assert!(finished.stderr.contains("ended before everything was copied"), "{}", finished.stderr);
    for folder in names(&root) {
        let is_whole = names(&root.join(&folder)).len() == 40;
        assert!(is_whole || folder.starts_with('.'), "{folder}");
    }
}

#[test]
fn files_are_copied_between_all_file_systems() {
    let mounted: Vec<_> = ALL.iter().filter_map(|kind| Mounted::new(*kind, 64)).collect();
    for from in &mounted {
        noise_file(&from.root(), "file", 3 << 20);
        for to in mounted.iter().filter(|to| to.root() != from.root()) {
            let place = to.root().join("copy");
            let words = ["--json", "file", place.to_str().unwrap()];
            let receipt = cp_in(&from.root(), &words).succeeded().receipt();
            assert_eq!(receipt["user_space_bytes"], 0, "{receipt}");
            let system = &receipt["file_systems"][0];
            assert_ne!(system["from"], system["to"], "{receipt}");
            assert!(fs::read(&place).unwrap() == noise(3 << 20));
        }
    }
}

#[test]
fn one_file_system_does_not_enter_other_file_systems() {
    let Some(outer) = Mounted::new(FileSystem::Tmpfs, 8) else { return };
    let inner = outer.root().join("a/inner");
    fs::create_dir_all(&inner).unwrap();
    fs::write(outer.root().join("a/file"), "outer").unwrap();
    let mount = |program: &str, words: &[&str]| {
        assert!(Command::new(program).args(words).arg(&inner).status().unwrap().success());
    };
    mount("mount", &["-t", "tmpfs", "tmpfs"]);
    fs::write(inner.join("file"), "inner").unwrap();
    let finished =
        [cp_in(&outer.root(), &["-ax", "a", "x"]), cp_in(&outer.root(), &["-a", "a", "z"])];
    mount("umount", &[]);
    for each in finished {
        each.succeeded();
    }
    assert_eq!(names(&outer.root().join("x")), ["file", "inner"]);
    assert_eq!(names(&outer.root().join("x/inner")), [] as [&str; 0]);
    assert_eq!(fs::read(outer.root().join("z/inner/file")).unwrap(), b"inner");
}

#[test]
fn no_hidden_file_stays_in_an_append_only_folder() {
    if !has("chattr") {
        return;
    }
    let Some(mounted) = Mounted::new(FileSystem::Ext4, 64) else { return };
    let root = mounted.root();
    let at = |path: &str| root.join(path);
    fs::create_dir_all(at("a/below")).unwrap();
    fs::create_dir(at("z")).unwrap();
    for path in ["a/file", "a/below/file", "z/file"] {
        fs::write(at(path), path).unwrap();
    }
    symlink("file", at("a/link")).unwrap();
    symlink("old", at("z/link")).unwrap();
    noise_file(&root, "large", 17 << 20);
    let chattr = |flag: &str| {
        assert!(Command::new("chattr").arg(flag).arg(at("z")).status().unwrap().success());
    };
    chattr("+a");
    let copied = [
        cp_in(&root, &["a/file", "z"]),
        cp_in(&root, &["-r", "a", "z"]),
        cp_in(&root, &["-r", "--resume", "a", "z/more"]),
        cp_in(&root, &["--resume", "large", "z"]),
    ];
    let refused = [cp_in(&root, &["-P", "a/link", "z"]), cp_in(&root, &["-b", "a/file", "z"])];
    chattr("-a");
    for finished in copied {
        finished.succeeded();
    }
    for finished in refused {
        finished.failed(1, &["Operation not permitted"]);
    }
    assert_eq!(names(&at("z")), ["a", "file", "large", "link", "more"]);
    assert_eq!(fs::read(at("z/file")).unwrap(), b"a/file");
    for folder in ["z/a", "z/more"] {
        assert_eq!(names(&at(folder)), ["below", "file", "link"]);
        assert_eq!(names(&at(folder).join("below")), ["file"]);
    }
}

#[test]
fn zeros_become_holes_where_the_file_system_allocates_ahead() {
    for kind in [FileSystem::Xfs, FileSystem::Ext4] {
        let Some(mounted) = Mounted::new(kind, 400) else { continue };
        let root = mounted.root();
        let mut bytes = vec![0; 64 << 20];
        bytes.chunks_mut(64 << 10).for_each(|chunk| chunk[0] = b'x');
        fs::write(root.join("from"), &bytes).unwrap();
        cp_in(&root, &["--sparse=always", "from", "to"]).succeeded();
        cp_in(&root, &["--in-place", "--mechanism", "sendfile", "to", "again"]).succeeded();
        for name in ["to", "again"] {
            assert!(fs::read(root.join(name)).unwrap() == bytes, "{name} on {kind:?}");
            let allocated = fs::metadata(root.join(name)).unwrap().blocks() * 512;
            assert!(allocated < 8 << 20, "{name}: {allocated} on {kind:?}");
        }
    }
}

#[test]
fn immutable_files_are_reported_and_the_others_are_copied() {
    if !has("chattr") {
        return;
    }
    let Some(mounted) = Mounted::new(FileSystem::Ext4, 16) else { return };
    let root = mounted.root();
    for folder in ["a", "z"] {
        fs::create_dir(root.join(folder)).unwrap();
        for name in ["fixed", "other"] {
            fs::write(root.join(folder).join(name), folder).unwrap();
        }
    }
    let fixed = root.join("z/fixed");
    let chattr = |flag: &str| {
        assert!(Command::new("chattr").arg(flag).arg(&fixed).status().unwrap().success());
    };
    chattr("+i");
    let finished = cp_in(&root, &["-rT", "a", "z"]);
    chattr("-i");
    assert_eq!(finished.code(), Some(1));
    assert!(finished.stderr.contains("z/fixed: Operation not permitted"), "{}", finished.stderr);
    assert_eq!(fs::read(root.join("z/other")).unwrap(), b"a");
    assert_eq!(names(&root.join("z")), ["fixed", "other"]);
}

#[test]
fn attributes_that_do_not_fit_do_not_end_the_copy() {
    let (Some(from), Some(to)) =
        (Mounted::new(FileSystem::Xfs, 300), Mounted::new(FileSystem::Ext4, 32))
    else {
        return;
    };
    let a = from.root().join("a");
    fs::create_dir(&a).unwrap();
    for name in ["one", "two", "three"] {
        fs::write(a.join(name), "bytes").unwrap();
        // ext4 has one block for them, and reports that the disk is full.
        setxattr(a.join(name), "user.long", &[b'x'; 20_000], XattrFlags::empty()).unwrap();
    }
    setxattr(&a, "user.long", &[b'x'; 20_000], XattrFlags::empty()).unwrap();
    let z = to.root().join("z");
    let words = ["-a", "--json", a.to_str().unwrap(), z.to_str().unwrap()];
    let receipt = cp_in(&to.root(), &words).succeeded().receipt();
    assert_eq!((&receipt["files"], &receipt["without_attributes"]), (&3.into(), &4.into()));
    assert_eq!(names(&z), ["one", "three", "two"]);
}

#[test]
fn attributes_for_which_a_full_disk_has_no_room_are_an_error() {
    let Some(small) = Mounted::new(FileSystem::Ext4, 32) else { return };
    let (here, z) = (folder(), small.root().join("z"));
    let a = here.path().join("a");
    fs::write(&a, "").unwrap();
    if setxattr(&a, "user.long", &[b'x'; 600], XattrFlags::empty()).is_err() {
        return skip("this file system has no extended attributes");
    }
    let fill = small.root().join("fill");
    let mut file = File::create(&fill).unwrap();
    for len in [1 << 20, 1 << 10, 1] {
        while file.write_all(&vec![1; len]).is_ok() {}
    }
    let words = ["-a", a.to_str().unwrap(), z.to_str().unwrap()];
    let finished = cp_in(here.path(), &words);
    assert_eq!((finished.code(), z.exists()), (Some(1), true), "{}", finished.stderr);
    let says = finished.stderr.lines().next().unwrap_or_default();
    assert!(says.contains("keeping attributes of") && says.contains("the disk is full"), "{says}");
    // An open file would keep its space.
    drop(file);
    fs::remove_file(fill).unwrap();
    cp_in(here.path(), &words).succeeded();
    assert_eq!(getxattr(&z, "user.long", &mut [0; 1000]), Ok(600));
}

/// An ACL as the kernel has it: read and write for the owner, read for user 1000, the mask, others.
const ACL: [u8; 44] = {
    let entries: [(u16, u16, u32); 5] =
        [(1, 6, !0), (2, 4, 1000), (4, 4, !0), (16, 4, !0), (32, 0, !0)];
    let mut bytes = [0; 44];
    bytes[0] = 2;
    let mut at = 0;
    while at < entries.len() {
        let (tag, permissions, id) = entries[at];
        let place = 4 + 8 * at;
        (bytes[place], bytes[place + 2]) = (tag as u8, permissions as u8);
        let id = id.to_le_bytes();
        (bytes[place + 4], bytes[place + 5]) = (id[0], id[1]);
        (bytes[place + 6], bytes[place + 7]) = (id[2], id[3]);
        at += 1;
    }
    bytes
};

#[test]
fn root_preserves_owners_and_privileged_attributes() {
    for kind in ALL {
        let Some(mounted) = Mounted::new(kind, 32) else { continue };
        let root = mounted.root();
        let a = root.join("a");
        fs::create_dir(&a).unwrap();
        noise_file(&a, "file", 100);
        std::os::unix::fs::chown(a.join("file"), Some(1234), Some(77)).unwrap();
        let mode = Mode::from_raw_mode(0o640);
        mknodat(CWD, a.join("device"), FileType::CharacterDevice, mode, makedev(1, 3)).unwrap();
        mknodat(CWD, a.join("fifo"), FileType::Fifo, mode, 0).unwrap();
        let attributes = [
            ("file", "user.colour", b"blue".as_slice()),
            ("file", "trusted.mark", b"\0\xff"),
            ("file", "system.posix_acl_access", &ACL),
            ("", "system.posix_acl_default", &ACL),
            ("", "user.colour", &[7; 1000]),
        ];
        let attributes = attributes.map(|(name, attribute, value)| {
            let set = setxattr(a.join(name), attribute, value, XattrFlags::empty());
            (name, attribute, value, set.is_ok())
        });
        cp_in(&root, &["-a", "a", "z"]).succeeded();
        let z = root.join("z");
        for (name, attribute, value, _) in attributes.iter().filter(|each| each.3) {
            let mut found = [0; 2000];
            let len = getxattr(z.join(name), *attribute, &mut found[..]);
            assert_eq!(&found[..len.unwrap()], *value, "{attribute} on {kind:?}");
        }
        assert!(attributes.iter().filter(|each| each.3).count() >= 2, "{kind:?}");
        let facts = |name: &str| fs::symlink_metadata(z.join(name)).unwrap();
        assert_eq!((facts("file").uid(), facts("file").gid()), (1234, 77));
        assert!(
            facts("device").file_type().is_char_device() && facts("fifo").file_type().is_fifo()
        );
        assert_eq!((facts("device").rdev(), facts("fifo").mode() & 0o7777), (makedev(1, 3), 0o640));
        // An archive has nothing that its original lacks, whatever the folder passes on.
        setxattr(&root, "system.posix_acl_default", &ACL, XattrFlags::empty()).ok();
        fs::create_dir(root.join("plain")).unwrap();
        rustix::fs::removexattr(root.join("plain"), "system.posix_acl_default").ok();
        rustix::fs::removexattr(root.join("plain"), "system.posix_acl_access").ok();
        fs::write(root.join("plain/file"), "").unwrap();
        cp_in(&root, &["-a", "plain", "copy"]).succeeded();
        for name in ["copy", "copy/file"] {
            let has_one =
                |attribute: &str| getxattr(root.join(name), attribute, &mut [0; 100][..]).is_ok();
            assert!(!has_one("system.posix_acl_access"), "{name} on {kind:?}");
            assert!(!has_one("system.posix_acl_default"), "{name} on {kind:?}");
        }
    }
}

/// XFS lists an ACL a second time as an attribute, which another file system would keep on its own.
#[test]
fn acls_of_xfs_are_copied_to_other_file_systems_once() {
    let Some(xfs) = Mounted::new(FileSystem::Xfs, 32) else { return };
    let Some(other) = Mounted::new(FileSystem::Tmpfs, 32) else { return };
    fs::write(xfs.root().join("file"), "text").unwrap();
    let acl = "system.posix_acl_access";
    setxattr(xfs.root().join("file"), acl, &ACL, XattrFlags::empty()).unwrap();
    let copy = other.root().join("file");
    cp_in(&xfs.root(), &["-a", "file", copy.to_str().unwrap()]).succeeded();
    let mut names = [0; 1000];
    let len = listxattr(&copy, &mut names[..]).unwrap();
    assert_eq!(String::from_utf8_lossy(&names[..len]), format!("{acl}\0"));
}

#[test]
fn unprivileged_copies_belong_to_the_caller() {
    if !is_root() {
        return skip("only root has files of others to copy");
    }
    if !has("setpriv") {
        return;
    }
    // The program has to be where others may run it, and it is large when it is not optimized.
    let Some(mounted) = Mounted::new(FileSystem::Tmpfs, 400) else { return };
    let root = mounted.root();
    let a = root.join("a");
    fs::create_dir(&a).unwrap();
    File::create(a.join("file")).unwrap();
    let mode = |bits| std::os::unix::fs::PermissionsExt::from_mode(bits);
    fs::set_permissions(a.join("file"), mode(0o4755)).unwrap();
    noise_file(&a, "secret", 10);
    fs::set_permissions(a.join("secret"), mode(0o600)).unwrap();
    fs::set_permissions(&root, mode(0o777)).unwrap();
    let program = root.join("underpass");
    fs::copy(env!("CARGO_BIN_EXE_underpass"), &program).ok();
    if !runs(&program) {
        return skip("the program does not fit there");
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(&program);
    let output =
        command.args(["cp", "-a", "--json", "a", "z"]).current_dir(&root).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("a/secret: Permission denied"), "{text}");
    let receipt: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    // The folder and the file in it.
    assert_eq!(receipt["without_owner"], 2, "{receipt}");
    let copy = fs::metadata(root.join("z/file")).unwrap();
    assert_eq!((copy.uid(), copy.mode() & 0o7777), (65_534, 0o755));
    assert_eq!(names(&root.join("z")), ["file"]);
}

/// Whether a program that was just written can be run. Another test may have forked while it was open
/// for writing; it then is until that child runs its own program.
fn runs(program: &Path) -> bool {
    loop {
        match Command::new(program).arg("--version").output() {
            Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {
                std::thread::sleep(Duration::from_millis(10));
            }
            outcome => return outcome.is_ok_and(|output| output.status.success()),
        }
    }
}
