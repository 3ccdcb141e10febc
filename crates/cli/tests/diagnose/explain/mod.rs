//! `underpass explain` of real programs: checked against the bytes that they moved, against strace
//! on a second run, and against the receipts of underpass.

mod against_strace;
mod confined;
mod ends;
mod own;
mod peers;
mod scene;
mod ways;
