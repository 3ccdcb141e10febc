//! Random bytes for tokens.

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// Returns bytes that cannot be guessed.
pub(crate) fn random_bytes() -> Result<[u8; 12], Errno> {
    let mut bytes = [0; 12];
    let mut filled = 0;
    while filled < bytes.len() {
        filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty())?;
    }
    Ok(bytes)
}
