//! The access log: one line per request, written when it ends.
//!
//! A status of 200 does not prove that the client got the file: the status is sent before the first
//! byte. So each line also has the number of bytes that the peer's kernel has acknowledged, whether
//! those were all, and the mechanism that moved them. Every line is made from one [`AccessEntry`],
//! and no byte that a client sends can end it or forge another.

mod combined;
mod entry;
mod escape;
mod json;
mod template;
#[cfg(test)]
mod tests;
mod time;

pub use entry::{AccessEntry, BodyPart, Secured};
pub use template::{Template, TemplateError};
pub use time::TimeText;

/// The line format of the access log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// The combined format of nginx and Apache, followed by our additions: seconds, bytes
    /// acknowledged, `complete` or the failure, and mechanism.
    #[default]
    Combined,
    /// The combined format, preceded by the name of the site.
    VhostCombined,
    /// One JSON object.
    Json,
    /// A template with `$variables` as in nginx.
    Custom(Template),
}

impl LogFormat {
    /// Parses `combined`, `vhost_combined`, `json`, or a template, which contains a `$`.
    ///
    /// ```
    /// use underpass_observe::access_log::LogFormat;
    /// assert_eq!(LogFormat::parse("json"), Ok(LogFormat::Json));
    /// let format = LogFormat::parse("$remote_addr $status $http_x_request_id")?;
    /// assert_eq!(format.needs(), ["x-request-id"]);
    /// # Ok::<(), underpass_observe::access_log::LogFormatError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`LogFormatError`], which lists the choices.
    pub fn parse(text: &str) -> Result<Self, LogFormatError> {
        match text {
            "combined" => Ok(Self::Combined),
            "vhost_combined" => Ok(Self::VhostCombined),
            "json" => Ok(Self::Json),
            _ if text.contains('$') => {
                Template::parse(text).map(Self::Custom).map_err(LogFormatError::Template)
            }
            _ => Err(LogFormatError::Unknown),
        }
    }

    /// Returns the request fields that a line needs besides `Referer` and `User-Agent`, in lower
    /// case: those that [`AccessEntry::fields`] must hold.
    #[must_use]
    pub fn needs(&self) -> &[String] {
        match self {
            Self::Combined | Self::VhostCombined | Self::Json => &[],
            Self::Custom(template) => template.needs(),
        }
    }

    /// Returns whether a line includes processor time or context switches, which then have to be
    /// measured.
    #[must_use]
    pub fn logs_cost(&self) -> bool {
        match self {
            Self::Combined | Self::VhostCombined => false,
            Self::Json => true,
            Self::Custom(template) => template.logs_cost(),
        }
    }

    /// Appends one line, which ends with a newline and contains no other.
    pub fn line_into(&self, entry: &AccessEntry, time: &mut TimeText, out: &mut Vec<u8>) {
        time.set(entry.ended());
        match self {
            Self::Combined => combined::write(entry, time, out),
            Self::VhostCombined => {
                template::push_site(out, entry);
                out.push(b' ');
                combined::write(entry, time, out);
            }
            Self::Json => json::write(entry, time, out),
            Self::Custom(template) => template.write(entry, time, out),
        }
        out.push(b'\n');
    }

    /// Returns one line, for callers that write few.
    #[must_use]
    pub fn line(&self, entry: &AccessEntry) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        self.line_into(entry, &mut TimeText::local(), &mut out);
        out
    }
}

/// The error of a text that is not a [`LogFormat`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LogFormatError {
    /// The text is an invalid template.
    #[error(transparent)]
    Template(TemplateError),
    /// The text is neither a known name nor a template.
    #[error(
        "log formats are combined, vhost_combined, json, or a template such as \
         \"$remote_addr $request $status\" (in single quotes, for the shell)"
    )]
    Unknown,
}
