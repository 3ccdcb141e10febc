//! What HTTP means, without a file, a clock or a socket.

#![forbid(unsafe_code)]
