//! TLS in the kernel, over connections within this process. Where the kernel has none, the tests
//! that need it are skipped with a message; `rig/` runs this program on kernels that have it.

#![allow(clippy::unwrap_used)]

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::net::sockopt;
use underpass_engine::Mechanism::{ReadWrite, Sendfile, Splice};
use underpass_engine::ktls::{self, Cipher, KeyDirection, RecordKeys, TlsRecord, TlsVersion};
use underpass_engine::{
    Chain, Error, Integrity, Mechanism, Options, Policy, RecordKind, Report, Sink, Source,
    TlsTransport, Transfer,
};

/// Returns a connection whose near end sends and whose far end receives with the same keys; prints
/// a message and returns `None` if this kernel has no TLS.
fn pair() -> Option<(TcpStream, TcpStream)> {
    let (near, far) = sending_pair()?;
    ktls::attach(&far).unwrap();
    ktls::install(&far, KeyDirection::Receive, &keys(&[1; 16])).unwrap();
    Some((near, far))
}

/// Does the same, but the far end gets the encrypted records.
fn sending_pair() -> Option<(TcpStream, TcpStream)> {
    let (near, far) = ktls::loopback_pair().unwrap();
    match ktls::attach(&near) {
        Err(errno @ (Errno::NOENT | Errno::PERM | Errno::NOSYS)) => {
            eprintln!("left out: this kernel has no TLS ({errno:?})");
            return None;
        }
        attached => attached.unwrap(),
    }
    ktls::install(&near, KeyDirection::Send, &keys(&[1; 16])).unwrap();
    near.set_nodelay(true).unwrap();
    far.set_read_timeout(Some(PATIENCE)).unwrap();
    Some((near, far))
}

/// Fixed keys.
fn keys(key: &[u8]) -> RecordKeys<'_> {
    let (version, cipher) = (TlsVersion::Tls13, Cipher::Aes128Gcm);
    RecordKeys { version, cipher, key, iv: &[2; 12], sequence: 0 }
}

/// The part of a TLS session that a transfer needs, without the session.
#[derive(Debug, Default)]
struct Glue {
    /// Messages that were neither data nor alerts.
    messages: Mutex<Vec<Vec<u8>>>,
    /// Bytes that the kernel was given to encrypt.
    sent: Mutex<usize>,
}

impl Glue {
    /// Takes the record at the front, which holds no data. `KeyUpdate` installs the other key.
    fn take(&self, socket: BorrowedFd<'_>) -> Result<RecordKind, Errno> {
        let mut message = vec![0; 1 << 14];
        let record = ktls::receive(socket, &mut message, false)?;
        message.truncate(record.len);
        if record.kind == ALERT {
            return if message == CLOSE_NOTIFY { Ok(RecordKind::End) } else { Err(Errno::PROTO) };
        }
        if message == KEY_UPDATE {
            ktls::install(socket, KeyDirection::Receive, &keys(&OTHER_KEY))?;
        }
        self.messages.lock().unwrap().push(message);
        Ok(RecordKind::Control)
    }
}

impl TlsTransport for Glue {
    fn is_in_kernel(&self) -> bool {
        true
    }

    fn send(&self, _: BorrowedFd<'_>, _: &[u8], _: bool) -> Result<usize, Errno> {
        unreachable!("the socket takes bytes itself")
    }

    fn flush(&self, _: BorrowedFd<'_>) -> Result<(), Errno> {
        Ok(())
    }

    fn receive(&self, socket: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<usize, Errno> {
        loop {
            match ktls::receive(socket, &mut [0], true)? {
                TlsRecord { kind: ktls::DATA, len: 0 } => return Err(Errno::CONNABORTED),
                TlsRecord { kind: ktls::DATA, .. } => {
                    return ktls::receive(socket, buffer, false).map(|record| record.len);
                }
                _ if self.take(socket)? == RecordKind::End => return Ok(0),
                _ => {}
            }
        }
    }

    fn take_control(&self, socket: BorrowedFd<'_>) -> Result<RecordKind, Errno> {
        match ktls::receive(socket, &mut [0], true)?.kind {
            ktls::DATA => Ok(RecordKind::Data),
            _ => self.take(socket),
        }
    }

    fn sent(&self, _: BorrowedFd<'_>, bytes: usize) -> Result<(), Errno> {
        *self.sent.lock().unwrap() += bytes;
        Ok(())
    }
}

/// A file in memory with these bytes.
fn file_with(bytes: &[u8]) -> File {
    let file = File::from(memfd_create("ktls", MemfdFlags::CLOEXEC).unwrap());
    file.write_all_at(bytes, 0).unwrap();
    file
}

fn bytes_in(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// Returns bytes that do not repeat within records and pages.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| ((at ^ (at >> 8) ^ (at >> 16)) % 251 + 1) as u8).collect()
}

/// Receives into a file, by these mechanisms, until the peer announces the end.
fn receive(far: &TcpStream, glue: &Glue, policy: Policy) -> (Result<Report, Error>, Vec<u8>) {
    let sink = file_with(b"");
    let options = Options::default().source_tls(glue).policy(policy).timeout(PATIENCE);
    let outcome =
        Transfer::new(Source::of(far).unwrap(), Sink::of(&sink).unwrap()).options(options).run();
    (outcome, bytes_in(&sink))
}

fn movers(report: &Report) -> Vec<Mechanism> {
    report.mechanisms().map(|(mechanism, _)| mechanism).collect()
}

/// The ways for bytes to enter user space or not, by policy.
const WAYS: [(Policy, Mechanism); 2] =
    [(Policy::Auto, Splice), (Policy::Require(ReadWrite), ReadWrite)];

const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
/// RFC 8446 6.1 and 4.6.3.
const CLOSE_NOTIFY: [u8; 2] = [1, 0];
const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];
const OTHER_KEY: [u8; 16] = [9; 16];
/// The bytes of a TLS 1.3 record besides its contents (RFC 8446 5.2): its type, and its
/// authentication tag.
const OVERHEAD: usize = 1 + 16;
/// Far longer than any wait here.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn everything_is_data_on_a_socket_without_keys() {
    let (mut near, far) = ktls::loopback_pair().unwrap();
    near.write_all(b"plain").unwrap();
    let mut buffer = [0; 16];
    let all = TlsRecord { kind: ktls::DATA, len: 5 };
    assert_eq!(ktls::receive(&far, &mut buffer, true), Ok(all));
    assert_eq!(ktls::receive(&far, &mut buffer, false), Ok(all));
    assert_eq!(&buffer[..5], b"plain");
    drop(near);
    let end = TlsRecord { kind: ktls::DATA, len: 0 };
    assert_eq!(ktls::receive(&far, &mut buffer, false), Ok(end));
}

#[test]
fn an_alert_is_distinguished_from_data() {
    let Some((mut near, mut far)) = pair() else { return };
    near.write_all(b"data").unwrap();
    assert_eq!(ktls::send_record(&near, 21, &[1, 0]), Ok(2));
    near.write_all(b"more").unwrap();
    let mut buffer = [0; 16];
    let data = TlsRecord { kind: ktls::DATA, len: 4 };
    assert_eq!(ktls::receive(&far, &mut buffer, true), Ok(data));
    assert_eq!(ktls::receive(&far, &mut buffer, false), Ok(data));
    assert_eq!(&buffer[..4], b"data");
    assert_eq!(ktls::receive(&far, &mut buffer, true), Ok(TlsRecord { kind: 21, len: 2 }));
    assert_eq!(ktls::receive(&far, &mut buffer, false), Ok(TlsRecord { kind: 21, len: 2 }));
    assert_eq!(buffer[..2], [1, 0]);
    far.read_exact(&mut buffer[..4]).unwrap();
    assert_eq!(&buffer[..4], b"more");
}

#[test]
fn a_record_of_another_key_is_refused() {
    let Some((mut near, far)) = sending_pair() else { return };
    ktls::attach(&far).unwrap();
    ktls::install(&far, KeyDirection::Receive, &keys(&OTHER_KEY)).unwrap();
    near.write_all(b"data").unwrap();
    assert_eq!(ktls::receive(&far, &mut [0; 16], false), Err(Errno::BADMSG));
}

#[test]
fn supported_ciphers_pass_the_self_test() {
    let support = ktls::probe().unwrap();
    for version in TlsVersion::ALL {
        for cipher in Cipher::ALL {
            let outcome = ktls::self_test(version, cipher);
            let is_supported = support.supports(version, cipher).is_ok();
            assert_eq!(outcome.is_ok(), is_supported, "{version:?} {cipher:?}: {outcome:?}");
            let Ok(proof) = outcome else { continue };
            assert_eq!(proof.sent.bytes(), 384 << 10);
            assert_eq!(proof.received.bytes(), 384 << 10);
            let bytes = proof.sent.user_space_bytes() + proof.received.user_space_bytes();
            assert_eq!(bytes, 0, "{proof:?}");
        }
    }
    if support.module.is_err() {
        eprintln!("left out: this kernel has no TLS");
    }
}

#[test]
fn a_file_passes_through_the_kernel_alone() {
    for (policy, mechanism) in WAYS {
        let Some((near, far)) = pair() else { return };
        // Partial writes, and a reader that is always behind.
        sockopt::set_socket_send_buffer_size(&near, 32 << 10).unwrap();
        let bytes = pattern((3 << 20) + 1);
        let file = file_with(&bytes);
        let sender = thread::spawn(move || {
            let glue = Glue::default();
            let options = Options::default().sink_tls(&glue).max_small(0).timeout(PATIENCE);
            let chain = Chain::new().bytes(&b"head"[..]).source(Source::of(&file).unwrap());
            let sink = Sink::of(&near).unwrap();
            let report = Transfer::new(chain, sink).options(options).run().unwrap();
            near.set_nonblocking(false).unwrap();
            assert_eq!(ktls::send_record(&near, ALERT, &CLOSE_NOTIFY), Ok(2));
            let sent = *glue.sent.lock().unwrap();
            (report, sent)
        });
        let (outcome, got) = receive(&far, &Glue::default(), policy);
        let (sent, received) = (sender.join().unwrap(), outcome.unwrap());
        assert!(got == [b"head", &bytes[..]].concat(), "other bytes by {mechanism}");
        assert_eq!(sent.1, bytes.len() + 4);
        assert_eq!((movers(&sent.0), sent.0.user_space_bytes()), (vec![Sendfile], 0));
        assert_eq!(movers(&received), [mechanism]);
        assert_eq!((sent.0.declined(), received.declined()), (&[][..], &[][..]));
    }
}

#[test]
fn records_without_data_are_handled_in_between() {
    for (policy, mechanism) in WAYS {
        let Some((mut near, far)) = pair() else { return };
        let ticket = [&[4, 0, 0, 40][..], &[6; 40]].concat();
        let bytes = pattern(40_000);
        for part in bytes.chunks(10_000) {
            near.write_all(part).unwrap();
            ktls::send_record(&near, HANDSHAKE, &ticket).unwrap();
        }
        ktls::send_record(&near, ALERT, &CLOSE_NOTIFY).unwrap();
        let glue = Glue::default();
        let (outcome, got) = receive(&far, &glue, policy);
        let report = outcome.unwrap();
        assert!(got == bytes, "other bytes by {mechanism}");
        assert_eq!((movers(&report), report.declined()), (vec![mechanism], &[][..]));
        assert_eq!(*glue.messages.lock().unwrap(), vec![ticket; 4]);
    }
}

#[test]
fn a_broken_connection_is_not_treated_as_complete() {
    for (policy, mechanism) in WAYS {
        let Some((mut near, far)) = pair() else { return };
        near.write_all(&pattern(40_000)).unwrap();
        drop(near);
        let (outcome, got) = receive(&far, &Glue::default(), policy);
        let Err(Error::Io { source, report, .. }) = outcome else { panic!("{outcome:?}") };
        assert_eq!(Errno::from_io_error(&source), Some(Errno::CONNABORTED), "{mechanism}");
        assert_eq!((report.bytes(), got == pattern(40_000)), (40_000, true));
    }
}

#[test]
fn keys_are_changed_where_the_kernel_can() {
    for (policy, mechanism) in WAYS {
        let Some((mut near, far)) = pair() else { return };
        let bytes = pattern(60_000);
        near.write_all(&bytes[..30_000]).unwrap();
        ktls::send_record(&near, HANDSHAKE, &KEY_UPDATE).unwrap();
        let changed = ktls::install(&near, KeyDirection::Send, &keys(&OTHER_KEY));
        if !ktls::probe().unwrap().can_change_keys() {
            assert_eq!(changed, Err(Errno::BUSY));
            let (outcome, got) = receive(&far, &Glue::default(), policy);
            let Err(Error::Io { source, .. }) = outcome else { panic!("{outcome:?}") };
            assert_eq!(Errno::from_io_error(&source), Some(Errno::BUSY));
            assert!(got == bytes[..30_000], "other bytes by {mechanism}");
            continue;
        }
        changed.unwrap();
        near.write_all(&bytes[30_000..]).unwrap();
        ktls::send_record(&near, ALERT, &CLOSE_NOTIFY).unwrap();
        let glue = Glue::default();
        let (outcome, got) = receive(&far, &glue, policy);
        assert_eq!(movers(&outcome.unwrap()), [mechanism]);
        assert!(got == bytes, "other bytes by {mechanism}");
        assert_eq!(*glue.messages.lock().unwrap(), [KEY_UPDATE]);
    }
}

#[test]
fn a_header_and_its_file_are_one_record() {
    let Some((near, mut far)) = sending_pair() else { return };
    let file = file_with(&pattern(5_000));
    let chain = Chain::new().bytes(pattern(100)).source(Source::of(&file).unwrap());
    let glue = Glue::default();
    let options = Options::default().sink_tls(&glue).max_small(0);
    let report = Transfer::new(chain, Sink::of(&near).unwrap()).options(options).run().unwrap();
    assert_eq!(movers(&report), [Sendfile]);
    let mut header = [0; 5];
    far.read_exact(&mut header).unwrap();
    assert_eq!(header[..3], [ktls::DATA, 3, 3]);
    assert_eq!(usize::from(u16::from_be_bytes([header[3], header[4]])), 5_100 + OVERHEAD);
}

#[test]
fn sent_bytes_do_not_change_with_the_file() {
    let Some((near, far)) = pair() else { return };
    // A card may be allowed to read pages later: there is none.
    let allowed = ktls::set_zero_copy(&near);
    assert!(matches!(allowed, Ok(()) | Err(Errno::NOPROTOOPT)), "{allowed:?}");
    let file = file_with(&pattern(20_000));
    let glue = Glue::default();
    let options = Options::default().sink_tls(&glue).integrity(Integrity::Detect);
    let source = Source::of(&file).unwrap();
    // Nothing has been read yet when it is done.
    let report = Transfer::new(source, Sink::of(&near).unwrap()).options(options).run().unwrap();
    assert_eq!(movers(&report), [Sendfile]);
    file.write_all_at(&[0; 20_000], 0).unwrap();
    near.set_nonblocking(false).unwrap();
    ktls::send_record(&near, ALERT, &CLOSE_NOTIFY).unwrap();
    let (outcome, got) = receive(&far, &Glue::default(), Policy::Auto);
    assert_eq!(outcome.unwrap().bytes(), 20_000);
    assert!(got == pattern(20_000), "the file was sent by reference");
}

#[test]
fn a_peer_that_reads_slowly_gets_whole_records() {
    let Some((near, mut far)) = sending_pair() else { return };
    sockopt::set_socket_recv_buffer_size(&far, 16 << 10).unwrap();
    let len = (512 << 10) + 1;
    let sender = thread::spawn(move || {
        let (file, glue) = (file_with(&pattern(len)), Glue::default());
        let options = Options::default().sink_tls(&glue).timeout(PATIENCE);
        let source = Source::of(&file).unwrap();
        let report = Transfer::new(source, Sink::of(&near).unwrap()).options(options).run();
        near.set_nonblocking(false).unwrap();
        ktls::send_record(&near, ALERT, &CLOSE_NOTIFY).unwrap();
        report.unwrap()
    });
    let (mut header, mut held) = ([0; 5], 0);
    while far.read_exact(&mut header).is_ok() {
        let len = usize::from(u16::from_be_bytes([header[3], header[4]]));
        far.read_exact(&mut vec![0; len]).unwrap();
        held += len - OVERHEAD;
        thread::sleep(Duration::from_micros(500));
    }
    assert_eq!(held, len + CLOSE_NOTIFY.len());
    assert_eq!(movers(&sender.join().unwrap()), [Sendfile]);
}
