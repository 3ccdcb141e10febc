//! The servers that can be measured, and how each is started.

use std::fmt;
use std::path::PathBuf;

use super::caches::CacheSetup;
use super::configuration;
use crate::record::Contender;

/// A server, and how it is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ServerKind {
    /// Another project's server, with the path of its program if PATH does not have it.
    Other(&'static ServerProgram, Option<PathBuf>),
    Cache(CacheSetup),
    /// `underpass serve` with these additional options.
    Underpass(&'static [&'static str]),
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ServerProgram {
    pub(super) name: &'static str,
    /// The arguments; PORT, FOLDER and www stand for those of the run.
    pub(super) words: &'static str,
    /// The configuration that is written for it.
    pub(super) template: Option<&'static str>,
    /// Its directives for files that are not in the page cache.
    pub(super) cold: &'static str,
    /// Its name in records, if it is not that of its arguments.
    recorded: &'static str,
    /// Whether it can be configured for TLS and with a log.
    pub(super) has_tls_and_log: bool,
    /// Whether its workers run on when it is killed, so that it is asked to quit first.
    leaves_workers: bool,
}

pub(crate) const NGINX: ServerProgram = ServerProgram {
    name: "nginx",
    // nginx resolves a relative prefix against its own.
    words: "-p FOLDER -c server.conf",
    template: Some(configuration::NGINX),
    cold: "",
    recorded: "nginx with peers/nginx.conf",
    has_tls_and_log: true,
    leaves_workers: true,
};

/// nginx whose threads read what is not in the page cache.
const NGINX_AIO: ServerProgram = ServerProgram {
    cold: "aio threads;",
    recorded: "nginx with peers/nginx.conf, aio threads",
    ..NGINX
};

/// nginx with direct I/O.
const NGINX_DIRECT: ServerProgram = ServerProgram {
    cold: "aio threads; directio 512; output_buffers 2 1m;",
    recorded: "nginx with peers/nginx.conf, aio threads and directio",
    ..NGINX
};

/// nginx configured for uploads.
pub(crate) const NGINX_DAV: ServerProgram = ServerProgram {
    template: Some(configuration::NGINX_DAV),
    recorded: "nginx with peers/nginx-dav.conf",
    ..NGINX
};

const H2O: ServerProgram = ServerProgram {
    name: "h2o",
    words: "-m worker -c server.conf",
    template: Some(configuration::H2O),
    recorded: "h2o with peers/h2o.conf",
    ..DUFS
};

const LIGHTTPD: ServerProgram = ServerProgram {
    name: "lighttpd",
    words: "-D -f server.conf",
    template: Some(configuration::LIGHTTPD),
    recorded: "lighttpd with peers/lighttpd.conf",
    ..DUFS
};

/// dufs with all rights, without an access log.
pub(crate) const DUFS: ServerProgram = ServerProgram {
    name: "dufs",
    words: "--allow-all --log-format= --bind 127.0.0.1 --port PORT www",
    template: None,
    cold: "",
    recorded: "",
    has_tls_and_log: false,
    leaves_workers: false,
};

/// miniserve, which writes no access log by default.
const MINISERVE: ServerProgram =
    ServerProgram { name: "miniserve", words: "--interfaces 127.0.0.1 --port PORT www", ..DUFS };

/// The loop of system calls in `peers/c/serve.c`; it copies files of up to this many bytes.
pub(super) const BARE_LOOP: ServerProgram = ServerProgram {
    name: "the bare loop",
    words: "PORT 16384",
    recorded: "peers/c/serve.c PORT 16384",
    ..DUFS
};

pub(super) const OURS: &[&str] = &["--bind", "127.0.0.1", "--port", "0", "--workers", "1"];

/// The name of the folder that is served, as in `peers/nginx.conf`.
pub(super) const FILES: &str = "www";

impl ServerKind {
    /// Returns what it was started with, without what differs from one start to the next.
    pub(crate) fn command_line(&self) -> String {
        match self {
            Self::Other(ServerProgram { name, words, recorded: "", .. }, _) => {
                format!("{name} {words}")
            }
            Self::Other(other, _) => other.recorded.to_owned(),
            Self::Cache(setup) => setup.contender.label().to_owned(),
            Self::Underpass(options) => {
                let words = [&["underpass", "serve", FILES][..], OURS, options, &["-q"]];
                words.concat().join(" ")
            }
        }
    }

    /// Returns whether its workers run on when it is killed.
    pub(super) fn leaves_workers(&self) -> bool {
        match self {
            Self::Other(other, _) => other.leaves_workers,
            Self::Cache(setup) => {
                matches!(setup.contender, Contender::NginxCache | Contender::NginxSlice)
            }
            Self::Underpass(_) => false,
        }
    }
}

impl From<Contender> for ServerKind {
    fn from(contender: Contender) -> Self {
        let other = match contender {
            Contender::BareLoop => &BARE_LOOP,
            Contender::Dufs => &DUFS,
            Contender::H2o => &H2O,
            Contender::Lighttpd => &LIGHTTPD,
            Contender::Miniserve => &MINISERVE,
            Contender::Nginx => &NGINX,
            Contender::NginxAio => &NGINX_AIO,
            Contender::NginxDirect => &NGINX_DIRECT,
            _ => return Self::Underpass(&[]),
        };
        Self::Other(other, None)
    }
}

impl fmt::Display for ServerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other(other, _) => f.write_str(other.name),
            Self::Cache(setup) => {
                f.write_str(setup.contender.programs().first().unwrap_or(&"underpass"))
            }
            Self::Underpass(_) => f.write_str("underpass"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_command_lines_contain_no_paths() {
        let lines = [
            ServerKind::Other(&DUFS, Some("/opt/dufs".into())),
            ServerKind::Other(&NGINX_DAV, None),
            ServerKind::Underpass(&["-A"]),
        ]
        .map(|kind| kind.command_line());
        let expected = [
            "dufs --allow-all --log-format= --bind 127.0.0.1 --port PORT www",
            "nginx with peers/nginx-dav.conf",
            "underpass serve www --bind 127.0.0.1 --port 0 --workers 1 -A -q",
        ];
        assert_eq!(lines, expected);
    }
}
