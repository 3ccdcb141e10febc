//! What `doctor` reports about TLS in the kernel.

use crate::place::Place;
use crate::program::run;
use crate::{Outcome, Result};

/// It reports whether the kernel has TLS and, if not, how to get it.
pub(super) fn run_it(place: &Place) -> Result<Outcome> {
    let output = run(&["doctor"])?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = said.lines().find(|line| line.to_lowercase().contains("tls")).unwrap_or_default();
    if said.contains("modprobe tls") == place.in_kernel() || line.is_empty() {
        return Err(format!("doctor says: {said}").into());
    }
    Ok(Outcome::Ok(line.trim().to_owned()))
}
