//! The list of what a node is to have.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use crate::failure::{Failure, Result, WithPath};

/// Reads the paths of a list, those of a higher priority first.
pub(super) fn read(path: &Path) -> Result<Vec<String>> {
    let mut text = String::new();
    match path == Path::new("-") {
        true => {
            let read = io::stdin().read_to_string(&mut text).map(drop);
            read.map_err(|source| Failure::System { action: "reading standard input", source })?;
        }
        false => text = fs::read_to_string(path).with_path("reading", path)?,
    }
    parse(&text).map_err(|(number, why)| {
        Failure::Usage(format!("--manifest {}: line {number}: {why}", path.display()))
    })
}

fn parse(text: &str) -> std::result::Result<Vec<String>, (usize, &'static str)> {
    let mut entries = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let mut words = line.split_whitespace();
        let Some(path) = words.next().filter(|path| !path.starts_with('#')) else { continue };
        let priority = match words.next().map(str::parse::<u64>) {
            None => 0,
            Some(Ok(priority)) => priority,
            Some(Err(_)) => return Err((index + 1, "the priority is no number")),
        };
        if !path.starts_with('/') || words.next().is_some() {
            return Err((index + 1, "write a path that begins with /, and perhaps a priority"));
        }
        entries.push((priority, path.to_owned()));
    }
    entries.sort_by_key(|(priority, _)| std::cmp::Reverse(*priority));
    Ok(entries.into_iter().map(|(_, path)| path).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn higher_priorities_come_first_and_otherwise_the_order_stays() {
        let text = "# what is popular\n/a\n\n/b%20c 5\n/d\n/e?x=1 7\n";
        let expected = ["/e?x=1", "/b%20c", "/a", "/d"].map(str::to_owned).to_vec();
        assert_eq!(parse(text), Ok(expected));
        for text in ["a", "/a b", "/a 1 2", "/a -1"] {
            assert!(parse(&format!("/x\n{text}")).is_err_and(|(line, _)| line == 2), "{text}");
        }
    }
}
