//! Files that are open for writing elsewhere, or mapped: the versions that a transfer compares have
//! to reveal each change.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{ChildStdin, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::Timespec;
use underpass_engine::{
    Error, Integrity, Options, Sink, Source, Transfer, Version, WriterCheck, Writers, await_writes,
};
use underpass_testkit::mounts::{FileSystem, Mounted};
use underpass_testkit::{KilledOnDrop, folder, skip};

const LEN: usize = 4 << 20;

/// Maps a file, closes its descriptor and fills the mapping with a letter for each line of its
/// input.
const WRITER: &str = "
import mmap, os, sys
file = os.open(sys.argv[1], os.O_RDWR)
mapping = mmap.mmap(file, 0, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
os.close(file)
print('mapped', flush=True)
for line in sys.stdin:
    if line == 'all the time\\n':
        while True:
            for letter in b'ABCD': mapping[:] = bytes([letter]) * len(mapping)
    mapping[:] = line[0].encode() * len(mapping)
    print('written', flush=True)
";

/// A process with a mapping of a file.
struct Mapper {
    _child: KilledOnDrop,
    orders: ChildStdin,
    answers: BufReader<std::process::ChildStdout>,
}

impl Mapper {
    fn of(path: &Path) -> Option<Self> {
        let child = Command::new("python3")
            .args(["-c", WRITER])
            .arg(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut child) = child else {
            skip("python3 is not installed");
            return None;
        };
        let orders = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        let mut mapper = Self { _child: KilledOnDrop(child), orders, answers };
        mapper.hear("mapped\n");
        Some(mapper)
    }

    fn hear(&mut self, expected: &str) {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        assert_eq!(line, expected);
    }

    fn order(&mut self, line: &str) {
        writeln!(self.orders, "{line}").unwrap();
    }

    fn write(&mut self, letter: &str) {
        self.order(letter);
        self.hear("written\n");
    }
}

/// Checks until there is a result; also returns whether it had to wait.
fn look(check: &mut WriterCheck, file: &File) -> (Writers, bool) {
    let mut has_waited = false;
    loop {
        match check.check(file, None).unwrap() {
            Writers::Wait(pause) => thread::sleep(pause),
            found => return (found, has_waited),
        }
        has_waited = true;
    }
}

fn stable(file: &File, has_writer: bool) -> Writers {
    Writers::Stable { version: Version::of(file).unwrap(), has_writer }
}

#[test]
fn a_file_without_writers_is_stable_at_once() {
    let folder = folder();
    let path = folder.path().join("file");
    fs::write(&path, vec![b'a'; LEN]).unwrap();
    underpass_testkit::until_closed_by_writers(&path);
    let file = File::open(&path).unwrap();
    assert_eq!(look(&mut WriterCheck::new(), &file).0, stable(&file, false));
}

#[test]
fn a_file_that_is_open_for_writing_is_at_rest_once_it_is_left_alone() {
    let folder = folder();
    let path = folder.path().join("file");
    let writer = File::create(&path).unwrap();
    writer.write_all_at(&vec![b'a'; LEN], 0).unwrap();
    let file = File::open(&path).unwrap();
    let (found, has_waited) = look(&mut WriterCheck::new(), &file);
    assert_eq!(found, stable(&file, true));
    assert!(has_waited);
}

/// The server drops checks where closing a file must not wait.
#[test]
fn between_two_checks_none_keeps_the_file_open() {
    let folder = folder();
    let path = folder.path().canonicalize().unwrap().join("file");
    let _writer = File::create(&path).unwrap();
    let file = File::open(&path).unwrap();
    let mut check = WriterCheck::new();
    assert!(matches!(check.check(&file, None).unwrap(), Writers::Wait(_)));
    let all = fs::read_dir("/proc/self/fd").unwrap().map(|found| found.unwrap().path());
    let open = all.filter(|link| fs::read_link(link).is_ok_and(|target| target == path));
    assert_eq!(open.count(), 2);
}

#[test]
fn a_change_in_the_future_is_not_waited_for() {
    let folder = folder();
    let path = folder.path().join("file");
    fs::write(&path, "bytes").unwrap();
    let file = File::open(&path).unwrap();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let wait = |seconds: i64| {
        // In whole seconds, as some file systems store them.
        let changed = Timespec { tv_sec: now.as_secs().cast_signed() + seconds, tv_nsec: 0 };
        let begun = Instant::now();
        await_writes(&file, &Version::from_parts(1, 1, 5, changed, changed, 1)).unwrap();
        begun.elapsed()
    };
    assert!(wait(1) >= Duration::from_secs(1));
    assert!(wait(3600) < Duration::from_secs(1));
}

#[test]
fn after_a_look_each_store_through_a_mapping_changes_the_times() {
    for kind in [FileSystem::Ext4, FileSystem::Xfs, FileSystem::Btrfs] {
        let Some(mounted) = Mounted::new(kind, 120) else { continue };
        let path = mounted.root().join("file");
        fs::write(&path, vec![b'a'; LEN]).unwrap();
        let Some(mut mapper) = Mapper::of(&path) else { return };
        // Every page is dirty now, so that the next store would go unnoticed.
        mapper.write("b");
        let file = File::open(&path).unwrap();
        let (found, _) = look(&mut WriterCheck::new(), &file);
        let before = Version::of(&file).unwrap();
        assert_eq!(found, Writers::Stable { version: before, has_writer: true }, "{kind:?}");
        mapper.write("c");
        assert!(before.differs_from(&Version::of(&file).unwrap()), "{kind:?}");
    }
}

#[test]
fn a_log_that_is_constantly_appended_to_is_not_busy() {
    let folder = folder();
    let path = folder.path().join("log");
    let mut log = File::options().create(true).append(true).open(&path).unwrap();
    log.write_all(&vec![b'x'; 100_000]).unwrap();
    let file = File::open(&path).unwrap();
    let writer = thread::spawn(move || {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(2) {
            log.write_all(b"another line\n").unwrap();
            thread::sleep(Duration::from_millis(1));
        }
    });
    let (found, _) = look(&mut WriterCheck::new(), &file);
    assert!(matches!(found, Writers::Stable { has_writer: true, .. }), "{found:?}");
    writer.join().unwrap();
}

#[test]
fn no_copy_of_a_file_mixes_what_is_written_through_a_mapping() {
    let folder = folder();
    let path = folder.path().join("file");
    fs::write(&path, vec![b'A'; LEN]).unwrap();
    for level in [Integrity::Detect, Integrity::Lease] {
        let Some(mut mapper) = Mapper::of(&path) else { return };
        mapper.order("all the time");
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(2) {
            let copy = File::create(folder.path().join("copy")).unwrap();
            let source = Source::of(File::open(&path).unwrap()).unwrap();
            let options = Options::default().integrity(level);
            let outcome = Transfer::new(source, Sink::of(&copy).unwrap()).options(options).run();
            match outcome {
                Ok(_) => {
                    let copied = fs::read(folder.path().join("copy")).unwrap();
                    assert!(copied.iter().all(|byte| *byte == copied[0]), "two versions");
                }
                Err(Error::SourceChanged { .. }) => {}
                Err(error) => panic!("{error:?}"),
            }
        }
    }
}
