//! The order of one certificate.

use std::thread;
use std::time::{Duration, Instant};

use instant_acme::{
    Account, AuthorizationStatus, ChallengeType, Identifier, NewOrder, Order, OrderStatus,
};
use underpass_transport::tls::Identities;

use crate::error::{AcmeError, Result};
use crate::http::{Http, block_on};

/// How a server proves to a certificate authority that it has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Challenge {
    /// By a handshake on port 443 (RFC 8737).
    Tls,
    /// By a file on port 80 (RFC 8555 8.3).
    Http,
}

impl Challenge {
    fn name(self) -> &'static str {
        match self {
            Self::Tls => "TLS-ALPN-01",
            Self::Http => "HTTP-01",
        }
    }

    fn kind(self) -> ChallengeType {
        match self {
            Self::Tls => ChallengeType::TlsAlpn01,
            Self::Http => ChallengeType::Http01,
        }
    }
}

/// Orders a certificate; returns its chain and its key as PEM.
pub(crate) fn order(
    account: &Account,
    http: &Http,
    name: &str,
    challenge: Challenge,
    answers: &Identities,
) -> Result<String> {
    let identifiers = [Identifier::Dns(name.to_owned())];
    let mut order = block_on(account.new_order(&NewOrder::new(&identifiers)))?;
    let authorized = authorize(&mut order, http, name, challenge, answers);
    answers.end_answers();
    authorized?;
    let key = block_on(order.finalize())?;
    let mut poll = Poll::new();
    while order.state().status == OrderStatus::Processing {
        poll.wait(http)?;
        block_on(order.refresh())?;
    }
    let chain = block_on(order.certificate())?;
    let chain = chain.ok_or_else(|| AcmeError::Protocol("there is no certificate".to_owned()))?;
    Ok(format!("{chain}{key}"))
}

/// Proves to the certificate authority that this server has the name.
fn authorize(
    order: &mut Order,
    http: &Http,
    name: &str,
    challenge: Challenge,
    answers: &Identities,
) -> Result<()> {
    let mut authorizations = order.authorizations();
    while let Some(authorization) = block_on(authorizations.next()) {
        let mut authorization = authorization?;
        if authorization.status != AuthorizationStatus::Pending {
            // The name is authorized by an earlier order, or else the order will report why not.
            continue;
        }
        let Some(mut handle) = authorization.challenge(challenge.kind()) else {
            return Err(AcmeError::Refused {
                challenge: Some(challenge.name()),
                detail: "this challenge is not offered".to_owned(),
                kind: String::new(),
                status: 0,
            });
        };
        let expected = handle.key_authorization();
        match challenge {
            Challenge::Tls => answers.answer_over_tls(name, expected.digest().as_ref())?,
            Challenge::Http => answers.answer_over_http(&handle.token, expected.as_str()),
        }
        block_on(handle.set_ready())?;
    }
    let mut poll = Poll::new();
    loop {
        match block_on(order.refresh())?.status {
            OrderStatus::Ready | OrderStatus::Processing | OrderStatus::Valid => return Ok(()),
            OrderStatus::Pending => poll.wait(http)?,
            OrderStatus::Invalid => return Err(refusal(order, challenge)),
        }
    }
}

/// Returns why the certificate authority did not accept the answer to its challenge.
fn refusal(order: &mut Order, challenge: Challenge) -> AcmeError {
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = block_on(authorizations.next()) {
        // If this fails too, the generic error of the order remains.
        let _ = block_on(authorization.refresh());
        if let Some(problem) = authorization.challenges.iter().find_map(|it| it.error.as_ref()) {
            return AcmeError::refused(Some(challenge.name()), problem);
        }
    }
    match &order.state().error {
        Some(problem) => AcmeError::refused(Some(challenge.name()), problem),
        None => AcmeError::Refused {
            challenge: Some(challenge.name()),
            detail: "the order is invalid".to_owned(),
            kind: String::new(),
            status: 0,
        },
    }
}

/// The waits between polls of the certificate authority.
struct Poll {
    wait: Duration,
    until: Instant,
}

impl Poll {
    fn new() -> Self {
        Self { wait: FIRST_WAIT, until: Instant::now() + MAX_TIME }
    }

    fn wait(&mut self, http: &Http) -> Result<()> {
        let retry_after = http.take_retry_after().unwrap_or_default().min(MAX_WAIT);
        let wait = self.wait.max(retry_after);
        self.wait = (self.wait * 2).min(MAX_WAIT);
        if Instant::now() + wait > self.until {
            return Err(AcmeError::TimedOut);
        }
        thread::sleep(wait);
        Ok(())
    }
}

const FIRST_WAIT: Duration = Duration::from_millis(250);

const MAX_WAIT: Duration = Duration::from_secs(10);

/// The longest time for checking a challenge, and for issuing a certificate.
const MAX_TIME: Duration = Duration::from_secs(120);
