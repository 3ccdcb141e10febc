//! Signs requests: AWS Signature Version 4, in the field `Authorization`. Pure.

use std::fmt::Write;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};
use sha2::{Digest, Sha256};
use underpass_protocol::digest::hex;
use url::Url;

use super::credentials::Keys;

/// A request to be signed.
pub(super) struct UnsignedRequest<'u> {
    pub(super) method: &'u str,
    pub(super) url: &'u Url,
    /// The signed fields besides `Host`.
    pub(super) fields: Vec<(String, String)>,
    /// The hexadecimal SHA-256 of the body, or a placeholder.
    pub(super) payload: &'u str,
    /// The time, such as `20130524T000000Z`.
    pub(super) time: &'u str,
    pub(super) region: &'u str,
}

impl UnsignedRequest<'_> {
    /// Returns the value of `Authorization`.
    pub(super) fn authorize(mut self, keys: &Keys) -> String {
        let host = &self.url[url::Position::BeforeHost..url::Position::AfterPort];
        self.fields.push(("host".to_owned(), host.to_owned()));
        for (name, _) in &mut self.fields {
            name.make_ascii_lowercase();
        }
        self.fields.sort();
        let names: Vec<_> = self.fields.iter().map(|(name, _)| name.as_str()).collect();
        let names = names.join(";");
        let day = self.time.get(..8).unwrap_or_default();
        let scope = format!("{day}/{}/s3/aws4_request", self.region);
        let hashed = hex(&Sha256::digest(self.canonical(&names)));
        let text = format!("AWS4-HMAC-SHA256\n{}\n{scope}\n{hashed}", self.time);
        let mut key = format!("AWS4{}", keys.secret).into_bytes();
        for part in [day, self.region, "s3", "aws4_request", &text] {
            key = hmac(&key, part.as_bytes());
        }
        let (id, signature) = (&keys.id, hex(&key));
        format!(
            "AWS4-HMAC-SHA256 Credential={id}/{scope}, SignedHeaders={names}, Signature={signature}"
        )
    }

    /// Returns the canonical request that is signed.
    fn canonical(&self, names: &str) -> String {
        let mut query: Vec<_> = self.url.query().unwrap_or_default().split('&').collect();
        query.retain(|pair| !pair.is_empty());
        let mut query: Vec<_> = query.into_iter().map(pair).collect();
        query.sort();
        let path = encoded_path(self.url.path());
        let mut text = format!("{}\n{path}\n{}\n", self.method, query.join("&"));
        for (name, value) in &self.fields {
            // Writing to a string cannot fail.
            let words: Vec<_> = value.split(' ').filter(|word| !word.is_empty()).collect();
            let _ = writeln!(text, "{name}:{}", words.join(" ").trim());
        }
        text + "\n" + names + "\n" + self.payload
    }
}

/// Returns a part of a query in its canonical form.
fn pair(text: &str) -> String {
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    format!("{}={}", encoded(name), encoded(value))
}

/// Returns a part of a URL in its canonical form, whatever is percent-encoded in it.
fn encoded(text: &str) -> String {
    let bytes: Vec<u8> = percent_decode_str(text).collect();
    percent_encode(&bytes, RESERVED).to_string()
}

/// Returns a path in its canonical form, with unencoded slashes, because stores sign the key.
fn encoded_path(path: &str) -> String {
    let bytes: Vec<u8> = percent_decode_str(path).collect();
    percent_encode(&bytes, PATH).to_string()
}

/// Returns the HMAC of a text (RFC 2104).
fn hmac(key: &[u8], text: &[u8]) -> Vec<u8> {
    let key = if key.len() > BLOCK { Sha256::digest(key).to_vec() } else { key.to_vec() };
    let padded = |pad: u8| (0..BLOCK).map(|n| key.get(n).unwrap_or(&0) ^ pad).collect::<Vec<_>>();
    let inner = Sha256::new().chain_update(padded(0x36)).chain_update(text).finalize();
    Sha256::new().chain_update(padded(0x5c)).chain_update(inner).finalize().to_vec()
}

/// The length of a block of SHA-256 in bytes.
const BLOCK: usize = 64;

/// All but the unreserved characters of RFC 3986.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The characters of [`RESERVED`] without the slash.
const PATH: &AsciiSet = &RESERVED.remove(b'/');

/// The placeholder for the digest of a body that is not read for the signature.
pub(super) const UNSIGNED: &str = "UNSIGNED-PAYLOAD";

/// Returns whether the code of a store's refusal concerns the keys, the time or the region of the
/// signature, rather than the request. Not all of these have status 403.
#[must_use]
pub fn is_about_signature(code: &str) -> bool {
    matches!(
        code,
        "AuthorizationHeaderMalformed"
            | "ExpiredToken"
            | "InvalidAccessKeyId"
            | "InvalidToken"
            | "RequestExpired"
            | "RequestTimeTooSkewed"
            | "SignatureDoesNotMatch"
            | "TokenRefreshRequired"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of "Signature Calculations for the Authorization Header" in Amazon's reference.
    #[test]
    fn signatures_are_those_of_the_reference() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        let keys = Keys {
            id: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned(),
            ..Keys::default()
        };
        for (path, more, signature) in [
            (
                "test.txt",
                Some(("Range", "bytes=0-9")),
                "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
            ),
            (
                "?lifecycle",
                None,
                "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
            ),
            (
                "?prefix=J&max-keys=2",
                None,
                "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
            ),
        ] {
            let url = format!("https://examplebucket.s3.amazonaws.com/{path}");
            let url = Url::parse(&url).expect("a URL");
            let fixed = [("x-amz-content-sha256", empty), ("x-amz-date", "20130524T000000Z")];
            let fields = fixed.into_iter().chain(more);
            let unsigned = UnsignedRequest {
                method: "GET",
                url: &url,
                fields: fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
                payload: empty,
                time: "20130524T000000Z",
                region: "us-east-1",
            };
            let value = unsigned.authorize(&keys);
            assert!(value.ends_with(&format!("Signature={signature}")), "{path}: {value}");
        }
    }

    #[test]
    fn repeated_spaces_are_signed_as_one() {
        let url = Url::parse("https://h/k").expect("a URL");
        let canonical = |value: &str| {
            let unsigned = UnsignedRequest {
                method: "PUT",
                url: &url,
                fields: vec![("x-amz-meta-a".to_owned(), value.to_owned())],
                payload: UNSIGNED,
                time: "20130524T000000Z",
                region: "us-east-1",
            };
            unsigned.canonical("x-amz-meta-a")
        };
        assert!(canonical(" a   b c ").contains("\nx-amz-meta-a:a b c\n"));
    }

    #[test]
    fn a_path_is_signed_in_one_form() {
        for (path, signed) in
            [("a b", "a%20b"), ("a%2Fb+c", "a%2Fb%2Bc"), ("%C3%a4~(!)", "%C3%A4~%28%21%29")]
        {
            assert_eq!(encoded(path), signed);
        }
        assert_eq!(encoded_path("/b/a%2Fb//c%5C+"), "/b/a/b//c%5C%2B");
    }
}
