//! Copies files and trees.

#![forbid(unsafe_code)]
