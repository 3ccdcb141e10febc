//! Attributes an error in the middle of a body to the origin, the network or the disk.

use rustix::io::Errno;
use underpass_client::is_of_network;
use underpass_engine::Error;
use underpass_transport::incoming::ReceiveError;

use crate::error::{CacheError, CacheErrorKind, ConnectionFault, ResponseFault};

/// Classifies an error in the middle of a body.
pub(super) fn error_of(error: ReceiveError, is_relay: bool) -> CacheError {
    let kind = match &error {
        ReceiveError::Engine(error) => match &**error {
            Error::Io { source, .. } => match Errno::from_io_error(source) {
                Some(Errno::NOSPC | Errno::DQUOT) => CacheErrorKind::NoRoom,
                // Writing to a file never fails with EPIPE, so the socket did.
                Some(Errno::PIPE) if !is_relay => ConnectionFault::CutOff.into(),
                Some(Errno::TIMEDOUT) => ConnectionFault::TimedOut.into(),
                _ if is_of_network(source) => ConnectionFault::CutOff.into(),
                _ => CacheErrorKind::Disk,
            },
            _ => CacheErrorKind::Disk,
        },
        ReceiveError::Chunk(_) | ReceiveError::TooLong => ResponseFault::Invalid.into(),
        ReceiveError::Stalled | ReceiveError::Late => ConnectionFault::TimedOut.into(),
        _ => ConnectionFault::CutOff.into(),
    };
    CacheError::new(kind, error)
}

#[cfg(test)]
mod tests {
    use underpass_engine::Report;

    use super::*;

    #[test]
    fn errors_of_the_disk_are_distinguished_from_those_of_the_origin() {
        for (errno, is_relay, expected) in [
            (Errno::CONNRESET, false, ConnectionFault::CutOff.into()),
            (Errno::HOSTUNREACH, false, ConnectionFault::CutOff.into()),
            (Errno::NETUNREACH, true, ConnectionFault::CutOff.into()),
            (Errno::TIMEDOUT, false, ConnectionFault::TimedOut.into()),
            // TLS errors are detected before, so this is a corrupt block.
            (Errno::BADMSG, false, CacheErrorKind::Disk),
            (Errno::PIPE, false, ConnectionFault::CutOff.into()),
            (Errno::PIPE, true, CacheErrorKind::Disk),
            (Errno::IO, false, CacheErrorKind::Disk),
            (Errno::NOSPC, false, CacheErrorKind::NoRoom),
            (Errno::DQUOT, false, CacheErrorKind::NoRoom),
        ] {
            let report = Box::new(Report::default());
            let error = Error::Io { mechanism: None, source: errno.into(), report };
            let error = ReceiveError::Engine(Box::new(error));
            assert_eq!(error_of(error, is_relay).kind(), expected, "{errno}");
        }
    }
}
