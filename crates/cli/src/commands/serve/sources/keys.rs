//! The keys of options: their names, their values, and the words that set them.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::{Arg, ArgAction, Command, FromArgMatches};
use strsim::damerau_levenshtein;

use super::super::args::{ConfigUsage, ServeArgs};
use super::super::settings;
use super::config::ConfigKey;
use crate::clap_message::clap_message;
use crate::failure::{Failure, Result};

/// Returns whether a key is set to `true`.
pub(super) fn flag(key: &ConfigKey, otherwise: &str) -> Result<bool> {
    let value = key.values.first().filter(|_| key.values.len() == 1);
    value.and_then(|value| is_yes(value)).ok_or_else(|| invalid(key, otherwise))
}

/// Returns the option that a key names.
pub(super) fn find<'c>(command: &'c Command, entry: &ConfigKey) -> Result<&'c Arg> {
    let wanted = &entry.name;
    if let Some(found) = command.get_arguments().find(|each| name(each) == wanted) {
        return match &**wanted {
            _ if is_settable(found) => Ok(found),
            "config" => Err(Failure::value(&entry.place, ConfigUsage::OfAnother)),
            _ => Err(Failure::value(&entry.place, ConfigUsage::OnlyTyped(wanted.clone()))),
        };
    }
    let known = command.get_arguments().filter(|each| is_settable(each)).map(name);
    let near = known.min_by_key(|name| damerau_levenshtein(name, wanted));
    let near = near.filter(|name| damerau_levenshtein(name, wanted) <= max_typos(wanted.len()));
    let unknown = ConfigUsage::Unknown { name: wanted.clone(), near: near.map(ToOwned::to_owned) };
    Err(Failure::value(&entry.place, unknown))
}

/// Returns how many typing errors a word of this length may have: one if it is short, or two.
pub(super) const fn max_typos(len: usize) -> usize {
    if len < 8 { 1 } else { 2 }
}

/// Returns the words that set an option on the command line.
pub(super) fn as_words(argument: &Arg, entry: &ConfigKey) -> Result<Vec<OsString>> {
    let prefix = |value: &OsString| {
        let mut word = OsString::from(format!("--{}=", entry.name));
        word.push(value);
        word
    };
    match (argument.get_action(), entry.values.as_slice()) {
        (ArgAction::Append, values) => Ok(values.iter().map(prefix).collect()),
        (ArgAction::SetTrue, [value]) => match is_yes(value) {
            Some(true) => Ok(vec![format!("--{}", entry.name).into()]),
            Some(false) => Ok(Vec::new()),
            None => Err(invalid(entry, "is neither true nor false")),
        },
        // Joined so that no folder name can be mistaken for an option.
        // An empty one stays empty, which is refused: it is no name of the current folder.
        (_, [value]) if argument.is_positional() && !value.is_empty() => {
            Ok(vec![Path::new(".").join(value).into()])
        }
        (_, [value]) if argument.is_positional() => Ok(vec![value.clone()]),
        (_, [value]) => Ok(vec![prefix(value)]),
        _ => Err(invalid(entry, "takes one value")),
    }
}

/// Returns the boolean value of a switch; `None` if it is invalid.
pub(super) fn is_yes(value: &OsStr) -> Option<bool> {
    match value.to_str()?.to_ascii_lowercase().as_str() {
        "1" | "on" | "true" | "yes" => Some(true),
        "0" | "false" | "no" | "off" => Some(false),
        _ => None,
    }
}

/// Parses an entry alone, so that the message can name its source.
pub(super) fn check(command: &Command, words: &[OsString], entry: &ConfigKey) -> Result<()> {
    let words = [OsString::from("serve")].into_iter().chain(words.iter().cloned());
    let given = command.clone().try_get_matches_from(words);
    let args = given.and_then(|given| ServeArgs::from_arg_matches(&given));
    args.map_err(|error| clap_message(&error))
        .and_then(|args| settings::check(&args).map_err(|failure| failure.to_string()))
        .map_err(|why| Failure::value(&entry.place, why))
}

/// Returns the failure of a key whose value is wrong.
pub(super) fn invalid(entry: &ConfigKey, what: &str) -> Failure {
    Failure::value(&entry.place, format!("{} {what}", entry.name))
}

/// Returns the key of an option: its long name; the folder's is its own.
pub(super) fn name(argument: &Arg) -> &str {
    argument.get_long().unwrap_or(argument.get_id().as_str())
}

/// Returns whether an option can be set elsewhere than on the command line.
pub(super) fn is_settable(argument: &Arg) -> bool {
    const TYPED: [&str; 5] = ["completions", "config", "help", "print_manpage", "write_manpages"];
    !TYPED.contains(&argument.get_id().as_str())
}
