//! Values that may be abbreviated, as those of coreutils' options.

use std::ffi::{OsStr, OsString};
use std::marker::PhantomData;

use clap::builder::{EnumValueParser, PossibleValue, TypedValueParser};
use clap::{Arg, Command, Error, ValueEnum};

/// Parses the names of a value, and every beginning that no other value's names have.
#[derive(Clone, Debug)]
pub(super) struct Abbreviated<T>(PhantomData<T>);

impl<T> Abbreviated<T> {
    pub(super) fn new() -> Self {
        Self(PhantomData)
    }
}

impl<T: ValueEnum + Clone + Send + Sync + 'static> TypedValueParser for Abbreviated<T> {
    type Value = T;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<Self::Value, Error> {
        let whole =
            value.to_str().and_then(find::<T>).map(|found| OsString::from(found.get_name()));
        let whole = whole.as_deref().unwrap_or(value);
        EnumValueParser::new().parse_ref(command, arg, whole)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let values = T::value_variants().iter().filter_map(ValueEnum::to_possible_value);
        Some(Box::new(values))
    }
}

/// Returns the only value that has this name or this beginning of one. Hidden values cannot be
/// abbreviated.
pub(super) fn find<T: ValueEnum>(word: &str) -> Option<PossibleValue> {
    let values = || T::value_variants().iter().filter_map(ValueEnum::to_possible_value);
    if let Some(exact) = values().find(|value| value.matches(word, false)) {
        return Some(exact);
    }
    let begins = |value: &PossibleValue| {
        let mut names = value.get_name_and_aliases();
        !value.is_hide_set() && names.any(|name| name.starts_with(word))
    };
    let mut found = values().filter(begins);
    found.next().filter(|_| found.next().is_none())
}
