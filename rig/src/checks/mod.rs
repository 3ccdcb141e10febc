//! The checks: each starts what it needs, and says what it saw.

mod plain;

use crate::place::Place;
use crate::{Outcome, Result};

/// One check.
#[derive(Debug)]
pub(crate) struct Check {
    /// Its name, for the command line and for what is printed.
    pub(crate) name: &'static str,
    /// What it does.
    pub(crate) run: fn(&Place) -> Result<Outcome>,
}

/// All of them, in the order in which they are run.
pub(crate) const CHECKS: &[Check] = &[Check { name: "plain", run: plain::run }];

const MIB: u64 = 1 << 20;
