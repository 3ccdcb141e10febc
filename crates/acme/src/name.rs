//! The names for which certificates are ordered.

use underpass_client::Url;

/// The reason why no certificate can be ordered for a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHostname {
    /// It is an IP address.
    #[error("certificates are ordered for names, not for addresses")]
    Address,
    /// It is not a host name.
    #[error("this is not a host name such as files.example.org")]
    Malformed,
    /// It is a wildcard, whose ownership can be proven only by DNS records.
    #[error(
        "a wildcard certificate needs changes to the DNS, which this program cannot make: order it with another program, and use --tls-cert"
    )]
    Wildcard,
}

/// Returns a host name in the form that clients request: in lower case, non-ASCII labels in
/// Punycode, without a final dot.
///
/// # Errors
///
/// [`InvalidHostname`] for an IP address, a wildcard, and anything else that no certificate
/// authority would accept: names have at most 253 characters, and 63 between two dots.
///
/// # Examples
///
/// ```
/// use underpass_acme::{InvalidHostname, name};
///
/// assert_eq!(name("Files.Example.ORG."), Ok("files.example.org".to_owned()));
/// assert_eq!(name("192.0.2.1"), Err(InvalidHostname::Address));
/// assert_eq!(name("*.example.org"), Err(InvalidHostname::Wildcard));
/// ```
pub fn name(text: &str) -> Result<String, InvalidHostname> {
    if text.starts_with("*.") {
        return Err(InvalidHostname::Wildcard);
    }
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '-' | '.' | ':' | '[' | ']');
    if !text.chars().all(is_part) {
        return Err(InvalidHostname::Malformed);
    }
    if text.contains(':') {
        let is_port = text.rsplit_once(':').is_some_and(|(host, _)| !host.contains(':'));
        return Err(if is_port { InvalidHostname::Malformed } else { InvalidHostname::Address });
    }
    let url = Url::parse(&format!("https://{text}/")).map_err(|_| InvalidHostname::Malformed)?;
    let host = url.host_str().unwrap_or_default().trim_end_matches('.');
    if url.domain().is_none() {
        return Err(InvalidHostname::Address);
    }
    let is_label = |label: &str| {
        (1..=63).contains(&label.len()) && !label.starts_with('-') && !label.ends_with('-')
    };
    if host.len() <= 253 && host.split('.').all(is_label) {
        Ok(host.to_owned())
    } else {
        Err(InvalidHostname::Malformed)
    }
}

/// Returns whether a public authority may issue a certificate for a name of this form: it has a dot,
/// and no ending that each network uses as it likes (RFC 6761, 6762, 7686, 8375).
///
/// # Examples
///
/// ```
/// assert!(underpass_acme::is_public("files.example.org"));
/// assert!(!underpass_acme::is_public("localhost") && !underpass_acme::is_public("nas.local"));
/// ```
#[must_use]
pub fn is_public(name: &str) -> bool {
    let is_within = |ending: &&str| name.strip_suffix(*ending).is_some_and(|it| it.ends_with('.'));
    name.contains('.') && name != HOME && !PRIVATE.iter().any(is_within)
}

/// The endings of names that mean something else in each network, or nothing.
const PRIVATE: [&str; 9] =
    ["example", HOME, "internal", "invalid", "lan", "local", "localhost", "onion", "test"];

const HOME: &str = "home.arpa";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_the_form_that_clients_request() {
        for (text, expected) in [
            ("files.example.org", "files.example.org"),
            ("Files.Example.ORG.", "files.example.org"),
            ("b\u{fc}cher.example", "xn--bcher-kva.example"),
            ("nas", "nas"),
        ] {
            assert_eq!(name(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn names_that_cannot_have_certificates_are_refused() {
        for (text, expected) in [
            ("", InvalidHostname::Malformed),
            ("a..b", InvalidHostname::Malformed),
            ("-a.example", InvalidHostname::Malformed),
            ("a/../b", InvalidHostname::Malformed),
            ("user@a.example", InvalidHostname::Malformed),
            ("a.example:443", InvalidHostname::Malformed),
            ("https://a.example", InvalidHostname::Malformed),
            ("192.0.2.1", InvalidHostname::Address),
            ("2001:db8::1", InvalidHostname::Address),
            ("*.example.org", InvalidHostname::Wildcard),
        ] {
            assert_eq!(name(text), Err(expected), "{text}");
        }
        assert_eq!(name(&format!("{}.example", "a".repeat(64))), Err(InvalidHostname::Malformed));
    }
}
