//! Parses values of options, which Python passes as text and numbers.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use underpass_engine::{Mechanism, Policy};

/// Parses the value of the option `name`.
///
/// # Errors
///
/// A `ValueError` that names the option.
pub(crate) fn parse<T: FromStr<Err: Display>>(name: &str, text: &str) -> PyResult<T> {
    text.parse().map_err(|error| invalid(name, error))
}

/// Returns the policy of the option `mechanism`.
///
/// # Errors
///
/// A `ValueError` if there is no such mechanism.
pub(crate) fn policy(mechanism: Option<&str>) -> PyResult<Policy> {
    let mechanism = mechanism.map(|name| parse::<Mechanism>("mechanism", name)).transpose()?;
    Ok(mechanism.map_or(Policy::Auto, Policy::Require))
}

/// Returns a time given in seconds.
///
/// # Errors
///
/// A `ValueError` unless it is greater than 0.
pub(crate) fn seconds(name: &str, seconds: f64) -> PyResult<Duration> {
    let positive = Some(seconds).filter(|seconds| *seconds > 0.0);
    positive
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| invalid(name, "a time is a number of seconds above 0"))
}

/// Returns a rate in bytes per second.
///
/// # Errors
///
/// A `ValueError` if it is 0, at which nothing would arrive.
pub(crate) fn rate(rate: Option<u64>) -> PyResult<Option<u64>> {
    match rate {
        Some(0) => Err(invalid("rate", "a rate is at least one byte a second")),
        rate => Ok(rate),
    }
}

/// Creates the exception for an option with an invalid value.
pub(crate) fn invalid(name: &str, reason: impl Display) -> PyErr {
    PyValueError::new_err(format!("{name}: {reason}"))
}
