//! The reason why no certificate was obtained.

use std::io;
use std::path::PathBuf;

use instant_acme::Problem;
use underpass_client::ClientError;
use underpass_engine::hint::Plain;
use underpass_transport::tls::TlsError;

pub(crate) type Result<T, E = AcmeError> = std::result::Result<T, E>;

/// The reason why no certificate was obtained.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcmeError {
    /// The state folder cannot be used.
    #[error("{action} {}: {}", .path.display(), Plain(.source))]
    Folder {
        /// The failed action, such as `writing to`.
        action: &'static str,
        /// The folder or file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The certificate authority could not be reached.
    #[error(transparent)]
    Network(Box<ClientError>),
    /// The certificate authority refused the order or the answer to a challenge.
    #[error("the certificate authority refused {}", refused_text(*.challenge, .detail, .kind))]
    Refused {
        /// The refused challenge, such as `TLS-ALPN-01`; `None` if it refused the order itself.
        challenge: Option<&'static str>,
        /// Its explanation.
        detail: String,
        /// The type of the problem, such as `rateLimited`; empty if it has none.
        kind: String,
        /// The status of its response.
        status: u16,
    },
    /// The certificate authority did not decide in time.
    #[error("the certificate authority did not decide in time")]
    TimedOut,
    /// The responses of the certificate authority are invalid.
    #[error("unexpected response from the certificate authority: {0}")]
    Protocol(String),
    /// The certificate cannot be used.
    #[error("the certificate cannot be used: {0}")]
    Certificate(#[from] TlsError),
}

impl AcmeError {
    /// Creates the error for a problem that the certificate authority reports.
    pub(crate) fn refused(challenge: Option<&'static str>, problem: &Problem) -> Self {
        let kind = problem.r#type.as_deref().unwrap_or_default();
        let mut detail = problem.detail.clone().unwrap_or_default();
        for part in problem.subproblems.iter().filter_map(|part| part.detail.as_deref()) {
            detail += &format!("; {part}");
        }
        Self::Refused {
            challenge,
            detail: one_line(&detail),
            kind: one_line(kind.rsplit(':').next().unwrap_or_default()),
            status: problem.status.unwrap_or_default(),
        }
    }

    /// Returns whether the certificate authority has not counted the failure: it was not reached,
    /// did not work, or has not considered the order because of a nonce (RFC 8555 6.5).
    pub(crate) fn is_uncounted(&self) -> bool {
        match self {
            Self::Folder { .. } | Self::Network(_) => true,
            Self::Refused { status, kind, .. } => *status >= 500 || kind == "badNonce",
            Self::TimedOut | Self::Protocol(_) | Self::Certificate(_) => false,
        }
    }

    /// Returns whether the certificate authority does not know the account.
    pub(crate) fn is_unknown_account(&self) -> bool {
        matches!(self, Self::Refused { kind, .. } if kind == "accountDoesNotExist")
    }

    /// Returns whether another challenge might succeed.
    pub(crate) fn is_of_challenge(&self) -> bool {
        matches!(self, Self::Refused { challenge: Some(_), .. })
    }
}

fn refused_text(challenge: Option<&str>, detail: &str, kind: &str) -> String {
    let what = challenge.unwrap_or("the order");
    match kind {
        "" => format!("{what}: {detail}"),
        kind => format!("{what}: {detail} ({kind})"),
    }
}

/// Returns the text of a response without control characters, truncated to [`MAX_DETAIL`].
fn one_line(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MAX_DETAIL).collect()
}

/// The longest explanation that is passed on, in characters.
const MAX_DETAIL: usize = 1000;

impl From<instant_acme::Error> for AcmeError {
    fn from(error: instant_acme::Error) -> Self {
        use instant_acme::Error;
        match error {
            Error::Api(problem) => Self::refused(None, &problem),
            Error::Other(error) => match error.downcast::<ClientError>() {
                Ok(error) => Self::Network(error),
                Err(error) => Self::Protocol(one_line(&error.to_string())),
            },
            error => Self::Protocol(one_line(&error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_unrelated_to_the_order_are_not_counted() {
        for (kind, status, is_uncounted) in [
            ("badNonce", 400, true),
            ("serverInternal", 500, true),
            ("malformed", 400, false),
            ("rateLimited", 429, false),
        ] {
            let problem = format!(
                r#"{{"type": "urn:ietf:params:acme:error:{kind}", "detail": "x", "status": {status}}}"#
            );
            let problem = serde_json::from_str(&problem).unwrap();
            assert_eq!(AcmeError::refused(None, &problem).is_uncounted(), is_uncounted, "{kind}");
        }
    }
}
