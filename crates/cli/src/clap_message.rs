//! The message about a wrong command line, in one line.

use std::error::Error;
use std::num::{IntErrorKind, ParseIntError};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use strsim::damerau_levenshtein;
use underpass_client::input;

use crate::foreign_options;

/// Returns clap's message in one line, without its advice about the usage, and without passwords.
pub(crate) fn clap_message(error: &clap::Error) -> String {
    let mut text = error.to_string();
    if let Some((value, shown)) = secret(error) {
        text = text.replace(value, &shown);
    }
    if let Some((words, plain)) = number_fault(error) {
        text = text.replace(&words, &plain);
    }
    let is_near = is_near(error);
    let lines = text
        .lines()
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"))
        .map(|line| line.trim().trim_start_matches("error: "))
        // An option that does not exist is seldom meant as the name of a file.
        .filter(|line| !line.is_empty() && !line.starts_with("tip: to pass '"))
        .filter(|line| is_near || !line.starts_with("tip: a similar"));
    let message = lines.fold(String::new(), |message, line| match line {
        line if message.is_empty() => line.to_owned(),
        line if line.starts_with("tip: ") => message + "; " + line,
        line => message + " " + line,
    });
    match foreign_advice(error) {
        Some(advice) => format!("{message}: {advice}"),
        None => message,
    }
}

/// Returns what to use instead of an option or a command that only other programs have.
fn foreign_advice(error: &clap::Error) -> Option<&'static str> {
    let text = |kind| match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        ContextValue::StyledStr(text) => Some(text.to_string()),
        _ => None,
    };
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            foreign_options::advice(&text(ContextKind::InvalidSubcommand)?, None)
        }
        ErrorKind::UnknownArgument => {
            let (usage, option) = (text(ContextKind::Usage)?, text(ContextKind::InvalidArg)?);
            // "Usage: underpass get ..."
            let command = usage.split_whitespace().nth(2)?;
            foreign_options::advice(command, Some(&option))
        }
        _ => None,
    }
}

/// Returns the message of the parser about a number, and a clearer one.
fn number_fault(error: &clap::Error) -> Option<(String, String)> {
    let source = error.source()?;
    let words = source.to_string();
    if let Some((number, range)) = words.split_once(" is not in ")
        && let Some((min, max)) = range.split_once("..=")
    {
        let plain = format!("{number} is not between {min} and {max}");
        return Some((words, plain));
    }
    let plain = match source.downcast_ref::<ParseIntError>()?.kind() {
        IntErrorKind::PosOverflow => "the number is too large",
        IntErrorKind::NegOverflow => "the number is too small",
        IntErrorKind::Zero => "the number must be at least 1",
        _ => "a whole number is needed",
    };
    Some((words, plain.to_owned()))
}

/// Returns the value that clap's message has, and how it may be shown, if it may have a secret.
fn secret(error: &clap::Error) -> Option<(&str, String)> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let value = text(ContextKind::InvalidValue).filter(|value| !value.is_empty())?;
    let option = text(ContextKind::InvalidArg).unwrap_or_default();
    let shown = match value.split_once(':') {
        _ if option.starts_with("--bearer") => "***".to_owned(),
        Some((name, _)) if option.starts_with("--header") => format!("{name}: ***"),
        Some((_, rest)) if rest.contains('@') => input::redacted(value),
        _ => return None,
    };
    Some((value, shown))
}

/// Returns whether the suggestion of clap is nearly the typed word, or begins with it.
fn is_near(error: &clap::Error) -> bool {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => text.as_str(),
        Some(ContextValue::Strings(texts)) => texts.first().map_or("", String::as_str),
        _ => "",
    };
    let (typed, near) = match error.kind() {
        ErrorKind::InvalidSubcommand => {
            (ContextKind::InvalidSubcommand, ContextKind::SuggestedSubcommand)
        }
        _ => (ContextKind::InvalidArg, ContextKind::SuggestedArg),
    };
    let (typed, near) = (text(typed), text(near));
    near.starts_with(typed) || damerau_levenshtein(typed, near) <= (typed.len() / 4).max(1)
}
