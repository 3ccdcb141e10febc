//! Certificates from an authority: pebble issues them, and curl checks them.

mod authority;
mod life;
mod site;
mod sites;
mod wrong;
