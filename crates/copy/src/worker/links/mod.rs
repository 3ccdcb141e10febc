//! Makes links: for files with several names, and instead of copies.

mod hard_links;
mod instead;
