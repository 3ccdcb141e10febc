//! The final response to a request, after interim ones (RFC 9110 15.2).

use std::time::Instant;

use super::{Connection, Response};
use crate::error::{ClientError, TimeoutError};

impl Connection<'_> {
    /// Reads the final response to a request of this method; `on_interim` receives those before it.
    /// That to a GET or HEAD has to come within the timeout after the first of them; other methods
    /// may make a server work for long.
    ///
    /// # Errors
    ///
    /// [`ClientError`]; also if there are too many interim responses, or the server switches
    /// protocols.
    pub(crate) fn answer(
        &mut self,
        method: &str,
        on_interim: &mut (dyn FnMut(&Response) + Send),
    ) -> Result<Response, ClientError> {
        let first = self.response(method)?;
        if first.status >= 200 {
            return Ok(first);
        }
        let usual = self.incoming.set_deadline(None);
        let (timeout, _) = self.incoming.limits();
        let bound = timeout.filter(|_| matches!(method, "GET" | "HEAD"));
        let bound = bound.and_then(|timeout| Instant::now().checked_add(timeout));
        self.incoming.set_deadline(usual.into_iter().chain(bound).min());
        let answer = self.answer_after(first, method, on_interim);
        self.incoming.set_deadline(usual);
        match answer {
            // It was the timeout, not the deadline of the caller, that has passed.
            Err(ClientError::TimedOut(TimeoutError::Late)) if usual.is_none() => {
                Err(TimeoutError::Stalled.into())
            }
            answer => answer,
        }
    }

    /// Reads the final response after an interim one.
    fn answer_after(
        &mut self,
        mut response: Response,
        method: &str,
        on_interim: &mut (dyn FnMut(&Response) + Send),
    ) -> Result<Response, ClientError> {
        for _ in 0..MAX_INTERIM {
            match response.status {
                101 => {
                    let problem = "it changes to a protocol that was not requested";
                    return Err(self.route.invalid(problem));
                }
                100..200 => on_interim(&response),
                _ => return Ok(response),
            }
            response = self.response(method)?;
        }
        Err(self.route.invalid("too many interim answers"))
    }
}

/// The maximum number of interim responses before the final one, and in a row within a body.
pub(crate) const MAX_INTERIM: u32 = 100;
