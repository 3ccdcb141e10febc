//! Parses the head of a request, and refuses heads that two servers could read differently.
//!
//! Request smuggling needs two servers on the way that understand a request differently. So every
//! head to which RFC 9110 and RFC 9112 give no single meaning is refused here, before any code uses
//! its path.

use httparse::Header;

use super::authority::{is_authority, split_absolute};

/// The method of a request, as far as a file server distinguishes methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// GET: the head and the body.
    Get,
    /// HEAD: the head alone.
    Head,
    /// OPTIONS: the supported methods.
    Options,
    /// PUT: the body becomes the file.
    Put,
    /// PATCH: the body becomes a part of the file.
    Patch,
    /// DELETE: the file or folder is removed.
    Delete,
    /// MKCOL: a folder is created (RFC 4918 9.3).
    Mkcol,
    /// MOVE: the file or folder is moved (RFC 4918 9.9).
    Move,
    /// COPY: the file or folder is copied (RFC 4918 9.8).
    Copy,
    /// PROPFIND: the properties of a file, or of a folder and its entries (RFC 4918 9.1).
    Propfind,
    /// PROPPATCH: properties of the file or folder are set (RFC 4918 9.2).
    Proppatch,
    /// LOCK: only this client may change the file or folder (RFC 4918 9.10).
    Lock,
    /// UNLOCK: the lock ends (RFC 4918 9.11).
    Unlock,
    /// Any other method; [`Request::verb`] has its name.
    Other,
}

/// The head of a request, borrowed from the received bytes.
#[derive(Clone, Copy, Debug)]
pub struct Request<'f, 'b> {
    /// The method.
    pub method: Method,
    /// The method as it was received.
    pub verb: &'b str,
    /// The target as it was received: `/path?query`, `http://host/path`, `*`, or `host:port`.
    pub target: &'b [u8],
    /// `1` in HTTP/1.1, and in versions from 1.2 to 1.9.
    pub minor_version: u8,
    fields: &'f [Header<'b>],
}

/// Parses the head of a request; the number is its length, with the blank line at its end.
///
/// `None` if the head is not complete yet: come back with more bytes. `storage` bounds the number
/// of fields. Empty lines before the request line are skipped (RFC 9112 2.2), [`EMPTY_LINES`]
/// bytes at most. A line may end in a bare LF, as section 2.2 allows and httparse does; a bare CR,
/// a NUL, a folded field and white space before a colon are refused. Bytes over 0x7F in the target,
/// which a client should have escaped, are accepted where they are UTF-8, again as httparse has it.
///
/// # Errors
///
/// The connection cannot be used again after any of them: where the next request would begin is
/// not known.
pub fn parse<'f, 'b>(
    bytes: &'b [u8],
    storage: &'f mut [Header<'b>],
) -> Result<Option<(Request<'f, 'b>, usize)>, Malformed> {
    let mut head = httparse::Request::new(storage);
    let status = match head.parse(bytes) {
        Ok(status) => status,
        Err(error) => {
            let later = (error == httparse::Error::Version).then(|| line_of_later_minor(bytes));
            return match later.flatten() {
                // On an error httparse gives all of the storage back.
                Some(line) => parse_later_minor(bytes, line, head.headers),
                None => Err(Malformed::of(error, bytes)),
            };
        }
    };
    if bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count() > EMPTY_LINES {
        return Err(Malformed::RequestLine);
    }
    let httparse::Status::Complete(len) = status else { return Ok(None) };
    let (Some(verb), Some(target), Some(minor_version)) = (head.method, head.path, head.version)
    else {
        return Err(Malformed::RequestLine);
    };
    let (target, method) = (target.as_bytes(), Method::of(verb));
    let request = Request { method, verb, target, minor_version, fields: head.headers };
    request.checked().map(|request| Some((request, len)))
}

/// Returns the length of the request line with its end, or so far, if its version is HTTP/1.2 to
/// HTTP/1.9.
fn line_of_later_minor(bytes: &[u8]) -> Option<usize> {
    let start = bytes.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    let len = bytes[start..].iter().position(|&byte| byte == b'\n');
    let end = len.map_or(bytes.len(), |len| start + len);
    let line = bytes[start..end].strip_suffix(b"\r").unwrap_or(&bytes[start..end]);
    match line {
        [.., b' ', b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'2'..=b'9'] => Some(end),
        _ => None,
    }
}

/// Parses a head of a later minor version as one of HTTP/1.1, which RFC 9110 2.5 permits.
fn parse_later_minor<'f, 'b>(
    bytes: &'b [u8],
    line: usize,
    storage: &'f mut [Header<'b>],
) -> Result<Option<(Request<'f, 'b>, usize)>, Malformed> {
    let text = bytes[..line].strip_suffix(b"\r").unwrap_or(&bytes[..line]);
    let known = [&text[..text.len() - 1], b"1\r\n\r\n"].concat();
    let mut none = [httparse::EMPTY_HEADER; 0];
    let mut head = httparse::Request::new(&mut none);
    head.parse(&known).map_err(|error| Malformed::of(error, bytes))?;
    let (Some(verb), Some(target)) = (head.method, head.path) else {
        return Err(Malformed::RequestLine);
    };
    let start = text.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    if start > EMPTY_LINES {
        return Err(Malformed::RequestLine);
    }
    let target = start + verb.len() + 1..start + verb.len() + 1 + target.len();
    let verb = str::from_utf8(&bytes[start..start + verb.len()]);
    let Ok(verb) = verb else { return Err(Malformed::RequestLine) };
    let Some(rest) = bytes.get(line + 1..) else { return Ok(None) };
    let parsed = httparse::parse_headers(rest, storage);
    let httparse::Status::Complete((len, fields)) =
        parsed.map_err(|error| Malformed::of(error, bytes))?
    else {
        return Ok(None);
    };
    let (target, method) = (&bytes[target], Method::of(verb));
    let request = Request { method, verb, target, minor_version: 1, fields };
    request.checked().map(|request| Some((request, line + 1 + len)))
}

/// The maximum number of bytes in a request's head.
pub const MAX_HEAD: usize = 32 << 10;

/// The length in bytes up to which a head is parsed after every read.
const CHEAP_HEAD: usize = 512;

/// Returns the error for a head of more than [`MAX_HEAD`] bytes: 414 if not even the request line
/// fits, otherwise 431.
#[must_use]
pub fn too_long(bytes: &[u8]) -> Malformed {
    let bytes = &bytes[..bytes.len().min(MAX_HEAD)];
    let line = bytes.iter().position(|byte| !matches!(byte, b'\r' | b'\n')).unwrap_or(0);
    if bytes[line..].contains(&b'\n') { Malformed::HeadTooLong } else { Malformed::TargetTooLong }
}

/// Returns whether a head may be complete, or too long, now that its last `read` bytes have
/// arrived. A head that arrives in tiny pieces is not parsed again for each of them.
#[must_use]
pub fn may_be_over(bytes: &[u8], read: usize) -> bool {
    let new = &bytes[bytes.len() - read..];
    bytes.len() <= CHEAP_HEAD || bytes.len() >= MAX_HEAD || new.contains(&b'\n')
}

impl<'b> Request<'_, 'b> {
    /// Returns the value of the first field of this name, without white space around it.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&'b [u8]> {
        self.fields(name).next()
    }

    /// Returns whether there is a field of this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.field(name).is_some()
    }

    /// Returns the values of all fields of this name, in their order.
    pub fn fields(&self, name: &str) -> impl Iterator<Item = &'b [u8]> {
        self.fields
            .iter()
            .filter(move |field| {
                field.name.len() == name.len() && field.name.eq_ignore_ascii_case(name)
            })
            .map(|field| field.value)
    }

    /// Returns the value of the field of this name, unless there are none or several.
    ///
    /// Use it for fields that are not lists: which of two values is meant is unknown.
    #[must_use]
    pub fn single(&self, name: &str) -> Option<&'b [u8]> {
        let mut fields = self.fields(name);
        fields.next().filter(|_| fields.next().is_none())
    }

    /// Returns whether another request may follow on this connection (RFC 9112 9.3).
    #[must_use]
    pub fn keeps_alive(&self) -> bool {
        let mut keeps_alive = self.minor_version >= 1;
        for option in self.fields("connection").flat_map(|value| value.split(|&b| b == b',')) {
            let option = option.trim_ascii();
            if option.eq_ignore_ascii_case(b"close") {
                return false;
            }
            keeps_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
        keeps_alive
    }

    /// Returns whether it is a GET for the whole representation in whatever version (RFC 9110 13.1,
    /// 14.2).
    #[must_use]
    pub fn is_unconditional_get(&self) -> bool {
        let is_condition = |field: &Header<'_>| {
            let name = field.name.as_bytes();
            name.eq_ignore_ascii_case(b"range")
                || name.get(..3).is_some_and(|begin| begin.eq_ignore_ascii_case(b"if-"))
        };
        self.method == Method::Get && !self.fields.iter().any(is_condition)
    }

    /// Returns whether the peer waits for `100 Continue` before it sends the body. Other
    /// expectations, which RFC 9110 10.1.1 allows to refuse with 417, are ignored, as by nginx.
    ///
    /// HTTP/1.0 has no such status.
    #[must_use]
    pub fn expects_continue(&self) -> bool {
        let mut expectations = self.fields("expect").flat_map(|value| value.split(|&b| b == b','));
        self.minor_version >= 1
            && expectations.any(|it| it.trim_ascii().eq_ignore_ascii_case(b"100-continue"))
    }

    /// Returns the requested server: the authority of the target, or else of `Host` (RFC 9112
    /// 3.2.2).
    #[must_use]
    pub fn authority(&self) -> Option<&'b [u8]> {
        split_absolute(self.target).map(|(authority, _)| authority).or_else(|| self.field("host"))
    }

    /// Returns the request if its target and `Host` are valid.
    fn checked(self) -> Result<Self, Malformed> {
        self.check_target()?;
        self.check_host()?;
        Ok(self)
    }

    /// Checks that the form of the target fits the method (RFC 9112 3.2).
    fn check_target(&self) -> Result<(), Malformed> {
        let fits = match (self.target, self.verb) {
            ([b'/', ..], verb) => verb != "CONNECT",
            (b"*", verb) => verb == "OPTIONS",
            (target, "CONNECT") => is_authority(target),
            // RFC 9110 4.2.1 and 4.2.4: an http URI has a host, and no user name in front of it.
            (target, _) => split_absolute(target)
                .is_some_and(|(authority, _)| !authority.is_empty() && is_authority(authority)),
        };
        fits.then_some(()).ok_or(Malformed::Target)
    }

    /// Checks that there is exactly one valid `Host` in 1.1, at most one in 1.0 (RFC 9112 3.2).
    fn check_host(&self) -> Result<(), Malformed> {
        let mut hosts = self.fields("host");
        match (hosts.next(), hosts.next()) {
            (None, _) if self.minor_version == 0 => Ok(()),
            (Some(host), None) if is_authority(host) => Ok(()),
            _ => Err(Malformed::Host),
        }
    }
}

/// The head of a request that outlives the bytes it was read from.
#[derive(Clone, Debug)]
pub struct OwnedRequest {
    method: Method,
    minor_version: u8,
    /// The method, the target, and the name and value of each field, one after the other.
    text: Box<[u8]>,
    /// The end of each field.
    ends: Box<[usize]>,
}

impl OwnedRequest {
    /// Copies a parsed request.
    #[must_use]
    pub fn new(request: &Request<'_, '_>) -> Self {
        let fields = request.fields.iter().flat_map(|field| [field.name.as_bytes(), field.value]);
        let parts = || [request.verb.as_bytes(), request.target].into_iter().chain(fields.clone());
        let mut text = Vec::with_capacity(parts().map(<[u8]>::len).sum());
        let mut ends = Vec::with_capacity(2 + 2 * request.fields.len());
        for part in parts() {
            text.extend_from_slice(part);
            ends.push(text.len());
        }
        let (method, minor_version) = (request.method, request.minor_version);
        Self { method, minor_version, text: text.into(), ends: ends.into() }
    }

    /// Returns how many bytes of memory it takes.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.text.len() + size_of_val(&*self.ends)
    }

    /// Returns the request, whose fields are listed in `storage`.
    pub fn request<'a>(&'a self, storage: &'a mut Vec<Header<'a>>) -> Request<'a, 'a> {
        let mut begin = 0;
        let mut parts =
            self.ends.iter().map(|&end| &self.text[std::mem::replace(&mut begin, end)..end]);
        // These bytes were valid text when they were parsed.
        let text =
            |part: Option<&'a [u8]>| str::from_utf8(part.unwrap_or_default()).unwrap_or_default();
        let (verb, target) = (text(parts.next()), parts.next().unwrap_or_default());
        storage.reserve_exact(self.ends.len() / 2);
        while let (Some(name), Some(value)) = (parts.next(), parts.next()) {
            storage.push(Header { name: text(Some(name)), value });
        }
        let (method, minor_version) = (self.method, self.minor_version);
        Request { method, verb, target, minor_version, fields: storage }
    }
}

impl Method {
    /// Returns whether file servers know a method of this name, whether or not this one supports
    /// it.
    #[must_use]
    pub fn is_known(verb: &str) -> bool {
        let known = ["POST", "CONNECT", "TRACE"];
        Self::of(verb) != Self::Other || known.contains(&verb)
    }

    /// Returns whether the method may change files.
    #[must_use]
    pub fn changes(self) -> bool {
        !matches!(self, Self::Get | Self::Head | Self::Options | Self::Propfind | Self::Other)
    }

    /// Returns the method of this name; names are case-sensitive (RFC 9110 9.1).
    fn of(verb: &str) -> Self {
        match verb {
            "GET" => Self::Get,
            "HEAD" => Self::Head,
            "OPTIONS" => Self::Options,
            "PUT" => Self::Put,
            "PATCH" => Self::Patch,
            "DELETE" => Self::Delete,
            "MKCOL" => Self::Mkcol,
            "MOVE" => Self::Move,
            "COPY" => Self::Copy,
            "PROPFIND" => Self::Propfind,
            "PROPPATCH" => Self::Proppatch,
            "LOCK" => Self::Lock,
            "UNLOCK" => Self::Unlock,
            _ => Self::Other,
        }
    }
}

/// The reason why the head of a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// `Content-Length` is not a number, or several differ.
    #[error("the Content-Length is not one number")]
    ContentLength,
    /// A line of the head is not `Name: value`.
    #[error("a header field is malformed")]
    Field,
    /// The head is longer than the server reads.
    #[error("the head of the request is too long")]
    HeadTooLong,
    /// `Host` is missing, repeated or not a host.
    #[error("a request needs exactly one valid Host")]
    Host,
    /// A line ends in something else than CRLF or LF.
    #[error("a line of the head does not end in CRLF")]
    LineEnd,
    /// The first line is not `METHOD target HTTP/1.1`.
    #[error("the request line is malformed")]
    RequestLine,
    /// The target has no valid form, or not the one for its method.
    #[error("the request target is malformed or does not fit the method")]
    Target,
    /// The request line is longer than the server reads.
    #[error("the request target is too long")]
    TargetTooLong,
    /// More fields than the server reads.
    #[error("the request has too many header fields")]
    TooManyFields,
    /// An unsupported transfer coding, together with a chunked one.
    #[error("the only supported transfer coding is chunked")]
    TransferCoding,
    /// The end of the body is not certain.
    #[error("the end of the body is ambiguous")]
    TransferEncoding,
    /// The version is not HTTP/1.0, HTTP/1.1 or a later HTTP/1.
    #[error("this server speaks HTTP/1.1 and HTTP/1.0")]
    Version,
}

impl Malformed {
    /// Returns the status to answer with.
    #[must_use]
    pub fn status(&self) -> u16 {
        match self {
            Self::TargetTooLong => 414,                     // RFC 9110 15.5.15
            Self::HeadTooLong | Self::TooManyFields => 431, // RFC 6585 5
            Self::TransferCoding => 501,                    // RFC 9112 6.1
            Self::Version => 505,                           // RFC 9110 15.6.6
            _ => 400,
        }
    }

    /// Converts an error of httparse.
    fn of(error: httparse::Error, bytes: &[u8]) -> Self {
        match error {
            httparse::Error::HeaderName | httparse::Error::HeaderValue => Self::Field,
            httparse::Error::TooManyHeaders => Self::TooManyFields,
            httparse::Error::Version if names_other_version(bytes) => Self::Version,
            httparse::Error::NewLine => Self::LineEnd,
            _ => Self::RequestLine,
        }
    }
}

/// Returns whether the third word is the name of an unsupported HTTP version.
fn names_other_version(bytes: &[u8]) -> bool {
    let start = bytes.iter().position(|byte| !matches!(byte, b'\r' | b'\n')).unwrap_or(0);
    let line = bytes[start..].split(|&byte| byte == b'\n').next().unwrap_or_default();
    line.split(|&byte| byte == b' ').nth(2).is_some_and(|last| last.starts_with(b"HTTP/"))
}

/// The maximum number of bytes of empty lines that are skipped before a request line: some old
/// clients send one empty line after a body, a few are enough.
pub const EMPTY_LINES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_head_is_parsed_only_where_a_line_ends() {
        let mut head = vec![b'x'; 1000];
        assert!(!may_be_over(&head, 1) && !may_be_over(&head, 1000));
        assert!(may_be_over(&head[..CHEAP_HEAD], 1));
        head.push(b'\n');
        assert!(may_be_over(&head, 1) && may_be_over(&head, 7));
        head.push(b'x');
        assert!(!may_be_over(&head, 1) && may_be_over(&head, 2));
        assert!(may_be_over(&vec![b'x'; MAX_HEAD], 1));
    }
}
