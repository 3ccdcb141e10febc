//! The HTTP client of `get` and `put`: its options.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::Args;
use underpass_client::{Credentials, HttpClient, Proxies, TlsSetup, Url};
use underpass_engine::Policy;
use underpass_engine::hint::Action;

use super::netrc;
use super::tls_trust::TlsTrustArgs;
use crate::args::seconds;
use crate::failure::{Failure, Result, WithPath};

/// The options of requests.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Requests")]
pub(crate) struct HttpClientArgs {
    /// Authenticate by Basic authentication; a URL may do so too: http://NAME:PASSWORD@HOST/
    #[arg(short, long, value_name = "NAME:PASSWORD", overrides_with = "bearer")]
    user: Option<String>,

    /// Authenticate by this token [env: UNDERPASS_BEARER]
    #[arg(long, value_name = "TOKEN", overrides_with = "user")]
    bearer: Option<String>,

    /// Add a field to each request, such as 'Accept-Language: de'; it is not sent to other servers
    /// after a redirect
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = header)]
    headers: Vec<(String, String)>,

    /// Read names and passwords of servers from this file [default: $NETRC or ~/.netrc]
    #[arg(long, value_name = "FILE", overrides_with = "no_netrc")]
    netrc_file: Option<PathBuf>,

    /// Read no netrc file
    #[arg(long, overrides_with = "netrc_file")]
    no_netrc: bool,

    /// Send requests through this proxy [default: $http_proxy, $https_proxy or $all_proxy, except for
    /// $no_proxy]
    #[arg(long, value_name = "URL", value_parser = proxy, overrides_with = "no_proxy")]
    proxy: Option<Url>,

    /// Use no proxy, whatever the environment says
    #[arg(long, overrides_with = "proxy")]
    no_proxy: bool,

    /// Fail if connecting, with the TLS handshake, takes longer than this
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "30")]
    connect_timeout: Duration,

    /// End an attempt when nothing has moved for this time
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "60")]
    timeout: Duration,

    /// Retry up to N times in a row without progress, with growing pauses
    #[arg(long, value_name = "N", default_value_t = 8)]
    retries: u32,

    /// Follow up to N redirects
    #[arg(long, value_name = "N", default_value_t = 10)]
    max_redirects: u32,

    #[command(flatten)]
    trust: TlsTrustArgs,
}

impl HttpClientArgs {
    /// Returns how many times in a row an attempt may fail.
    pub(crate) fn retries(&self) -> u32 {
        self.retries
    }

    /// Returns how `https` servers are checked; the same for a whole command.
    pub(crate) fn tls(&self, policy: Policy) -> Result<TlsSetup> {
        self.trust.setup(policy)
    }

    /// Returns the client for requests to `url`.
    pub(crate) fn client<'a>(
        &self,
        url: &Url,
        tls: &TlsSetup,
        cancel: &'a AtomicBool,
    ) -> Result<HttpClient<'a>> {
        Ok(HttpClient {
            user_agent: concat!("underpass/", env!("CARGO_PKG_VERSION")).to_owned(),
            headers: self.headers.clone(),
            credentials: self.credentials(url)?,
            proxies: self.proxies()?,
            tls: tls.clone(),
            connect_timeout: self.connect_timeout,
            timeout: self.timeout,
            max_redirects: self.max_redirects,
            cancel: Some(cancel),
        })
    }

    /// Returns the credentials of the arguments, the environment or a netrc file.
    fn credentials(&self, url: &Url) -> Result<Credentials> {
        if let Some(both) = &self.user {
            let (user, password) = both.split_once(':').ok_or_else(|| {
                let message = "--user NAME:PASSWORD needs a colon between the two";
                Failure::Usage(message.to_owned())
            })?;
            return Ok(Credentials::Basic { user: user.to_owned(), password: password.to_owned() });
        }
        if let Some(token) = self.bearer.clone().or_else(|| variable("UNDERPASS_BEARER")) {
            return Ok(Credentials::Bearer(token));
        }
        let Some(text) = self.netrc()? else { return Ok(Credentials::None) };
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        let found = netrc::find(&text, host);
        Ok(found
            .map_or(Credentials::None, |(user, password)| Credentials::Basic { user, password }))
    }

    /// The text of the netrc file. One that was named has to be there.
    fn netrc(&self) -> Result<Option<String>> {
        if self.no_netrc {
            return Ok(None);
        }
        let named = self.netrc_file.clone().or_else(|| variable("NETRC").map(PathBuf::from));
        if let Some(path) = named {
            return fs::read_to_string(&path).with_path(Action::Reading, path).map(Some);
        }
        let home = variable("HOME").map(PathBuf::from);
        Ok(home.and_then(|home| fs::read_to_string(home.join(".netrc")).ok()))
    }

    /// The proxies that the arguments or the environment name.
    fn proxies(&self) -> Result<Proxies> {
        if self.no_proxy {
            return Ok(Proxies::default());
        }
        if let Some(proxy) = self.proxy.clone() {
            return Ok(Proxies {
                http: Some(proxy.clone()),
                https: Some(proxy),
                except: Vec::new(),
            });
        }
        // Not HTTP_PROXY: in a CGI program that is a field of the client's request.
        let http = proxy_of(&["http_proxy", "all_proxy", "ALL_PROXY"])?;
        let https = proxy_of(&["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"])?;
        let except = ["no_proxy", "NO_PROXY"].into_iter().find_map(variable).unwrap_or_default();
        let except = except.split([',', ' ']).filter(|name| !name.is_empty());
        Ok(Proxies { http, https, except: except.map(str::to_owned).collect() })
    }
}

/// The proxy that the first of these variables names.
fn proxy_of(names: &[&str]) -> Result<Option<Url>> {
    let Some((name, text)) = names.iter().find_map(|name| Some((name, variable(name)?))) else {
        return Ok(None);
    };
    proxy(&text).map(Some).map_err(|error| {
        Failure::Usage(format!("${name} is '{text}': {error}; --no-proxy asks directly"))
    })
}

/// What the environment says, unless that is nothing.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// An address as people type it: without a scheme it is one of `http`.
pub(crate) fn url(text: &str) -> std::result::Result<Url, String> {
    let parsed = match text.contains("://") {
        true => Url::parse(text),
        false => Url::parse(&format!("http://{text}")),
    };
    parsed.map_err(|error| format!("that is no URL: {error}"))
}

/// The address of a proxy.
fn proxy(text: &str) -> std::result::Result<Url, String> {
    let url = url(text)?;
    if url.scheme() == "http" { Ok(url) } else { Err("a proxy is asked over http".to_owned()) }
}

/// A field and its value.
fn header(text: &str) -> std::result::Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("write 'Name: value'")?;
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_token) {
        return Err("a name has letters, digits and hyphens".to_owned());
    }
    let value = value.trim();
    match value.bytes().any(|byte| byte.is_ascii_control() && byte != b'\t') {
        true => Err("a value has no line ends".to_owned()),
        false => Ok((name.to_owned(), value.to_owned())),
    }
}
