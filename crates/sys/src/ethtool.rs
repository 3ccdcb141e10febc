//! Features of the driver of a network interface (`SIOCETHTOOL`).

use std::ffi::c_char;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::io::Errno;

use crate::last_errno;

/// The features of an interface: their names, and a bit for each, in the order of the names.
#[derive(Debug)]
pub struct Features {
    /// The names of the features.
    pub names: Vec<String>,
    /// Which features can be switched on.
    pub available: Vec<u32>,
    /// Which features are on.
    pub active: Vec<u32>,
}

/// Returns the features of an interface; any socket will do.
///
/// # Errors
///
/// As ioctl(2) for `SIOCETHTOOL`: `ENODEV` if there is no such interface, `EOPNOTSUPP` if its
/// driver cannot tell.
pub fn features(socket: impl AsFd, interface: &str) -> Result<Features, Errno> {
    let socket = socket.as_fd();
    // `ethtool_sset_info`: the number of names in one set.
    let mut info = [SSET_INFO, 0, 1 << FEATURES, 0, 0];
    query(socket, interface, &mut info)?;
    let count = info[4].min(MAX_FEATURES);
    // `ethtool_gstrings`, of which the kernel fills in as many as it has just reported.
    let mut strings = vec![0; 3 + MAX_FEATURES as usize * NAME / 4];
    strings[..3].copy_from_slice(&[STRINGS, FEATURES, count]);
    query(socket, interface, &mut strings)?;
    let bytes: Vec<u8> = strings[3..].iter().flat_map(|word| word.to_ne_bytes()).collect();
    let names = bytes.chunks(NAME).take(count as usize).map(|name| {
        let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(name).into_owned()
    });
    // `ethtool_gfeatures`, of which the kernel fills in no more blocks than requested.
    let blocks = count.div_ceil(32);
    let mut features = vec![0; 2 + 4 * blocks as usize];
    features[..2].copy_from_slice(&[GET_FEATURES, blocks]);
    query(socket, interface, &mut features)?;
    let column = |at: usize| features[2..].chunks(4).map(|block| block[at]).collect();
    Ok(Features { names: names.collect(), available: column(0), active: column(2) })
}

/// Sends the request in `words`, which then contain the answer.
fn query(socket: BorrowedFd<'_>, interface: &str, words: &mut [u32]) -> Result<(), Errno> {
    let mut name: [c_char; libc::IFNAMSIZ] = [0; libc::IFNAMSIZ];
    if interface.len() >= name.len() {
        return Err(Errno::NODEV);
    }
    for (to, from) in name.iter_mut().zip(interface.bytes()) {
        *to = from as c_char;
    }
    let data = libc::__c_anonymous_ifr_ifru { ifru_data: words.as_mut_ptr().cast() };
    let mut request = libc::ifreq { ifr_name: name, ifr_ifru: data };
    // SAFETY: the request names the interface by text that ends in a zero, and points to words that
    // are borrowed exclusively until the call returns. Only `features` calls this: each of its
    // requests has room for the longest answer. For names that is the number of features that the
    // kernel knows, a constant far below `MAX_FEATURES`. Proved by the tests of
    // `diagnose/src/probe/card.rs`.
    let result = unsafe {
        libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, std::ptr::from_mut(&mut request))
    };
    if result < 0 { Err(last_errno()) } else { Ok(()) }
}

/// From linux/sockios.h.
const SIOCETHTOOL: u32 = 0x8946;

// From linux/ethtool.h: requests, the requested set of names, and the length of each name.
const SSET_INFO: u32 = 0x37;
const STRINGS: u32 = 0x1b;
const GET_FEATURES: u32 = 0x3a;
const FEATURES: u32 = 4;
const NAME: usize = 32;

/// Room for the names of all features. `netdev_features_t` has 64 bits.
const MAX_FEATURES: u32 = 1024;
