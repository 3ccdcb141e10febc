//! The arguments of `doctor`.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};

use clap::Args;
use underpass_diagnose::doctor::TrialTarget;
use underpass_transport::stream::StreamAddress;

use crate::connection::StoreArgs;
use crate::failure::{Failure, Result};

/// The arguments of `doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// The source: a file, or a folder with files like those to be moved [default: the current
    /// folder]
    #[arg(long, value_name = "PATH")]
    pub(super) from: Option<PathBuf>,

    /// The target: the new file or its folder, - for standard output, a host, or unix:PATH
    /// [default: any host]
    #[arg(long, value_name = "PATH | HOST[:PORT]", value_hint = clap::ValueHint::AnyPath)]
    pub(super) to: Option<OsString>,

    /// Examine a file of an origin instead, for `serve --origin`: whether it can be reached, its
    /// ranges and its version; for s3://BUCKET/PREFIX also keys, bucket, region and clock
    #[arg(long, value_name = "URL", conflicts_with_all = ["from", "to"])]
    pub(super) origin: Option<String>,

    /// Also examine the disk of this folder, for `serve --cache`: writes up to 256 MiB into a file
    /// without a name
    #[arg(long, value_name = "DIR", requires = "origin")]
    pub(super) cache: Option<PathBuf>,

    /// Trust the certificate authorities in this PEM file instead of the system's for the origin
    #[arg(long, value_name = "FILE", requires = "origin")]
    pub(super) origin_cacert: Option<PathBuf>,

    /// Print the findings as one JSON object
    #[arg(long)]
    pub(super) json: bool,

    #[command(flatten)]
    pub(super) store: StoreArgs,
}

impl DoctorArgs {
    /// Returns what `--to` names.
    pub(super) fn target(&self) -> Result<TrialTarget> {
        self.to.as_deref().map_or(Ok(TrialTarget::Any), target)
    }
}

/// Returns the target that a word names: a path if it has a slash or exists, otherwise a host.
fn target(word: &OsStr) -> Result<TrialTarget> {
    let path = Path::new(word);
    let text = word.to_str();
    if text == Some("-") {
        return Ok(TrialTarget::Output);
    }
    if let Some(text) = text.filter(|text| text.starts_with("unix:")) {
        return host(text);
    }
    match (fs::symlink_metadata(path).is_ok(), text) {
        (false, Some(text)) if !text.contains('/') => host(text),
        _ => Ok(TrialTarget::of_path(path)?),
    }
}

/// Parses a word that is not a path as a host.
fn host(text: &str) -> Result<TrialTarget> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let is_number = bare.parse::<IpAddr>().is_ok();
    let host = match text.parse::<StreamAddress>() {
        Ok(StreamAddress::Tcp { host, .. }) => host,
        Ok(StreamAddress::Unix(_)) => return Ok(TrialTarget::Unix),
        Err(_) if is_number || !text.contains(':') => bare.to_owned(),
        Err(error) => return Err(Failure::value(format_args!("--to {text}"), error)),
    };
    if host.is_empty() {
        Err(Failure::value("--to", "it names neither a host nor a file"))
    } else if host.parse::<Ipv6Addr>().is_ok_and(|host| host.is_unicast_link_local()) {
        let missing = format!("a link-local address needs an interface: [{host}%INTERFACE]:PORT");
        Err(Failure::value(format_args!("--to {text}"), missing))
    } else {
        Ok(TrialTarget::Host(host))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn understood(text: &str) -> TrialTarget {
        target(OsStr::new(text)).unwrap()
    }

    #[test]
    fn a_target_without_a_path_is_a_host() {
        let hosts =
            [("mirror.test", "mirror.test"), ("mirror.test:80", "mirror.test"), ("::1", "::1")];
        for (text, host) in hosts.into_iter().chain([("[::1]:80", "::1"), ("[::1]", "::1")]) {
            assert_eq!(understood(text), TrialTarget::Host(host.to_owned()), "{text}");
        }
        assert_eq!(understood("./mirror.test"), TrialTarget::File("./mirror.test".into()));
        assert_eq!(understood("unix:/run/a"), TrialTarget::Unix);
        assert_eq!(understood("[fe80::1%lo]:80"), TrialTarget::Host("fe80::1%lo".into()));
        assert_eq!(understood("-"), TrialTarget::Output);
        assert_eq!(understood("/proc"), TrialTarget::Folder("/proc".into()));
        assert_eq!(understood("src"), TrialTarget::Folder("src".into()));
        let none = DoctorArgs {
            from: None,
            to: None,
            origin: None,
            cache: None,
            origin_cacert: None,
            store: StoreArgs::default(),
            json: false,
        };
        assert_eq!(none.target().unwrap(), TrialTarget::Any);
    }

    #[test]
    fn invalid_doctor_targets_are_refused() {
        for text in ["", ":80", "/dev/null", "a:b:c", "host:port", "unix:", "fe80::1"] {
            let refused = target(OsStr::new(text));
            assert!(matches!(refused, Err(Failure::Usage(_))), "{text}: {refused:?}");
        }
    }
}
