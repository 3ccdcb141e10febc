//! The metadata of a file from which validators and archives are made.

/// A time of a file, counted from the beginning of 1970; before that, `seconds` is negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileTime {
    /// The whole seconds.
    pub seconds: i64,
    /// The nanoseconds after them.
    pub nanoseconds: u32,
}

/// A version of a file, as fstat(2) describes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FileVersion {
    /// The device number of the file system (`st_dev`).
    pub device: u64,
    /// The inode number (`st_ino`).
    pub inode: u64,
    /// The size in bytes.
    pub size: u64,
    /// The modification time (`st_mtime`).
    pub modified: FileTime,
    /// The change time (`st_ctime`).
    pub changed: FileTime,
    /// The number of hard links (`st_nlink`); 0 once the last name was removed.
    pub links: u64,
}
