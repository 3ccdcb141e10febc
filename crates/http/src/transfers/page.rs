//! A page about the transfers.
use super::View;
/// The page.
pub(super) fn render(_views: &[View]) -> String {
    String::new()
}
