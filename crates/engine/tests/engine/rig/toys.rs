//! TLS transports without cryptography: one that makes records in user space and is as awkward as
//! allowed, and one that claims that the kernel encrypts.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Mutex;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use underpass_engine::{RecordKind, TlsTransport};

/// A cipher that reveals bytes which arrive twice, not at all or in the wrong order: each is mixed
/// with its position in the stream.
fn mix(bytes: &mut [u8], place: &mut u64) {
    for byte in bytes {
        *byte ^= (*place ^ (*place >> 8) ^ 0x5a) as u8;
        *place += 1;
    }
}

/// Makes a record: its length in two bytes, then its bytes. An empty record marks the end.
fn record(bytes: &[u8], place: &mut u64) -> Vec<u8> {
    let mut record = u16::try_from(bytes.len()).unwrap().to_be_bytes().to_vec();
    record.extend(bytes);
    mix(&mut record[2..], place);
    record
}

/// Splits the bytes into records of random lengths, with an end record if `has_end`.
pub(crate) fn records_of(bytes: &[u8], seed: u64, has_end: bool) -> Vec<u8> {
    let (mut chance, mut place) = (Chance::new(seed), 0);
    let (mut rest, mut out) = (bytes, Vec::new());
    while !rest.is_empty() {
        let (part, behind) = rest.split_at(chance.up_to(rest.len().min(5_000)));
        out.extend(record(part, &mut place));
        rest = behind;
    }
    if has_end {
        out.extend(record(&[], &mut place));
    }
    out
}

/// Returns the contents of these records. A partial record is an error.
pub(crate) fn bytes_of(mut records: &[u8]) -> Vec<u8> {
    let (mut out, mut place) = (Vec::new(), 0);
    while let Some((len, rest)) = records.split_first_chunk() {
        let (bytes, behind) = rest.split_at(u16::from_be_bytes(*len).into());
        let from = out.len();
        out.extend(bytes);
        mix(&mut out[from..], &mut place);
        records = behind;
    }
    assert!(records.is_empty(), "half a record");
    out
}

/// A pseudorandom sequence, the same for the same seed.
#[derive(Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// Returns a number from 1 to `most`, or 1.
    pub(crate) fn up_to(&mut self, most: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % most.max(1) as u64).unwrap() + 1
    }

    fn coin(&mut self) -> bool {
        self.up_to(2) == 1
    }
}

/// A user-space TLS transport. It accepts only part of the bytes, hands only part of those to the
/// socket, and is not ready at random times.
#[derive(Debug)]
pub(crate) struct Toy(Mutex<Inside>);

#[derive(Debug)]
struct Inside {
    chance: Chance,
    /// Whether it accepts and gives all there is, and is ready if the socket is.
    is_straight: bool,
    sent: u64,
    /// Records that the socket has not accepted.
    pending: Vec<u8>,
    received: u64,
    raw: VecDeque<u8>,
    plain: VecDeque<u8>,
    has_ended: bool,
}

impl Toy {
    /// Creates a transport that is awkward in a way determined by the seed.
    pub(crate) fn awkward(seed: u64) -> Self {
        Self::new(seed, false)
    }

    /// Creates a transport that does as requested.
    pub(crate) fn straight() -> Self {
        Self::new(1, true)
    }

    fn new(seed: u64, is_straight: bool) -> Self {
        Self(Mutex::new(Inside {
            chance: Chance::new(seed),
            is_straight,
            sent: 0,
            pending: Vec::new(),
            received: 0,
            raw: VecDeque::new(),
            plain: VecDeque::new(),
            has_ended: false,
        }))
    }

    /// Returns how many bytes of records the socket has not accepted.
    pub(crate) fn pending(&self) -> usize {
        self.0.lock().unwrap().pending.len()
    }
}

impl Inside {
    fn is_moody(&mut self) -> bool {
        !self.is_straight && self.chance.coin()
    }

    fn some_of(&mut self, most: usize) -> usize {
        if self.is_straight { most } else { self.chance.up_to(most) }
    }

    /// Gives the socket some of the pending records, or all that it accepts.
    fn push(&mut self, socket: BorrowedFd<'_>, all: bool) -> Result<(), Errno> {
        while !self.pending.is_empty() {
            let most = if all { self.pending.len() } else { self.some_of(self.pending.len()) };
            let len = send(socket, &self.pending[..most], SendFlags::NOSIGNAL)?;
            self.pending.drain(..len);
            if !all && !self.is_straight {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Opens the record at the front, if it is complete.
    fn open(&mut self) -> bool {
        let (Some(high), Some(low)) = (self.raw.front(), self.raw.get(1)) else { return false };
        let len = usize::from(u16::from_be_bytes([*high, *low]));
        if self.raw.len() < 2 + len {
            return false;
        }
        let mut bytes: Vec<u8> = self.raw.drain(..2 + len).skip(2).collect();
        mix(&mut bytes, &mut self.received);
        self.has_ended = bytes.is_empty();
        self.plain.extend(bytes);
        true
    }
}

impl TlsTransport for Toy {
    fn is_in_kernel(&self) -> bool {
        false
    }

    fn send(&self, socket: BorrowedFd<'_>, bytes: &[u8], _more: bool) -> Result<usize, Errno> {
        let mut inside = self.0.lock().unwrap();
        if inside.is_moody() {
            return Err(Errno::AGAIN);
        }
        inside.push(socket, true)?;
        let most = bytes.len().min(60_000);
        let taken = inside.some_of(most);
        let mut place = inside.sent;
        inside.pending = record(&bytes[..taken], &mut place);
        inside.sent = place;
        match inside.push(socket, false) {
            Ok(()) | Err(Errno::AGAIN) => Ok(taken),
            Err(errno) => Err(errno),
        }
    }

    fn flush(&self, socket: BorrowedFd<'_>) -> Result<(), Errno> {
        let mut inside = self.0.lock().unwrap();
        inside.push(socket, false)?;
        if inside.pending.is_empty() { Ok(()) } else { Err(Errno::AGAIN) }
    }

    fn receive(&self, socket: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<usize, Errno> {
        let mut inside = self.0.lock().unwrap();
        while inside.plain.is_empty() {
            if inside.has_ended {
                return Ok(0);
            }
            if inside.open() {
                continue;
            }
            // Only bytes in the socket wake a waiting caller.
            if inside.is_moody() {
                return Err(Errno::AGAIN);
            }
            let mut some = vec![0; inside.some_of(9_000)];
            let (len, _) = recv(socket, &mut some[..], RecvFlags::empty())?;
            if len == 0 {
                return Err(Errno::CONNABORTED);
            }
            inside.raw.extend(&some[..len]);
        }
        let len = buffer.len().min(inside.plain.len());
        let len = inside.some_of(len);
        for (byte, plain) in buffer.iter_mut().zip(inside.plain.drain(..len)) {
            *byte = plain;
        }
        Ok(len)
    }

    fn take_control(&self, _: BorrowedFd<'_>) -> Result<RecordKind, Errno> {
        unreachable!("nothing of it is in the kernel")
    }

    fn sent(&self, _: BorrowedFd<'_>, _: usize) -> Result<(), Errno> {
        unreachable!("nothing of it is in the kernel")
    }
}

/// A TLS transport that claims that the kernel encrypts: the socket is plain, and it does nothing.
#[derive(Debug, Default)]
pub(crate) struct KernelToy {
    /// The results of checking the front, in order; data after the last.
    fronts: Mutex<VecDeque<Result<RecordKind, Errno>>>,
    /// The number of checks.
    asked: Mutex<usize>,
    /// The bytes that the kernel accepted, call by call.
    sent: Mutex<Vec<usize>>,
    /// The number of bytes after which the key has reached its limit.
    worn_after: Option<usize>,
    /// Whether a network card encrypts the pages themselves.
    is_by_reference: bool,
}

impl KernelToy {
    pub(crate) fn with_fronts(fronts: impl IntoIterator<Item = Result<RecordKind, Errno>>) -> Self {
        Self { fronts: Mutex::new(fronts.into_iter().collect()), ..Self::default() }
    }

    pub(crate) fn worn_after(bytes: usize) -> Self {
        Self { worn_after: Some(bytes), ..Self::default() }
    }

    pub(crate) fn by_reference() -> Self {
        Self { is_by_reference: true, ..Self::default() }
    }

    pub(crate) fn asked(&self) -> usize {
        *self.asked.lock().unwrap()
    }

    pub(crate) fn taken(&self) -> Vec<usize> {
        self.sent.lock().unwrap().clone()
    }
}

impl TlsTransport for KernelToy {
    fn is_in_kernel(&self) -> bool {
        true
    }

    fn copies(&self) -> bool {
        !self.is_by_reference
    }

    fn send(&self, _: BorrowedFd<'_>, _: &[u8], _: bool) -> Result<usize, Errno> {
        unreachable!("the socket takes bytes itself")
    }

    fn flush(&self, _: BorrowedFd<'_>) -> Result<(), Errno> {
        Ok(())
    }

    fn receive(&self, socket: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<usize, Errno> {
        recv(socket, buffer, RecvFlags::empty()).map(|(len, _)| len)
    }

    fn take_control(&self, _: BorrowedFd<'_>) -> Result<RecordKind, Errno> {
        *self.asked.lock().unwrap() += 1;
        self.fronts.lock().unwrap().pop_front().unwrap_or(Ok(RecordKind::Data))
    }

    fn sent(&self, _: BorrowedFd<'_>, bytes: usize) -> Result<(), Errno> {
        let mut sent = self.sent.lock().unwrap();
        sent.push(bytes);
        let is_worn = self.worn_after.is_some_and(|most| sent.iter().sum::<usize>() > most);
        if is_worn { Err(Errno::KEYEXPIRED) } else { Ok(()) }
    }
}
