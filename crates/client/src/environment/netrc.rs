//! User names and passwords of servers from a netrc file, as ftp(1), curl and git read it.

/// Returns the name and password of the first entry for a host, or of `default`, in the text of a
/// netrc file. If `named` is given, only an entry of that user matches.
pub(super) fn find(text: &str, host: &str, named: Option<&str>) -> Option<(String, String)> {
    let words = words(text);
    let mut words = words.iter().map(String::as_str).peekable();
    while let Some(word) = words.next() {
        let is_meant = match word {
            "machine" => words.next()?.eq_ignore_ascii_case(host),
            "default" => true,
            _ => continue,
        };
        let (mut user, mut password) = (None, None);
        while let Some(word) = words.next_if(|word| !matches!(*word, "machine" | "default")) {
            match word {
                "login" => user = words.next(),
                "password" => password = words.next(),
                "account" => drop(words.next()),
                _ => {}
            }
        }
        if is_meant && named.is_none_or(|named| user == Some(named)) {
            let text = |word: Option<&str>| word.unwrap_or_default().to_owned();
            return (user.is_some() || password.is_some()).then(|| (text(user), text(password)));
        }
    }
    None
}

/// Returns the words of the text, without comments and macros. A word may be quoted.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut is_macro = false;
    for line in text.lines() {
        if is_macro {
            // A macro ends at the first blank line.
            is_macro = !line.trim().is_empty();
            continue;
        }
        let mut rest = line.trim_start();
        while !rest.is_empty() && !rest.starts_with('#') {
            let (word, behind) = word(rest);
            if word == "macdef" {
                is_macro = true;
                break;
            }
            words.push(word);
            rest = behind.trim_start();
        }
    }
    words
}

/// Returns the first word, and the text after it.
fn word(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(char::is_whitespace).unwrap_or(text.len());
        return (text[..end].to_owned(), &text[end..]);
    };
    let mut word = String::new();
    let mut letters = quoted.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return (word, &quoted[at + 1..]),
            '\\' => match letters.next() {
                Some((_, 'n')) => word.push('\n'),
                Some((_, 't')) => word.push('\t'),
                Some((_, 'r')) => word.push('\r'),
                Some((_, other)) => word.push(other),
                None => {}
            },
            letter => word.push(letter),
        }
    }
    (word, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_entry_for_a_host_counts() {
        let text = "# mine\nmachine a login me password x account y\nmachine b\n\tlogin you # me\n\
            password \"p w\\\"\\\\\"\nmacdef init\nmachine c login evil password evil\n\n\
            machine c login real\ndefault login any password thing\n";
        for (host, found) in [
            ("a", Some(("me", "x"))),
            ("A", Some(("me", "x"))),
            ("b", Some(("you", "p w\"\\"))),
            ("c", Some(("real", ""))),
            ("d", Some(("any", "thing"))),
        ] {
            let found = found.map(|(user, password)| (user.to_owned(), password.to_owned()));
            assert_eq!(find(text, host, None), found, "{host}");
        }
    }

    #[test]
    fn a_named_user_matches_only_its_own_entry() {
        let text = "machine a login me password x\nmachine a login you password y\n\
            default login any password thing\n";
        for (user, password) in
            [("me", Some("x")), ("you", Some("y")), ("any", Some("thing")), ("other", None)]
        {
            let found = find(text, "a", Some(user)).map(|(_, password)| password);
            assert_eq!(found.as_deref(), password, "{user}");
        }
    }

    #[test]
    fn an_unknown_host_or_a_malformed_file_has_no_password() {
        for text in ["", "machine", "machine a", "machine b login x password y", "login x", "\""] {
            assert_eq!(find(text, "a", None), None, "{text}");
        }
    }
}
