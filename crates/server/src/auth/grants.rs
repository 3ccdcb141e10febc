//! Paths with the rights that somebody has on them.

/// What a client wants to do with a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Right {
    /// Look at it.
    Read,
    /// Change it, which includes looking at it.
    Write,
}

/// The paths that one rule opens.
#[derive(Clone, Debug, Default)]
pub(super) struct Grants {
    /// Longest path first, and the greater right first for the same path.
    list: Vec<(Vec<u8>, Right)>,
}

impl Grants {
    /// Opens one more path, which is relative to the root and has no slash at either end.
    pub(super) fn add(&mut self, path: Vec<u8>, right: Right) {
        self.list.push((path, right));
        self.list.sort_by(|(a, x), (b, y)| (b.len(), y).cmp(&(a.len(), x)));
    }

    /// Whether it opens nothing.
    pub(super) const fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether it gives this right on any path.
    pub(super) fn has(&self, right: Right) -> bool {
        self.list.iter().any(|&(_, given)| given >= right)
    }

    /// The right on this path: that of the longest path that it is, or lies beneath.
    pub(super) fn right_on(&self, path: &[u8]) -> Option<Right> {
        self.list.iter().find(|(above, _)| is_beneath(path, above)).map(|&(_, right)| right)
    }

    /// Those of its paths that lie beneath this one.
    pub(super) fn beneath<'g>(&'g self, path: &'g [u8]) -> impl Iterator<Item = &'g [u8]> {
        let paths = self.list.iter().map(|(inside, _)| inside.as_slice());
        paths.filter(move |inside| is_beneath(inside, path))
    }
}

/// Whether a path is another or lies beneath it, by whole segments: `music2` is not in `music`.
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
