//! The HTTP client of `get`, `put` and `fill`: its options.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::Args;
use underpass_client::environment::{self, Netrc, variable};
use underpass_client::{Credentials, HttpClient, Proxies, TlsSetup, Url, input};
use underpass_engine::Policy;
use underpass_engine::wait::lock;

use super::tls_trust::TlsTrustArgs;
use crate::args::seconds;
use crate::failure::{Failure, Result, WithPath};
use crate::signals::interruptible;

/// The options of requests.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Requests")]
pub(crate) struct HttpClientArgs {
    /// Use Basic authentication, as the URL http://NAME:PASSWORD@HOST/ does
    #[arg(short, long, value_name = "NAME:PASSWORD", overrides_with = "bearer")]
    user: Option<String>,

    /// Use Bearer authentication with this token [env: UNDERPASS_BEARER]
    #[arg(long, value_name = "TOKEN", value_parser = input::token, overrides_with = "user")]
    bearer: Option<String>,

    /// Add a header to each request, such as 'Accept-Language: de'; it is not sent to other servers
    /// after a redirect
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = input::request_field)]
    headers: Vec<(String, String)>,

    /// Read names and passwords for servers from this file [default: $NETRC or ~/.netrc]
    #[arg(long, value_name = "FILE", overrides_with = "no_netrc")]
    netrc_file: Option<PathBuf>,

    /// Do not read a netrc file
    #[arg(long, overrides_with = "netrc_file")]
    no_netrc: bool,

    /// The netrc file, once it was read: a pipe can be read only once.
    #[arg(skip)]
    netrc: Arc<Mutex<Option<Netrc>>>,

    /// Send requests through this proxy [default: $http_proxy, $https_proxy or $all_proxy, except
    /// for $no_proxy]
    #[arg(long, value_name = "URL", value_parser = input::proxy, overrides_with = "no_proxy")]
    proxy: Option<Url>,

    /// Use no proxy, whatever the environment says
    #[arg(long, overrides_with = "proxy")]
    no_proxy: bool,

    /// Fail if connecting, with the TLS handshake, takes longer than this
    #[arg(long, value_name = "TIME", value_parser = seconds, default_value = "30")]
    connect_timeout: Duration,

    /// Give up an attempt when nothing, or less than 10 bytes per second, has moved for this time
    #[arg(long, value_name = "TIME", value_parser = seconds, default_value = "60")]
    timeout: Duration,

    /// Retry up to N times in a row without progress, with growing pauses
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub(crate) retries: u32,

    /// Follow up to N redirects
    #[arg(long, value_name = "N", default_value_t = 10)]
    max_redirects: u32,

    #[command(flatten)]
    trust: TlsTrustArgs,
}

impl HttpClientArgs {
    /// Returns how `https` servers are checked; the same for a whole command.
    pub(crate) fn tls(&self, policy: Policy) -> Result<TlsSetup> {
        self.trust.setup(policy)
    }

    /// Returns the client for requests to `url`, which is not that of an object.
    pub(crate) fn client<'a>(
        &self,
        url: &Url,
        tls: &TlsSetup,
        cancel: &'a AtomicBool,
    ) -> Result<HttpClient<'a>> {
        Ok(HttpClient {
            headers: self.headers.clone(),
            credentials: self.credentials(url, cancel)?,
            proxies: self.proxies(url)?,
            tls: tls.clone(),
            connect_timeout: self.connect_timeout,
            timeout: self.timeout,
            max_redirects: self.max_redirects,
            cancel: Some(cancel),
            ..HttpClient::default()
        })
    }

    /// Returns the credentials of the arguments, the environment or a netrc file.
    fn credentials(&self, url: &Url, cancel: &AtomicBool) -> Result<Credentials> {
        if let Some(both) = &self.user {
            // Not a parser of clap, whose message would have the value.
            let wrong =
                || Failure::value("--user NAME:PASSWORD", "a colon between the two is missing");
            let (user, password) = both.split_once(':').ok_or_else(wrong)?;
            return Ok(Credentials::Basic { user: user.to_owned(), password: password.to_owned() });
        }
        if let Some(token) = &self.bearer {
            return Ok(Credentials::Bearer(token.clone()));
        }
        if let Some(token) = variable("UNDERPASS_BEARER")? {
            let wrong = |reason| Failure::value("UNDERPASS_BEARER", reason);
            return Ok(Credentials::Bearer(input::token(&token).map_err(wrong)?));
        }
        if self.no_netrc {
            return Ok(Credentials::None);
        }
        let mut netrc = lock(&self.netrc);
        if netrc.is_none() {
            *netrc = Some(self.read_netrc(cancel)?);
        }
        Ok(netrc.as_ref().map_or(Credentials::None, |netrc| netrc.credentials(url)))
    }

    /// Reads the netrc file.
    fn read_netrc(&self, cancel: &AtomicBool) -> Result<Netrc> {
        let Some(path) = &self.netrc_file else { return Ok(Netrc::read(None)?) };
        // It may be a FIFO without a writer.
        let file = path.clone();
        let read = move || Ok(Netrc::read(Some(&file)));
        Ok(interruptible(cancel, read).with_path("reading", path)??)
    }

    /// Returns the proxies that the arguments or the environment name; that for `url` can be used.
    fn proxies(&self, url: &Url) -> Result<Proxies> {
        if !self.no_proxy && self.proxy.is_none() {
            return Ok(environment::proxies(url)?);
        }
        let (http, https) = (self.proxy.clone(), self.proxy.clone());
        Ok(Proxies { http, https, ..Proxies::default() })
    }
}
