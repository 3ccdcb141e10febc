//! Log formats with `$variables`, which have the names and meanings of nginx's variables if those
//! exist.

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

/// A piece of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
enum TemplatePart {
    /// A request field, `$http_name`.
    Field(String),
    /// The text between variables.
    Literal(String),
    /// A variable.
    Variable(Variable),
}

/// A variable of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variable {
    /// The bytes of the body that were given to the kernel.
    BodyBytesSent,
    /// The bytes of the body that the peer's kernel has acknowledged.
    BytesAcknowledged,
    /// The length of the body in bytes.
    BytesExpected,
    /// The bytes of the request's body that were received.
    BytesReceived,
    /// The number of system calls that moved bytes.
    Calls,
    /// `complete`, or the failure.
    Completed,
    /// The number of context switches.
    ContextSwitches,
    /// The processor time in seconds.
    CpuTime,
    /// The operations that the kernel declined.
    Declined,
    /// The `Referer` field.
    HttpReferer,
    /// The `User-Agent` field.
    HttpUserAgent,
    /// The mechanisms that moved bytes.
    Mechanism,
    /// The mechanisms that moved bytes, with bytes and calls.
    Moved,
    /// The time in seconds since 1970.
    Msec,
    /// The address of the client.
    RemoteAddr,
    /// The user.
    RemoteUser,
    /// The request line.
    Request,
    /// The method.
    RequestMethod,
    /// The duration in seconds.
    RequestTime,
    /// The request target.
    RequestUri,
    /// `https` or `http`.
    Scheme,
    /// The name of the site.
    ServerName,
    /// The version of the request.
    ServerProtocol,
    /// The cipher suite.
    SslCipher,
    /// The version of TLS.
    SslProtocol,
    /// `r` if an earlier session was resumed, `.` if not.
    SslSessionReused,
    /// The status.
    Status,
    /// The time in the format of RFC 3339.
    TimeIso8601,
    /// The time in the common log format.
    TimeLocal,
    /// The place of encryption.
    Tls,
    /// The bytes copied between user and kernel space.
    UserSpaceBytes,
}

/// The variables by name; in addition there is `$http_NAME` for every request field.
const VARIABLES: [(&str, Variable); 31] = [
    ("body_bytes_sent", Variable::BodyBytesSent),
    ("bytes_acknowledged", Variable::BytesAcknowledged),
    ("bytes_expected", Variable::BytesExpected),
    ("bytes_received", Variable::BytesReceived),
    ("calls", Variable::Calls),
    ("completed", Variable::Completed),
    ("context_switches", Variable::ContextSwitches),
    ("cpu_time", Variable::CpuTime),
    ("declined", Variable::Declined),
    ("http_referer", Variable::HttpReferer),
    ("http_user_agent", Variable::HttpUserAgent),
    ("mechanism", Variable::Mechanism),
    ("moved", Variable::Moved),
    ("msec", Variable::Msec),
    ("remote_addr", Variable::RemoteAddr),
    ("remote_user", Variable::RemoteUser),
    ("request", Variable::Request),
    ("request_method", Variable::RequestMethod),
    ("request_time", Variable::RequestTime),
    ("request_uri", Variable::RequestUri),
    ("scheme", Variable::Scheme),
    ("server_name", Variable::ServerName),
    ("server_protocol", Variable::ServerProtocol),
    ("ssl_cipher", Variable::SslCipher),
    ("ssl_protocol", Variable::SslProtocol),
    ("ssl_session_reused", Variable::SslSessionReused),
    ("status", Variable::Status),
    ("time_iso8601", Variable::TimeIso8601),
    ("time_local", Variable::TimeLocal),
    ("tls", Variable::Tls),
    ("user_space_bytes", Variable::UserSpaceBytes),
];

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
        let measured = [Variable::CpuTime, Variable::ContextSwitches];
        self.pieces
            .iter()
            .any(|piece| matches!(piece, TemplatePart::Variable(it) if measured.contains(it)))
    }

    /// Appends one line, without its end.
    pub(super) fn write(&self, exchange: &AccessEntry, time: &TimeText, out: &mut Vec<u8>) {
        for piece in &self.pieces {
            match piece {
                TemplatePart::Field(name) => {
                    let value = exchange.fields.iter().find(|(known, _)| known == name);
                    let value = value.map_or(&[][..], |(_, value)| value);
                    escape::push_or_dash(out, value, Quoting::Quoted);
                }
                TemplatePart::Literal(text) => out.extend_from_slice(text.as_bytes()),
                TemplatePart::Variable(variable) => variable.write(exchange, time, out),
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
        if let Some((_, variable)) = VARIABLES.iter().find(|(known, _)| *known == name) {
            self.pieces.push(TemplatePart::Variable(*variable));
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

/// The fields whose value is a password.
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

impl Variable {
    /// Appends the value of the variable.
    fn write(self, exchange: &AccessEntry, time: &TimeText, out: &mut Vec<u8>) {
        match self {
            Self::BodyBytesSent => escape::push_number(out, exchange.sent),
            Self::BytesAcknowledged => escape::push_number(out, exchange.acknowledged),
            Self::BytesExpected => escape::push_number(out, exchange.body_len),
            Self::BytesReceived => escape::push_number(out, exchange.received),
            Self::Calls => escape::push_number(out, exchange.calls),
            Self::Completed => out.extend_from_slice(exchange.completion().as_bytes()),
            Self::ContextSwitches => {
                let usage = exchange.usage;
                escape::push_number(out, usage.voluntary_switches + usage.involuntary_switches);
            }
            Self::CpuTime => {
                let time = exchange.usage.user + exchange.usage.system;
                escape::push_millionths(out, time.as_micros());
            }
            Self::Declined => push_declined(out, exchange),
            Self::HttpReferer => escape::push_or_dash(out, &exchange.referer, Quoting::Quoted),
            Self::HttpUserAgent => escape::push_or_dash(out, &exchange.user_agent, Quoting::Quoted),
            Self::Mechanism => push_mechanisms(out, exchange),
            Self::Moved => push_moved(out, exchange),
            Self::Msec => time.push_epoch(out),
            Self::RemoteAddr => escape::push_or_dash(out, exchange.peer.as_bytes(), Quoting::Bare),
            Self::RemoteUser => escape::push_or_dash(out, user(exchange), Quoting::Bare),
            Self::Request => push_request(out, exchange),
            Self::RequestMethod => escape::push(out, exchange.verb.as_bytes(), Quoting::Quoted),
            Self::RequestTime => escape::push_thousandths(out, milliseconds(exchange)),
            Self::RequestUri => escape::push(out, &exchange.target, Quoting::Quoted),
            Self::Scheme => out.extend_from_slice(exchange.scheme().as_bytes()),
            Self::ServerName => push_site(out, exchange),
            Self::ServerProtocol => push_protocol(out, exchange),
            Self::SslCipher => push_tls(out, exchange, |tls| tls.suite),
            Self::SslProtocol => push_tls(out, exchange, |tls| tls.version),
            Self::SslSessionReused => {
                push_tls(out, exchange, |tls| if tls.is_resumed { "r" } else { "." });
            }
            Self::Status => escape::push_number(out, u64::from(exchange.status)),
            Self::TimeIso8601 => out.extend_from_slice(time.rfc3339().as_bytes()),
            Self::TimeLocal => out.extend_from_slice(time.common().as_bytes()),
            Self::Tls => push_tls(out, exchange, Secured::place),
            Self::UserSpaceBytes => escape::push_number(out, exchange.user_space_bytes),
        }
    }
}

/// Appends the name of the site, or `-` if there is only one.
pub(super) fn push_site(out: &mut Vec<u8>, exchange: &AccessEntry) {
    let name = exchange.site.as_ref().map_or("", |site| site.name());
    escape::push_or_dash(out, name.as_bytes(), Quoting::Bare);
}

/// Appends a property of TLS, or `-` if there was none.
fn push_tls(out: &mut Vec<u8>, exchange: &AccessEntry, part: fn(&Secured) -> &'static str) {
    out.extend_from_slice(exchange.tls.as_ref().map_or("-", part).as_bytes());
}

/// Appends the bytes and calls of each mechanism, `sendfile:1048576/3`, or `-`.
fn push_moved(out: &mut Vec<u8>, exchange: &AccessEntry) {
    if exchange.mechanisms.is_empty() {
        out.push(b'-');
    }
    for (index, (name, tally)) in exchange.mechanisms.iter().enumerate() {
        if index > 0 {
            out.push(b'+');
        }
        out.extend_from_slice(name.as_bytes());
        out.push(b':');
        escape::push_number(out, tally.bytes);
        out.push(b'/');
        escape::push_number(out, tally.calls);
    }
}

/// Appends the operations that the kernel declined, or `-`.
fn push_declined(out: &mut Vec<u8>, exchange: &AccessEntry) {
    if exchange.declined.is_empty() {
        out.push(b'-');
    }
    for (index, decline) in exchange.declined.iter().enumerate() {
        if index > 0 {
            out.extend_from_slice(b", ");
        }
        escape::push(out, decline.as_bytes(), Quoting::Quoted);
    }
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
