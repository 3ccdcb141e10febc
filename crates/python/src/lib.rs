//! The Python module of underpass: `underpass._native`, the basis of the package in `python/`.
//!
//! It parses what Python passes, calls the other crates without holding the interpreter's lock, and
//! returns receipts as JSON. Names, types and documentation are in `python/src/underpass`.
//!
//! Each call goes the same way:
//!
//! 1. `options` and `http` parse the arguments; an invalid one raises a `ValueError` that names it,
//!    before anything is opened.
//! 2. `callbacks::run_with` runs the transfer on another thread. The calling thread lets Python
//!    handle signals and report the progress; an exception cancels the transfer, and is raised once
//!    that has cleaned up.
//! 3. An `outcome::Outcome` becomes a tuple of the receipt, the failure, its hint and the status of
//!    the server. The package raises the failure, with the receipt in it.

#![forbid(unsafe_code)]

mod callbacks;
mod copy;
mod get;
mod http;
mod options;
mod outcome;
mod put;
mod server;

/// The native part of underpass. Use the package `underpass`.
#[pyo3::pymodule(name = "_native")]
mod native {
    #[pymodule_export]
    use crate::callbacks::Cancel;
    #[pymodule_export]
    use crate::copy::copy;
    #[pymodule_export]
    use crate::get::{get, get_tree};
    #[pymodule_export]
    use crate::put::put;
    #[pymodule_export]
    use crate::server::Server;

    /// The version of the program and the module.
    #[pymodule_export]
    #[allow(non_upper_case_globals)] // the name is Python's
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
