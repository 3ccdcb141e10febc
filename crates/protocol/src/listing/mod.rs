//! The query of a folder's listing: its form, its order, and where its pages begin.

mod order;
mod query;

pub use order::{Order, PageCursor, SortDirection, SortKey};
pub use query::{BadQuery, Format, ListingQuery, MAX_ENTRIES};
