//! Patterns of `--exclude`: names are bytes, so that no name escapes them.

/// What is left out.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    /// Without the slashes at its ends.
    text: Vec<u8>,
    /// Whether it is compared with the path below what was named, and not with the name alone.
    is_path: bool,
    /// Whether it is about folders alone.
    is_folder: bool,
}

impl Pattern {
    /// `*.o` is about names, `build/*.o` and `/build` about paths below what is copied, and `build/`
    /// about folders alone. `*` and `?` stand for anything but a slash, `**` for anything, `[a-c]`
    /// and `[!a-c]` for one byte, and a backslash makes what follows ordinary.
    pub(super) fn new(text: &[u8]) -> Self {
        let is_folder = text.len() > 1 && text.ends_with(b"/");
        let text = if is_folder { &text[..text.len() - 1] } else { text };
        let is_path = text.contains(&b'/');
        let text = text.strip_prefix(b"/").unwrap_or(text).to_vec();
        Self { text, is_path, is_folder }
    }

    /// Whether it has to be shown the path.
    pub(super) fn is_path(&self) -> bool {
        self.is_path
    }

    /// Whether it means this name, or path below what is copied.
    pub(super) fn matches(&self, name: &[u8], is_folder: bool) -> bool {
        (is_folder || !self.is_folder) && matches(&self.text, name)
    }
}

/// Compares from the left; remembers only the last star of each sort, so that no pattern takes
/// longer than the product of the two lengths, squared.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut rest) = (0, 0);
    // Where the pattern goes on behind the last star, and where in the name.
    let mut star: Option<(usize, usize)> = None;
    let mut stars: Option<(usize, usize)> = None;
    loop {
        match (pattern.get(at), name.get(rest)) {
            (Some(b'*'), _) if pattern.get(at + 1) == Some(&b'*') => {
                at += 2;
                // `a/**/b` is also `a/b`.
                if pattern.get(at) == Some(&b'/') && (at == 2 || pattern[at - 3] == b'/') {
                    at += 1;
                    stars = Some((at, rest));
                    star = None;
                    continue;
                }
                (stars, star) = (Some((at, rest)), None);
                continue;
            }
            (Some(b'*'), _) => {
                at += 1;
                star = Some((at, rest));
                continue;
            }
            (Some(_), Some(&byte)) => {
                if let Some(taken) = one(&pattern[at..], byte) {
                    at += taken;
                    rest += 1;
                    continue;
                }
            }
            (None, None) => return true,
            _ => {}
        }
        // Not so: the last star takes one byte more.
        match (star, stars) {
            (Some((after, from)), _) if name.get(from).is_some_and(|&byte| byte != b'/') => {
                star = Some((after, from + 1));
                (at, rest) = (after, from + 1);
            }
            (_, Some((after, from))) if from < name.len() => {
                (star, stars) = (None, Some((after, from + 1)));
                (at, rest) = (after, from + 1);
            }
            _ => return false,
        }
    }
}

/// How many bytes of the pattern stand for this one byte; `None` if they do not.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [b'?', ..] => (byte != b'/').then_some(1),
        [b'\\', next, ..] => (*next == byte).then_some(2),
        [b'[', class @ ..] => match end_of_class(class) {
            Some(end) => (byte != b'/' && is_in(&class[..end], byte)).then_some(end + 2),
            None => (byte == b'[').then_some(1),
        },
        [first, ..] => (*first == byte).then_some(1),
        [] => None,
    }
}

/// Where a class ends; a bracket that comes first belongs to it.
fn end_of_class(class: &[u8]) -> Option<usize> {
    let first = usize::from(matches!(class.first(), Some(b'!' | b'^')));
    class.iter().skip(first + 1).position(|&byte| byte == b']').map(|end| end + first + 1)
}

fn is_in(class: &[u8], byte: u8) -> bool {
    let (is_wanted, mut class) = match class {
        [b'!' | b'^', rest @ ..] => (false, rest),
        _ => (true, class),
    };
    let mut found = false;
    while let [from, rest @ ..] = class {
        if let [b'-', to, rest @ ..] = rest {
            found |= (*from..=*to).contains(&byte);
            class = rest;
        } else {
            found |= *from == byte;
            class = rest;
        }
    }
    found == is_wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_mean_what_a_shell_means() {
        for (pattern, name, expected) in [
            ("*.o", "main.o", true),
            ("*.o", "main.os", false),
            ("a*b*c", "aXbYbZc", true),
            ("?", "ab", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[]]", "]", true),
            ("[", "[", true),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("build/*.o", "build/main.o", true),
            ("build/*.o", "build/deep/main.o", false),
            ("**/main.o", "main.o", true),
            ("**/main.o", "build/deep/main.o", true),
            ("build/**", "build/deep/main.o", true),
            ("a/**/b", "a/b", true),
            ("a/**/b", "a/x/y/b", true),
            ("a/**/b", "a/xb", false),
            ("/top", "top", true),
        ] {
            let found = Pattern::new(pattern.as_bytes()).matches(name.as_bytes(), false);
            assert_eq!(found, expected, "{pattern} and {name}");
        }
        assert!(Pattern::new(b"*").matches(b"\xff\xfe", false));
        assert!(!Pattern::new(b"build/").matches(b"build", false));
        assert!(Pattern::new(b"build/").matches(b"build", true));
        assert!(!Pattern::new(b"build/").is_path() && Pattern::new(b"/build").is_path());
    }

    #[test]
    fn many_stars_end_soon() {
        let pattern = Pattern::new("a*".repeat(50).as_bytes());
        assert!(!pattern.matches("a".repeat(49).as_bytes(), false));
    }
}
