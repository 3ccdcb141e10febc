//! The fields of a certificate that are shown in warnings and errors.
//!
//! webpki decides whether a certificate is trusted, not this module.

use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;

/// Some fields of a certificate (RFC 5280 4.1).
#[derive(Debug, PartialEq, Eq)]
pub(in crate::tls) struct CertificateFacts {
    /// Whether its issuer is its own subject.
    pub(in crate::tls) is_self_signed: bool,
    /// The start of its validity.
    pub(in crate::tls) not_before: Timestamp,
    /// The end of its validity.
    pub(in crate::tls) not_after: Timestamp,
}

const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;

impl CertificateFacts {
    /// Reads a certificate in DER; returns `None` if it is malformed.
    pub(in crate::tls) fn of(certificate: &[u8]) -> Option<Self> {
        let mut certificate = DerReader(certificate).expect(SEQUENCE)?;
        let mut signed = certificate.expect(SEQUENCE)?;
        if signed.0.first() == Some(&VERSION) {
            signed.expect(VERSION)?;
        }
        signed.expect(INTEGER)?; // serial number
        signed.expect(SEQUENCE)?; // algorithm of the signature
        let issuer = signed.expect(SEQUENCE)?;
        let mut validity = signed.expect(SEQUENCE)?;
        let subject = signed.expect(SEQUENCE)?;
        Some(Self {
            is_self_signed: issuer.0 == subject.0,
            not_before: validity.time()?,
            not_after: validity.time()?,
        })
    }
}

/// A sequence of values in DER.
struct DerReader<'a>(&'a [u8]);

impl<'a> DerReader<'a> {
    /// Returns the tag and the content of the next value.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&[tag, len], rest) = self.0.split_first_chunk()?;
        let (len, rest) = match len {
            0..=0x7f => (usize::from(len), rest),
            0x81..=0x83 => {
                let (digits, rest) = rest.split_at_checked(usize::from(len & 0x7f))?;
                (digits.iter().fold(0, |len, &digit| len << 8 | usize::from(digit)), rest)
            }
            _ => return None,
        };
        let (value, rest) = rest.split_at_checked(len)?;
        self.0 = rest;
        Some((tag, value))
    }

    fn expect(&mut self, tag: u8) -> Option<Self> {
        self.next().filter(|(found, _)| *found == tag).map(|(_, value)| Self(value))
    }

    /// Reads a time, `YYMMDDHHMMSSZ` or with a four-digit year.
    fn time(&mut self) -> Option<Timestamp> {
        let (tag, text) = self.next()?;
        let mut rest = text.strip_suffix(b"Z")?;
        let mut digits = |len: usize| -> Option<i16> {
            let (digits, behind) = rest.split_at_checked(len)?;
            rest = behind;
            str::from_utf8(digits).ok()?.parse().ok()
        };
        let year = match tag {
            UTC_TIME => digits(2).map(|year| if year < 50 { 2000 + year } else { 1900 + year })?,
            GENERALIZED_TIME => digits(4)?,
            _ => return None,
        };
        let mut two = || digits(2).and_then(|number| i8::try_from(number).ok());
        let date = Date::new(year, two()?, two()?).ok()?;
        let time = jiff::civil::Time::new(two()?, two()?, two()?, 0).ok()?;
        let moment = DateTime::from_parts(date, time).to_zoned(TimeZone::UTC).ok()?;
        rest.is_empty().then_some(moment.timestamp())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_facts_of_a_certificate_are_read() {
        let mut params = rcgen::CertificateParams::new(vec!["a".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(1999, 12, 31);
        params.not_after = rcgen::date_time_ymd(2061, 2, 3);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let facts = CertificateFacts::of(certificate.der()).unwrap();
        assert!(facts.is_self_signed);
        assert_eq!(facts.not_before.to_string(), "1999-12-31T00:00:00Z");
        assert_eq!(facts.not_after.to_string(), "2061-02-03T00:00:00Z");
        let mut of_other = rcgen::CertificateParams::new(vec!["b".to_owned()]).unwrap();
        of_other.distinguished_name.push(rcgen::DnType::CommonName, "b");
        let issuer = rcgen::Issuer::new(params, &key);
        let signed = of_other.signed_by(&key, &issuer).unwrap();
        assert!(!CertificateFacts::of(signed.der()).unwrap().is_self_signed);
        for len in 0..certificate.der().len() {
            assert_eq!(CertificateFacts::of(&certificate.der()[..len]), None);
        }
    }
}
