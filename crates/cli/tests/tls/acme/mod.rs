//! Certificates from a certificate authority: pebble issues them, and curl verifies them.

mod authority;
mod life;
mod site;
mod sites;
mod wrong;
