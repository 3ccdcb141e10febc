//! What this machine can do, and what another program asks of the kernel.

#![forbid(unsafe_code)]
