//! Parses the fields of `MOVE` and `COPY`: `Destination`, `Overwrite` and `Depth` (RFC 4918 10).

use super::authority::{host, is_same_authority, split_absolute};
use super::parse::Request;
use super::target::{Target, TargetError, TargetFault};

/// The destination of a move or copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// The path, in the form of a [`Target`].
    pub path: Vec<u8>,
    /// Whether it ended in a slash.
    pub is_folder: bool,
    /// Whether an existing entry may be replaced (10.6).
    pub overwrite: Overwrite,
}

/// The client's choice about an existing entry at the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overwrite {
    /// It must not be replaced.
    Forbidden,
    /// Nothing: the field is absent, which means that it may be replaced.
    Absent,
    /// Explicitly that it may be replaced.
    Allowed,
}

/// The reason why a request has no valid destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadDestination {
    /// The field is missing or repeated.
    #[error("the request needs exactly one Destination header")]
    Missing,
    /// The destination is neither a whole URL nor a path that begins with a slash, `./` or `../`.
    #[error("the Destination is neither a URL nor a path that begins with a slash, ./ or ../")]
    Malformed,
    /// No file can have the path.
    #[error("the Destination is not a path that a file can have: {0}")]
    Path(TargetError),
    /// The destination is on another server.
    #[error(
        "the Destination is not on this server; a proxy has to pass on Host as its client sent it"
    )]
    Elsewhere,
    /// The destination is not below the prefix.
    #[error("the Destination is not below the --path-prefix of this server")]
    Outside,
    /// The destination has a query, or a name with an unescaped `?`.
    #[error("the Destination has a query; a ? in a name is written %3F")]
    Query,
    /// `Overwrite` is neither `T` nor `F`, or there are several.
    #[error("Overwrite must be T or F")]
    Overwrite,
}

impl Destination {
    /// Reads the destination of a request; `prefix` as in [`Target::parse`].
    ///
    /// # Errors
    ///
    /// See [`BadDestination`].
    pub fn read(request: &Request<'_, '_>, prefix: &[u8]) -> Result<Self, BadDestination> {
        let value = request.single("destination").ok_or(BadDestination::Missing)?;
        // 10.3: an absolute URL or a path; relative paths are accepted as well.
        if !is_here(request, value) {
            return Err(BadDestination::Elsewhere);
        }
        let joined;
        let path = if value.starts_with(b"./") || value.starts_with(b"../") {
            joined = [folder(request.target), value].concat();
            &joined
        } else {
            value
        };
        let target = Target::parse(path, prefix).map_err(|error| match error {
            TargetError::Outside => BadDestination::Outside,
            TargetError::Malformed(TargetFault::Form) => BadDestination::Malformed,
            error => BadDestination::Path(error),
        })?;
        // Dropping the part after the mark would name another file than the client meant.
        if value.contains(&b'?') {
            return Err(BadDestination::Query);
        }
        let overwrite = match (request.has("overwrite"), request.single("overwrite")) {
            (false, _) => Overwrite::Absent,
            (_, Some(b"T" | b"t")) => Overwrite::Allowed,
            (_, Some(b"F" | b"f")) => Overwrite::Forbidden,
            _ => return Err(BadDestination::Overwrite),
        };
        Ok(Self { path: target.path.into_owned(), is_folder: target.is_folder, overwrite })
    }

    /// Returns whether an existing file may be replaced.
    #[must_use]
    pub fn may_replace(&self) -> bool {
        self.overwrite != Overwrite::Forbidden
    }
}

/// Returns the path of a target up to its last slash. Paths relative to it also work behind a proxy
/// that replaces the beginning of paths.
fn folder(target: &[u8]) -> &[u8] {
    let target = split_absolute(target).map_or(target, |(_, rest)| rest);
    let path = target.split(|&byte| byte == b'?').next().unwrap_or_default();
    path.iter().rposition(|&byte| byte == b'/').map_or(b"/", |slash| &path[..=slash])
}

/// Returns whether a whole URL names the server that the request is for; a path always does.
#[must_use]
pub fn is_here(request: &Request<'_, '_>, url: &[u8]) -> bool {
    let own = request.authority().unwrap_or_default();
    split_absolute(url).is_none_or(|(authority, _)| {
        // Some clients add the user that they log in as.
        let user = authority.iter().position(|byte| *byte == b'@');
        let authority = user.map_or(authority, |at| &authority[at + 1..]);
        // A proxy may have dropped the port that the client uses, as nginx does with `$host`.
        let authority = if host(own) == own { host(authority) } else { authority };
        is_same_authority(url, authority, own)
    })
}

impl BadDestination {
    /// Returns the status to answer with.
    #[must_use]
    pub fn status(self) -> u16 {
        match self {
            Self::Elsewhere | Self::Outside => 502, // 9.8.5, 9.9.4
            Self::Missing | Self::Malformed | Self::Path(_) | Self::Query | Self::Overwrite => 400,
        }
    }
}

/// The part of a folder that is included (10.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// The folder without what is in it.
    Zero,
    /// All of it.
    Infinity,
}

impl Depth {
    /// Returns the depth of the request; everything if there is no such field. `None` if the
    /// value is neither, or the field is repeated.
    #[must_use]
    pub fn read(request: &Request<'_, '_>) -> Option<Self> {
        if !request.has("depth") {
            return Some(Self::Infinity);
        }
        match request.single("depth")? {
            b"0" => Some(Self::Zero),
            value => value.eq_ignore_ascii_case(b"infinity").then_some(Self::Infinity),
        }
    }
}
