//! The time of a line as text, made at most once in a second.

use std::time::{SystemTime, UNIX_EPOCH};

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::observe::access_log::escape;

/// A time as the log writes it.
///
/// Whoever writes lines holds one, and so pays for the calendar and the time zone once a second.
#[derive(Clone, Debug)]
pub struct TimeText {
    /// The zone of this machine, as it was when this was made.
    zone: TimeZone,
    /// The second that the texts are about; none if there are none yet.
    second: Option<i64>,
    /// The millisecond within it.
    millisecond: u64,
    /// `10/Oct/2000:13:55:36 -0700`
    common: String,
    /// `2000-10-10T13:55:36-07:00`
    rfc3339: String,
}

impl TimeText {
    /// Of the zone of this machine; UTC if it has none.
    #[must_use]
    pub fn local() -> Self {
        Self::new(TimeZone::system())
    }

    /// Of UTC.
    #[must_use]
    pub fn utc() -> Self {
        Self::new(TimeZone::UTC)
    }

    /// Of a zone.
    pub(super) fn new(zone: TimeZone) -> Self {
        let (common, rfc3339) = (String::new(), String::new());
        Self { zone, second: None, millisecond: 0, common, rfc3339 }
    }

    /// Sets the time that the texts are about.
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

    /// As in the common log format.
    pub(super) fn common(&self) -> &str {
        &self.common
    }

    /// As RFC 3339 has it, and with it ISO 8601.
    pub(super) fn rfc3339(&self) -> &str {
        &self.rfc3339
    }

    /// Appends it as RFC 3339 has it, with milliseconds.
    pub(super) fn push_rfc3339_with_thousandths(&self, out: &mut Vec<u8>) {
        let (seconds, zone) = self.rfc3339.split_at(self.rfc3339.len().min(SECONDS_LEN));
        out.extend_from_slice(seconds.as_bytes());
        out.push(b'.');
        escape::push_three(out, self.millisecond);
        out.extend_from_slice(zone.as_bytes());
    }

    /// Appends seconds and milliseconds since 1970.
    pub(super) fn push_epoch(&self, out: &mut Vec<u8>) {
        escape::push_number(out, self.second.unwrap_or_default().unsigned_abs());
        out.push(b'.');
        escape::push_three(out, self.millisecond);
    }
}

/// The length of `2000-10-10T13:55:36`, after which the zone begins.
const SECONDS_LEN: usize = 19;
