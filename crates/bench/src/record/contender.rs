//! The contenders, by the names in which they are typed, shown and recorded.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use underpass_engine::Mechanism;

/// A program, or a way of one, that takes part in a measurement.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(into = "String", try_from = "String")]
#[allow(missing_docs)] // The table below says what each of them is.
pub(crate) enum Contender {
    /// This mechanism of `underpass` alone, required.
    Only(Mechanism),
    Aria2,
    Auto,
    BareLoop,
    BareSendfile,
    CMmap,
    CMmapLease,
    CReadWrite,
    CSendfile,
    Cp,
    CpArchive,
    Curl,
    CurlToDufs,
    CurlToNginx,
    CurlToUnderpass,
    Dufs,
    Fcp,
    H2o,
    Iperf3,
    JavaStream,
    JavaTransferTo,
    Lighttpd,
    MemoryCopy,
    Miniserve,
    Nc,
    Nginx,
    NginxAio,
    NginxDirect,
    OneBuffer,
    PythonSendall,
    PythonSendfile,
    Rsync,
    Tar,
    Underpass,
    UnderpassDense,
    UnderpassSynced,
    Wget,
    Xcp,
}

/// Name in records, name for people, programs that it needs.
type Entry = (Contender, &'static str, &'static str, &'static [&'static str]);

/// Every contender that is not a mechanism.
const ENTRIES: [Entry; 37] = {
    use Contender as C;
    [
        (C::Aria2, "aria2c", "aria2c", &["aria2c"]),
        (C::Auto, "auto", "auto", &[]),
        (C::BareLoop, "bare_loop", "bare loop", &["cc"]),
        (C::BareSendfile, "bare_sendfile", "bare_sendfile", &[]),
        (C::CMmap, "c_mmap", "c_mmap", &["cc"]),
        (C::CMmapLease, "c_mmap_lease", "c_mmap_lease", &["cc"]),
        (C::CReadWrite, "c_read_write", "c_read_write", &["cc"]),
        (C::CSendfile, "c_sendfile", "c_sendfile", &["cc"]),
        (C::Cp, "cp", "cp", &["cp"]),
        (C::CpArchive, "cp_a", "cp -a", &["cp"]),
        (C::Curl, "curl", "curl", &["curl"]),
        (C::CurlToDufs, "curl_to_dufs", "curl to dufs", &["curl", "dufs"]),
        (C::CurlToNginx, "curl_to_nginx", "curl to nginx", &["curl", "nginx"]),
        (C::CurlToUnderpass, "curl_to_underpass", "curl to underpass", &["curl"]),
        (C::Dufs, "dufs", "dufs", &["dufs"]),
        (C::Fcp, "fcp", "fcp", &["fcp"]),
        (C::H2o, "h2o", "h2o", &["h2o"]),
        (C::Iperf3, "iperf3", "iperf3", &["iperf3"]),
        (C::JavaStream, "java_stream", "java_stream", &["javac", "java"]),
        (C::JavaTransferTo, "java_transfer_to", "java_transfer_to", &["javac", "java"]),
        (C::Lighttpd, "lighttpd", "lighttpd", &["lighttpd"]),
        (C::MemoryCopy, "memory_copy", "memory_copy", &[]),
        (C::Miniserve, "miniserve", "miniserve", &["miniserve"]),
        (C::Nc, "nc", "nc", &["nc"]),
        (C::Nginx, "nginx", "nginx", &["nginx"]),
        (C::NginxAio, "nginx_aio", "nginx, aio threads", &["nginx"]),
        (C::NginxDirect, "nginx_direct", "nginx, directio", &["nginx"]),
        (C::OneBuffer, "one_buffer", "one buffer", &[]),
        (C::PythonSendall, "python_sendall", "python_sendall", &["python3"]),
        (C::PythonSendfile, "python_sendfile", "python_sendfile", &["python3"]),
        (C::Rsync, "rsync_a", "rsync -a", &["rsync"]),
        (C::Tar, "tar", "tar", &["tar"]),
        (C::Underpass, "underpass", "underpass", &[]),
        (C::UnderpassDense, "underpass_dense", "underpass, without holes", &[]),
        (C::UnderpassSynced, "underpass_synced", "underpass synced", &[]),
        (C::Wget, "wget", "wget", &["wget"]),
        (C::Xcp, "xcp", "xcp", &["xcp"]),
    ]
};

/// The contenders of the articles, and those that move bytes without HTTP.
pub(crate) const PEERS: [Contender; 12] = [
    Contender::BareSendfile,
    Contender::CMmap,
    Contender::CMmapLease,
    Contender::CReadWrite,
    Contender::CSendfile,
    Contender::Iperf3,
    Contender::JavaStream,
    Contender::JavaTransferTo,
    Contender::MemoryCopy,
    Contender::Nc,
    Contender::PythonSendall,
    Contender::PythonSendfile,
];

impl Contender {
    /// Its name in records.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Only(mechanism) => mechanism.name(),
            named => named.entry().1,
        }
    }

    /// Its name for people.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Only(mechanism) => mechanism.name(),
            named => named.entry().2,
        }
    }

    /// Returns the programs that it needs besides this one.
    pub(crate) fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Only(_) => &[],
            named => named.entry().3,
        }
    }

    fn entry(self) -> &'static Entry {
        let entry = ENTRIES.iter().find(|entry| entry.0 == self);
        entry.expect("every contender has an entry")
    }

    /// Returns whether it is one of the articles' programs, or another one that moves bytes
    /// without HTTP.
    pub(crate) fn is_peer(self) -> bool {
        PEERS.contains(&self)
    }

    /// Returns whether `underpass` moves the bytes, on one side at least.
    pub(crate) fn is_ours(self) -> bool {
        use Contender as C;
        let named = [C::Auto, C::CurlToUnderpass, C::OneBuffer, C::Underpass];
        let more = [C::UnderpassDense, C::UnderpassSynced];
        matches!(self, C::Only(_)) || named.contains(&self) || more.contains(&self)
    }

    /// Returns whether a step can be chosen: a clone is one call, and the others choose
    /// themselves.
    pub(crate) fn has_steps(self) -> bool {
        match self {
            Self::Only(mechanism) => mechanism != Mechanism::Reflink,
            Self::Iperf3 | Self::MemoryCopy | Self::Nc => false,
            other => other.is_peer(),
        }
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Contender {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match ENTRIES.iter().find(|entry| entry.1 == text) {
            Some(entry) => Ok(entry.0),
            None => text.parse().map(Self::Only).map_err(|_| "no such way".to_owned()),
        }
    }
}

impl From<Contender> for String {
    fn from(contender: Contender) -> Self {
        contender.name().to_owned()
    }
}

impl TryFrom<String> for Contender {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        let named = ENTRIES.iter().map(|entry| entry.0);
        for contender in named.chain([Contender::Only(Mechanism::Sendfile)]) {
            assert_eq!(contender.name().parse(), Ok(contender));
        }
    }
}
