//! Requests the rest of interrupted bodies and the holes of versions, and detects that an object
//! has changed.

use std::time::SystemTime;

use underpass_client::Connection;
use underpass_client::Response;
use underpass_client::download::interpret::{
    Interpretation, StrongValidator, interpret_response, may_be_about_range,
};
use underpass_protocol::caching::may_store;
use underpass_transport::incoming::{BodyFraming, ReceiveOptions};

use super::super::body_error::error_of;
use super::super::origins::OriginResponse;
use super::super::request::{file_request, send};
use super::Fill;
use crate::error::{CacheError, CacheErrorKind, ResponseFault};
use crate::shared::Counters;
use crate::store::stored_fields;

impl Fill {
    /// Requests the missing bytes, or the whole if the origin does not support ranges.
    pub(super) fn open(&mut self) -> Result<OriginResponse, CacheError> {
        self.request(!self.version.has_no_ranges())
    }

    /// Requests the missing bytes, or the whole unless `has_ranges`.
    fn request(&mut self, has_ranges: bool) -> Result<OriginResponse, CacheError> {
        let len = self.version.len();
        let validator = self.version.validator().cloned();
        let range = has_ranges.then_some((self.rest.start, Some(self.rest.end)));
        let request = file_request(range, validator.clone().map(|validator| (validator, len)));
        let received = send(&self.shared, &self.object.key, &request, &[], &self.cdn_loop, true);
        let mut received = received.map_err(|failure| failure.error)?;
        let response = &received.answer.response;
        let interpreted = interpret_response(&request, response);
        self.retry_after = response.retry_after(SystemTime::now());
        match interpreted {
            Ok(Interpretation::Part { .. } | Interpretation::Whole { .. })
                if !self.may_add(response) =>
            {
                Err(self.changed())
            }
            Ok(Interpretation::Part { range, .. }) if received.framed_len().is_some() => {
                self.rest.end = self.rest.end.min(range.end);
                Ok(received)
            }
            // If the whole comes now, it has no usable response to ranges.
            Ok(Interpretation::Part { .. }) | Err(_) if has_ranges => {
                drop(received);
                self.request(false)
            }
            Ok(Interpretation::Refused) if has_ranges && may_be_about_range(response.status) => {
                drop(received);
                self.request(false)
            }
            Err(error) => Err(CacheError::new(ResponseFault::Invalid, error)),
            Ok(Interpretation::Whole { .. }) if self.rest.start == 0 => {
                if !has_ranges {
                    self.version.set_no_ranges();
                }
                Ok(received)
            }
            Ok(Interpretation::Whole { .. } | Interpretation::Changed)
                if response.status == 200 =>
            {
                let is_same = StrongValidator::of(response) == validator;
                if is_same && received.framed_len() == len && self.may_add(response) {
                    // The origin ignores ranges: bytes that are already present are discarded.
                    self.version.set_no_ranges();
                    self.discard(&mut received.answer.connection, self.rest.start)?;
                    return Ok(received);
                }
                if self.version.is_kept_despite(response) {
                    return Err(ResponseFault::NoValidator.into());
                }
                Err(self.changed())
            }
            Ok(Interpretation::Changed) => Err(self.changed()),
            _ => Err(match response.status {
                401 | 403 | 407 => ResponseFault::AccessDenied.into(),
                404 | 410 => self.changed(),
                429 | 500..=599 => ResponseFault::ServerError.into(),
                _ => ResponseFault::Invalid.into(),
            }),
        }
    }

    /// Returns whether the bytes of a response may be added to those stored for all clients: it has
    /// the same entity tag, even if that is weak and the version is identified by its date, the
    /// same coding, and has not become private.
    fn may_add(&self, response: &Response) -> bool {
        let (fields, vary_on) = (stored_fields(response), &self.shared.options.vary_on);
        let head = self.version.head();
        !head.is_denied_by(response)
            && !head.has_other_coding(response)
            && (!self.version.is_stored() || may_store(response.status, &fields, vary_on).is_ok())
    }

    /// Drops the version, because the origin has another one.
    fn changed(&self) -> CacheError {
        Counters::add(&self.shared.counters.changed, 1);
        self.shared.discard(&self.object, &self.version, CacheErrorKind::Changed);
        CacheErrorKind::Changed.into()
    }

    /// Discards the beginning of a body, which is present or not needed.
    pub(super) fn discard(
        &self,
        connection: &mut Connection<'static>,
        len: u64,
    ) -> Result<(), CacheError> {
        let sink = self
            .shared
            .null
            .try_clone()
            .map_err(|error| CacheError::new(CacheErrorKind::Disk, error))?;
        let options =
            ReceiveOptions { pipes: Some(&self.shared.pipes), ..ReceiveOptions::default() };
        let framing = BodyFraming::Length(len);
        let received = connection.incoming().body(framing, &sink, 0, &options, &mut |_| {});
        Counters::add(&self.shared.counters.origin_bytes, received.report.bytes());
        received.outcome.map_err(|error| error_of(error, false))
    }
}
