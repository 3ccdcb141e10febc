//! The config file: TOML whose keys are the long names of the options. Each table `[[site]]` has
//! those of one site.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use underpass_engine::atomic_file::open_file;

use crate::failure::{Failure, Result, WithPath};

/// One key of a config file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ConfigKey {
    /// Its location, for messages: `underpass.toml, line 3`.
    pub(super) place: String,
    /// The name of an option, with dashes.
    pub(super) name: String,
    /// The value; several if it is a list.
    pub(super) values: Vec<OsString>,
}

/// The keys of a config file.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ConfigFile {
    pub(super) keys: Vec<ConfigKey>,
    pub(super) sites: Vec<SiteTable>,
}

/// One `[[site]]`.
#[derive(Debug, PartialEq)]
pub(super) struct SiteTable {
    /// The place where it begins.
    pub(super) place: String,
    pub(super) keys: Vec<ConfigKey>,
}

/// When a config file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// At the start, when reading a pipe waits: its writer may start later.
    First,
    /// Later, when reading must not block.
    Again,
}

/// Reads a config file, without checking its keys.
pub(super) fn read(path: &Path, reading: Reading) -> Result<ConfigFile> {
    let wrong = |why: &'static str| Failure::value(path.display(), why);
    let bytes = bytes(path, reading).with_path("reading", path)?;
    let bytes = bytes.ok_or_else(|| wrong("a pipe is read only at the start of the server"))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(wrong("it has more than 16 MiB"));
    }
    let text = String::from_utf8(bytes).map_err(|_| wrong("it is not UTF-8"))?;
    entries(&text, &path.display().to_string())
}

/// Returns the beginning of a file, one byte more than it may have; `None` if it is a pipe, which
/// has been read before.
fn bytes(path: &Path, reading: Reading) -> io::Result<Option<Vec<u8>>> {
    let file = match reading {
        Reading::First => {
            let flags = OFlags::NOCTTY.bits().cast_signed();
            OpenOptions::new().read(true).custom_flags(flags).open(path)?
        }
        // A pipe is opened only once something writes to it.
        Reading::Again => open_file(path)?,
    };
    if reading == Reading::Again && file.metadata()?.file_type().is_fifo() {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

fn entries(text: &str, file: &str) -> Result<ConfigFile> {
    let place = |at: usize| format!("{file}, line {}", line(text, at));
    let mut table = DeTable::parse(text)
        .map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            Failure::value(place(at), error.message().replace('\n', ", "))
        })?
        .into_inner();
    let mut sites = Vec::new();
    if let Some((name, value)) = table.remove_entry(SITE) {
        let at = name.span().start;
        let wrong = || Failure::value(place(at), "write [[site]] before the options of a site");
        let DeValue::Array(tables) = value.into_inner() else { return Err(wrong()) };
        for table in tables {
            let place = place(table.span().start);
            let DeValue::Table(table) = table.into_inner() else { return Err(wrong()) };
            sites.push(SiteTable { place, keys: keys(&table, text, file)? });
        }
    }
    Ok(ConfigFile { keys: keys(&table, text, file)?, sites })
}

/// Returns the keys of a table.
fn keys(table: &DeTable<'_>, text: &str, file: &str) -> Result<Vec<ConfigKey>> {
    let key = |(key, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
        let place = format!("{file}, line {}", line(text, key.span().start));
        let key: &str = AsRef::<str>::as_ref(key.get_ref());
        let values = values(value.get_ref()).ok_or_else(|| {
            let why = if has_tables(value.get_ref()) {
                format!("there is no table {key}: options have none, those of a site have [[site]]")
            } else {
                format!("{key} is neither a string, a number, true, false nor a list")
            };
            Failure::value(&place, why)
        })?;
        Ok(ConfigKey { place, name: key.replace('_', "-"), values })
    };
    let mut pairs: Vec<_> = table.iter().collect();
    pairs.sort_by_key(|(key, _)| key.span().start);
    let mut keys = pairs.into_iter().map(key).collect::<Result<Vec<_>>>()?;
    keys.sort_by(|a, b| a.name.cmp(&b.name));
    match keys.windows(2).find(|pair| pair[0].name == pair[1].name) {
        Some([first, second]) => {
            let why = format!("{} is already set at {}", second.name, first.place);
            Err(Failure::value(&second.place, why))
        }
        _ => Ok(keys),
    }
}

/// Returns whether the value is a table, or a list of tables.
fn has_tables(value: &DeValue<'_>) -> bool {
    match value {
        DeValue::Table(_) => true,
        DeValue::Array(values) => {
            values.iter().any(|value| matches!(value.get_ref(), DeValue::Table(_)))
        }
        _ => false,
    }
}

/// Returns the values as they would be typed.
fn values(value: &DeValue<'_>) -> Option<Vec<OsString>> {
    match value {
        DeValue::Array(values) => values.iter().map(|value| word(value.get_ref())).collect(),
        value => Some(vec![word(value)?]),
    }
}

fn word(value: &DeValue<'_>) -> Option<OsString> {
    Some(match value {
        DeValue::String(text) => text.to_string().into(),
        DeValue::Integer(number) => {
            i64::from_str_radix(number.as_str(), number.radix()).ok()?.to_string().into()
        }
        DeValue::Float(number) => number.as_str().parse::<f64>().ok()?.to_string().into(),
        DeValue::Boolean(is_set) => is_set.to_string().into(),
        DeValue::Array(_) | DeValue::Datetime(_) | DeValue::Table(_) => return None,
    })
}

fn line(text: &str, at: usize) -> usize {
    1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count()
}

/// The maximum length of a config file.
const MAX_BYTES: u64 = 16 << 20;

/// The name of the tables of sites.
const SITE: &str = "site";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_names_of_options_in_either_spelling() {
        let text =
            "port = 80\n\nlog_format = 'json'\nhide = ['a', 'b']\nquiet = true\ntimeout = 0.5";
        let entries = entries(text, "file").unwrap_or_default();
        let seen: Vec<_> = entries
            .keys
            .iter()
            .map(|entry| (entry.place.as_str(), entry.name.as_str(), entry.values.len()))
            .collect();
        assert!(seen.contains(&("file, line 1", "port", 1)), "{seen:?}");
        assert!(seen.contains(&("file, line 3", "log-format", 1)), "{seen:?}");
        assert!(seen.contains(&("file, line 4", "hide", 2)), "{seen:?}");
        assert!(seen.contains(&("file, line 6", "timeout", 1)), "{seen:?}");
    }

    #[test]
    fn each_site_has_keys_with_their_lines() {
        let text = "port = 0x50\n[[site]]\nnames = ['a']\n\n[[site]]\nno_listing = true\n";
        let file = entries(text, "file").unwrap_or_default();
        assert_eq!(file.keys[0].values, ["80"]);
        let place = |number: usize| file.sites[number].keys[0].place.as_str();
        assert_eq!((place(0), place(1)), ("file, line 3", "file, line 6"));
        assert_eq!(file.sites[1].place, "file, line 5");
        assert_eq!(file.sites[1].keys[0].name, "no-listing");
    }

    #[test]
    fn config_errors_are_reported_with_their_line() {
        for (text, place) in [
            ("port = ", "file, line 1: "),
            ("a = 1\na = 2", "file, line 2: "),
            (
                "a-b = 1\n[[site]]\na_b = 1\na-b = 1",
                "file, line 4: a-b is already set at file, line 3",
            ),
            ("\n[serve]\nport = 1", "file, line 2: there is no table serve"),
            ("\n[[sites]]\nport = 1", "file, line 2: there is no table sites"),
            ("hide = [['a']]", "file, line 1: hide is neither"),
            ("\nsite = 1", "file, line 2: write [[site]]"),
            ("[site]\nroot = 'a'", "file, line 1: write [[site]]"),
            ("[[site]]\n\nhide = {}", "file, line 3: there is no table hide"),
        ] {
            let message = entries(text, "file").expect_err(text).to_string();
            assert!(message.starts_with(place), "{message}");
            assert_eq!(message.lines().count(), 1, "{message}");
        }
    }
}
