//! The order of a listing, and positions in it.
//!
//! A position is made from the entry alone, never from its index, so that a page that starts
//! after it is right whatever was added or removed meanwhile.

use std::cmp::Ordering;

/// The key by which entries are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SortKey {
    /// The order in which people sort names: case does not matter, numbers count by their value.
    #[default]
    Name,
    /// Bytes; folders have none and stay sorted by name.
    Size,
    /// Last change.
    Time,
}

impl SortKey {
    /// Returns the form of the key in a query.
    #[must_use]
    pub fn token(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Size => "size",
            Self::Time => "time",
        }
    }

    /// Parses the form of the key in a query.
    #[must_use]
    pub fn parse(token: &[u8]) -> Option<Self> {
        [Self::Name, Self::Size, Self::Time].into_iter().find(|key| key.token().as_bytes() == token)
    }
}

/// The direction of the order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SortDirection {
    /// A before Z, small before large, old before new.
    #[default]
    Ascending,
    /// The reverse.
    Descending,
}

impl SortDirection {
    /// Returns the form of the direction in a query.
    #[must_use]
    pub fn token(self) -> &'static str {
        match self {
            Self::Ascending => "asc",
            Self::Descending => "desc",
        }
    }

    /// Parses the form of the direction in a query.
    #[must_use]
    pub fn parse(token: &[u8]) -> Option<Self> {
        [Self::Ascending, Self::Descending].into_iter().find(|d| d.token().as_bytes() == token)
    }

    /// Turns an ascending comparison into one in this direction.
    fn apply(self, ascending: Ordering) -> Ordering {
        match self {
            Self::Ascending => ascending,
            Self::Descending => ascending.reverse(),
        }
    }
}

/// The order of a listing. Folders always come first, and equal entries are sorted by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Order {
    /// The sort key.
    pub key: SortKey,
    /// The direction.
    pub direction: SortDirection,
}

impl Order {
    /// Compares two positions.
    ///
    /// The order is total, and only equal positions are equal, so it also serves to
    /// continue after one.
    #[must_use]
    pub fn compare(self, a: &PageCursor<'_>, b: &PageCursor<'_>) -> Ordering {
        let by_name = || {
            let ascending = compare_names(a.name, b.name);
            if self.key == SortKey::Name { self.direction.apply(ascending) } else { ascending }
        };
        b.is_folder
            .cmp(&a.is_folder)
            .then_with(|| self.direction.apply(a.value.cmp(&b.value)))
            .then_with(by_name)
    }
}

/// The position of an entry in an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageCursor<'n> {
    /// Whether it is a folder; folders come before files.
    pub is_folder: bool,
    /// The size, or the time in nanoseconds; zero in an order by name.
    pub value: i128,
    /// The name, which no two entries of a folder share.
    pub name: &'n [u8],
}

impl<'n> PageCursor<'n> {
    /// Returns the cursor before percent-encoding: the name, with a slash if it is a folder,
    /// after the value and a colon unless the order is by name.
    #[must_use]
    pub fn to_cursor(self, key: SortKey) -> Vec<u8> {
        let mut cursor = match key {
            SortKey::Name => Vec::new(),
            SortKey::Size | SortKey::Time => format!("{}:", self.value).into_bytes(),
        };
        cursor.extend_from_slice(self.name);
        if self.is_folder {
            cursor.push(b'/');
        }
        cursor
    }

    /// Reads what [`PageCursor::to_cursor`] has written; `None` for anything else.
    pub(crate) fn from_cursor(cursor: &'n [u8], key: SortKey) -> Option<Self> {
        let (value, name) = match key {
            SortKey::Name => (0, cursor),
            SortKey::Size | SortKey::Time => {
                let colon = cursor.iter().position(|&byte| byte == b':')?;
                let value = std::str::from_utf8(&cursor[..colon]).ok()?.parse().ok()?;
                (value, &cursor[colon + 1..])
            }
        };
        let (name, is_folder) = match name.strip_suffix(b"/") {
            Some(name) => (name, true),
            None => (name, false),
        };
        let is_name = !name.is_empty() && !name.contains(&b'/') && !name.contains(&0);
        is_name.then_some(Self { is_folder, value, name })
    }
}

/// Compares names as people do, and byte by byte if those are equal.
///
/// Case is folded for ASCII alone: more would need the rules of a language, and names that are not
/// UTF-8 would have none.
fn compare_names(a: &[u8], b: &[u8]) -> Ordering {
    compare_folded(a, b).then_with(|| a.cmp(b))
}

/// Compares without regard to case and leading zeros, runs of digits by their value.
fn compare_folded(mut a: &[u8], mut b: &[u8]) -> Ordering {
    loop {
        let (Some((&first, a_rest)), Some((&second, b_rest))) = (a.split_first(), b.split_first())
        else {
            return a.len().cmp(&b.len());
        };
        let ordering = if first.is_ascii_digit() && second.is_ascii_digit() {
            let (number, after_number);
            let (other, after_other);
            (number, after_number) = split_number(a);
            (other, after_other) = split_number(b);
            (a, b) = (after_number, after_other);
            number.len().cmp(&other.len()).then_with(|| number.cmp(other))
        } else {
            (a, b) = (a_rest, b_rest);
            first.to_ascii_lowercase().cmp(&second.to_ascii_lowercase())
        };
        if ordering.is_ne() {
            return ordering;
        }
    }
}

/// Returns the digits at the start, without leading zeros, and what follows them.
fn split_number(text: &[u8]) -> (&[u8], &[u8]) {
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let start = text[..end].iter().position(|&byte| byte != b'0').unwrap_or(end);
    (&text[start..end], &text[end..])
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Returns a name of few different bytes, so that equal stretches are frequent.
    fn name() -> impl Strategy<Value = Vec<u8>> {
        vec(prop::sample::select(b"aAbB019._\xff".as_slice()), 1..8)
    }

    /// Returns the names in the order by name.
    fn sorted<'n>(names: &[&'n str]) -> Vec<&'n str> {
        let mut names = names.to_vec();
        names.sort_by(|a, b| compare_names(a.as_bytes(), b.as_bytes()));
        names
    }

    #[test]
    fn names_are_sorted_as_people_do() {
        let expected =
            ["a.txt", "B.txt", "img2.png", "img10.png", "IMG10.png", "img10b.png", "z", "Zoo"];
        let mut shuffled = expected;
        shuffled.reverse();
        // "img10.png" and "IMG10.png" differ in case alone, so their bytes decide.
        let mut expected = expected.to_vec();
        expected.swap(3, 4);
        assert_eq!(sorted(&shuffled), expected);
    }

    #[test]
    fn leading_noughts_do_not_change_a_number() {
        assert_eq!(sorted(&["a10", "a9", "a009", "a010"]), ["a009", "a9", "a010", "a10"]);
    }

    #[test]
    fn folders_come_first_in_both_directions() {
        let folder = PageCursor { is_folder: true, value: 0, name: b"z" };
        let file = PageCursor { is_folder: false, value: 0, name: b"a" };
        for direction in [SortDirection::Ascending, SortDirection::Descending] {
            let order = Order { key: SortKey::Name, direction };
            assert_eq!(order.compare(&folder, &file), Ordering::Less);
        }
    }

    #[test]
    fn cursors_that_name_no_entry_are_refused() {
        for cursor in ["", "/", "a/b", "a//", "a\0"] {
            assert_eq!(
                PageCursor::from_cursor(cursor.as_bytes(), SortKey::Name),
                None,
                "{cursor:?}"
            );
        }
        for cursor in ["a", "x:a", ":a", "1:", "1:/"] {
            assert_eq!(
                PageCursor::from_cursor(cursor.as_bytes(), SortKey::Size),
                None,
                "{cursor:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn the_order_of_names_is_total(mut names in vec(name(), 3)) {
            names.sort_by(|a, b| compare_names(a, b));
            for (at, name) in names.iter().enumerate() {
                for (later, other) in names.iter().enumerate().skip(at) {
                    let expected = if name == other { Ordering::Equal } else { Ordering::Less };
                    prop_assert_eq!(compare_names(name, other), expected, "{} {}", at, later);
                    prop_assert_eq!(compare_names(other, name), expected.reverse());
                }
            }
        }

        #[test]
        fn a_cursor_leads_back_to_its_place(
            name in name(), is_folder: bool, value: i64, by_time: bool,
        ) {
            let (key, value) =
                if by_time { (SortKey::Time, i128::from(value)) } else { (SortKey::Name, 0) };
            let place = PageCursor { is_folder, value, name: &name };
            let cursor = place.to_cursor(key);
            prop_assert_eq!(PageCursor::from_cursor(&cursor, key), Some(place));
        }
    }
}
