//! The configurations of servers in `peers/`, filled in.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Configuration {
    pub(crate) port: u16,
    pub(crate) connections: u32,
    pub(crate) log: bool,
    pub(crate) tls: bool,
    /// The directives for files that are not in the page cache.
    pub(crate) cold: &'static str,
    /// Whether root starts it, so that its worker must read files of root.
    pub(crate) is_root: bool,
}

impl Configuration {
    /// Returns the text of a file, of one of the templates below.
    pub(crate) fn render(self, template: &str) -> String {
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
            H2O => "user: root",
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
pub(crate) const ACCESS_LOG: &str = "access.log";

/// The files that the server has open besides its connections.
const OPEN_FILES: u32 = 64;

/// The TLS settings. Suites and sessions are what the clients offer, the same for every server.
pub(crate) const TLS: &str = "ssl_certificate certificate.pem; ssl_certificate_key key.pem; \
    ssl_protocols TLSv1.2 TLSv1.3;";

pub(crate) const NGINX: &str = include_str!("../../../../peers/nginx.conf");

/// nginx configured for uploads.
pub(crate) const NGINX_DAV: &str = include_str!("../../../../peers/nginx-dav.conf");

pub(crate) const LIGHTTPD: &str = include_str!("../../../../peers/lighttpd.conf");

pub(crate) const H2O: &str = include_str!("../../../../peers/h2o.conf");

#[cfg(test)]
mod tests {
    use super::*;

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
            for template in [NGINX, NGINX_DAV, LIGHTTPD, H2O] {
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
            (QUIET, NGINX, &quiet[..]),
            (QUIET, NGINX, &["worker_rlimit_nofile 171;", "sendfile on;", "tcp_nopush on;"]),
            (QUIET, NGINX_DAV, &uploads),
            (QUIET, NGINX_DAV, &["client_body_temp_path temp_body;"]),
            (logging, NGINX, &["user root;", log]),
        ] {
            let lines = lines(configuration, template);
            for line in expected {
                assert!(lines.iter().any(|found| found == line), "{line}");
            }
        }
        let quiet = lines(QUIET, NGINX);
        assert!(!quiet.iter().any(|line| line.starts_with("user ") || line.starts_with("dav_")));
        let logging = lines(logging, NGINX);
        assert_eq!(logging.iter().filter(|line| line.starts_with("access_log")).count(), 1);
    }
}
