//! Contenders that the bench runs on its own threads: a bare loop around sendfile(2), and a copy
//! from memory to memory.

use std::fs::File;
use std::hint::black_box;
use std::io;
use std::net::{Shutdown, SocketAddrV4, TcpStream};
use std::path::Path;
use std::time::Instant;

use rustix::fs::sendfile;
use rustix::io::Errno;
use underpass_engine::{Report, Usage};

use super::process::Placement;
use crate::record::{Role, Side, ThreadCost};

/// Measures `work` on a thread at a place; `work` returns the number of its system calls.
fn on_a_thread(
    place: Placement<'_>,
    work: impl FnOnce() -> io::Result<u64> + Send,
) -> io::Result<Side> {
    place.within(|| {
        let (started, usage) = (Instant::now(), Usage::of_this_thread());
        let calls = work()?;
        let side = Side::new(Role::Sender, started.elapsed().as_secs_f64());
        let spent = ThreadCost::of(&Report::default(), Usage::of_this_thread() - usage);
        Ok(Side { thread: Some(ThreadCost { calls, ..spent }), ..side })
    })
}

/// Sends a file, `chunk` bytes by a call, without the engine.
pub(crate) fn send_bare(
    place: Placement<'_>,
    path: &Path,
    chunk: u64,
    to: SocketAddrV4,
) -> io::Result<Side> {
    on_a_thread(place, || {
        let file = File::open(path)?;
        let size = file.metadata()?.len();
        let stream = TcpStream::connect(to)?;
        let (mut offset, mut calls) = (0, 0);
        while offset < size {
            let wanted = usize::try_from(chunk.min(size - offset)).unwrap_or(usize::MAX);
            calls += 1;
            match sendfile(&stream, &file, Some(&mut offset), wanted) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        stream.shutdown(Shutdown::Write)?;
        Ok(calls)
    })
}

/// Copies `size` bytes from memory to memory, in pieces larger than caches if there are enough.
pub(crate) fn copy_memory(place: Placement<'_>, size: u64) -> io::Result<Side> {
    let len = usize::try_from(size.min(MEMORY)).unwrap_or(usize::MAX);
    let (from, mut to) = (vec![1_u8; len], vec![2_u8; len]);
    on_a_thread(place, || {
        let mut left = size;
        while left > 0 {
            let part = usize::try_from(left).unwrap_or(len).min(len);
            black_box(&mut to[..part]).copy_from_slice(black_box(&from[..part]));
            left -= part as u64;
        }
        Ok(0)
    })
}

const MEMORY: u64 = 256 << 20;

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{Ipv4Addr, SocketAddr, TcpListener};

    use super::*;
    use crate::run::RunFolder;

    #[test]
    fn the_bare_loop_sends_all_of_a_file_in_as_many_calls_as_it_takes() {
        let folder = RunFolder::create(&std::env::temp_dir()).unwrap();
        let bytes: Vec<u8> = (0..100_000_u32).map(|n| n.to_le_bytes()[n as usize % 3]).collect();
        std::fs::write(folder.file("source"), &bytes).unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let SocketAddr::V4(address) = listener.local_addr().unwrap() else { unreachable!() };
        let receiving = std::thread::spawn(move || {
            let mut arrived = Vec::new();
            listener.accept().unwrap().0.read_to_end(&mut arrived).unwrap();
            arrived
        });
        let file = folder.file("source");
        let done = send_bare(Placement::default(), &file, 30_000, address).unwrap();
        assert!(done.thread.as_ref().unwrap().calls >= 4, "{done:?}");
        assert!(receiving.join().unwrap() == bytes);
        let refused = send_bare(Placement::default(), &file, 30_000, address).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    }

    #[test]
    fn memory_is_really_copied() {
        let done = copy_memory(Placement::default(), 64 << 20).unwrap();
        assert!(done.cpu_s() > 0.0 && done.elapsed_s > 0.0, "{done:?}");
    }
}
