//! A node in front of an origin: the responses to clients, the requests to the origin, and its
//! failures.

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
mod unreadable;
mod usage;
mod validations;
mod versions;
mod wrong;
