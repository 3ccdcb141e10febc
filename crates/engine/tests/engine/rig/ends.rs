//! The two ends of a transfer, of every kind: a supply that knows which bytes it gives, and a drain
//! that returns the bytes it got and checks that those around them are unchanged.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::pipe::{PipeFlags, pipe_with};
use underpass_engine::{Mechanism, Report, Sink, Source};

pub(crate) use underpass_testkit::noise as pattern;

/// The kind of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum From {
    File,
    Range,
    Memfd,
    Pipe,
    Tcp,
    Unix,
    Procfs,
    Sysfs,
    Zero,
}

impl From {
    pub(crate) const ALL: [Self; 9] = [
        Self::File,
        Self::Range,
        Self::Memfd,
        Self::Pipe,
        Self::Tcp,
        Self::Unix,
        Self::Procfs,
        Self::Sysfs,
        Self::Zero,
    ];
}

/// A source, and the bytes that it gives.
pub(crate) struct Supply {
    fd: OwnedFd,
    kind: From,
    pub(crate) bytes: Vec<u8>,
    feeder: Option<JoinHandle<()>>,
}

impl Supply {
    /// Creates a source of `len` bytes; a virtual file has its fixed length.
    pub(crate) fn new(kind: From, len: usize) -> Self {
        let mut bytes = pattern(len);
        let mut feeder = None;
        let fd = match kind {
            From::File => file_with(&bytes).into(),
            From::Range => {
                let around = [&[0xdd; RANGE_AT][..], &bytes, &[0xdd; 777]].concat();
                file_with(&around).into()
            }
            From::Memfd => {
                let mut memfd = File::from(memfd_create("supply", MemfdFlags::CLOEXEC).unwrap());
                memfd.write_all(&bytes).unwrap();
                memfd.into()
            }
            From::Pipe => {
                let (read_end, write_end) = pipe_with(PipeFlags::CLOEXEC).unwrap();
                feeder = Some(feed(File::from(write_end), bytes.clone()));
                read_end
            }
            From::Tcp => {
                let (ours, theirs) = tcp_pair();
                feeder = Some(feed(theirs, bytes.clone()));
                ours.into()
            }
            From::Unix => {
                let (ours, theirs) = UnixStream::pair().unwrap();
                feeder = Some(feed(theirs, bytes.clone()));
                ours.into()
            }
            From::Procfs | From::Sysfs => {
                let path = if kind == From::Procfs { PROCFS } else { SYSFS };
                bytes = std::fs::read(path).unwrap();
                File::open(path).unwrap().into()
            }
            From::Zero => {
                bytes.fill(0);
                File::open("/dev/zero").unwrap().into()
            }
        };
        Self { fd, kind, bytes, feeder }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Returns the source as a segment: with a promised length, except for virtual files.
    pub(crate) fn source(&self) -> Source<BorrowedFd<'_>> {
        let len = self.bytes.len() as u64;
        let fd = self.fd.as_fd();
        match self.kind {
            From::File | From::Memfd | From::Procfs | From::Sysfs => Source::of(fd).unwrap(),
            From::Range => Source::range(fd, RANGE_AT as u64, len),
            From::Pipe | From::Tcp | From::Unix | From::Zero => Source::of(fd).unwrap().len(len),
        }
    }
}

impl Drop for Supply {
    fn drop(&mut self) {
        // The feeder of a declined transfer ends when its reader is gone.
        self.fd = File::open("/dev/null").unwrap().into();
        if let Some(feeder) = self.feeder.take() {
            feeder.join().unwrap();
        }
    }
}

fn feed(mut end: impl Write + Send + 'static, bytes: Vec<u8>) -> JoinHandle<()> {
    thread::spawn(move || {
        // This may fail because the reader is gone.
        let _ = end.write_all(&bytes);
    })
}

/// The kind of a sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum To {
    File,
    OddOffset,
    Append,
    Tcp,
    Unix,
    Pipe,
    Null,
}

impl To {
    pub(crate) const ALL: [Self; 7] =
        [Self::File, Self::OddOffset, Self::Append, Self::Tcp, Self::Unix, Self::Pipe, Self::Null];
}

/// A sink, and a way to read what it got.
pub(crate) struct Drain {
    fd: OwnedFd,
    kind: To,
    reader: Option<Reader>,
}

impl Drain {
    pub(crate) fn new(kind: To) -> Self {
        let mut reader = None;
        let fd = match kind {
            To::File => file_with(&[FILLER; AROUND]).into(),
            To::OddOffset => file_with(&[FILLER; ODD_OFFSET + AROUND]).into(),
            To::Append => {
                let folder = tempfile::tempdir().unwrap();
                let path = folder.path().join("appended");
                std::fs::write(&path, [FILLER; AROUND]).unwrap();
                File::options().read(true).append(true).open(path).unwrap().into()
            }
            To::Tcp => {
                let (ours, theirs) = tcp_pair();
                reader = Some(Reader::new(theirs, Duration::ZERO));
                ours.into()
            }
            To::Unix => {
                let (ours, theirs) = UnixStream::pair().unwrap();
                reader = Some(Reader::new(theirs, Duration::ZERO));
                ours.into()
            }
            To::Pipe => {
                let (read_end, write_end) = pipe_with(PipeFlags::CLOEXEC).unwrap();
                reader = Some(Reader::new(File::from(read_end), Duration::ZERO));
                write_end
            }
            To::Null => File::options().write(true).open("/dev/null").unwrap().into(),
        };
        Self { fd, kind, reader }
    }

    /// Returns a connection with the smallest possible buffers, whose reader pauses this long after
    /// each small read.
    pub(crate) fn slow_tcp(rest: Duration) -> Self {
        let (ours, theirs) = small_tcp_pair();
        Self { fd: ours.into(), kind: To::Tcp, reader: Some(Reader::new(theirs, rest)) }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    pub(crate) fn sink(&self) -> Sink<BorrowedFd<'_>> {
        let at = if self.kind == To::OddOffset { ODD_OFFSET as u64 } else { 0 };
        Sink::of(self.fd.as_fd()).unwrap().at(at)
    }

    /// Waits until the peer has this many bytes, which a reset would discard.
    pub(crate) fn wait_for(&self, bytes: u64) {
        let Some(reader) = &self.reader else { return };
        let begun = Instant::now();
        while (reader.bytes.lock().unwrap().len() as u64) < bytes {
            assert!(
                begun.elapsed() < Duration::from_secs(30),
                "timed out waiting for {bytes} bytes"
            );
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Returns what the sink got in the transfer; `None` for the device that discards bytes. The
    /// bytes of a file before and after the `len` to be written must be unchanged.
    pub(crate) fn finish(self, len: usize) -> Option<Vec<u8>> {
        let Self { fd, kind, reader } = self;
        if let Some(reader) = reader {
            drop(fd);
            return Some(reader.finish());
        }
        if kind == To::Null {
            return None;
        }
        let mut file = File::from(fd);
        let mut all = Vec::new();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.read_to_end(&mut all).unwrap();
        let at = match kind {
            To::OddOffset => ODD_OFFSET,
            To::Append => AROUND,
            _ => 0,
        };
        let behind = all.split_off(all.len().min(at + len));
        let here = all.split_off(at);
        assert!(all.iter().chain(&behind).all(|byte| *byte == FILLER), "bytes around it changed");
        let before = if kind == To::OddOffset { ODD_OFFSET + AROUND } else { AROUND };
        let expected = if kind == To::Append { before + len } else { before.max(at + len) };
        assert_eq!(at + here.len() + behind.len(), expected, "the sink has another size");
        Some(here)
    }
}

/// Reads a stream to its end, on another thread.
struct Reader {
    bytes: Arc<Mutex<Vec<u8>>>,
    thread: JoinHandle<()>,
}

impl Reader {
    fn new(mut end: impl Read + Send + 'static, rest: Duration) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let got = Arc::clone(&bytes);
        let thread = thread::spawn(move || {
            let mut buffer = vec![0; if rest.is_zero() { 256 << 10 } else { 5_000 }];
            // A reset is an end too: tests of failures only check what came before.
            while let Ok(len @ 1..) = end.read(&mut buffer) {
                got.lock().unwrap().extend_from_slice(&buffer[..len]);
                if !rest.is_zero() {
                    thread::sleep(rest);
                }
            }
        });
        Self { bytes, thread }
    }

    fn finish(self) -> Vec<u8> {
        self.thread.join().unwrap();
        std::mem::take(&mut self.bytes.lock().unwrap())
    }
}

/// An unnamed file with these bytes.
pub(crate) fn file_with(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file
}

pub(crate) fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (ours, listener.accept().unwrap().0)
}

/// Returns a connection that accepts only a few kilobytes at a time.
pub(crate) fn small_tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::sockopt::set_socket_recv_buffer_size(&listener, 1).unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    rustix::net::sockopt::set_socket_send_buffer_size(&ours, 1).unwrap();
    (ours, listener.accept().unwrap().0)
}

/// Sets `O_NONBLOCK`, as [`advance`](underpass_engine::Transfer::advance) requires.
pub(crate) fn set_nonblocking(fd: impl AsFd) {
    let flags = rustix::fs::fcntl_getfl(&fd).unwrap() | rustix::fs::OFlags::NONBLOCK;
    rustix::fs::fcntl_setfl(&fd, flags).unwrap();
}

/// How often a byte that this mechanism moved crosses between user and kernel space.
pub(crate) fn crossings(mechanism: Mechanism) -> u64 {
    match mechanism {
        Mechanism::Mmap => 1,
        Mechanism::ReadWrite => 2,
        _ => 0,
    }
}

/// The mechanisms that moved bytes, in the order of the type.
pub(crate) fn movers(report: &Report) -> Vec<Mechanism> {
    report.mechanisms().map(|(mechanism, _)| mechanism).collect()
}

/// Returns whether files in the folder for temporary ones can share blocks.
pub(crate) fn temporary_files_can_share_blocks() -> bool {
    rustix::fs::ioctl_ficlone(file_with(b""), file_with(&pattern(4096))).is_ok()
}

/// Returns a folder on a file system other than that of temporary files.
pub(crate) fn another_file_system() -> Option<PathBuf> {
    use std::os::unix::fs::MetadataExt;
    let (here, there) = (std::env::temp_dir(), PathBuf::from("/dev/shm"));
    let device = |path: &PathBuf| std::fs::metadata(path).map(|facts| facts.dev()).ok();
    (device(&there).is_some() && device(&there) != device(&here)).then_some(there)
}

const RANGE_AT: usize = 4_321;
const ODD_OFFSET: usize = 12_345;
const AROUND: usize = 100;
const FILLER: u8 = 0xee;

/// Reports no size, has a few hundred bytes, and never changes.
const PROCFS: &str = "/proc/filesystems";

/// Reports a size of one page, has a few bytes, and never changes.
const SYSFS: &str = "/sys/class/net/lo/mtu";
