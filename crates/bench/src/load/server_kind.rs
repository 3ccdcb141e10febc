//! The servers that can be measured, how each is started, and their configurations in `peers/`.

use std::fmt;
use std::path::PathBuf;

use super::caches::CacheSetup;
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
    template: Some(NGINX_CONF),
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
    template: Some(NGINX_DAV_CONF),
    recorded: "nginx with peers/nginx-dav.conf",
    ..NGINX
};

const H2O: ServerProgram = ServerProgram {
    name: "h2o",
    words: "-m worker -c server.conf",
    template: Some(H2O_CONF),
    recorded: "h2o with peers/h2o.conf",
    ..DUFS
};

const LIGHTTPD: ServerProgram = ServerProgram {
    name: "lighttpd",
    words: "-D -f server.conf",
    template: Some(LIGHTTPD_CONF),
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

/// What the templates of configurations are filled in with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Configuration {
    pub(super) port: u16,
    pub(super) connections: u32,
    pub(super) log: bool,
    pub(super) tls: bool,
    /// The directives for files that are not in the page cache.
    pub(super) cold: &'static str,
    /// Whether root starts it, so that its worker must read files of root.
    pub(super) is_root: bool,
}

impl Configuration {
    /// Returns the text of a configuration.
    pub(super) fn render(self, template: &str) -> String {
        let access_log = if self.log {
            // Buffered: unbuffered, which is the default, each request costs a write.
            format!("access_log {ACCESS_LOG} combined buffer=64k flush=1s;")
        } else {
            "access_log off;".to_owned()
        };
        // Once only a 16th of them is free, nginx closes idle ones.
        let connections = self.connections + self.connections / 15 + 1;
        let user = match template {
            _ if !self.is_root => "",
            H2O_CONF => "user: root",
            _ => "user root;",
        };
        template
            .replace("{user}", user)
            .replace("{cold}", self.cold)
            // All connections share the open files in its cache.
            .replace("{open_files}", &(connections + OPEN_FILES).to_string())
            .replace("{connections}", &connections.to_string())
            .replace("{access_log}", &access_log)
            .replace("{ssl}", if self.tls { " ssl" } else { "" })
            .replace("{tls}", if self.tls { TLS } else { "" })
            .replace("{port}", &self.port.to_string())
    }
}

/// The name of the access log in the folder of the run.
pub(super) const ACCESS_LOG: &str = "access.log";

/// The files that the server has open besides its connections.
const OPEN_FILES: u32 = 64;

/// The TLS settings. Suites and sessions are what the clients offer, the same for every server.
const TLS: &str = "ssl_certificate certificate.pem; ssl_certificate_key key.pem; \
    ssl_protocols TLSv1.2 TLSv1.3;";

const NGINX_CONF: &str = include_str!("../../../../peers/nginx.conf");
const NGINX_DAV_CONF: &str = include_str!("../../../../peers/nginx-dav.conf");
const LIGHTTPD_CONF: &str = include_str!("../../../../peers/lighttpd.conf");
const H2O_CONF: &str = include_str!("../../../../peers/h2o.conf");

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

    fn lines(configuration: Configuration, template: &str) -> Vec<String> {
        let text = configuration.render(template);
        let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
        lines.map(str::to_owned).collect()
    }

    const QUIET: Configuration = Configuration {
        port: 4711,
        connections: 100,
        log: false,
        tls: false,
        cold: "",
        is_root: false,
    };

    #[test]
    fn every_word_of_the_configuration_is_filled_in() {
        for configuration in [QUIET, Configuration { log: true, is_root: true, ..QUIET }] {
            for template in [NGINX_CONF, NGINX_DAV_CONF, LIGHTTPD_CONF, H2O_CONF] {
                for line in lines(configuration, template) {
                    // All remaining braces delimit blocks.
                    let is_block = line.ends_with(" {") || line == "}";
                    assert!(is_block || !line.contains(['{', '}']), "{line}");
                }
            }
        }
    }

    #[test]
    fn a_configuration_says_what_is_wanted_and_no_more() {
        let logging = Configuration { log: true, is_root: true, ..QUIET };
        let log = "access_log access.log combined buffer=64k flush=1s;";
        let quiet = ["listen 127.0.0.1:4711;", "worker_connections 107;", "access_log off;"];
        let uploads = ["dav_methods PUT;", "client_max_body_size 0;", "root www;"];
        for (configuration, template, expected) in [
            (QUIET, NGINX_CONF, &quiet[..]),
            (QUIET, NGINX_CONF, &["worker_rlimit_nofile 171;", "sendfile on;", "tcp_nopush on;"]),
            (QUIET, NGINX_DAV_CONF, &uploads),
            (QUIET, NGINX_DAV_CONF, &["client_body_temp_path temp_body;"]),
            (logging, NGINX_CONF, &["user root;", log]),
        ] {
            let lines = lines(configuration, template);
            for line in expected {
                assert!(lines.iter().any(|found| found == line), "{line}");
            }
        }
        let quiet = lines(QUIET, NGINX_CONF);
        assert!(!quiet.iter().any(|line| line.starts_with("user ") || line.starts_with("dav_")));
        let logging = lines(logging, NGINX_CONF);
        assert_eq!(logging.iter().filter(|line| line.starts_with("access_log")).count(), 1);
    }
}
