//! The options that several commands have in common.

use std::io::IsTerminal;
use std::time::Duration;

use clap::builder::{OsStringValueParser, PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum, ValueHint};
use underpass_copy::ExcludePattern;
use underpass_engine::wait::StallDetector;
use underpass_engine::{Integrity, Mechanism, NotASize, Options, Policy, Size};
use underpass_protocol::digest::Algorithm;

/// The options of the engine.
#[derive(Debug, Args)]
#[command(next_help_heading = "Transfer")]
pub(crate) struct EngineArgs {
    /// Use only this mechanism; a refusal is an error: reflink, copy_file_range, sendfile,
    /// splice, mmap or read_write
    #[arg(long, value_name = "NAME", overrides_with_all = ["prefer", "no_zero_copy"],
        value_parser = mechanism(), hide_possible_values = true)]
    mechanism: Option<Mechanism>,

    /// Try this mechanism first
    #[arg(long, value_name = "NAME", overrides_with_all = ["mechanism", "no_zero_copy"],
        value_parser = mechanism(), hide_possible_values = true)]
    prefer: Option<Mechanism>,

    /// Copy through user space only; the same as --mechanism read_write
    #[arg(long, overrides_with_all = ["mechanism", "prefer"])]
    no_zero_copy: bool,

    /// Request this many bytes in one system call, such as 64K or 1M [default: by mechanism]
    #[arg(long, value_name = "SIZE", value_parser = step)]
    step: Option<Size>,
}

/// When something is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum When {
    /// If it is possible.
    Auto,
    /// Always; it fails where it is not possible.
    Always,
    /// Never.
    Never,
}

impl When {
    /// Returns whether output for people is printed on standard error.
    pub(crate) fn is_shown(self) -> bool {
        match self {
            Self::Auto => std::io::stderr().is_terminal(),
            Self::Always => true,
            Self::Never => false,
        }
    }
}

/// The options of one transfer.
#[derive(Debug, Args)]
#[command(next_help_heading = "Transfer")]
pub(crate) struct MoveArgs {
    #[command(flatten)]
    pub(crate) engine: EngineArgs,

    /// Guard against changes of the source while it is read: fast (no check), detect (fail if it
    /// changed), lease (make writers wait) or snapshot (move a clone)
    #[arg(long, value_name = "LEVEL", default_value = "detect", value_parser = integrity(),
        hide_possible_values = true)]
    pub(crate) integrity: Integrity,

    #[command(flatten)]
    pub(crate) show: ShowArgs,
}

/// The options of a stream.
#[derive(Debug, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct StreamArgs {
    /// Use this congestion control; auto is the system's own, but over loopback never one that
    /// paces
    #[arg(long, value_name = "NAME", default_value = "auto", value_hint = ValueHint::Other)]
    pub(crate) congestion: String,

    /// Fail when nothing, or less than 10 bytes per second, has moved for this time, or no
    /// connection was made: 30, 5m [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub(crate) timeout: Option<Duration>,
}

impl StreamArgs {
    /// Returns the detector for a peer that moves too little while this side waits for it.
    pub(crate) fn stall_detector(&self, min_rate: u64) -> StallDetector {
        StallDetector::new(self.timeout, min_rate)
    }

    /// Adds these options to those of the engine.
    pub(crate) fn apply<'a>(
        &self,
        options: Options<'a>,
        stall: &'a mut StallDetector,
    ) -> Options<'a> {
        match self.timeout {
            Some(timeout) => options.timeout(timeout).stall_detector(stall),
            None => options,
        }
    }
}

/// The options for the messages about a transfer.
#[derive(Clone, Copy, Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct ShowArgs {
    /// Print the receipt on standard error: how the bytes moved and what it cost
    #[arg(long)]
    pub(crate) explain: bool,

    /// Print the receipt as one JSON object on standard output
    #[arg(long)]
    pub(crate) json: bool,

    /// Show progress even if standard error is not a terminal: a line each second
    #[arg(long, overrides_with = "quiet")]
    pub(crate) progress: bool,

    /// Print only errors, and what --explain and --json request
    #[arg(short, long, overrides_with = "progress")]
    pub(crate) quiet: bool,
}

impl EngineArgs {
    /// Returns the mechanisms that these arguments allow.
    pub(crate) fn policy(&self) -> Policy {
        match (self.mechanism, self.prefer) {
            (Some(mechanism), _) => Policy::Require(mechanism),
            (_, Some(mechanism)) => Policy::Prefer(mechanism),
            _ if self.no_zero_copy => Policy::Require(Mechanism::ReadWrite),
            _ => Policy::Auto,
        }
    }

    /// Returns the bytes to request in one system call, if given.
    pub(crate) fn step(&self) -> Option<usize> {
        self.step.map(|Size(bytes)| usize::try_from(bytes).unwrap_or(usize::MAX))
    }
}

impl MoveArgs {
    /// Returns the options of the engine for these arguments.
    pub(crate) fn options<'a>(&self) -> Options<'a> {
        let options = Options::default().policy(self.engine.policy()).integrity(self.integrity);
        match self.engine.step() {
            Some(bytes) => options.step(bytes),
            None => options,
        }
    }
}

/// Parses the name of a mechanism.
fn mechanism() -> impl TypedValueParser<Value = Mechanism> {
    let names = Mechanism::ALL.map(Mechanism::name);
    PossibleValuesParser::new(names).try_map(|name| name.parse::<Mechanism>())
}

/// Parses the name of an integrity level.
pub(crate) fn integrity() -> impl TypedValueParser<Value = Integrity> {
    let names = Integrity::ALL.map(Integrity::name);
    PossibleValuesParser::new(names).try_map(|name| name.parse::<Integrity>())
}

/// Parses the name of a digest, with or without its dash.
pub(crate) fn algorithm() -> impl TypedValueParser<Value = Algorithm> {
    let names = Algorithm::ALL.map(|each| {
        PossibleValue::new(each.name()).alias(match each {
            Algorithm::Sha256 => "sha256",
            Algorithm::Sha512 => "sha512",
        })
    });
    PossibleValuesParser::new(names).try_map(|name| name.parse::<Algorithm>())
}

/// Parses a pattern of entries to leave out.
pub(crate) fn pattern() -> impl TypedValueParser<Value = ExcludePattern> {
    OsStringValueParser::new().try_map(|glob| ExcludePattern::new(&glob))
}

/// Parses the bytes of one system call.
fn step(text: &str) -> Result<Size, String> {
    above_zero(text, "a step is at least one byte")
}

/// Parses a rate in bytes per second.
pub(crate) fn rate(text: &str) -> Result<Size, String> {
    above_zero(text, "a rate is at least one byte per second, or nothing would arrive")
}

fn above_zero(text: &str, otherwise: &str) -> Result<Size, String> {
    match text.parse() {
        Ok(Size(0)) => Err(otherwise.to_owned()),
        size => size.map_err(|error: NotASize| error.to_string()),
    }
}

/// Parses a time of at least a millisecond, in the form of [`duration`].
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err(format!("0 is not a valid time here: {DURATION}")),
        time if time < MIN_TIME => Err("the time is shorter than 1ms".to_owned()),
        time => Ok(time),
    }
}

/// Parses a time: seconds, or a number with a unit; each with or without a fraction.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let number = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match text[number.len()..].to_ascii_lowercase().as_str() {
        "ms" => Some(0.001),
        "" | "s" | "sec" => Some(1.0),
        "m" | "min" => Some(60.0),
        "h" => Some(3_600.0),
        "d" => Some(86_400.0),
        _ => None,
    };
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let number = number.parse::<f64>().ok().filter(|_| is_number);
    let (unit, number) = unit.zip(number).ok_or(DURATION)?;
    Duration::try_from_secs_f64(unit * number).map_err(|_| "the time is too long".to_owned())
}

/// The resolution of the server's timers.
const MIN_TIME: Duration = Duration::from_millis(1);

/// The form of a time, for messages.
const DURATION: &str =
    "a time is a number of seconds, or has one unit, such as 500ms, 5m, 2h or 1d";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_unit_or_is_in_seconds() {
        for (text, millis) in [
            ("30", 30_000),
            ("0.5", 500),
            ("1.5s", 1_500),
            ("250ms", 250),
            ("5m", 300_000),
            ("2H", 7_200_000),
            ("1d", 86_400_000),
        ] {
            assert_eq!(seconds(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        assert_eq!(duration("0"), Ok(Duration::ZERO));
        assert_eq!(seconds("99999999999999999999"), Err("the time is too long".to_owned()));
        for text in [
            "",
            "0",
            "0.5ms",
            "0.000000001",
            "-1",
            "1h1m",
            "+1",
            "5x",
            "m",
            "1e3",
            "inf",
            "1 2",
            "0m",
            "1.2.3",
        ] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
