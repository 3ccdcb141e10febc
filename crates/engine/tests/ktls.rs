//! TLS in the kernel, over connections within this process. Where the kernel has none, the tests
//! that need it say so and prove nothing; `rig/` runs this very program on kernels that have.
#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::TcpStream;

use rustix::io::Errno;
use underpass_engine::ktls::{self, Cipher, Direction, Keys, Record, Version};

/// A connection of which each end sends and receives by the same keys; `None`, and a word why, if
/// this kernel has no TLS.
fn pair() -> Option<(TcpStream, TcpStream)> {
    let (near, far) = ktls::loopback_pair().unwrap();
    match ktls::attach(&near) {
        Err(errno @ (Errno::NOENT | Errno::PERM | Errno::NOSYS)) => {
            eprintln!("left out: this kernel has no TLS ({errno:?})");
            return None;
        }
        attached => attached.unwrap(),
    }
    ktls::attach(&far).unwrap();
    for end in [&near, &far] {
        ktls::install(end, Direction::Send, &keys(&[1; 16])).unwrap();
        ktls::install(end, Direction::Receive, &keys(&[1; 16])).unwrap();
        end.set_nodelay(true).unwrap();
    }
    Some((near, far))
}

/// Fixed keys, the same for both directions.
fn keys(key: &[u8]) -> Keys<'_> {
    let (version, cipher) = (Version::Tls13, Cipher::Aes128Gcm);
    Keys { version, cipher, key, iv: &[2; 12], sequence: 0 }
}

#[test]
fn everything_is_data_on_a_socket_without_keys() {
    let (mut near, far) = ktls::loopback_pair().unwrap();
    near.write_all(b"plain").unwrap();
    let mut buffer = [0; 16];
    let all = Record { kind: ktls::DATA, len: 5 };
    assert_eq!(ktls::receive(&far, &mut buffer, true), Ok(all));
    assert_eq!(ktls::receive(&far, &mut buffer, false), Ok(all));
    assert_eq!(&buffer[..5], b"plain");
    drop(near);
    let end = Record { kind: ktls::DATA, len: 0 };
    assert_eq!(ktls::receive(&far, &mut buffer, false), Ok(end));
}

#[test]
fn an_alert_is_told_from_data() {
    let Some((mut near, mut far)) = pair() else { return };
    near.write_all(b"data").unwrap();
    assert_eq!(ktls::send_record(&near, 21, &[1, 0]), Ok(2));
    near.write_all(b"more").unwrap();
    let mut buffer = [0; 16];
    let data = Record { kind: ktls::DATA, len: 4 };
    assert_eq!(ktls::receive(&far, &mut buffer, true), Ok(data));
    assert_eq!(ktls::receive(&far, &mut buffer, false), Ok(data));
    assert_eq!(&buffer[..4], b"data");
    assert_eq!(ktls::receive(&far, &mut buffer, true), Ok(Record { kind: 21, len: 2 }));
    assert_eq!(ktls::receive(&far, &mut buffer, false), Ok(Record { kind: 21, len: 2 }));
    assert_eq!(buffer[..2], [1, 0]);
    far.read_exact(&mut buffer[..4]).unwrap();
    assert_eq!(&buffer[..4], b"more");
}

#[test]
fn a_record_of_another_key_is_refused() {
    if pair().is_none() {
        return;
    }
    let other = Keys { sequence: 7, ..keys(&[1; 16]) };
    let (mut sender, receiver) = ktls::loopback_pair().unwrap();
    ktls::attach(&sender).unwrap();
    ktls::attach(&receiver).unwrap();
    ktls::install(&sender, Direction::Send, &other).unwrap();
    ktls::install(&receiver, Direction::Receive, &keys(&[1; 16])).unwrap();
    sender.write_all(b"data").unwrap();
    assert_eq!(ktls::receive(&receiver, &mut [0; 16], false), Err(Errno::BADMSG));
}

#[test]
fn what_the_probe_finds_passes_the_self_test() {
    let support = ktls::probe().unwrap();
    for version in Version::ALL {
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
