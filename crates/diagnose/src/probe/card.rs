//! Offloads of a network card, as reported by its driver (`SIOCETHTOOL`, linux/ethtool.h).
//!
//! Unless the card gathers the parts of a packet from memory (scatter-gather) and adds the
//! checksums, the kernel has to copy the pages that sendfile(2) passes by reference.

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use underpass_sys::{self as sys, Features};

/// The offloads of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offloads {
    features: Vec<(String, Offload)>,
}

/// The state of one offload of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// It is on.
    On,
    /// It is available but switched off.
    Off,
    /// It is not available.
    Absent,
}

impl Offloads {
    /// Returns the offloads that the driver of an interface reports.
    ///
    /// # Errors
    ///
    /// `ENODEV` if there is no such interface, `EOPNOTSUPP` if its driver cannot tell, and as
    /// socket(2) and ioctl(2), which filters of system calls may refuse.
    pub fn of(interface: &str) -> Result<Self, Errno> {
        // Any socket works for any interface.
        let open = |family| socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
        let socket = open(AddressFamily::INET)
            .or_else(|errno| open(AddressFamily::UNIX).map_err(|_| errno))?;
        let Features { names, available, active } = sys::features(&socket, interface)?;
        let has = |words: &[u32], bit: usize| {
            words.get(bit / 32).is_some_and(|word| word >> (bit % 32) & 1 == 1)
        };
        let features = names.into_iter().enumerate().map(|(bit, name)| {
            let offload = match (has(&active, bit), has(&available, bit)) {
                (true, _) => Offload::On,
                (false, true) => Offload::Off,
                (false, false) => Offload::Absent,
            };
            (name, offload)
        });
        Ok(Self { features: features.collect() })
    }

    /// Creates the offloads of an interface from the names and states of its features.
    #[must_use]
    pub fn new(features: Vec<(String, Offload)>) -> Self {
        Self { features }
    }

    /// Returns one feature, by the name that ethtool(8) shows such as `tx-scatter-gather`; absent
    /// if the kernel has none of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Offload {
        self.best(|known| known == name)
    }

    /// Returns the best state of all features whose names pass.
    #[must_use]
    pub fn best(&self, mut passes: impl FnMut(&str) -> bool) -> Offload {
        let found = self.features.iter().filter(|(name, _)| passes(name));
        found.map(|&(_, offload)| offload).fold(Offload::Absent, |best, each| match (best, each) {
            (Offload::On, _) | (_, Offload::On) => Offload::On,
            (Offload::Off, _) | (_, Offload::Off) => Offload::Off,
            _ => Offload::Absent,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_gathers_and_never_needs_a_checksum() {
        let offloads = Offloads::of("lo").unwrap();
        assert_eq!(offloads.get("tx-scatter-gather"), Offload::On, "{offloads:?}");
        assert_eq!(offloads.get("loopback"), Offload::On, "{offloads:?}");
        assert_eq!(offloads.get("no such thing"), Offload::Absent);
        let names = offloads.features.iter().filter(|(name, _)| name.starts_with("tx-"));
        assert!(names.count() > 5, "{offloads:?}");
    }

    #[test]
    fn an_interface_that_is_not_there_is_an_error() {
        assert_eq!(Offloads::of("nosuch0"), Err(Errno::NODEV));
        assert_eq!(Offloads::of("a-name-that-is-too-long"), Err(Errno::NODEV));
    }

    #[test]
    fn the_best_of_several_offloads_counts() {
        let features = [("a", Offload::Absent), ("b", Offload::Off), ("c", Offload::On)];
        let features = features.map(|(name, offload)| (name.to_owned(), offload));
        let offloads = Offloads::new(features.to_vec());
        assert_eq!(offloads.best(|name| name != "c"), Offload::Off);
        assert_eq!(offloads.best(|_| true), Offload::On);
        assert_eq!(offloads.best(|_| false), Offload::Absent);
    }
}
