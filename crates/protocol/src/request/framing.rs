//! Determines where the body of a request ends, and so where the next request begins.
//!
//! Request smuggling exploits this, so nothing is guessed: every head that two servers could
//! measure differently is refused.

use super::parse::{Malformed, Request};

/// The length of the body after the head, and how its end is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLength {
    /// No body.
    None,
    /// This number of bytes, never zero.
    Length(u64),
    /// Chunks, see [`Chunked`](crate::chunked::Chunked).
    Chunked,
}

impl Request<'_, '_> {
    /// Returns where the body ends (RFC 9112 6.3).
    ///
    /// # Errors
    ///
    /// For every head that two servers could read differently: a length together with a transfer
    /// coding, lengths that differ, a transfer coding in HTTP/1.0. Close the connection after any
    /// of them.
    pub fn body(&self) -> Result<BodyLength, Malformed> {
        let length = self.content_length()?;
        let mut codings = self.fields("transfer-encoding");
        let Some(coding) = codings.next() else {
            return Ok(length.filter(|&len| len > 0).map_or(BodyLength::None, BodyLength::Length));
        };
        // RFC 9112 6.1: both together "ought to be handled as an error"; so is a coding in 1.0.
        if length.is_some() || self.minor_version == 0 {
            return Err(Malformed::TransferEncoding);
        }
        if coding.eq_ignore_ascii_case(b"chunked") && codings.next().is_none() {
            return Ok(BodyLength::Chunked);
        }
        Err(self.refused_coding())
    }

    /// Returns the length in the head, if all fields with one agree (RFC 9110 8.6).
    fn content_length(&self) -> Result<Option<u64>, Malformed> {
        let mut length = None;
        for member in self.fields("content-length").flat_map(|value| value.split(|&b| b == b',')) {
            let member = decimal(member.trim_ascii()).ok_or(Malformed::ContentLength)?;
            if length.is_some_and(|length| length != member) {
                return Err(Malformed::ContentLength);
            }
            length = Some(member);
        }
        Ok(length)
    }

    /// Returns why a transfer coding that is not exactly `chunked` is refused.
    fn refused_coding(&self) -> Malformed {
        let codings =
            self.fields("transfer-encoding").flat_map(|value| value.split(|&b| b == b','));
        let is_chunked = |coding: &[u8]| coding.trim_ascii().eq_ignore_ascii_case(b"chunked");
        let (mut total, mut chunked, mut last) = (0, 0, false);
        for coding in codings {
            last = is_chunked(coding);
            total += 1;
            chunked += usize::from(last);
        }
        // RFC 9112 6.3: chunked must come last, and 7.1: only once. 6.1: 501 for unknown ones.
        if last && chunked == 1 && total > 1 {
            Malformed::TransferCoding
        } else {
            Malformed::TransferEncoding
        }
    }
}

/// Parses a number without sign, white space or overflow.
fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}
