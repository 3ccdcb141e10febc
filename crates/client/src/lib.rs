//! Downloads, uploads and whole trees over HTTP.

#![forbid(unsafe_code)]
