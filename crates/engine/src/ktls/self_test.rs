//! Proves that kernel TLS carries bytes unchanged, and reports by which mechanism.

use std::fmt;
use std::fs::File;
use std::io;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;

use super::{
    Cipher, KeyDirection, RecordKeys, TlsRecord, TlsVersion, attach, install, loopback_pair,
    receive, send_record,
};
use crate::error::Error;
use crate::report::Report;
use crate::transfer::options::Options;
use crate::{Sink, Source, Transfer};

/// The result of a self-test.
#[derive(Clone, Debug)]
pub struct SelfTest {
    /// The mechanisms that moved bytes into the connection.
    pub sent: Report,
    /// The mechanisms that moved bytes out of the connection.
    pub received: Report,
    /// The duration of the self-test.
    pub elapsed: Duration,
}

/// Why a self-test failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum SelfTestError {
    /// No file or connection could be made for the test.
    Fixture(io::Error),
    /// The kernel refused the TLS keys.
    Refused(Errno),
    /// The transfer failed.
    Transfer(Error),
    /// The received bytes differ from those sent.
    Differs {
        /// The offset of the first wrong byte.
        at: u64,
    },
    /// Something other than the alert that was sent was received.
    Alert(Result<TlsRecord, Errno>),
}

/// Sends 384 KiB of a file through a connection over loopback that the kernel encrypts and
/// decrypts, into another file, compares them byte for byte, and sends an alert after them.
///
/// # Errors
///
/// See [`SelfTestError`].
pub fn self_test(version: TlsVersion, cipher: Cipher) -> Result<SelfTest, SelfTestError> {
    let started = Instant::now();
    let pattern: Vec<u8> = (0..LEN / 4).flat_map(|n: u32| mixed(n).to_ne_bytes()).collect();
    let (from, to) = (memory_file()?, memory_file()?);
    from.write_all_at(&pattern, 0)?;
    let (near, far) = encrypted_pair(version, cipher)?;
    let (mut sent, mut received) = (Report::default(), Report::default());
    // Pieces that fit into any socket buffer, so that one thread can send and receive in turn.
    for offset in (0..u64::from(LEN)).step_by(PIECE) {
        let source = Source::range(&from, offset, PIECE as u64);
        sent.add(&transfer(source, Sink::socket(&near))?);
        let source = Source::of(&far)?.len(PIECE as u64);
        received.add(&transfer(source, Sink::of(&to)?.at(offset))?);
    }
    let mut arrived = vec![0; pattern.len()];
    to.read_exact_at(&mut arrived, 0)?;
    if let Some(at) = pattern.iter().zip(&arrived).position(|(sent, got)| sent != got) {
        return Err(SelfTestError::Differs { at: at as u64 });
    }
    let alert =
        send_record(&near, ALERT, &CLOSE_NOTIFY).and_then(|_| receive(&far, &mut [0; 8], false));
    match alert {
        Ok(TlsRecord { kind: ALERT, len }) if len == CLOSE_NOTIFY.len() => {}
        other => return Err(SelfTestError::Alert(other)),
    }
    Ok(SelfTest { sent, received, elapsed: started.elapsed() })
}

/// Returns a connection with the same keys for sending at one end and for receiving at the other.
fn encrypted_pair(
    version: TlsVersion,
    cipher: Cipher,
) -> Result<(TcpStream, TcpStream), SelfTestError> {
    let (near, far) = loopback_pair()?;
    let key = [7; 32];
    let keys =
        RecordKeys { version, cipher, key: &key[..cipher.key_len()], iv: &[5; 12], sequence: 0 };
    for (end, direction) in [(&near, KeyDirection::Send), (&far, KeyDirection::Receive)] {
        attach(end)
            .and_then(|()| install(end, direction, &keys))
            .map_err(SelfTestError::Refused)?;
    }
    near.set_nodelay(true)?;
    far.set_read_timeout(Some(PATIENCE))?;
    Ok((near, far))
}

fn transfer<F: AsFd, S: AsFd>(source: Source<F>, sink: Sink<S>) -> Result<Report, SelfTestError> {
    let options = Options::default().timeout(PATIENCE);
    Transfer::new(source, sink).options(options).run().map_err(SelfTestError::Transfer)
}

fn memory_file() -> io::Result<File> {
    Ok(memfd_create("underpass-self-test", MemfdFlags::CLOEXEC)?.into())
}

/// Returns a pseudorandom number, so that no two parts of the data are alike.
fn mixed(n: u32) -> u32 {
    let n = (n ^ (n >> 16)).wrapping_mul(0x85eb_ca6b);
    n ^ (n >> 13)
}

impl From<io::Error> for SelfTestError {
    fn from(error: io::Error) -> Self {
        Self::Fixture(error)
    }
}

impl fmt::Display for SelfTestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = crate::error::errno::name;
        match self {
            Self::Fixture(error) => write!(f, "cannot set up the test: {error}"),
            Self::Refused(errno) => write!(f, "the kernel refused the keys ({})", name(*errno)),
            Self::Transfer(error) => write!(f, "{error}"),
            Self::Differs { at } => write!(f, "byte {at} differs from the one sent"),
            Self::Alert(Ok(record)) => {
                write!(f, "an alert arrived as {} bytes of type {}", record.len, record.kind)
            }
            Self::Alert(Err(errno)) => write!(f, "an alert did not arrive ({})", name(*errno)),
        }
    }
}

impl std::error::Error for SelfTestError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Fixture(error) => Some(error),
            Self::Transfer(error) => Some(error),
            _ => None,
        }
    }
}

/// The length of the test data: a dozen pieces.
const LEN: u32 = 384 << 10;

/// The length of two TLS records.
const PIECE: usize = 32 << 10;

/// The longest time without progress.
const PATIENCE: Duration = Duration::from_millis(500);

/// The record type, and the alert `close_notify`: RFC 8446 6.1.
const ALERT: u8 = 21;
const CLOSE_NOTIFY: [u8; 2] = [1, 0];
