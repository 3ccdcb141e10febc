//! Which files are sent from one buffer with the header before them, and which are not.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use rustix::net::sockopt::tcp_cork;
use underpass_engine::{
    Chain, FilePart, Mechanism, Options, Policy, Report, SMALL_TRANSFER, Sink, Source, Transfer,
    Version, send_with_head,
};

/// Returns the bytes of a file of this length, the file, and the two ends of a connection.
fn ends(len: usize) -> (Vec<u8>, File, TcpStream, TcpStream) {
    let body: Vec<u8> = (0..len).map(|index| (index % 251) as u8).collect();
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&body).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let peer = listener.accept().unwrap().0;
    (body, file, socket, peer)
}

/// Sends a header and a file of `len` bytes, checks what arrives, and returns the report.
fn send(len: usize, options: Options<'_>) -> Report {
    let (body, file, socket, mut peer) = ends(len);
    let reader = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        peer.read_to_end(&mut bytes).unwrap();
        bytes
    });
    let chain = Chain::<&File>::new().bytes(&b"header"[..]).source(Source::of(&file).unwrap());
    let report = Transfer::new(chain, Sink::of(&socket).unwrap()).options(options).run().unwrap();
    drop(socket);
    assert_eq!(reader.join().unwrap(), [b"header".as_slice(), &body].concat());
    report
}

#[test]
fn the_limit_of_one_buffer_can_be_set_and_is_kept_to_the_byte() {
    for (limit, len, expected) in [
        (None, SMALL_TRANSFER, Mechanism::ReadWrite),
        (None, SMALL_TRANSFER + 1, Mechanism::Sendfile),
        (Some(0), 1, Mechanism::Sendfile),
        (Some(1000), 1000, Mechanism::ReadWrite),
        (Some(1000), 1001, Mechanism::Sendfile),
        (Some(usize::MAX), 256 << 10, Mechanism::ReadWrite),
    ] {
        let options = match limit {
            Some(limit) => Options::default().max_small(limit),
            None => Options::default(),
        };
        let report = send(len, options);
        let moved = report.by(expected);
        assert_eq!(moved.bytes, len as u64, "{limit:?} {len}: {report:?}");
        // For a file in the buffer, the read and the send; the header has its own call only before
        // sendfile.
        if expected == Mechanism::ReadWrite {
            assert_eq!((moved.calls, report.memory().calls), (2, 0), "{limit:?} {len}: {report:?}");
        } else {
            assert!(moved.calls > 0 && report.memory().calls == 1, "{limit:?} {len}: {report:?}");
        }
    }
}

#[test]
fn a_required_mechanism_is_not_replaced_by_one_buffer() {
    let options =
        Options::default().max_small(usize::MAX).policy(Policy::Require(Mechanism::Sendfile));
    assert_eq!(send(100, options).by(Mechanism::Sendfile).bytes, 100);
}

#[test]
fn a_large_part_after_a_head_leaves_no_cork() {
    let len = 3 << 19;
    let (body, file, socket, mut peer) = ends(len);
    let version = Some(Version::of(&file).unwrap());
    let part = FilePart { file: &file, offset: 0, len, version };
    let mut report = Report::default();
    // Nobody reads yet, so the socket may take only a part.
    socket.set_nonblocking(true).unwrap();
    let sent = send_with_head(b"header", &part, &socket, &mut report).unwrap().unwrap();
    assert_eq!(tcp_cork(&socket), Ok(false));
    assert!(sent > 6 && report.by(Mechanism::Sendfile).bytes == sent as u64 - 6, "{report:?}");
    drop(socket);
    let mut got = Vec::new();
    peer.read_to_end(&mut got).unwrap();
    assert_eq!(got, [b"header".as_slice(), &body].concat()[..sent]);
}
