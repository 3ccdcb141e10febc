//! The records of PAX headers, for values that do not fit into a block of tar.

use rustix::fs::Timespec;

use super::TarError;

/// What extension headers say about the next member.
#[derive(Debug, Default)]
pub(super) struct PaxHeader {
    pub(super) path: Option<Vec<u8>>,
    pub(super) target: Option<Vec<u8>>,
    pub(super) size: Option<u64>,
    pub(super) modified: Option<Timespec>,
    /// Whether the contents are a list of pieces instead of the whole file.
    pub(super) is_sparse: bool,
}

impl PaxHeader {
    /// Reads the records of a header; later ones win. Whatever `hdrcharset` says, names are bytes.
    pub(super) fn read(&mut self, mut records: &[u8]) -> Result<(), TarError> {
        while !records.is_empty() {
            let (key, value, rest) = record(records).ok_or(TarError::Record)?;
            records = rest;
            match key {
                b"path" => self.path = Some(value.to_vec()),
                b"linkpath" => self.target = Some(value.to_vec()),
                b"size" => self.size = Some(number(value).ok_or(TarError::Number)?),
                b"mtime" => self.modified = Some(time(value).ok_or(TarError::Number)?),
                key if key.starts_with(b"GNU.sparse.") => self.is_sparse = true,
                _ => {}
            }
        }
        Ok(())
    }
}

/// Splits off the first record: `11 path=a/b\n`. Returns key, value and the rest.
fn record(records: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let digits = records.iter().position(|byte| *byte == b' ')?;
    let len = usize::try_from(number(&records[..digits])?).ok()?;
    let (record, rest) = records.split_at_checked(len)?;
    let record = record.get(digits + 1..)?.strip_suffix(b"\n")?;
    let equals = record.iter().position(|byte| *byte == b'=')?;
    Some((&record[..equals], &record[equals + 1..], rest))
}

/// Parses a decimal number.
fn number(text: &[u8]) -> Option<u64> {
    let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    is_number.then(|| str::from_utf8(text).ok()?.parse().ok()).flatten()
}

/// Parses a time such as `-1.5` into one of the kernel, whose nanoseconds count forwards even
/// before 1970. Finer digits are dropped.
fn time(text: &[u8]) -> Option<Timespec> {
    let (is_negative, text) = match text.strip_prefix(b"-") {
        Some(text) => (true, text),
        None => (false, text),
    };
    let mut parts = text.splitn(2, |byte| *byte == b'.');
    let seconds = number(parts.next()?)?;
    let fraction = match parts.next() {
        None | Some(b"") => 0,
        Some(digits) if digits.iter().all(u8::is_ascii_digit) => {
            let nine = digits.iter().chain([b'0'; 9].iter()).take(9);
            nine.fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'))
        }
        Some(_) => return None,
    };
    let before = || 0_i64.checked_sub_unsigned(seconds);
    let (tv_sec, tv_nsec) = match fraction {
        _ if !is_negative => (i64::try_from(seconds).ok()?, fraction),
        0 => (before()?, 0),
        _ => (before()?.checked_sub(1)?, 1_000_000_000 - fraction),
    };
    Some(Timespec { tv_sec, tv_nsec })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_count_forwards() {
        for (text, expected) in [
            ("0", Some((0, 0))),
            ("1.5", Some((1, 500_000_000))),
            ("1.", Some((1, 0))),
            ("-1", Some((-1, 0))),
            ("-1.000000001", Some((-2, 999_999_999))),
            ("-0.5", Some((-1, 500_000_000))),
            ("1.1234567899", Some((1, 123_456_789))),
            ("9223372036854775807", Some((i64::MAX, 0))),
            ("9223372036854775808", None),
            ("-9223372036854775808", Some((i64::MIN, 0))),
            ("-9223372036854775808.5", None),
            ("-9223372036854775809", None),
            ("", None),
            ("-", None),
            (".5", None),
            ("1.x", None),
            ("+1", None),
        ] {
            let found = time(text.as_bytes()).map(|time| (time.tv_sec, time.tv_nsec));
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn a_record_is_as_long_as_it_says() {
        let good = b"11 path=a\nb\n8 a=b=c\n".as_slice();
        assert_eq!(record(good), None, "its length ends within the name");
        let good = b"12 path=a\nb\n8 a=b=c\n".as_slice();
        let (key, value, rest) = record(good).expect("a record");
        assert_eq!((key, value, rest), (&b"path"[..], &b"a\nb"[..], &b"8 a=b=c\n"[..]));
        assert_eq!(
            record(rest).map(|(key, value, _)| (key, value)),
            Some((&b"a"[..], &b"b=c"[..]))
        );
        for bad in ["", "5", "5 a=b", "0 a=b\n", "2 a=b\n", "5 a=b\n", "99999999999999999999 a=b\n"]
        {
            assert_eq!(record(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
