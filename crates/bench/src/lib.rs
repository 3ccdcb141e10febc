//! Scenarios, samples, records and reports of measurements.

#![forbid(unsafe_code)]
