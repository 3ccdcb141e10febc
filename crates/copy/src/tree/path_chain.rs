//! The names that lead to a folder.

use std::ffi::{CStr, CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::io::Errno;
use underpass_engine::wait::lock;

/// The names that lead to a folder and its copy. It outlives the descriptors, as names are cheap.
#[derive(Debug)]
pub(crate) struct PathChain {
    pub(crate) parent: Option<Arc<PathChain>>,
    /// The name of the source; a path for the topmost folder.
    pub(crate) source: CString,
    /// The name of the target; a path for the topmost folder.
    pub(crate) target: CString,
    /// The hidden name that the target has until its own entries are complete.
    pub(crate) hidden: Mutex<Option<CString>>,
    /// Whether it is above the sources: the top, and each folder of which only some entries are
    /// copied.
    pub(crate) is_above: bool,
}

impl PathChain {
    pub(crate) fn path(&self, name: impl Fn(&Self) -> Option<CString>) -> PathBuf {
        let mut names = Vec::new();
        let mut next = Some(self);
        while let Some(chain) = next {
            names.extend(name(chain));
            next = chain.parent.as_deref();
        }
        let mut path = PathBuf::new();
        for name in names.iter().rev().filter(|name| !name.is_empty() && name.as_c_str() != c".") {
            path.push(OsStr::from_bytes(name.to_bytes()));
        }
        path
    }

    /// Returns the path of an entry below the source that was named.
    pub(crate) fn path_below(&self, name: &CStr) -> Vec<u8> {
        let mut names = vec![name.to_bytes()];
        let mut next = Some(self);
        while let Some(chain) = next.filter(|chain| !chain.is_above) {
            names.push(chain.source.to_bytes());
            next = chain.parent.as_deref();
        }
        // The last name is that of the source itself.
        if names.len() > 1 {
            names.pop();
        }
        names.reverse();
        names.join(&b'/')
    }

    /// Returns the names that lead to the source, from the top; the first one is a path.
    pub(crate) fn sources(&self) -> Vec<CString> {
        let mut names = Vec::new();
        let mut next = Some(self);
        while let Some(chain) = next.filter(|chain| chain.parent.is_some()) {
            names.push(chain.source.clone());
            next = chain.parent.as_deref();
        }
        names.reverse();
        names
    }

    /// Returns the names that lead to the target now, from the top.
    pub(crate) fn names(&self) -> Vec<CString> {
        let mut names = Vec::new();
        let mut next = Some(self);
        while let Some(chain) = next.filter(|chain| chain.parent.is_some()) {
            let hidden = lock(&chain.hidden);
            names.push(hidden.as_ref().unwrap_or(&chain.target).clone());
            next = chain.parent.as_deref();
        }
        names.reverse();
        names
    }
}

/// Opens something by the [names](PathChain::names) of a target, and again if a folder above gets
/// its final name meanwhile.
pub(crate) fn open_named<T>(open: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
    for _ in 0..MAX_RENAMES {
        match open() {
            Err(Errno::NOENT) => thread::yield_now(),
            opened => return opened,
        }
    }
    open()
}

/// The number of attempts to open an entry that is being renamed. Each folder above is renamed
/// once.
const MAX_RENAMES: usize = 1000;

impl Drop for PathChain {
    fn drop(&mut self) {
        let mut above = self.parent.take();
        while let Some(mut chain) = above.and_then(Arc::into_inner) {
            above = chain.parent.take();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_trail_needs_no_deep_stack() {
        let mut chain: Option<Arc<PathChain>> = None;
        for _ in 0..200_000 {
            let (source, target, hidden) = (c"d".to_owned(), c"d".to_owned(), Mutex::default());
            chain = Some(Arc::new(PathChain {
                parent: chain,
                source,
                target,
                hidden,
                is_above: false,
            }));
        }
        assert!(chain.is_some_and(|chain| chain.names().len() == 199_999));
    }
}
