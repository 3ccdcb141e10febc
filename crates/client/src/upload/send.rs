//! Sends the body of a request, and receives the server's response, early or late.

use std::time::{Duration, Instant};

use underpass_engine::{Chain, socket};

use super::chunks;
use super::error::{Result, UnconfirmedUpload, UploadError};
use super::exchange::UploadExchange;
use crate::error::ClientError;
use crate::http::{MAX_INTERIM, Response};

impl UploadExchange<'_, '_, '_> {
    /// Sends head and body; returns the final response, and whether the whole body was sent. If
    /// [`needs_104`](Self::needs_104) forbids the body, that is the `100 Continue`.
    pub(crate) fn run(&mut self, head: Vec<u8>) -> Result<(Response, bool)> {
        let head = match self.expects {
            None => head,
            Some(timeout) => {
                self.connection.send(&head)?;
                match self.await_continue(timeout)? {
                    // A success only counts for the file if the server still accepts the body.
                    Some(answer) if answer.is_success() => self.heard = Some(Ok(answer)),
                    Some(answer) => return Ok((answer, false)),
                    None => {}
                }
                Vec::new()
            }
        };
        let sent = match self.body.len() {
            Some(len) => self.send_known(head, len),
            None => chunks::send(self, head),
        };
        self.answer(sent)
    }

    /// Returns the final response, after the body was sent or failed.
    fn answer(&mut self, sent: Result<()>) -> Result<(Response, bool)> {
        if sent.is_err() {
            // The server must not treat a part as the whole file, however this ends.
            let _ = socket::arm_reset(self.connection.stream());
        }
        match (sent, self.heard.take()) {
            (Ok(()), None) => Ok((self.await_answer()?, true)),
            (Ok(()), Some(answer)) => Ok((answer?, true)),
            // RFC 9110 9.3.4, has no success for a part.
            (Err(_), Some(Ok(answer))) if answer.is_success() => {
                Err(UnconfirmedUpload::Early { status: answer.status }.into())
            }
            (Err(_), Some(Ok(answer))) => Ok((answer, false)),
            (Err(error @ UploadError::Source(_)), _) => Err(error),
            (Err(_), Some(Err(error))) => Err(error.into()),
            (Err(error), None) => match self.response_before_break() {
                Some(answer) if !answer.is_success() => Ok((answer, false)),
                Some(answer) => Err(UnconfirmedUpload::Early { status: answer.status }.into()),
                None => Err(error),
            },
        }
    }

    /// Sends `head`, which may be empty, and a body of known length.
    fn send_known(&mut self, head: Vec<u8>, len: u64) -> Result<()> {
        let skip = self.body.skip;
        let at = self.body.source.offset().unwrap_or(0) + skip;
        let mut chain = Chain::new();
        let head_len = head.len() as u64;
        if !head.is_empty() {
            chain = chain.bytes(head);
        }
        if len > 0 {
            self.is_begun = true;
            chain = chain.source(self.body.source.clone().at(at).len(len));
        }
        self.transfer(chain, head_len, skip)
    }

    /// Waits for `100 Continue`, at most `timeout`; returns the final response if that arrives
    /// instead (RFC 9110 10.1.1), and the `100 Continue` itself if no 104 came before it that is
    /// needed.
    fn await_continue(&mut self, timeout: Duration) -> Result<Option<Response>> {
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            if !self.connection.has_input(left.min(POLL_INTERVAL)) {
                if self.client.is_cancelled() {
                    return Err(ClientError::Cancelled.into());
                }
                continue;
            }
            let response = self.connection.response(self.method)?;
            match response.status {
                100 => return Ok(self.needs_104.then_some(response)),
                101..200 => {
                    self.needs_104 &= response.status != 104;
                    (self.interim)(&response);
                }
                _ => return Ok(Some(response)),
            }
        }
    }

    /// Waits for the final response to a whole body.
    fn await_answer(&mut self) -> Result<Response> {
        // The server may have to sync all of it to its disk before it responds.
        let sent = self.body.len().unwrap_or_else(|| self.report.bytes());
        let timeout = self.client.timeout + Duration::from_secs(sent / MIN_DISK_RATE);
        self.connection.incoming().set_timeout(Some(timeout));
        let answer = self.connection.answer(self.method, &mut *self.interim);
        self.connection.incoming().set_timeout(Some(self.client.timeout));
        Ok(answer?)
    }

    /// Returns the response that the server sent before the connection broke, if any.
    fn response_before_break(&mut self) -> Option<Response> {
        for _ in 0..MAX_INTERIM {
            if !self.connection.has_input(EARLY_ANSWER_TIMEOUT) {
                break;
            }
            match self.connection.response(self.method) {
                Ok(response) if response.status < 200 => {}
                answer => return answer.ok(),
            }
        }
        None
    }
}

/// The interval at which a wait checks whether it was cancelled.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The time to wait for the response of a server that has ended the connection early.
const EARLY_ANSWER_TIMEOUT: Duration = Duration::from_millis(100);

/// The minimum rate of a server's disk, in bytes per second.
const MIN_DISK_RATE: u64 = 16 << 20;
