//! The paths that one rule opens, with their rights.

/// A right on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Right {
    /// The right to read.
    Read,
    /// The right to write, which includes reading.
    Write,
}

/// The paths that one rule opens.
#[derive(Clone, Debug, Default)]
pub(super) struct Grants {
    /// The paths, longest first, and the greater right first for the same path.
    list: Vec<(Vec<u8>, Right)>,
}

impl Grants {
    /// Adds a path, which is relative to the root and has no slash at either end.
    pub(super) fn add(&mut self, path: Vec<u8>, right: Right) {
        self.list.push((path, right));
        self.list.sort_by(|(a, x), (b, y)| (b.len(), y).cmp(&(a.len(), x)));
    }

    /// Returns whether there are no paths.
    pub(super) const fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns whether any path has this right.
    pub(super) fn has(&self, right: Right) -> bool {
        self.list.iter().any(|&(_, given)| given >= right)
    }

    /// Returns the right on this path, which is that of the longest path that it equals or lies
    /// below.
    pub(super) fn right_on(&self, path: &[u8]) -> Option<Right> {
        self.list.iter().find(|(above, _)| is_beneath(path, above)).map(|&(_, right)| right)
    }

    /// Returns whether one of the paths is this one, if case is ignored.
    pub(super) fn names(&self, path: &[u8]) -> bool {
        self.list.iter().any(|(given, _)| given.eq_ignore_ascii_case(path))
    }

    /// Returns the paths that lie below this one.
    pub(super) fn beneath<'g>(&'g self, path: &'g [u8]) -> impl Iterator<Item = &'g [u8]> {
        let paths = self.list.iter().map(|(inside, _)| inside.as_slice());
        paths.filter(move |inside| is_beneath(inside, path))
    }
}

/// Returns whether a path equals another or lies below it, by whole segments: `music2` is not in
/// `music`.
fn is_beneath(path: &[u8], above: &[u8]) -> bool {
    above.is_empty()
        || path
            .strip_prefix(above)
            .is_some_and(|rest| rest.first().is_none_or(|&byte| byte == b'/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longest_path_decides_in_whichever_order_they_were_given() {
        let pairs: [(&str, Right); 3] =
            [("", Right::Write), ("a/b", Right::Write), ("a", Right::Read)];
        for turn in 0..pairs.len() {
            let mut grants = Grants::default();
            for (path, right) in pairs.iter().cycle().skip(turn).take(pairs.len()) {
                grants.add(path.as_bytes().to_vec(), *right);
            }
            assert_eq!(grants.right_on(b""), Some(Right::Write));
            assert_eq!(grants.right_on(b"a"), Some(Right::Read));
            assert_eq!(grants.right_on(b"a/x"), Some(Right::Read));
            assert_eq!(grants.right_on(b"a/b/x"), Some(Right::Write));
            assert_eq!(grants.right_on(b"a/bc"), Some(Right::Read), "whole segments only");
            assert_eq!(grants.right_on(b"ab"), Some(Right::Write));
        }
    }

    #[test]
    fn greater_right_wins_on_the_same_path() {
        for rights in [[Right::Read, Right::Write], [Right::Write, Right::Read]] {
            let mut grants = Grants::default();
            for right in rights {
                grants.add(b"a".to_vec(), right);
            }
            assert_eq!(grants.right_on(b"a"), Some(Right::Write));
            assert_eq!(grants.right_on(b"b"), None);
        }
    }
}
