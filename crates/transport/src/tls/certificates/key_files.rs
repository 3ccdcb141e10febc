//! The files of a certificate, which may be renewed while a server runs.

use std::path::{Path, PathBuf};

use super::Identity;
use crate::tls::TlsError;

/// The files of a certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyFiles {
    certificates: PathBuf,
    key: PathBuf,
}

impl KeyFiles {
    /// Creates a value with the absolute paths, which name the same files after a change of folders.
    #[must_use]
    pub fn new(certificates: &Path, key: &Path) -> Self {
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        Self { certificates: absolute(certificates), key: absolute(key) }
    }

    /// Returns the file of the certificate.
    #[must_use]
    pub fn certificates(&self) -> &Path {
        &self.certificates
    }

    /// Returns both files.
    #[must_use]
    pub fn paths(&self) -> [PathBuf; 2] {
        [self.certificates.clone(), self.key.clone()]
    }

    /// Returns the folders of both files: those of their paths, and those that links lead to,
    /// because renewing a certificate replaces the file.
    #[must_use]
    pub fn folders(&self) -> Vec<PathBuf> {
        let mut folders = Vec::new();
        for path in [&*self.certificates, &*self.key] {
            let real = std::fs::canonicalize(path).ok();
            let paths = [Some(path), real.as_deref()].into_iter().flatten();
            for folder in paths.filter_map(Path::parent) {
                if !folders.iter().any(|known: &PathBuf| known == folder) {
                    folders.push(folder.to_owned());
                }
            }
        }
        folders
    }

    /// Reads the files.
    ///
    /// # Errors
    ///
    /// As [`Identity::load`].
    pub fn load(&self) -> Result<Identity, TlsError> {
        Identity::load(&self.certificates, &self.key)
    }

    /// Reads the files while the server runs.
    ///
    /// # Errors
    ///
    /// As [`Identity::load_again`].
    pub fn load_again(&self) -> Result<Identity, TlsError> {
        Identity::load_again(&self.certificates, &self.key)
    }
}
