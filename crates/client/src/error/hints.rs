//! Hints for failed requests, downloads and uploads.

use std::io::ErrorKind;

use underpass_engine::hint::{Hint, Hinted};

use crate::backoff::MAX_RETRY_AFTER;
use crate::download::{DownloadError, DownloadFailed, Missing, TargetError};
use crate::error::{ClientError, ConnectionError, InvalidResponse, ProxyError, TimeoutError};
use crate::tree::{SourceFolderError, TreeError, TreeFailed};
use crate::upload::{ConditionError, UploadError, UploadFailed};

impl Hinted for ClientError {
    fn hint(&self) -> Option<Hint> {
        Some(Hint::new(match self {
            Self::Connection(error) => return error.hint(),
            Self::Status { status: 401, needs_other_scheme: true, .. } => {
                "only passwords (Basic) and bearer tokens are supported"
            }
            Self::Status { status: 401, has_identified: true, .. } => WRONG_PASSWORD,
            Self::Status { status: 401, .. } => {
                "give a password with --user NAME:PASSWORD, --bearer TOKEN or ~/.netrc"
            }
            Self::Proxy(ProxyError::Refused { status: 407, .. })
            | Self::Status { status: 407, .. } => {
                "give the proxy a password with --proxy http://NAME:PASSWORD@HOST"
            }
            Self::Status { status: 400, code, detail, .. }
                if code.is_empty() && detail.is_empty() =>
            {
                PORT_OF_HTTPS
            }
            Self::Status { .. } if asks_for_long_wait(self) => LONG_WAIT,
            Self::Status { code, has_identified, .. } => return of_store(code, *has_identified),
            Self::InvalidResponse(InvalidResponse::Encoded { .. }) => {
                "--header 'Accept-Encoding: *' saves the encoded bytes"
            }
            Self::TimedOut(TimeoutError::Stalled) => "set a longer limit with --timeout",
            _ => return None,
        }))
    }
}

impl Hinted for ConnectionError {
    fn hint(&self) -> Option<Hint> {
        match self {
            Self::Network { source, .. } if source.kind() == ErrorKind::ConnectionRefused => {
                Some(Hint::new("nothing listens there: is the server running, and the port right?"))
            }
            Self::Network { source, .. } => Hint::of_network(source),
            Self::Tls { error, .. } => error.hint(),
            _ => None,
        }
    }
}

impl Hinted for DownloadError {
    fn hint(&self) -> Option<Hint> {
        Some(Hint::new(match self {
            Self::Changed => "fetch it again when nothing writes to it",
            Self::Client(error) => return error.hint(),
            Self::Digest(_) => "the file is damaged, or is a different file",
            Self::Engine(error) => return error.hint(),
            Self::Local { source, .. } if source.kind() == ErrorKind::IsADirectory => {
                "-d FOLDER saves it in a folder"
            }
            Self::Local { action, source } => return action.hint(source),
            Self::Missing(Missing::Digest) => {
                "leave out --verify, or give the digest with --digest"
            }
            // The name of the partial file is known, or the download cannot be resumed.
            Self::Missing(_) => return None,
            Self::Target(error) => return error.hint(),
            Self::NoRoom { .. } => "free some space or choose another folder",
        }))
    }
}

impl Hinted for TargetError {
    fn hint(&self) -> Option<Hint> {
        Some(Hint::new(match self {
            Self::Busy => "wait for it, or name another file with -o",
            Self::Exists | Self::Incomparable => "--force replaces it",
            Self::Foreign { journal: Some(_), .. } => "remove both, or name another file with -o",
            Self::Foreign { .. } => "remove it, or name another file with -o",
            Self::Replaced => {
                "fetch it when nothing else writes there, or name another file with -o"
            }
            Self::Special => "-o writes into a device or FIFO; remove it, or choose another name",
        }))
    }
}

impl Hinted for DownloadFailed {
    fn hint(&self) -> Option<Hint> {
        match self.kept {
            Some(_) if matches!(self.error, DownloadError::Missing(Missing::Validator)) => {
                Some(Hint::new("the same command resumes from there; remove it to start over"))
            }
            Some(_) if !self.error.is_about_name() => {
                Some(Hint::new("the same command resumes from there"))
            }
            _ => self.error.hint(),
        }
    }
}

impl Hinted for TreeError {
    fn hint(&self) -> Option<Hint> {
        let goes_on = || Some(Hint::new("the same command resumes it"));
        match self {
            Self::Io { action, source, .. } => action.hint(source),
            Self::Source(SourceFolderError::IsFile) => Some(Hint::new("leave out -r")),
            Self::Client(error) => match error {
                ClientError::Proxy(_) | ClientError::Connection(ConnectionError::Tls { .. }) => {
                    error.hint()
                }
                ClientError::Connection(ConnectionError::Network { source, .. })
                    if source.kind() == ErrorKind::ConnectionRefused =>
                {
                    error.hint()
                }
                error if asks_for_long_wait(error) => error.hint(),
                error if error.is_temporary() => goes_on(),
                error => error.hint(),
            },
            _ => None,
        }
    }
}

impl Hinted for TreeFailed {
    fn hint(&self) -> Option<Hint> {
        self.error.hint()
    }
}

impl Hinted for UploadFailed {
    fn hint(&self) -> Option<Hint> {
        if self.is_kept {
            Some(Hint::new("the same command resumes the upload"))
        } else {
            self.error.hint()
        }
    }
}

impl Hinted for UploadError {
    fn hint(&self) -> Option<Hint> {
        match self {
            Self::Condition(ConditionError::Precondition { .. }) => {
                return Some(Hint::new(OTHER_VERSION));
            }
            Self::NoLength => return Some(Hint::new("save it to a file first")),
            Self::Client(error @ ClientError::Status { status, code, .. })
                if *status == 401 || !code.is_empty() || asks_for_long_wait(error) =>
            {
                return error.hint();
            }
            Self::Condition(ConditionError::PartlyThere) => {
                return Some(Hint::new("compare it with the file, then remove it or leave out -n"));
            }
            Self::Source(error) | Self::Broken(error) => return error.hint(),
            Self::Client(
                error @ (ClientError::Connection(
                    ConnectionError::Network { .. } | ConnectionError::Tls { .. },
                )
                | ClientError::Proxy(_)
                | ClientError::TimedOut(TimeoutError::Stalled)),
            ) => return error.hint(),
            _ => {}
        }
        Some(Hint::new(match self.status()? {
            // The server's own explanation is better than a guess.
            400..=405 if self.is_explained() => return None,
            400 => PORT_OF_HTTPS,
            403 => "this user may not write there",
            404 => "the server has no such place, or takes no uploads there",
            405 | 501 => {
                "the server takes no uploads there; underpass serve does with --allow-upload"
            }
            409 if self.is_explained() => "--create-parents creates missing folders",
            409 => {
                "the parent folder does not exist: use --create-parents; or a folder has this name"
            }
            411 => "the server has to know the length: save it to a file first",
            412 => OTHER_VERSION,
            413 => "it is larger than the server allows",
            // nginx answers 500 if the folder does not exist.
            500 if !self.is_explained() => {
                "the folder may not exist there: --create-parents creates it"
            }
            507 => "the disk of the server is full",
            _ => return None,
        }))
    }
}

/// Returns the hint for a refusal of an object store.
fn of_store(code: &str, has_identified: bool) -> Option<Hint> {
    Some(Hint::new(match code {
        "AccessDenied" | "AllAccessDisabled" if has_identified => {
            "these keys do not have the permission"
        }
        "AccessDenied" => {
            "the request was not signed: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
        }
        "InvalidAccessKeyId" | "SignatureDoesNotMatch" => {
            "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the profile of AWS_PROFILE"
        }
        "ExpiredToken" | "InvalidToken" => "the keys have expired: get new ones",
        "RequestTimeTooSkewed" => "the clock of this machine is wrong",
        _ => return None,
    }))
}

const WRONG_PASSWORD: &str = "the server does not accept this name and password, or token";

/// The hint for the usual answer of an HTTPS port to unencrypted HTTP.
const PORT_OF_HTTPS: &str = "if that port speaks HTTPS, write https://";

/// Returns whether there is no other attempt because the server asks for too long a wait.
fn asks_for_long_wait(error: &ClientError) -> bool {
    error.is_temporary() && error.retry_after() > Some(MAX_RETRY_AFTER)
}

const LONG_WAIT: &str = "the server asks for a wait of more than ten minutes: try again later";

const OTHER_VERSION: &str = "the target does not have the entity tag of --if-match";

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_status_that_has_two_reasons_names_both() {
        for (status, reasons) in [
            (404, ["no such place", "takes no uploads"]),
            (409, ["--create-parents", "a folder has this name"]),
            (500, ["--create-parents", "may not exist"]),
        ] {
            let error = UploadError::from(refusal(status));
            let hint = error.hint().expect("a hint").to_string();
            assert!(reasons.iter().all(|reason| hint.contains(reason)), "{hint}");
        }
    }

    #[test]
    fn a_folder_that_is_refused_has_the_hint_of_a_file() {
        let hint = |error: TreeError| error.hint().map(|hint| hint.to_string());
        let password = hint(refusal(401).into());
        assert!(password.is_some_and(|hint| hint.contains("--user")));
        assert!(hint(refusal(400).into()).is_some_and(|hint| hint.contains("https://")));
        assert!(hint(refusal(503).into()).is_some_and(|hint| hint.contains("same command")));
    }

    #[test]
    fn a_wait_that_is_too_long_is_the_reason_why_there_is_no_other_attempt() {
        for (status, wait, is_named) in [(503, 600, false), (503, 601, true), (404, 601, false)] {
            let busy = || {
                let mut error = refusal(status);
                if let ClientError::Status { retry_after, .. } = &mut error {
                    *retry_after = Some(Duration::from_secs(wait));
                }
                error
            };
            let hints = [
                busy().hint(),
                TreeError::from(busy()).hint(),
                UploadError::from(busy()).hint(),
                DownloadError::from(busy()).hint(),
            ];
            for hint in hints {
                let hint = hint.map(|hint| hint.to_string()).unwrap_or_default();
                assert_eq!(hint.contains("ten minutes"), is_named, "{status} {wait}: {hint}");
            }
        }
    }

    /// Returns the error of a response without an explanation, as to a `HEAD`.
    fn refusal(status: u16) -> ClientError {
        ClientError::Status {
            status,
            code: String::new(),
            detail: String::new(),
            has_identified: false,
            needs_other_scheme: false,
            retry_after: None,
        }
    }
}
