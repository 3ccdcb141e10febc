//! The `Authorization` field of the Basic scheme (RFC 7617).

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// The credentials in a request.
#[derive(Debug, PartialEq, Eq)]
pub enum RequestCredentials {
    /// No credentials, or those of another scheme, which other software has to check.
    None,
    /// Basic credentials from which no name and password can be read.
    Malformed,
    /// A name and a password, as bytes: clients do not agree about the charset.
    Given {
        /// The name, which cannot contain a colon.
        user: Vec<u8>,
        /// The password.
        password: Vec<u8>,
    },
}

/// The maximum length of a password in bytes; longer ones are refused unchecked, because checking
/// a hash takes time in proportion.
pub const MAX_PASSWORD: usize = 1024;

impl RequestCredentials {
    /// Parses an `Authorization` field.
    #[must_use]
    pub fn parse(field: &[u8]) -> Self {
        let Some(token) = token(field) else { return Self::None };
        let Ok(mut user) = LENIENT.decode(token) else { return Self::Malformed };
        let Some(colon) = user.iter().position(|&byte| byte == b':') else {
            return Self::Malformed;
        };
        let password = user.split_off(colon + 1);
        user.truncate(colon);
        if password.len() > MAX_PASSWORD {
            return Self::Malformed;
        }
        Self::Given { user, password }
    }
}

/// Returns the part after the name of the scheme; none for another scheme.
fn token(field: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = field.split_at_checked("basic".len())?;
    let separated = token.first().is_none_or(|&byte| byte == b' ' || byte == b'\t');
    (scheme.eq_ignore_ascii_case(b"basic") && separated).then(|| token.trim_ascii())
}

/// Base64 with or without its padding, which some clients leave out.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

#[cfg(test)]
mod tests {
    use super::*;

    fn given(user: &str, password: &str) -> RequestCredentials {
        RequestCredentials::Given { user: user.into(), password: password.into() }
    }

    #[test]
    fn name_and_password_are_parted_at_the_first_colon() {
        assert_eq!(
            RequestCredentials::parse(b"Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="),
            given("Aladdin", "open sesame")
        );
        assert_eq!(RequestCredentials::parse(b"basic   YTpiOmM="), given("a", "b:c"));
        assert_eq!(
            RequestCredentials::parse(b"BASIC YTpiOmM"),
            given("a", "b:c"),
            "without padding"
        );
        assert_eq!(RequestCredentials::parse(b"Basic Og=="), given("", ""));
    }

    #[test]
    fn other_schemes_are_no_credentials() {
        for field in ["", "Bearer abc", "Basi", "Basically YTpi", "Digest username=\"a\""] {
            assert_eq!(
                RequestCredentials::parse(field.as_bytes()),
                RequestCredentials::None,
                "{field}"
            );
        }
    }

    #[test]
    fn malformed_credentials_are_recognised() {
        for field in ["Basic", "Basic ", "Basic !!!!", "Basic YTpi YTpi", "Basic YWJj"] {
            assert_eq!(
                RequestCredentials::parse(field.as_bytes()),
                RequestCredentials::Malformed,
                "{field}"
            );
        }
    }

    #[test]
    fn password_of_unreasonable_length_is_malformed() {
        let field = |len| {
            let credentials = format!("a:{}", "x".repeat(len));
            format!("Basic {}", LENIENT.encode(credentials)).into_bytes()
        };
        assert!(matches!(
            RequestCredentials::parse(&field(MAX_PASSWORD)),
            RequestCredentials::Given { .. }
        ));
        assert_eq!(
            RequestCredentials::parse(&field(MAX_PASSWORD + 1)),
            RequestCredentials::Malformed
        );
    }
}
