//! The system calls that rustix leaves out, each with types around it.
