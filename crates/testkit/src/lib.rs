//! What the tests of several crates share.

#![forbid(unsafe_code)]
