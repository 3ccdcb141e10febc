//! The age of a stored response, and whether it may be used (RFC 9111 4.2, RFC 5861).

use std::time::{Duration, SystemTime};

use super::directives::{Directives, delta_seconds};
use super::{FieldList, values};
use crate::response::validator::parse_date;

/// When a response was requested and received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseTimes {
    /// When its request was sent.
    pub requested: SystemTime,
    /// When its head was received.
    pub received: SystemTime,
}

/// The operator's rules of freshness.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreshnessRules {
    /// The freshness lifetime of a response that names none.
    pub fresh: Option<Duration>,
    /// The time for which a stale response may be used if the origin fails and the response names
    /// none.
    pub stale_if_error: Duration,
}

/// The times of a stored response, from which its use at any moment follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freshness {
    received: SystemTime,
    date: SystemTime,
    /// Its age when it was received.
    initial_age: Duration,
    /// The age that it may reach.
    lifetime: Duration,
    while_revalidating: Duration,
    if_error: Duration,
}

/// The permitted use of a stored response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// It is fresh.
    Fresh,
    /// It is stale, and may be used while it is validated.
    WhileRevalidating,
    /// It has to be validated first.
    AfterValidation,
}

impl Freshness {
    /// Calculates the times of a response of status 200 or 206.
    #[must_use]
    pub fn of(fields: &FieldList, times: ResponseTimes, rules: &FreshnessRules) -> Self {
        Self::of_status(200, fields, times, rules)
    }

    /// Calculates the times of a response of any status. One that says nothing about its freshness
    /// is fresh only if its status allows that (RFC 9110 15.1), or `public` does.
    #[must_use]
    pub fn of_status(
        status: u16,
        fields: &FieldList,
        times: ResponseTimes,
        rules: &FreshnessRules,
    ) -> Self {
        let directives = Directives::of(fields);
        let may_guess = GUESSABLE.contains(&status) || directives.public;
        let ResponseTimes { requested, received } = times;
        let since = |later: SystemTime, earlier| later.duration_since(earlier).unwrap_or_default();
        let date =
            |name: &str| values(fields, name).next().and_then(|it| parse_date(it.as_bytes()));
        let sent_at = date("date");
        // RFC 9111 4.2.3.
        let apparent = sent_at.map_or(Duration::ZERO, |sent_at| since(received, sent_at));
        // 5.1: of several the first counts, and one that is not a number does not.
        let age = values(fields, "age").next().and_then(|age| age.split(',').next());
        let age = Duration::from_secs(age.map_or(0, |age| delta_seconds(age.trim())));
        let corrected = age.saturating_add(since(received, requested));
        let date = sent_at.unwrap_or(received);
        let lifetime = lifetime(&directives, fields, date).unwrap_or_else(|| {
            if may_guess {
                rules.fresh.unwrap_or_else(|| guessed(fields, date))
            } else {
                Duration::ZERO
            }
        });
        let grace = |seconds: Option<u64>, default| {
            if directives.forbids_stale() {
                Duration::ZERO
            } else {
                seconds.map_or(default, Duration::from_secs)
            }
        };
        Self {
            received,
            date,
            initial_age: apparent.max(corrected),
            lifetime,
            while_revalidating: grace(directives.stale_while_revalidate, Duration::ZERO),
            if_error: grace(directives.stale_if_error, rules.stale_if_error),
        }
    }

    /// Returns how old the response is now, for `Age`. A clock that was set back makes it no
    /// younger than it was.
    #[must_use]
    pub fn age(&self, now: SystemTime) -> Duration {
        self.initial_age.saturating_add(now.duration_since(self.received).unwrap_or_default())
    }

    /// Returns when the response was made: what it says itself, or when it was received (RFC 9110
    /// 6.6.1).
    #[must_use]
    pub fn date(&self) -> SystemTime {
        self.date
    }

    /// Returns how many seconds it stays fresh; negative once it is stale.
    #[must_use]
    pub fn remaining(&self, now: SystemTime) -> i64 {
        let seconds = |time: Duration| i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        seconds(self.lifetime).saturating_sub(seconds(self.age(now)))
    }

    /// Returns what it may be used for now. A clock that was set back before the response came
    /// makes it stale.
    #[must_use]
    pub fn usage(&self, now: SystemTime) -> Use {
        let is_set_back = self.is_from_future(now);
        let age = self.age(now);
        if age < self.lifetime && !is_set_back {
            Use::Fresh
        } else if age < self.lifetime.saturating_add(self.while_revalidating) && !is_set_back {
            Use::WhileRevalidating
        } else {
            Use::AfterValidation
        }
    }

    /// Returns whether it may be used now although the origin fails. After the clock was set back
    /// it is stale, however long it says that it is fresh.
    #[must_use]
    pub fn is_usable_on_error(&self, now: SystemTime) -> bool {
        let may_be_stale = !self.if_error.is_zero();
        self.age(now) < self.lifetime.saturating_add(self.if_error)
            && (may_be_stale || !self.is_from_future(now))
    }

    /// Returns whether the clock was set back before the response came.
    fn is_from_future(&self, now: SystemTime) -> bool {
        now + CLOCK_STEP < self.received
    }
}

/// Returns how long a response says that it is fresh (RFC 9111 4.2.1).
fn lifetime(directives: &Directives, fields: &FieldList, date: SystemTime) -> Option<Duration> {
    if directives.no_cache {
        return Some(Duration::ZERO);
    }
    if let Some(seconds) = directives.s_maxage.or(directives.max_age) {
        return Some(Duration::from_secs(seconds));
    }
    let expires = values(fields, "expires").next().filter(|_| !directives.is_targeted)?;
    // 5.3: a date that cannot be read is in the past.
    let until = parse_date(expires.as_bytes());
    Some(until.and_then(|until| until.duration_since(date).ok()).unwrap_or_default())
}

/// Returns how long a response is likely to be fresh (RFC 9111 4.2.2).
fn guessed(fields: &FieldList, date: SystemTime) -> Duration {
    let modified = values(fields, "last-modified").next();
    let modified = modified.and_then(|value| parse_date(value.as_bytes()));
    let unchanged = modified.and_then(|modified| date.duration_since(modified).ok());
    (unchanged.unwrap_or_default() / 10).min(MAX_HEURISTIC)
}

/// The statuses whose responses may be used again without saying how long (RFC 9110 15.1).
const GUESSABLE: [u16; 12] = [200, 203, 204, 206, 300, 301, 308, 404, 405, 410, 414, 501];

/// The longest time for which a response is fresh that does not say so.
const MAX_HEURISTIC: Duration = Duration::from_secs(24 * 60 * 60);

/// The time by which a clock may be set back without making everything stale.
const CLOCK_STEP: Duration = Duration::from_secs(5);
