//! The lines about certificates from a certificate authority.

use std::time::SystemTime;

use indicatif::HumanDuration;
use jiff::Timestamp;
use underpass_acme::AcmeEvent;

use crate::output::{error_line, note};

/// Prints that these names have no certificate yet from the authority at `host`.
pub(super) fn missing(names: &[&str], host: &str) {
    if !names.is_empty() {
        let names = names.join(" and ");
        note(&format!(
            "no certificate for {names} yet: clients are refused until {host} has issued one"
        ));
    }
}

/// Prints what happened to a certificate.
pub(super) fn event(event: &AcmeEvent<'_>, host: &str, is_quiet: bool) {
    match event {
        AcmeEvent::Registered { terms } => {
            let terms = match terms {
                Some(terms) => format!(", agreeing to its terms: {terms}"),
                None => String::new(),
            };
            note(&format!("registered an account at {host}{terms}"));
        }
        AcmeEvent::Obtained { .. } if is_quiet => {}
        AcmeEvent::Obtained { name, until, is_from_other } => {
            let by = if *is_from_other { ", which another process has ordered" } else { "" };
            let day = day(*until);
            error_line(&format!("the certificate of {name} from {host} is valid until {day}{by}"));
        }
        AcmeEvent::Failed { name, error, wait, until } => {
            let wait = HumanDuration(*wait);
            let present = match until {
                Some(until) => format!("; the current one expires on {}", day(*until)),
                None => String::new(),
            };
            note(&format!(
                "no new certificate for {name} from {host}: {error}; next attempt in {wait}{present}"
            ));
        }
        AcmeEvent::NotKept { name, error } => note(&format!(
            "the certificate of {name} is in use, but will be lost at the next start: {error}"
        )),
        _ => {}
    }
}

fn day(time: SystemTime) -> String {
    let time = Timestamp::try_from(time).unwrap_or(Timestamp::MAX);
    time.strftime("%Y-%m-%d %H:%M UTC").to_string()
}
