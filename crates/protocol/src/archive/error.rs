//! The errors of a layout.

/// The reason why an archive cannot be laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// A path is longer than the format allows.
    #[error("a path has more than {limit} bytes")]
    LongPath {
        /// The maximum length of a path in bytes.
        limit: usize,
    },
    /// The archive would be longer than a file can be.
    #[error("the archive would be longer than 8 EiB")]
    TooLarge,
    /// There are more members than can be counted.
    #[error("the archive has more than {limit} members")]
    TooMany {
        /// The number of members that were accepted.
        limit: usize,
    },
}
