//! The folder with the account and the certificates, which outlive the process.
//!
//! Each certificate authority has a separate folder beneath it. Only the user of the process can
//! read the files, and each is replaced atomically and synced.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use underpass_client::Url;
use underpass_engine::atomic_file::{AtomicFile, Existing};

use crate::error::{AcmeError, Result};

/// The folder of one certificate authority.
#[derive(Debug)]
pub(crate) struct StateFolder {
    /// The folder of all certificate authorities.
    top: PathBuf,
    /// The folder of this one.
    path: PathBuf,
}

impl StateFolder {
    /// Opens or creates the folder of the certificate authority with this directory.
    pub(crate) fn open(top: &Path, directory: &Url) -> Result<Self> {
        create_folder(top)?;
        let top = fs::canonicalize(top).map_err(fail("opening", top))?;
        let path = top.join(folder_name(directory));
        create_folder(&path)?;
        Ok(Self { top, path })
    }

    /// Returns the absolute path of the folder of all certificate authorities.
    pub(crate) fn top(&self) -> &Path {
        &self.top
    }

    /// Returns the path of the file with the certificate of a name.
    pub(crate) fn certificate(&self, name: &str) -> PathBuf {
        self.path.join(format!("{name}.pem"))
    }

    /// Returns the certificate of a name and its key, as PEM; `None` if there is none.
    pub(crate) fn read_certificate(&self, name: &str) -> Result<Option<Vec<u8>>> {
        read(&self.certificate(name))
    }

    /// Returns the account; `None` if there is none.
    pub(crate) fn read_account(&self) -> Result<Option<Vec<u8>>> {
        read(&self.path.join(ACCOUNT))
    }

    /// Stores the certificate of a name and its key.
    pub(crate) fn write_certificate(&self, name: &str, pem: &[u8]) -> Result<()> {
        write(&self.certificate(name), pem)
    }

    /// Stores the account.
    pub(crate) fn write_account(&self, bytes: &[u8]) -> Result<()> {
        write(&self.path.join(ACCOUNT), bytes)
    }

    /// Removes the account, which the certificate authority does not know.
    pub(crate) fn remove_account(&self) -> Result<()> {
        let path = self.path.join(ACCOUNT);
        fs::remove_file(&path).map_err(fail("removing", &path))
    }

    /// Waits until no other process orders a certificate from this certificate authority; the lock
    /// is held until the file is dropped.
    pub(crate) fn lock(&self) -> Result<File> {
        let path = self.path.join(LOCK);
        let mut options = File::options();
        options.write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(&path).map_err(fail("opening", &path))?;
        loop {
            match flock(&file, FlockOperation::LockExclusive) {
                Ok(()) => return Ok(file),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(fail("locking", &path)(errno.into())),
            }
        }
    }

    /// Checks that this process can write to the folder.
    pub(crate) fn check(&self) -> Result<()> {
        let path = self.path.join(LOCK);
        let probe = AtomicFile::create(&path, 0o600);
        probe.map(drop).map_err(fail("writing to", &self.path))
    }
}

/// Creates a folder that only its owner can use, and its missing parents.
fn create_folder(path: &Path) -> Result<()> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(fail("creating", path))
}

fn read(path: &Path) -> Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(fail("reading", path))?,
    };
    let mut bytes = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut bytes).map_err(fail("reading", path))?;
    Ok(Some(bytes))
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let written = AtomicFile::create(path, 0o600).and_then(|file| {
        file.file().write_all(bytes)?;
        file.durable().commit(Existing::Replace)
    });
    written.map_err(fail("writing", path))
}

fn fail(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> AcmeError {
    let path = path.to_owned();
    move |source| AcmeError::Folder { action, path, source }
}

/// Returns the name of the folder of a certificate authority: host, port and path of its directory.
pub(crate) fn folder_name(directory: &Url) -> String {
    let port = directory.port().map(|port| format!("-{port}")).unwrap_or_default();
    let path = directory.path().trim_end_matches('/');
    let name = format!("{}{port}{path}", directory.host_str().unwrap_or_default());
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    name.chars().map(|c| if is_plain(c) { c } else { '-' }).take(MAX_NAME).collect()
}

const ACCOUNT: &str = "account.json";

const LOCK: &str = "lock";

/// The largest file that is read, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// The longest name of a folder, in bytes.
const MAX_NAME: usize = 200;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn state_files_are_complete_and_private() {
        let temporary = tempfile::tempdir().unwrap();
        let top = temporary.path().join("a/b");
        let directory = Url::parse("https://ca.example:14000/dir").unwrap();
        let state = StateFolder::open(&top, &directory).unwrap();
        let canonical = fs::canonicalize(&top).unwrap();
        assert_eq!(state.path, canonical.join("ca.example-14000-dir"));
        assert_eq!(state.read_certificate("a.example").unwrap(), None);
        state.write_certificate("a.example", b"old, and longer").unwrap();
        state.write_certificate("a.example", b"new").unwrap();
        state.check().unwrap();
        drop(state.lock().unwrap());
        assert_eq!(state.read_certificate("a.example").unwrap().unwrap(), b"new");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&state.certificate("a.example")), 0o600);
        assert_eq!(mode(&top), 0o700);
        assert_eq!(mode(&state.path), 0o700);
        assert_eq!(mode(&state.path.join(LOCK)), 0o600);
    }
}
