//! Options from environment variables, and warnings of misspelt ones.

use std::env;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use clap::{ArgAction, Args, Command};
use strsim::damerau_levenshtein;

use super::super::args::ServeArgs;
use super::config::ConfigKey;
use super::keys::{is_settable, max_typos, name};
use crate::output;

/// Warns of variables whose names are nearly those of options of the server.
pub(crate) fn warn_of_variables() {
    let command = ServeArgs::augment_args(Command::new("serve"));
    let settable = command.get_arguments().filter(|each| is_settable(each));
    let known = settable
        .map(|each| format!("{PREFIX}{}", each.get_id().as_str().to_uppercase()))
        .chain([CONFIG, BEARER].map(str::to_owned));
    misspelt_variables(&known.collect::<Vec<_>>()).iter().for_each(|text| output::note(text));
}

/// Warns of variables whose names are nearly that of the one for requests.
pub(crate) fn warn_of_variables_of_requests() {
    misspelt_variables(&[BEARER.to_owned()]).iter().for_each(|text| output::note(text));
}

/// Returns the options of the variables. An empty variable counts as unset: compose files set
/// such ones.
pub(super) fn environment(command: &Command) -> Vec<ConfigKey> {
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
fn misspelt_variables(known: &[String]) -> Vec<String> {
    let given = env::vars_os().filter(|(_, value)| !value.is_empty());
    let mut warnings: Vec<_> = given
        .filter_map(|(name, _)| name.into_string().ok())
        .filter(|name| name.starts_with(PREFIX) && !known.contains(name))
        .filter_map(|name| {
            let max = max_typos(name.len() - PREFIX.len());
            let meant = known
                .iter()
                .find(|known| damerau_levenshtein(known, &name.to_uppercase()) <= max)?;
            Some(format!("{name} is not an option and has no effect: did you mean {meant}?"))
        })
        .collect();
    warnings.sort();
    warnings
}

/// Returns the value of a variable that is set and not empty.
pub(super) fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

/// Returns the values of a list: one per line, as passwords and patterns may contain any other
/// character.
fn lines(text: &OsStr) -> Vec<OsString> {
    let lines = text.as_bytes().split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| OsString::from_vec(line.to_vec())).collect()
}

/// The variable that names the config file.
pub(super) const CONFIG: &str = "UNDERPASS_CONFIG";

/// The beginning of the names of all variables.
const PREFIX: &str = "UNDERPASS_";

/// The token of requests; no option of the server.
const BEARER: &str = "UNDERPASS_BEARER";
