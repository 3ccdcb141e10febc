//! The number of connections that this process may have.

use underpass_server::max_connections;

use super::super::args::OptionsError;
use crate::failure::Result;

/// Returns how many simultaneous connections `descriptors` allow for, or an error if more were
/// requested. The default leaves room for everything that connections open.
pub(super) fn connections(
    requested: Option<u32>,
    descriptors: u64,
    workers: usize,
) -> Result<usize> {
    let allowed = max_connections(descriptors, workers);
    let number = match requested {
        None => (allowed / 10 * 3).clamp(1, DEFAULT_CONNECTIONS),
        Some(requested) if u64::from(requested) <= allowed => u64::from(requested),
        Some(requested) => {
            return Err(OptionsError::Descriptors { requested, descriptors, allowed }.into());
        }
    };
    Ok(usize::try_from(number).unwrap_or(usize::MAX))
}

/// Returns the limit of connections for one address, if there is one: unless another number is
/// requested, half of all.
pub(super) fn per_address(requested: Option<u32>, connections: usize) -> Option<usize> {
    match requested {
        None => Some(connections.div_ceil(2)),
        Some(0) => None,
        Some(requested) => Some(usize::try_from(requested).unwrap_or(usize::MAX)),
    }
}

/// Returns the number of objects that each of some caches may have in memory.
pub(super) fn cached_objects(descriptors: u64, caches: usize) -> usize {
    let all = usize::try_from(descriptors / 16).unwrap_or(usize::MAX).min(MAX_CACHED);
    (all / caches.max(1)).max(1)
}

/// The maximum number of objects that all caches together have in memory.
const MAX_CACHED: usize = 2048;

/// The largest default; more needs an explicit choice.
const DEFAULT_CONNECTIONS: u64 = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_fits_the_limit() {
        assert_eq!(connections(None, 4096, 2).ok(), Some(1164));
        assert_eq!(connections(None, u64::MAX, 2).ok(), Some(65_536));
        assert_eq!(connections(None, 1, 2).ok(), Some(1));
        assert_eq!([1024, 1 << 20].map(|descriptors| cached_objects(descriptors, 2)), [32, 1024]);
    }

    #[test]
    fn an_address_has_half_of_the_connections_by_default() {
        assert_eq!(per_address(None, 101), Some(51));
        assert_eq!(per_address(None, 1), Some(1));
        assert_eq!(per_address(Some(7), 100), Some(7));
        assert_eq!(per_address(Some(0), 100), None);
    }

    #[test]
    fn more_than_the_limit_allows_are_refused() {
        assert_eq!(connections(Some(3888), 4096, 2).ok(), Some(3888));
        assert!(connections(Some(3889), 4096, 2).is_err());
    }
}
