//! The `Authorization` field of the Basic scheme (RFC 7617).

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

/// What a request says about who sent it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Credentials {
    /// Nothing, or something of another scheme, which is for somebody else to judge.
    None,
    /// It says Basic, but no name and password can be read from it.
    Malformed,
    /// A name and a password, as bytes: clients do not agree about the charset.
    Given {
        /// The name, which cannot contain a colon.
        user: Vec<u8>,
        /// The password.
        password: Vec<u8>,
    },
}

/// Passwords above this are wrong without a look: checking a hash takes time in proportion.
pub(super) const MAX_PASSWORD: usize = 1024;

/// Reads an `Authorization` field.
pub(super) fn read(field: &[u8]) -> Credentials {
    let Some(token) = token(field) else { return Credentials::None };
    let Ok(mut user) = LENIENT.decode(token) else { return Credentials::Malformed };
    let Some(colon) = user.iter().position(|&byte| byte == b':') else {
        return Credentials::Malformed;
    };
    let password = user.split_off(colon + 1);
    user.truncate(colon);
    if password.len() > MAX_PASSWORD {
        return Credentials::Malformed;
    }
    Credentials::Given { user, password }
}

/// What follows the name of the scheme; none for another scheme.
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

    fn given(user: &str, password: &str) -> Credentials {
        Credentials::Given { user: user.into(), password: password.into() }
    }

    #[test]
    fn name_and_password_are_parted_at_the_first_colon() {
        assert_eq!(read(b"Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="), given("Aladdin", "open sesame"));
        assert_eq!(read(b"basic   YTpiOmM="), given("a", "b:c"));
        assert_eq!(read(b"BASIC YTpiOmM"), given("a", "b:c"), "without padding");
        assert_eq!(read(b"Basic Og=="), given("", ""));
    }

    #[test]
    fn other_schemes_are_no_credentials() {
        for field in ["", "Bearer abc", "Basi", "Basically YTpi", "Digest username=\"a\""] {
            assert_eq!(read(field.as_bytes()), Credentials::None, "{field}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_malformed() {
        for field in ["Basic", "Basic ", "Basic !!!!", "Basic YTpi YTpi", "Basic YWJj"] {
            assert_eq!(read(field.as_bytes()), Credentials::Malformed, "{field}");
        }
    }

    #[test]
    fn password_of_unreasonable_length_is_malformed() {
        let field = |len| {
            let credentials = format!("a:{}", "x".repeat(len));
            format!("Basic {}", LENIENT.encode(credentials)).into_bytes()
        };
        assert!(matches!(read(&field(MAX_PASSWORD)), Credentials::Given { .. }));
        assert_eq!(read(&field(MAX_PASSWORD + 1)), Credentials::Malformed);
    }
}
