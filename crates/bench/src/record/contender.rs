//! The contenders, by the names in which they are typed, shown and recorded.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use underpass_engine::Mechanism;

/// Makes a type appear as text in records.
macro_rules! as_text {
    ($type:ty) => {
        impl From<$type> for String {
            fn from(value: $type) -> Self {
                value.to_string()
            }
        }

        impl TryFrom<String> for $type {
            type Error = String;

            fn try_from(text: String) -> Result<Self, String> {
                text.parse()
            }
        }
    };
}
pub(super) use as_text;

/// Declares the contenders, each with its group, its name in records, its name for people, and the
/// programs that it needs apart from this one.
macro_rules! contenders {
    ($($variant:ident $group:ident $name:literal $label:literal [$($program:literal),*])*) => {
        /// A measured program, or a variant of one.
        #[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
        #[serde(into = "String", try_from = "String")]
        pub(crate) enum Contender {
            /// This mechanism of `underpass` alone, required.
            Only(Mechanism),
            $($variant,)*
        }

        const ENTRIES: &[ContenderInfo] = &[$(ContenderInfo {
            contender: Contender::$variant,
            group: Group::$group,
            name: $name,
            label: $label,
            programs: &[$($program),*],
        }),*];
    };
}

struct ContenderInfo {
    contender: Contender,
    group: Group,
    name: &'static str,
    label: &'static str,
    programs: &'static [&'static str],
}

#[derive(PartialEq)]
enum Group {
    Ours,
    Socket,
    Other,
}

contenders! {
    Aria2 Other "aria2c" "aria2c" ["aria2c"]
    Auto Ours "auto" "auto" []
    BareClient Other "bare_client" "bare client" ["cc"]
    BareLoop Other "bare_loop" "bare loop" ["cc"]
    BareSendfile Socket "bare_sendfile" "bare_sendfile" []
    CMmap Socket "c_mmap" "c_mmap" ["cc"]
    CMmapLease Socket "c_mmap_lease" "c_mmap_lease" ["cc"]
    CReadWrite Socket "c_read_write" "c_read_write" ["cc"]
    CSendfile Socket "c_sendfile" "c_sendfile" ["cc"]
    Cp Other "cp" "cp" ["cp"]
    CpArchive Other "cp_a" "cp -a" ["cp"]
    Curl Other "curl" "curl" ["curl"]
    CurlToDufs Other "curl_to_dufs" "curl to dufs" ["curl", "dufs"]
    CurlToNginx Other "curl_to_nginx" "curl to nginx" ["curl", "nginx"]
    CurlToUnderpass Ours "curl_to_underpass" "curl to underpass" ["curl"]
    Dufs Other "dufs" "dufs" ["dufs"]
    Fcp Other "fcp" "fcp" ["fcp"]
    H2o Other "h2o" "h2o" ["h2o"]
    Iperf3 Socket "iperf3" "iperf3" ["iperf3"]
    JavaStream Socket "java_stream" "java_stream" ["javac", "java"]
    JavaTransferTo Socket "java_transfer_to" "java_transfer_to" ["javac", "java"]
    Lighttpd Other "lighttpd" "lighttpd" ["lighttpd"]
    MemoryCopy Socket "memory_copy" "memory_copy" []
    Miniserve Other "miniserve" "miniserve" ["miniserve"]
    Nc Socket "nc" "nc" ["nc"]
    Nginx Other "nginx" "nginx" ["nginx"]
    NginxAio Other "nginx_aio" "nginx, aio threads" ["nginx"]
    NginxCache Other "nginx_cache" "nginx, proxy_cache" ["nginx"]
    NginxDirect Other "nginx_direct" "nginx, directio" ["nginx"]
    NginxSlice Other "nginx_slice" "nginx, slice 1m" ["nginx"]
    OneBuffer Ours "one_buffer" "one buffer" []
    PythonSendall Socket "python_sendall" "python_sendall" ["python3"]
    PythonSendfile Socket "python_sendfile" "python_sendfile" ["python3"]
    Rsync Other "rsync_a" "rsync -a" ["rsync"]
    Squid Other "squid" "Squid" ["squid"]
    Tar Other "tar" "tar" ["tar"]
    TrafficServer Other "traffic_server" "Traffic Server" ["traffic_server"]
    Underpass Ours "underpass" "underpass" []
    UnderpassDense Ours "underpass_dense" "underpass, without holes" []
    UnderpassSynced Ours "underpass_synced" "underpass synced" []
    Varnish Other "varnish" "Varnish" ["varnishd"]
    Wget Other "wget" "wget" ["wget"]
    Xcp Other "xcp" "xcp" ["xcp"]
}

impl Contender {
    /// Returns the articles' programs, and the others that move bytes without HTTP.
    pub(crate) fn socket_programs() -> impl Iterator<Item = Self> {
        ENTRIES.iter().map(|entry| entry.contender).filter(|it| it.is_socket_program())
    }

    /// Returns its name in records.
    pub(crate) fn name(self) -> &'static str {
        self.entry().map_or_else(|mechanism| mechanism.name(), |entry| entry.name)
    }

    /// Returns its name for people.
    pub(crate) fn label(self) -> &'static str {
        self.entry().map_or_else(|mechanism| mechanism.name(), |entry| entry.label)
    }

    pub(crate) fn programs(self) -> &'static [&'static str] {
        self.entry().map_or(&[], |entry| entry.programs)
    }

    /// Returns its entry, or the mechanism that it is.
    fn entry(self) -> Result<&'static ContenderInfo, Mechanism> {
        let entry = ENTRIES.iter().find(|entry| entry.contender == self);
        match self {
            Self::Only(mechanism) => Err(mechanism),
            _ => Ok(entry.expect("every contender has an entry")),
        }
    }

    /// Returns whether it is of the articles, or another program that moves bytes without HTTP.
    pub(crate) fn is_socket_program(self) -> bool {
        self.entry().is_ok_and(|entry| entry.group == Group::Socket)
    }

    /// Returns whether `underpass` moves the bytes on at least one side.
    pub(crate) fn is_ours(self) -> bool {
        self.entry().map_or(true, |entry| entry.group == Group::Ours)
    }

    /// Returns whether a step can be chosen: a clone is one call, other programs choose their own.
    pub(crate) fn has_steps(self) -> bool {
        match self {
            Self::Only(mechanism) => mechanism != Mechanism::Reflink,
            Self::Iperf3 | Self::MemoryCopy | Self::Nc => false,
            other => other.is_socket_program(),
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
        match ENTRIES.iter().find(|entry| entry.name == text) {
            Some(entry) => Ok(entry.contender),
            None => text.parse().map(Self::Only).map_err(|_| "no such contender".to_owned()),
        }
    }
}

as_text!(Contender);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        let named = ENTRIES.iter().map(|entry| entry.contender);
        for contender in named.chain([Contender::Only(Mechanism::Sendfile)]) {
            assert_eq!(contender.name().parse(), Ok(contender));
        }
    }
}
