//! The time of a line as text, formatted at most once a second.

use std::time::{SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::access_log::escape;

/// A time in the formats of the log.
///
/// Each writer has one, so that calendar and time zone arithmetic is done once a second.
#[derive(Clone, Debug)]
pub struct TimeText {
    /// The time zone of this machine when this value was created.
    zone: TimeZone,
    /// The second of the texts; `None` if there are none yet.
    second: Option<i64>,
    /// The millisecond within that second.
    millisecond: u64,
    /// `10/Oct/2000:13:55:36 -0700`
    common: String,
    /// `2000-10-10T13:55:36-07:00`
    rfc3339: String,
}

impl TimeText {
    /// Creates a time in the time zone of this machine, or in UTC if it has none.
    #[must_use]
    pub fn local() -> Self {
        Self::new(TimeZone::system())
    }

    /// Creates a time in UTC.
    #[must_use]
    pub fn utc() -> Self {
        Self::new(TimeZone::UTC)
    }

    /// Creates a time in a time zone.
    pub(super) fn new(zone: TimeZone) -> Self {
        let (common, rfc3339) = (String::new(), String::new());
        Self { zone, second: None, millisecond: 0, common, rfc3339 }
    }

    /// Sets the time.
    pub(super) fn set(&mut self, time: SystemTime) {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
        self.millisecond = u64::from(since.subsec_millis());
        let second = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
        if self.second == Some(second) {
            return;
        }
        self.second = Some(second);
        let timestamp = Timestamp::from_second(second).unwrap_or(Timestamp::MAX);
        let local = timestamp.to_zoned(self.zone.clone());
        self.common = local.strftime("%d/%b/%Y:%H:%M:%S %z").to_string();
        self.rfc3339 = local.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string();
    }

    /// Returns the time in the common log format.
    pub(super) fn common(&self) -> &str {
        &self.common
    }

    /// Returns the time in the format of RFC 3339, which is also valid ISO 8601.
    pub(super) fn rfc3339(&self) -> &str {
        &self.rfc3339
    }

    /// Appends the time in the format of RFC 3339, with milliseconds.
    pub(super) fn push_rfc3339_with_thousandths(&self, out: &mut Vec<u8>) {
        let (seconds, zone) = self.rfc3339.split_at(self.rfc3339.len().min(SECONDS_LEN));
        out.extend_from_slice(seconds.as_bytes());
        out.push(b'.');
        escape::push_three(out, self.millisecond);
        out.extend_from_slice(zone.as_bytes());
    }

    /// Appends the seconds and milliseconds since 1970.
    pub(super) fn push_epoch(&self, out: &mut Vec<u8>) {
        escape::push_number(out, self.second.unwrap_or_default().unsigned_abs());
        out.push(b'.');
        escape::push_three(out, self.millisecond);
    }
}

/// The length of `2000-10-10T13:55:36`, which the time zone follows.
const SECONDS_LEN: usize = 19;
