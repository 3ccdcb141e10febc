//! Log formats with `$variables`, which have the names and meanings of nginx's variables where
//! those exist.

use crate::access_log::combined::{
    milliseconds, push_mechanisms, push_protocol, push_request, user,
};
use crate::access_log::escape;
use crate::access_log::escape::Quoting;
use crate::access_log::{AccessEntry, Secured, TimeText};

/// A log format with `$variables`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// The pieces, in order.
    pieces: Vec<TemplatePart>,
    /// The request fields that it names, in lower case.
    needs: Vec<String>,
}

/// A part of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplatePart {
    /// A request field, `$http_name`.
    Field(String),
    /// The text between variables.
    Literal(String),
    /// A variable, by its index in [`VARIABLES`].
    Variable(usize),
}

/// Appends the value of a variable.
type WriteVariable = fn(&AccessEntry, &TimeText, &mut Vec<u8>);

/// The variables by name; in addition there is `$http_NAME` for every request field. Their meanings
/// are in docs/operating.md.
const VARIABLES: [(&str, WriteVariable); 34] = [
    ("body_bytes_sent", |entry, _, out| escape::push_number(out, entry.sent)),
    ("bytes_acknowledged", |entry, _, out| escape::push_number(out, entry.acknowledged)),
    ("bytes_expected", |entry, _, out| escape::push_number(out, entry.body_len)),
    ("bytes_received", |entry, _, out| escape::push_number(out, entry.received)),
    ("cache", |entry, _, out| out.extend_from_slice(entry.cache.unwrap_or("-").as_bytes())),
    ("calls", |entry, _, out| escape::push_number(out, entry.calls)),
    ("completed", |entry, _, out| out.extend_from_slice(entry.completion().as_bytes())),
    ("context_switches", |entry, _, out| {
        let usage = entry.usage;
        escape::push_number(out, usage.voluntary_switches + usage.involuntary_switches);
    }),
    ("cpu_time", |entry, _, out| {
        let time = entry.usage.user + entry.usage.system;
        escape::push_millionths(out, time.as_micros());
    }),
    ("declined", |entry, _, out| push_declined(out, entry)),
    ("http_referer", |entry, _, out| escape::push_or_dash(out, &entry.referer, Quoting::Quoted)),
    ("http_user_agent", |entry, _, out| {
        escape::push_or_dash(out, &entry.user_agent, Quoting::Quoted)
    }),
    ("mechanism", |entry, _, out| push_mechanisms(out, entry)),
    ("moved", |entry, _, out| push_moved(out, entry)),
    ("msec", |_, time, out| time.push_epoch(out)),
    ("origin_bytes", |entry, _, out| escape::push_number(out, entry.origin_bytes)),
    ("remote_addr", |entry, _, out| {
        escape::push_or_dash(out, entry.peer.as_bytes(), Quoting::Bare)
    }),
    ("remote_user", |entry, _, out| escape::push_or_dash(out, user(entry), Quoting::Bare)),
    ("request", |entry, _, out| push_request(out, entry)),
    ("request_method", |entry, _, out| {
        escape::push_or_dash(out, entry.verb.as_bytes(), Quoting::Quoted)
    }),
    ("request_time", |entry, _, out| escape::push_thousandths(out, milliseconds(entry))),
    ("request_uri", |entry, _, out| escape::push_or_dash(out, &entry.target, Quoting::Quoted)),
    ("scheme", |entry, _, out| out.extend_from_slice(entry.scheme().as_bytes())),
    ("server_name", |entry, _, out| push_site(out, entry)),
    ("server_protocol", |entry, _, out| match &*entry.verb {
        // The request could not be parsed.
        "" => out.push(b'-'),
        _ => push_protocol(out, entry),
    }),
    ("ssl_cipher", |entry, _, out| push_tls(out, entry, |tls| tls.suite)),
    ("ssl_protocol", |entry, _, out| push_tls(out, entry, |tls| tls.version)),
    ("ssl_session_reused", |entry, _, out| {
        push_tls(out, entry, |tls| if tls.is_resumed { "r" } else { "." })
    }),
    ("status", |entry, _, out| escape::push_number(out, u64::from(entry.status))),
    ("time_iso8601", |_, time, out| out.extend_from_slice(time.rfc3339().as_bytes())),
    ("time_local", |_, time, out| out.extend_from_slice(time.common().as_bytes())),
    ("tls", |entry, _, out| push_tls(out, entry, Secured::place)),
    ("user_space_bytes", |entry, _, out| escape::push_number(out, entry.user_space_bytes)),
    ("waited", |entry, _, out| {
        escape::push_thousandths(out, u64::try_from(entry.waited.as_millis()).unwrap_or(u64::MAX));
    }),
];

/// The variables whose values have to be measured.
const MEASURED: [&str; 2] = ["context_switches", "cpu_time"];

impl Template {
    /// Parses a template. A variable is written `$name` or `${name}`.
    ///
    /// # Errors
    ///
    /// [`TemplateError`] for the first variable that does not exist.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        if text.chars().any(|character| character.is_control() && character != '\t') {
            return Err(TemplateError::Control);
        }
        let mut template = Self { pieces: Vec::new(), needs: Vec::new() };
        let mut parts = text.split('$');
        template.literal(parts.next().unwrap_or_default());
        for part in parts {
            let (name, literal) = variable_name(part)?;
            template.variable(name)?;
            template.literal(literal);
        }
        Ok(template)
    }

    /// Returns the request fields that it names, in lower case.
    pub(super) fn needs(&self) -> &[String] {
        &self.needs
    }

    /// Returns whether it names values that have to be measured.
    pub(super) fn logs_cost(&self) -> bool {
        let is_measured = |piece: &TemplatePart| match piece {
            TemplatePart::Variable(at) => MEASURED.contains(&VARIABLES[*at].0),
            _ => false,
        };
        self.pieces.iter().any(is_measured)
    }

    /// Appends one line, without a newline.
    pub(super) fn write(&self, entry: &AccessEntry, time: &TimeText, out: &mut Vec<u8>) {
        for piece in &self.pieces {
            match piece {
                TemplatePart::Field(name) => {
                    let value = entry.fields.iter().find(|(known, _)| known == name);
                    let value = value.map_or(&[][..], |(_, value)| value);
                    escape::push_or_dash(out, value, Quoting::Quoted);
                }
                TemplatePart::Literal(text) => out.extend_from_slice(text.as_bytes()),
                TemplatePart::Variable(at) => VARIABLES[*at].1(entry, time, out),
            }
        }
    }

    /// Adds text between variables.
    fn literal(&mut self, text: &str) {
        if !text.is_empty() {
            self.pieces.push(TemplatePart::Literal(text.into()));
        }
    }

    /// Adds a variable.
    fn variable(&mut self, name: &str) -> Result<(), TemplateError> {
        if let Some(at) = VARIABLES.iter().position(|(known, _)| *known == name) {
            self.pieces.push(TemplatePart::Variable(at));
            return Ok(());
        }
        let field = name.strip_prefix("http_").filter(|field| !field.is_empty());
        let Some(field) = field else { return Err(TemplateError::Unknown(name.into())) };
        let field = field.replace('_', "-").to_ascii_lowercase();
        if SECRET_FIELDS.contains(&&*field) {
            return Err(TemplateError::Secret(name.into()));
        }
        if !self.needs.contains(&field) {
            self.needs.push(field.clone());
        }
        self.pieces.push(TemplatePart::Field(field));
        Ok(())
    }
}

/// The fields whose values contain passwords.
const SECRET_FIELDS: [&str; 2] = ["authorization", "proxy-authorization"];

/// Splits the text after a `$` into the name of a variable and the rest.
fn variable_name(text: &str) -> Result<(&str, &str), TemplateError> {
    let parts = match text.strip_prefix('{') {
        Some(text) => text.split_once('}'),
        None => {
            let end = text
                .find(|character: char| !(character.is_ascii_alphanumeric() || character == '_'));
            Some(text.split_at(end.unwrap_or(text.len())))
        }
    };
    parts.filter(|(name, _)| !name.is_empty()).ok_or(TemplateError::NoName)
}

/// Appends the name of the site, or `-` if there is only one.
pub(super) fn push_site(out: &mut Vec<u8>, entry: &AccessEntry) {
    let name = entry.site.as_ref().map_or("", |site| site.name());
    escape::push_or_dash(out, name.as_bytes(), Quoting::Bare);
}

/// Appends a property of TLS, or `-` without TLS.
fn push_tls(out: &mut Vec<u8>, entry: &AccessEntry, part: fn(&Secured) -> &'static str) {
    out.extend_from_slice(entry.tls.as_ref().map_or("-", part).as_bytes());
}

/// Appends the bytes and calls of each mechanism, `sendfile:1048576/3`, or `-`.
fn push_moved(out: &mut Vec<u8>, entry: &AccessEntry) {
    escape::push_joined(out, &entry.mechanisms, b"+", |out, (mechanism, tally)| {
        out.extend_from_slice(mechanism.name().as_bytes());
        out.push(b':');
        escape::push_number(out, tally.bytes);
        out.push(b'/');
        escape::push_number(out, tally.calls);
    });
}

/// Appends the operations that the kernel declined, or `-`.
fn push_declined(out: &mut Vec<u8>, entry: &AccessEntry) {
    escape::push_joined(out, &entry.declined, b", ", |out, decline| {
        escape::push(out, decline.as_bytes(), Quoting::Quoted);
    });
}

/// The error of a text that is not a [`Template`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// It contains a newline or another control character.
    #[error("the log format contains a control character: a record is one line")]
    Control,
    /// A `$` is not followed by a name.
    #[error("a $ in the log format is not followed by a name: write $name or ${{name}}")]
    NoName,
    /// The variable would write passwords into the log.
    #[error("${0} would write passwords into the log: use $remote_user")]
    Secret(String),
    /// There is no such variable.
    #[error(
        "there is no ${name} in log formats; there are {names}and $http_NAME for every request header",
        name = .0,
        names = variable_names()
    )]
    Unknown(String),
}

fn variable_names() -> String {
    VARIABLES.iter().map(|(name, _)| format!("${name}, ")).collect()
}
