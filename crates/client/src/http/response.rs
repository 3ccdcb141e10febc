//! Response heads.

use std::time::{Duration, SystemTime};

use percent_encoding::{CONTROLS, percent_encode};
use underpass_protocol::response::head::reason;
use underpass_protocol::response::validator::parse_date;
use underpass_transport::incoming::BodyFraming;
use url::Url;

use crate::error::{ClientError, InvalidResponse};

/// The fields of a head, in their order.
#[derive(Clone, Debug, Default)]
pub struct Fields(Vec<(String, Vec<u8>)>);

impl Fields {
    /// Returns the value of the first field of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.all(name).next()
    }

    /// Returns the values of all fields of this name.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &[u8]> {
        let is_meant = move |field: &&(String, Vec<u8>)| field.0.eq_ignore_ascii_case(name);
        self.0.iter().filter(is_meant).map(|(_, value)| value.as_slice())
    }

    /// Returns all fields, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_slice()))
    }

    /// Returns the value of the first field of this name, if it is UTF-8.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        str::from_utf8(self.get(name)?).ok()
    }

    /// Returns the value of the first field of this name, if it is a number.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u64> {
        number(self.get(name)?)
    }
}

/// The head of a response.
#[derive(Clone, Debug)]
pub struct Response {
    /// The status; 1xx is an interim response, which another one follows.
    pub status: u16,
    /// The fields.
    pub fields: Fields,
    /// The body that follows.
    pub framing: BodyFraming,
    /// Whether the connection can be reused after the body.
    pub keeps_alive: bool,
}

impl Response {
    /// Parses a head, including the blank line, in response to a request of this method.
    ///
    /// # Errors
    ///
    /// [`ClientError::InvalidResponse`] if it is malformed, or the end of its body is ambiguous.
    pub fn parse(head: &[u8], method: &str) -> Result<Self, ClientError> {
        let mut storage = [httparse::EMPTY_HEADER; MAX_FIELDS];
        let mut parsed = httparse::Response::new(&mut storage);
        let bad = InvalidResponse::Protocol;
        let mut config = httparse::ParserConfig::default();
        config.allow_obsolete_multiline_headers_in_responses(true);
        let parsed_len = config.parse_response(&mut parsed, head).map_err(InvalidResponse::Head)?;
        if parsed_len != httparse::Status::Complete(head.len()) {
            return Err(bad("its head does not end at the blank line").into());
        }
        let status =
            parsed.code.filter(|code| *code >= 100).ok_or_else(|| bad("it has no status"))?;
        let is_11 = parsed.version == Some(1);
        let fields: Vec<_> = parsed
            .headers
            .iter()
            .map(|field| (field.name.to_owned(), unfolded(field.value)))
            .collect();
        let fields = Fields(fields);
        let framing = framing(method, status, &fields)?;
        let says = |option: &[u8]| {
            let mut options =
                fields.all("connection").flat_map(|value| value.split(|b| *b == b','));
            options.any(|word| word.trim_ascii().eq_ignore_ascii_case(option))
        };
        // RFC 9112 6.1: after a server that sends both lengths, or chunks in HTTP/1.0, the
        // beginning of the next message cannot be trusted.
        let is_coded = fields.get("transfer-encoding").is_some();
        let is_doubtful = is_coded && (!is_11 || fields.get("content-length").is_some());
        let keeps_alive = !says(b"close")
            && (is_11 || says(b"keep-alive"))
            && framing != BodyFraming::UntilEnd
            && !is_doubtful;
        Ok(Self { status, fields, framing, keeps_alive })
    }

    /// Returns the target of a redirect, if this is one (RFC 9110 15.4).
    ///
    /// # Errors
    ///
    /// [`ClientError::InvalidResponse`] if its target is not a URL.
    pub fn redirect(&self, base: &Url) -> Result<Option<Url>, ClientError> {
        if !matches!(self.status, 301 | 302 | 303 | 307 | 308) {
            return Ok(None);
        }
        let Some(location) = self.fields.get("location") else { return Ok(None) };
        // Some servers send bytes that are not UTF-8.
        let location = match str::from_utf8(location) {
            Ok(text) => text.to_owned(),
            Err(_) => percent_encode(location, CONTROLS).to_string(),
        };
        let bad = |source| InvalidResponse::Redirect { location: location.clone(), source };
        Ok(Some(joined(base, &location).map_err(bad)?))
    }

    /// Returns the codings of the body (RFC 9110 8.4), in lower case. Values that do not change
    /// the bytes are left out: S3 sends `aws-chunked`, others send a character set.
    #[must_use]
    pub fn coding(&self) -> Option<String> {
        let is_none =
            |word: &str| ["", "identity", "aws-chunked", "none", "binary", "utf-8"].contains(&word);
        let values = self.fields.all("content-encoding").map(String::from_utf8_lossy);
        let text = values.collect::<Vec<_>>().join(",").to_ascii_lowercase();
        let words: Vec<_> = text.split(',').map(str::trim).filter(|word| !is_none(word)).collect();
        (!words.is_empty()).then(|| words.join(", "))
    }

    /// Returns how long the server asks the client to wait (RFC 9110 10.2.3). A date is compared
    /// with the server's own clock, if the response has its time, otherwise with `now`.
    #[must_use]
    pub fn retry_after(&self, now: SystemTime) -> Option<Duration> {
        let value = self.fields.get("retry-after")?;
        // More seconds than a number can hold are as good as never.
        match number(value).or(is_decimal(value).then_some(u64::MAX)) {
            Some(seconds) => Some(Duration::from_secs(seconds)),
            None => {
                let now = self.fields.get("date").and_then(parse_date).unwrap_or(now);
                parse_date(value)?.duration_since(now).ok()
            }
        }
    }

    /// Returns the reason in the first line of a plain-text body.
    pub(super) fn reason_in(&self, body: &[u8]) -> String {
        let text = String::from_utf8_lossy(body);
        let line = text.lines().next().unwrap_or_default().trim();
        // Servers repeat the status and the reason phrase in various forms.
        let line = line.strip_prefix(&self.status.to_string()).unwrap_or(line);
        let line = without_case(line.trim_start_matches([':', ' ']), reason(self.status));
        line.trim_start_matches([':', ' ']).chars().filter(|c| !c.is_control()).collect()
    }

    /// Returns the authentication schemes that the server requires, if it accepts neither a
    /// password (`Basic`) nor a bearer token.
    pub(super) fn other_schemes(&self) -> Option<String> {
        let challenges =
            self.fields.all("www-authenticate").filter_map(|it| str::from_utf8(it).ok());
        let mut schemes: Vec<_> = challenges.flat_map(schemes).take(MAX_SCHEMES).collect();
        schemes.dedup();
        let is_known = |it: &&str| ["basic", "bearer"].contains(&&*it.to_ascii_lowercase());
        let is_other = self.status == 401 && !schemes.is_empty() && !schemes.iter().any(is_known);
        is_other.then(|| schemes.join(" or "))
    }

    /// Returns whether the status is a success.
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// Returns the schemes of a list of challenges (RFC 9110 11.6.1).
fn schemes(challenges: &str) -> impl Iterator<Item = &str> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    let parts = challenges.split(move |c| {
        is_quoted ^= c == '"' && !is_escaped;
        is_escaped = c == '\\' && is_quoted && !is_escaped;
        c == ',' && !is_quoted
    });
    // Any other part is a parameter of the scheme before it.
    parts.filter_map(|part| {
        let (scheme, rest) = part.trim().split_once(' ').unwrap_or((part.trim(), ""));
        let is_scheme = scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        (is_scheme && !scheme.is_empty() && !rest.trim_start().starts_with('=')).then_some(scheme)
    })
}

/// The maximum number of authentication schemes that are parsed.
const MAX_SCHEMES: usize = 16;

/// Returns a value as one line: a line break within it is replaced by spaces (RFC 9112 5.2).
fn unfolded(value: &[u8]) -> Vec<u8> {
    value.iter().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }).collect()
}

/// Returns the text without these words at its beginning, ignoring case.
fn without_case<'t>(text: &'t str, words: &str) -> &'t str {
    match text.get(..words.len()) {
        Some(start) if start.eq_ignore_ascii_case(words) => &text[words.len()..],
        _ => text,
    }
}

/// Returns the URL of a reference in a response from `base`. If it leads to the same server, it
/// gets the credentials of `base`, as a reference without a host would.
pub(crate) fn joined(base: &Url, reference: &str) -> Result<Url, url::ParseError> {
    let mut url = base.join(reference)?;
    let has_none = url.username().is_empty() && url.password().is_none();
    if has_none && url.origin() == base.origin() {
        // This fails only for URLs without a host, which cannot have them.
        let _ = (url.set_username(base.username()), url.set_password(base.password()));
    }
    Ok(url)
}

/// Returns how the end of the body is determined (RFC 9112 6.3).
fn framing(method: &str, status: u16, fields: &Fields) -> Result<BodyFraming, InvalidResponse> {
    let is_tunnel = method == "CONNECT" && matches!(status, 200..300);
    if method == "HEAD" || is_tunnel || matches!(status, 100..200 | 204 | 304) {
        return Ok(BodyFraming::Length(0));
    }
    let mut codings = fields.all("transfer-encoding").flat_map(|value| value.split(|b| *b == b','));
    if let Some(coding) = codings.next() {
        let is_chunked = coding.trim_ascii().eq_ignore_ascii_case(b"chunked");
        if !is_chunked || codings.next().is_some() {
            return Err(InvalidResponse::Protocol("a transfer coding that was not requested"));
        }
        // A proxy may have used the length: RFC 9112 6.3, calls that an error.
        return match fields.get("content-length") {
            None => Ok(BodyFraming::Chunked),
            Some(_) => {
                Err(InvalidResponse::Protocol("it has both Content-Length and Transfer-Encoding"))
            }
        };
    }
    let mut length = None;
    for value in fields.all("content-length").flat_map(|value| value.split(|byte| *byte == b',')) {
        match (number(value.trim_ascii()), length) {
            (Some(number), None) => length = Some(number),
            (Some(number), Some(length)) if number == length => {}
            (Some(_), Some(_)) => {
                return Err(InvalidResponse::Protocol("it has two values of Content-Length"));
            }
            _ => {
                return Err(InvalidResponse::Protocol("its Content-Length is not a number"));
            }
        }
    }
    Ok(length.map_or(BodyFraming::UntilEnd, BodyFraming::Length))
}

/// Parses a decimal number without a sign.
fn number(digits: &[u8]) -> Option<u64> {
    str::from_utf8(digits).ok()?.parse().ok().filter(|_| is_decimal(digits))
}

/// Returns whether this is a decimal number without a sign.
fn is_decimal(digits: &[u8]) -> bool {
    !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
}

/// The maximum number of fields of a head.
const MAX_FIELDS: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(head: &str, method: &str) -> Result<Response, ClientError> {
        Response::parse(head.replace('\n', "\r\n").as_bytes(), method)
    }

    #[test]
    fn the_head_determines_the_body_and_the_reuse_of_the_connection() {
        let chunked = BodyFraming::Chunked;
        for (head, method, framing, keeps_alive) in [
            ("200 OK\nContent-Length: 5", "GET", BodyFraming::Length(5), true),
            ("200\nContent-Length: 5", "GET", BodyFraming::Length(5), true),
            ("200 OK\nContent-Length: 5", "HEAD", BodyFraming::Length(0), true),
            ("304 Not Modified\nContent-Length: 5", "GET", BodyFraming::Length(0), true),
            ("200 Connected\nContent-Length: 5", "CONNECT", BodyFraming::Length(0), true),
            ("407 Who?\nContent-Length: 5", "CONNECT", BodyFraming::Length(5), true),
            ("204 No Content", "GET", BodyFraming::Length(0), true),
            ("200 OK", "GET", BodyFraming::UntilEnd, false),
            ("200 OK\nContent-Length: 5, 5", "GET", BodyFraming::Length(5), true),
            ("200 OK\nContent-Length: 5\nContent-Length: 5", "GET", BodyFraming::Length(5), true),
            (
                "200 OK\nContent-Length: 5\nConnection: x, Close",
                "GET",
                BodyFraming::Length(5),
                false,
            ),
            ("200 OK\nTransfer-Encoding: Chunked", "GET", chunked, true),
            (
                "304 No\nTransfer-Encoding: chunked\nContent-Length: 5",
                "GET",
                BodyFraming::Length(0),
                false,
            ),
        ] {
            let response = parse(&format!("HTTP/1.1 {head}\n\n"), method).expect(head);
            assert_eq!((response.framing, response.keeps_alive), (framing, keeps_alive), "{head}");
        }
        for (head, keeps_alive) in [("", false), ("\nConnection: keep-alive", true)] {
            let head = format!("HTTP/1.0 200 OK\nContent-Length: 1{head}\n\n");
            assert_eq!(parse(&head, "GET").expect("a head").keeps_alive, keeps_alive, "{head}");
        }
        let head = "HTTP/1.0 200 OK\nTransfer-Encoding: chunked\nConnection: keep-alive\n\n";
        assert!(!parse(head, "GET").expect("a head").keeps_alive);
    }

    #[test]
    fn ambiguous_heads_are_refused() {
        for head in [
            "HTTP/1.1 200 OK\nContent-Length: 5\nContent-Length: 6",
            "HTTP/1.1 200 OK\nContent-Length: +5",
            "HTTP/1.1 200 OK\nContent-Length: 5,",
            "HTTP/1.1 200 OK\nContent-Length: 0x5",
            "HTTP/1.1 200 OK\nContent-Length: 99999999999999999999",
            "HTTP/1.1 200 OK\nTransfer-Encoding: gzip, chunked",
            "HTTP/1.1 200 OK\nTransfer-Encoding: gzip\nTransfer-Encoding: chunked",
            "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\nTransfer-Encoding: chunked",
            "HTTP/1.1 200 OK\nTransfer-Encoding: identity",
            "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\nContent-Length: 5",
            "HTTP/1.1 200 OK\nContent-Length: 5\nTransfer-Encoding: chunked",
            "HTTP/1.1 200 OK\nContent-Length: -5",
            "HTTP/1.1 200 OK\nContent-Length: 5 5",
            "HTTP/1.1 200 OK\nContent-Length:",
            "HTTP/1.1 200 OK\nTransfer-Encoding:",
            "HTTP/1.1 200 OK\nTransfer-Encoding: chunked;x=y",
            "HTTP/1.1 200 OK\nTransfer-Encoding : chunked",
            "HTTP/1.1 200 OK\nA: b\rc",
            "HTTP/1.1 200 OK\nA: b\0c",
            "HTTP/1.1 2000 OK",
            "HTTP/1.1 000 OK",
            "HTTP/1.1 099 OK",
            "HTTP/2 200 OK",
            "SSH-2.0-x",
            "HTTP/1.1 200 OK\nContent-Length: 5\n 6",
            "HTTP/1.1 200 OK\n A: b",
            "HTTP/1.1 200 OK\nA b: c",
        ] {
            let parsed = parse(&format!("{head}\n\n"), "GET");
            assert!(matches!(parsed, Err(ClientError::InvalidResponse(_))), "{head}: {parsed:?}");
        }
        // After a line with another ending, parsing must not continue into the body.
        let mixed = b"HTTP/1.1 200 OK\r\nA: b\n\r\nbody\r\n\r\n";
        assert!(matches!(Response::parse(mixed, "GET"), Err(ClientError::InvalidResponse(_))));
    }

    #[test]
    fn a_folded_field_value_is_joined() {
        let head = "HTTP/1.1 200 OK\nA: b\n  c\nContent-Length:\n 5\n\n";
        let response = parse(head, "GET").expect("a head");
        assert_eq!(response.fields.text("a"), Some("b    c"));
        assert_eq!(response.framing, BodyFraming::Length(5));
    }

    #[test]
    fn the_server_may_ask_to_wait_in_seconds_or_until_a_date() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        for (value, seconds) in [
            ("120", Some(120)),
            ("99999999999999999999", Some(u64::MAX)),
            ("Sun, 06 Nov 1994 08:49:47 GMT", Some(10)),
            ("Sun, 06 Nov 1994 08:49:27 GMT", None),
            ("-1", None),
            ("soon", None),
            // The server's clock is an hour ahead.
            ("Sun, 06 Nov 1994 09:49:39 GMT\nDate: Sun, 06 Nov 1994 09:49:37 GMT", Some(2)),
        ] {
            let head = format!("HTTP/1.1 503 Busy\nRetry-After: {value}\n\n");
            let response = parse(&head, "GET").expect("a head");
            assert_eq!(response.retry_after(now), seconds.map(Duration::from_secs), "{value}");
        }
    }

    #[test]
    fn schemes_are_named_only_if_none_is_supported() {
        for (challenges, named) in [
            ("Digest realm=\"a, Basic\", qop=\"auth\"", Some("Digest")),
            ("Digest realm=\"a\\\", Basic \", nonce = \"b\"", Some("Digest")),
            ("Negotiate\nWWW-Authenticate: NTLM", Some("Negotiate or NTLM")),
            ("Negotiate YWJj==, Digest a=b", Some("Negotiate or Digest")),
            ("Digest a=b\nWWW-Authenticate: Digest a=c", Some("Digest")),
            ("Digest a=b, basic realm=\"x\"", None),
            ("Negotiate\nWWW-Authenticate: Bearer", None),
            ("", None),
            ("a=b", None),
        ] {
            let head = format!("HTTP/1.1 401 x\nWWW-Authenticate: {challenges}\n\n");
            let response = parse(&head, "GET").expect("a head");
            assert_eq!(response.other_schemes().as_deref(), named, "{challenges}");
        }
    }

    #[test]
    fn redirects_lead_elsewhere_and_other_answers_do_not() {
        let base = Url::parse("http://a/b/c?d").expect("a URL");
        for (head, to) in [
            ("301 x\nLocation: /x", Some("http://a/x")),
            ("302 x\nLocation: x", Some("http://a/b/x")),
            ("303 x\nLocation: //y:8/x#z", Some("http://y:8/x#z")),
            ("307 x\nLocation: ?e", Some("http://a/b/c?e")),
            ("308 x\nLocation: https://a/", Some("https://a/")),
            ("301 x", None),
            ("300 x\nLocation: /x", None),
            ("304 x\nLocation: /x", None),
            ("201 x\nLocation: /x", None),
        ] {
            let response = parse(&format!("HTTP/1.1 {head}\n\n"), "GET").expect(head);
            let next = response.redirect(&base).expect(head);
            assert_eq!(next.as_ref().map(Url::as_str), to, "{head}");
        }
        let latin = b"HTTP/1.1 301 x\r\nLocation: /caf\xe9\r\n\r\n";
        let latin = Response::parse(latin, "GET").expect("a head").redirect(&base).expect("a URL");
        assert_eq!(latin.as_ref().map(Url::as_str), Some("http://a/caf%E9"));
        let bad = parse("HTTP/1.1 301 x\nLocation: http://[\n\n", "GET").expect("a head");
        assert!(matches!(bad.redirect(&base), Err(ClientError::InvalidResponse(_))));
    }
}
