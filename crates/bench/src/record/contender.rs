//! The contenders, by the names in which they are typed, shown and recorded.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use underpass_engine::Mechanism;

/// Declares the contenders, each with its name in records, its name for people, and the programs
/// that it needs besides this one.
macro_rules! contenders {
    ($($variant:ident $name:literal $label:literal [$($program:literal),*])*) => {
        /// A program, or a way of one, that takes part in a measurement.
        #[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
        #[serde(into = "String", try_from = "String")]
        pub(crate) enum Contender {
            /// This mechanism of `underpass` alone, required.
            Only(Mechanism),
            $($variant,)*
        }

        const ENTRIES: &[Entry] = &[$((Contender::$variant, $name, $label, &[$($program),*])),*];
    };
}

type Entry = (Contender, &'static str, &'static str, &'static [&'static str]);

contenders! {
    Aria2 "aria2c" "aria2c" ["aria2c"]
    Auto "auto" "auto" []
    BareClient "bare_client" "bare client" ["cc"]
    BareLoop "bare_loop" "bare loop" ["cc"]
    BareSendfile "bare_sendfile" "bare_sendfile" []
    CMmap "c_mmap" "c_mmap" ["cc"]
    CMmapLease "c_mmap_lease" "c_mmap_lease" ["cc"]
    CReadWrite "c_read_write" "c_read_write" ["cc"]
    CSendfile "c_sendfile" "c_sendfile" ["cc"]
    Cp "cp" "cp" ["cp"]
    CpArchive "cp_a" "cp -a" ["cp"]
    Curl "curl" "curl" ["curl"]
    CurlToDufs "curl_to_dufs" "curl to dufs" ["curl", "dufs"]
    CurlToNginx "curl_to_nginx" "curl to nginx" ["curl", "nginx"]
    CurlToUnderpass "curl_to_underpass" "curl to underpass" ["curl"]
    Dufs "dufs" "dufs" ["dufs"]
    Fcp "fcp" "fcp" ["fcp"]
    H2o "h2o" "h2o" ["h2o"]
    Iperf3 "iperf3" "iperf3" ["iperf3"]
    JavaStream "java_stream" "java_stream" ["javac", "java"]
    JavaTransferTo "java_transfer_to" "java_transfer_to" ["javac", "java"]
    Lighttpd "lighttpd" "lighttpd" ["lighttpd"]
    MemoryCopy "memory_copy" "memory_copy" []
    Miniserve "miniserve" "miniserve" ["miniserve"]
    Nc "nc" "nc" ["nc"]
    Nginx "nginx" "nginx" ["nginx"]
    NginxAio "nginx_aio" "nginx, aio threads" ["nginx"]
    NginxCache "nginx_cache" "nginx, proxy_cache" ["nginx"]
    NginxDirect "nginx_direct" "nginx, directio" ["nginx"]
    NginxSlice "nginx_slice" "nginx, slice 1m" ["nginx"]
    OneBuffer "one_buffer" "one buffer" []
    PythonSendall "python_sendall" "python_sendall" ["python3"]
    PythonSendfile "python_sendfile" "python_sendfile" ["python3"]
    Rsync "rsync_a" "rsync -a" ["rsync"]
    Squid "squid" "Squid" ["squid"]
    Tar "tar" "tar" ["tar"]
    TrafficServer "traffic_server" "Traffic Server" ["traffic_server"]
    Underpass "underpass" "underpass" []
    UnderpassDense "underpass_dense" "underpass, without holes" []
    UnderpassSynced "underpass_synced" "underpass synced" []
    Varnish "varnish" "Varnish" ["varnishd"]
    Wget "wget" "wget" ["wget"]
    Xcp "xcp" "xcp" ["xcp"]
}

/// The contenders of the articles, and those that move bytes without HTTP.
pub(crate) const PEERS: [Contender; 12] = {
    use Contender as C;
    [
        C::BareSendfile,
        C::CMmap,
        C::CMmapLease,
        C::CReadWrite,
        C::CSendfile,
        C::Iperf3,
        C::JavaStream,
        C::JavaTransferTo,
        C::MemoryCopy,
        C::Nc,
        C::PythonSendall,
        C::PythonSendfile,
    ]
};

impl Contender {
    /// Returns its name in records.
    pub(crate) fn name(self) -> &'static str {
        self.entry().map_or_else(|mechanism| mechanism.name(), |entry| entry.1)
    }

    /// Returns its name for people.
    pub(crate) fn label(self) -> &'static str {
        self.entry().map_or_else(|mechanism| mechanism.name(), |entry| entry.2)
    }

    pub(crate) fn programs(self) -> &'static [&'static str] {
        self.entry().map_or(&[], |entry| entry.3)
    }

    /// Returns its entry, or the mechanism that it is.
    fn entry(self) -> Result<&'static Entry, Mechanism> {
        let entry = ENTRIES.iter().find(|entry| entry.0 == self);
        match self {
            Self::Only(mechanism) => Err(mechanism),
            _ => Ok(entry.expect("every contender has an entry")),
        }
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
