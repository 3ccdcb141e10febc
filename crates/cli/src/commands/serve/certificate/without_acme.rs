//! Certificates from an authority in a program that was built without TLS: there are none.

use std::convert::Infallible;
use std::path::Path;

use underpass_sandbox::User;
use underpass_transport::tls::Identities;

use super::super::args::ServeArgs;
use crate::failure::{Failure, Result};

/// The certificates that an authority issues.
#[derive(Debug)]
pub(crate) struct Orders(Infallible);

impl Orders {
    /// Refuses `acme`, and otherwise returns nothing.
    pub(crate) fn open(
        args: &ServeArgs,
        _identities: &Identities,
        _has_default: bool,
        _user: Option<&User>,
    ) -> Result<Option<Self>> {
        match args.is_acme() {
            true => Err(Failure::value("acme", "this program was built without TLS")),
            false => Ok(None),
        }
    }

    /// Returns the folder to which this process has to write.
    pub(crate) fn folder(&self) -> &Path {
        match self.0 {}
    }

    /// Returns the port of the authority.
    pub(crate) fn port(&self) -> u16 {
        match self.0 {}
    }

    pub(crate) fn check(&self) -> Result<()> {
        match self.0 {}
    }

    pub(crate) fn control(&self) -> OrdersControl {
        match self.0 {}
    }

    pub(crate) fn announce(&self) {
        match self.0 {}
    }

    pub(crate) fn start(self, _has_http: bool, _is_quiet: bool) -> Result<()> {
        match self.0 {}
    }

    pub(crate) fn names(&self, _args: &ServeArgs) -> Result<OrderedNames> {
        match self.0 {}
    }

    pub(crate) fn check_root(&self, _root: &Path) -> Result<()> {
        match self.0 {}
    }

    pub(crate) fn replace(&self, names: OrderedNames) {
        match names.0 {}
    }
}

pub(crate) type OrdersControl = Orders;
pub(crate) type OrderedNames = Orders;
