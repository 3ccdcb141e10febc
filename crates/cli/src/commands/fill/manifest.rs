//! The list of files that a node is to have.

use std::collections::HashSet;
use std::fs;
use std::io::Read;
use std::path::Path;

use underpass_client::input;

use crate::failure::{Failure, Result, WithPath};
use underpass_copy::ends::{is_dash, standard_input};

/// A file that a node is to have.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ManifestEntry {
    /// Its path, escaped as in a URL.
    pub(super) path: String,
    /// The fields of the requests that it answers, for nodes that keep a file for each value.
    pub(super) fields: Vec<(String, String)>,
}

/// Reads a list: the files of a higher priority come first, each once.
pub(super) fn read(path: &Path) -> Result<Vec<ManifestEntry>> {
    let mut text = String::new();
    if is_dash(path) {
        let read = standard_input()?.read_to_string(&mut text).map(drop);
        read.map_err(|source| Failure::System { action: "reading standard input", source })?;
    } else {
        text = fs::read_to_string(path).with_path("reading", path)?
    }
    parse(&text).map_err(|(number, why)| {
        Failure::value(format_args!("--manifest {}: line {number}", path.display()), why)
    })
}

fn parse(text: &str) -> std::result::Result<Vec<ManifestEntry>, (usize, &'static str)> {
    let mut entries: Vec<(u64, ManifestEntry)> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let is_field = line.starts_with([' ', '\t']) && !line.trim().is_empty();
        if is_field && !line.trim_start().starts_with('#') {
            let field = input::field(line.trim()).ok();
            let (Some(field), Some((_, wanted))) = (field, entries.last_mut()) else {
                return Err((
                    index + 1,
                    "write a field of requests for the path above: NAME: VALUE",
                ));
            };
            wanted.fields.push(field);
            continue;
        }
        let mut words = line.split_whitespace();
        let Some(path) = words.next().filter(|path| !path.starts_with('#')) else { continue };
        let priority = match words.next().map(str::parse::<u64>) {
            None => 0,
            Some(Ok(priority)) => priority,
            Some(Err(_)) => return Err((index + 1, "the priority is not a number")),
        };
        if !path.starts_with('/') || words.next().is_some() {
            return Err((
                index + 1,
                "write a path that begins with /, optionally followed by a priority",
            ));
        }
        entries.push((priority, ManifestEntry { path: path.to_owned(), fields: Vec::new() }));
    }
    entries.sort_by_key(|(priority, _)| std::cmp::Reverse(*priority));
    let mut seen = HashSet::new();
    let wanted = entries.into_iter().map(|(_, wanted)| wanted);
    Ok(wanted.filter(|wanted| seen.insert(wanted.clone())).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn higher_priorities_come_first_and_otherwise_the_order_stays() {
        let text = "# what is popular\n/a\n\n/b%20c 5\n/d\n/e?x=1 7\n/a\n";
        let paths =
            |text| parse(text).map(|all| all.into_iter().map(|it| it.path).collect::<Vec<_>>());
        assert_eq!(paths(text), Ok(["/e?x=1", "/b%20c", "/a", "/d"].map(str::to_owned).to_vec()));
        for text in ["a", "/a b", "/a 1 2", "/a -1", "  x", "  x: y\r\u{1}"] {
            assert!(parse(&format!("/x\n{text}")).is_err_and(|(line, _)| line == 2), "{text}");
        }
    }

    #[test]
    fn fields_stand_below_their_path() {
        let text = "/a\n  X-Kind: one\n\t# of a kind\n\tX-Other:  two words\n/a 1\n  \n";
        let fields = [("X-Kind", "one"), ("X-Other", "two words")];
        let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let path = "/a".to_owned();
        let expected = [
            ManifestEntry { path: path.clone(), fields: Vec::new() },
            ManifestEntry { path, fields },
        ];
        assert_eq!(parse(text), Ok(expected.into()));
        assert!(parse("  X-Kind: one\n").is_err_and(|(line, _)| line == 1));
    }
}
