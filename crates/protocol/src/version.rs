//! The metadata of a file from which validators and archives are made.

/// One version of a file, as fstat(2) describes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileVersion {
    /// The number of the file system.
    pub device: u64,
    /// The file's number on its file system.
    pub inode: u64,
    /// The size in bytes.
    pub size: u64,
    /// When the contents were last changed: seconds and nanoseconds since 1970.
    pub modified: (i64, i64),
    /// When the file or its facts were last changed: seconds and nanoseconds since 1970.
    pub changed: (i64, i64),
    /// How many names the file has; none once the last was removed.
    pub links: u64,
}
