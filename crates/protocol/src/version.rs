//! The metadata of a file from which validators and archives are made.

/// A version of a file, as fstat(2) describes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileVersion {
    /// The number of the file system.
    pub device: u64,
    /// The file's number on its file system.
    pub inode: u64,
    /// The size in bytes.
    pub size: u64,
    /// The time at which the contents were last changed: seconds and nanoseconds since 1970.
    pub modified: (i64, i64),
    /// The time at which the file or its attributes were last changed: seconds and nanoseconds
    /// since 1970.
    pub changed: (i64, i64),
    /// The number of names of the file; 0 once the last was removed.
    pub links: u64,
}
