//! A node in front of an origin: what clients get, what the origin is asked, and what happens when
//! it fails.

mod budget;
mod connecting;
mod crowds;
mod extents;
mod fills;
mod freshness;
mod full_size;
mod operating;
mod ranges;
mod redirects;
mod relays;
mod replies;
mod restarts;
mod scale;
mod sharing;
mod syncing;
mod usage;
mod validations;
mod versions;
mod wrong;
