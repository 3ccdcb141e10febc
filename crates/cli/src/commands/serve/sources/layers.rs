//! Options that were not typed: from the environment and, with lower priority, from the config
//! file.
//!
//! Both are converted to command-line arguments and put before the typed ones, so that there is
//! one parser, one set of messages, and no second list of options. An option from a lower layer
//! is left out as soon as a higher one has it, or one that excludes it.

use std::collections::BTreeSet;
use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command};
use strsim::damerau_levenshtein;

use super::super::args::ServeArgs;
use super::config::{self, ConfigKey};
use crate::failure::{Failure, Result, fmt_reason};
use crate::output;

/// Adds the options of the environment and the config file to the typed words, which were parsed
/// as `given`.
pub(crate) fn complete(words: &[OsString], given: &ArgMatches) -> Result<Vec<OsString>> {
    let command = ServeArgs::augment_args(Command::new("serve"));
    let is_typed = |id: &str| given.value_source(id) == Some(ValueSource::CommandLine);
    let mut taken: BTreeSet<String> = BTreeSet::new();
    for argument in command.get_arguments().filter(|each| is_typed(each.get_id().as_str())) {
        take(&mut taken, argument);
    }
    let file = match given.get_one::<PathBuf>("config") {
        Some(file) => Some(file.clone()),
        None => variable(CONFIG).map(PathBuf::from),
    };
    misspelt_variables(&command).iter().for_each(|text| output::note(text));
    let mut added = Vec::new();
    let file_entries = file.as_deref().map(config::read).transpose()?.unwrap_or_default();
    for layer in [environment(&command), file_entries] {
        let mut taken_here = BTreeSet::new();
        for entry in layer {
            let argument = find(&command, &entry)?;
            let typed = typed(argument, &entry)?;
            check(&command, &typed, &entry)?;
            if !taken.contains(argument.get_id().as_str()) {
                take(&mut taken_here, argument);
                added.extend(typed);
            }
        }
        taken.append(&mut taken_here);
    }
    let start = words.iter().position(|word| word == "serve").map_or(words.len(), |at| at + 1);
    let (before, after) = words.split_at(start);
    Ok(before.iter().chain(&added).chain(after).cloned().collect())
}

/// Notes that an option is given, and with it those that exclude it.
fn take(taken: &mut BTreeSet<String>, argument: &Arg) {
    let id = argument.get_id().as_str();
    taken.insert(id.to_owned());
    if POLICY.contains(&id) {
        taken.extend(POLICY.map(str::to_owned));
    }
    for own in CERTIFICATES.iter().filter(|source| source.contains(&id)) {
        let others = CERTIFICATES.iter().filter(|source| *source != own);
        taken.extend(others.flat_map(|source| source.iter().map(|id| (*id).to_owned())));
    }
}

/// Returns the options of the variables. An empty variable counts as unset: compose files set
/// such ones.
fn environment(command: &Command) -> Vec<ConfigKey> {
    let arguments = command.get_arguments().filter(|each| is_settable(each));
    let entries = arguments.filter_map(|argument| {
        let place = format!("{PREFIX}{}", argument.get_id().as_str().to_uppercase());
        let text = variable(&place)?;
        let is_list = matches!(argument.get_action(), ArgAction::Append);
        let values = if is_list { lines(&text) } else { vec![text] };
        Some(ConfigKey { place, name: name(argument).to_owned(), values })
    });
    entries.collect()
}

/// Returns a warning for each variable whose name is nearly that of an option.
fn misspelt_variables(command: &Command) -> Vec<String> {
    let settable = command.get_arguments().filter(|each| is_settable(each));
    let known: Vec<_> = settable
        .map(|each| format!("{PREFIX}{}", each.get_id().as_str().to_uppercase()))
        .chain(OTHERS.map(str::to_owned))
        .collect();
    let given = env::vars_os().filter(|(_, value)| !value.is_empty());
    let mut warnings: Vec<_> = given
        .filter_map(|(name, _)| name.into_string().ok())
        .filter(|name| name.starts_with(PREFIX) && !known.contains(name))
        .filter_map(|name| {
            // One slip of the fingers in a short name, two in a long one.
            let most = if name.len() < PREFIX.len() + 8 { 1 } else { 2 };
            let meant = known.iter().find(|known| damerau_levenshtein(known, &name) <= most)?;
            Some(format!("{name} is no option and has no effect: is {meant} meant?"))
        })
        .collect();
    warnings.sort();
    warnings
}

fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

/// Returns the values of a list: one a line, for passwords and patterns may contain everything
/// else.
fn lines(text: &OsStr) -> Vec<OsString> {
    let lines = text.as_bytes().split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| OsString::from_vec(line.to_vec())).collect()
}

fn find<'c>(command: &'c Command, entry: &ConfigKey) -> Result<&'c Arg> {
    let mut known = command.get_arguments().filter(|each| is_settable(each));
    known.find(|each| name(each) == entry.name).ok_or_else(|| {
        Failure::Usage(format!(
            "{}: there is no option --{} (keys are the long names that serve --help lists)",
            entry.place, entry.name
        ))
    })
}

/// Returns the words one would have typed.
fn typed(argument: &Arg, entry: &ConfigKey) -> Result<Vec<OsString>> {
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
            None => Err(wrong(entry, "is neither true nor false")),
        },
        // Joined so that no name of a folder can be taken for an option.
        (_, [value]) if argument.is_positional() => Ok(vec![Path::new(".").join(value).into()]),
        (_, [value]) => Ok(vec![prefix(value)]),
        _ => Err(wrong(entry, "takes one value")),
    }
}

fn is_yes(value: &OsStr) -> Option<bool> {
    match value.to_str()?.to_ascii_lowercase().as_str() {
        "1" | "on" | "true" | "yes" => Some(true),
        "0" | "false" | "no" | "off" => Some(false),
        _ => None,
    }
}

/// Parses an entry alone, so that the message can name its source.
fn check(command: &Command, typed: &[OsString], entry: &ConfigKey) -> Result<()> {
    let words = [OsString::from("serve")].into_iter().chain(typed.iter().cloned());
    match command.clone().try_get_matches_from(words) {
        Ok(_) => Ok(()),
        Err(error) => Err(Failure::Usage(format!("{}: {}", entry.place, fmt_reason(&error)))),
    }
}

fn wrong(entry: &ConfigKey, what: &str) -> Failure {
    Failure::Usage(format!("{}: {} {what}", entry.place, entry.name))
}

/// Returns the key of an option: its long name; the folder's is its own.
fn name(argument: &Arg) -> &str {
    argument.get_long().unwrap_or(argument.get_id().as_str())
}

fn is_settable(argument: &Arg) -> bool {
    const TYPED: [&str; 5] = ["completions", "config", "help", "print_manpage", "write_manpages"];
    !TYPED.contains(&argument.get_id().as_str())
}

/// Of these only one can be given.
const POLICY: [&str; 3] = ["mechanism", "no_zero_copy", "prefer"];

/// A certificate is made, there are files of one, or an authority issues it: of these sources only one
/// can be given.
const CERTIFICATES: [&[&str]; 3] = [
    &["tls"],
    &["tls_cert", "tls_key"],
    &["acme", "acme_ca", "acme_directory", "acme_email", "acme_state"],
];

const CONFIG: &str = "UNDERPASS_CONFIG";

const PREFIX: &str = "UNDERPASS_";

/// Variables that are no options of the server.
const OTHERS: [&str; 2] = [CONFIG, "UNDERPASS_BEARER"];
