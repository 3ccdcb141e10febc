//! Random bytes for tokens.

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// Returns bytes that cannot be guessed.
pub(crate) fn random_bytes<const N: usize>() -> Result<[u8; N], Errno> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < bytes.len() {
        filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty())?;
    }
    Ok(bytes)
}
