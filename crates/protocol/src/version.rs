//! The metadata of a file from which validators and archives are made.

/// A time of a file, counted from the beginning of 1970; before that, `seconds` is negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileTime {
    /// The whole seconds.
    pub seconds: i64,
    /// The nanoseconds after them.
    pub nanoseconds: u32,
}

/// A version of a file, as fstat(2) describes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileVersion {
    /// The number of the file system.
    pub device: u64,
    /// The file's number on its file system.
    pub inode: u64,
    /// The size in bytes.
    pub size: u64,
    /// When the contents were last changed.
    pub modified: FileTime,
    /// When the file or its attributes were last changed.
    pub changed: FileTime,
    /// The number of names of the file; 0 once the last was removed.
    pub links: u64,
}
