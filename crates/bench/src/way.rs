//! The words of the bench: ways of moving bytes and steps, as they are typed, shown and recorded.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use underpass_engine::Mechanism;

use super::cp::Copier;
use super::peers::Peer;
use underpass_engine::Size;

/// A way of moving bytes.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(into = "String", try_from = "String")]
pub(crate) enum Way {
    /// The peer: aria2c with four connections.
    Aria2,
    /// Whatever `underpass` chooses by itself.
    Auto,
    /// This mechanism alone, required.
    Only(Mechanism),
    /// A program that copies whole trees.
    Copier(Copier),
    /// The peer: the `cp` of this system.
    Cp,
    /// The peer: curl.
    Curl,
    /// curl, which uploads to dufs.
    CurlToDufs,
    /// curl, which uploads to nginx.
    CurlToNginx,
    /// curl, which uploads to `underpass serve --sync off`.
    CurlToUnderpass,
    /// The peer: dufs.
    Dufs,
    /// The peer: miniserve.
    Miniserve,
    /// The peer: nginx.
    Nginx,
    /// Header and file from one buffer.
    OneBuffer,
    /// A program of `peers/`, or another one that moves bytes without HTTP.
    Peer(Peer),
    /// `underpass serve`; of transfers the client, of uploads to `serve --sync off`.
    Underpass,
    /// `underpass put` to a server that answers once the file is on the disk, which is its default.
    UnderpassSynced,
    /// The peer: wget.
    Wget,
}

/// How many bytes are asked for in one system call.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(into = "String", try_from = "String")]
pub(crate) enum Step {
    /// What the way takes by itself.
    Default,
    /// So many.
    Bytes(u64),
    /// The whole file, or as much as the mechanism takes in one call.
    Whole,
}

/// What can be typed after `--mechanism`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// Every way that makes sense for the scenario.
    All,
    /// One way.
    One(Way),
}

impl Way {
    /// The peer, if it is one that moves bytes without HTTP.
    pub(crate) const fn peer(self) -> Option<Peer> {
        match self {
            Self::Peer(peer) => Some(peer),
            _ => None,
        }
    }

    /// Whether a step can be chosen: a clone is one call, and the others choose themselves.
    pub(crate) const fn has_steps(self) -> bool {
        match self {
            Self::Only(mechanism) => !matches!(mechanism, Mechanism::Reflink),
            Self::Peer(peer) => !matches!(peer, Peer::Iperf3 | Peer::MemoryCopy | Peer::Nc),
            _ => false,
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Aria2 => "aria2c",
            Self::Auto => "auto",
            Self::Only(mechanism) => mechanism.name(),
            Self::Copier(copier) => copier.name(),
            Self::Cp => "cp",
            Self::Curl => "curl",
            Self::CurlToDufs => "curl_to_dufs",
            Self::CurlToNginx => "curl_to_nginx",
            Self::CurlToUnderpass => "curl_to_underpass",
            Self::Dufs => "dufs",
            Self::Miniserve => "miniserve",
            Self::Nginx => "nginx",
            Self::OneBuffer => "one_buffer",
            Self::Peer(peer) => peer.name(),
            Self::Underpass => "underpass",
            Self::UnderpassSynced => "underpass_synced",
            Self::Wget => "wget",
        })
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Bytes(bytes) => f.write_str(&short_size(*bytes)),
            Self::Whole => f.write_str("whole"),
        }
    }
}

/// A size as people type it: `7M`, `64K`, `1000`.
pub(crate) fn short_size(bytes: u64) -> String {
    let units = [(40, "T"), (30, "G"), (20, "M"), (10, "K")];
    let unit = units.into_iter().find(|(shift, _)| bytes > 0 && bytes.is_multiple_of(1 << shift));
    match unit {
        Some((shift, name)) => format!("{}{name}", bytes >> shift),
        None => bytes.to_string(),
    }
}

/// A word that is no way, choice or step; holds what could have been said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unknown(&'static str);

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Unknown {}

impl FromStr for Choice {
    type Err = Unknown;

    fn from_str(text: &str) -> Result<Self, Unknown> {
        match text {
            "all" => Ok(Self::All),
            "auto" => Ok(Self::One(Way::Auto)),
            name => {
                let mechanism = name.parse().map_err(|_| Unknown(CHOICES))?;
                Ok(Self::One(Way::Only(mechanism)))
            }
        }
    }
}

impl FromStr for Way {
    type Err = Unknown;

    fn from_str(text: &str) -> Result<Self, Unknown> {
        let peers = Peer::ALL.into_iter().map(Self::Peer);
        let copiers = Copier::ALL.into_iter().map(Self::Copier);
        match NAMED.into_iter().chain(copiers).chain(peers).find(|way| way.to_string() == text) {
            Some(way) => Ok(way),
            None => text.parse().map(Self::Only).map_err(|_| Unknown("no such way")),
        }
    }
}

impl FromStr for Step {
    type Err = Unknown;

    fn from_str(text: &str) -> Result<Self, Unknown> {
        match text {
            "default" => Ok(Self::Default),
            "whole" => Ok(Self::Whole),
            size => match size.parse() {
                Ok(Size(bytes)) if bytes > 0 => Ok(Self::Bytes(bytes)),
                _ => Err(Unknown("steps are sizes such as 4K or 1M, whole, or default")),
            },
        }
    }
}

impl From<Way> for String {
    fn from(way: Way) -> Self {
        way.to_string()
    }
}

impl TryFrom<String> for Way {
    type Error = Unknown;

    fn try_from(text: String) -> Result<Self, Unknown> {
        text.parse()
    }
}

impl From<Step> for String {
    fn from(step: Step) -> Self {
        step.to_string()
    }
}

impl TryFrom<String> for Step {
    type Error = Unknown;

    fn try_from(text: String) -> Result<Self, Unknown> {
        text.parse()
    }
}

/// The ways that are no mechanisms.
const NAMED: [Way; 14] = [
    Way::Aria2,
    Way::Auto,
    Way::Cp,
    Way::Curl,
    Way::CurlToDufs,
    Way::CurlToNginx,
    Way::CurlToUnderpass,
    Way::Dufs,
    Way::Miniserve,
    Way::Nginx,
    Way::OneBuffer,
    Way::Underpass,
    Way::UnderpassSynced,
    Way::Wget,
];

/// What can be typed after `--mechanism`.
const CHOICES: &str = "mechanisms are all, auto, reflink, copy_file_range, sendfile, splice, mmap, \
     read_write";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for step in [Step::Default, Step::Whole, Step::Bytes(65_536), Step::Bytes(1000)] {
            assert_eq!(step.to_string().parse(), Ok(step));
        }
        let others = Peer::ALL.into_iter().map(Way::Peer);
        let others = others.chain(Copier::ALL.into_iter().map(Way::Copier));
        for way in NAMED.into_iter().chain(others).chain([Way::Only(Mechanism::Sendfile)]) {
            assert_eq!(way.to_string().parse(), Ok(way));
        }
    }

    #[test]
    fn what_is_no_choice_or_step_is_refused() {
        for text in ["", "cp", "one_buffer", "teleport", "Sendfile"] {
            assert!(text.parse::<Choice>().is_err(), "{text}");
        }
        for text in ["", "0", "-1", "hole", "1.5M"] {
            assert!(text.parse::<Step>().is_err(), "{text}");
        }
    }
}
