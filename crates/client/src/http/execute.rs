//! Sends one request, usually without a body, and follows redirects.

use std::time::Duration;

use url::Url;

use super::client::HttpClient;
use super::connection::{AddressedRequest, Connection, Request};
use super::response::Response;
use crate::backoff::Backoff;
use crate::error::{ClientError, ConnectionError, InvalidResponse, UnusableUrl};

/// A response whose body is still to be read, and its origin.
#[derive(Debug)]
pub struct OpenResponse<'a> {
    /// The connection from which the body is read.
    pub connection: Connection<'a>,
    /// The head.
    pub response: Response,
    /// The URL that answered, after redirects.
    pub url: Url,
    /// Whether that server may receive credentials, as the given server may.
    pub is_trusted: bool,
}

impl<'a> HttpClient<'a> {
    /// Connects to the server of a URL, or to its proxy, with TLS for `https`.
    ///
    /// # Errors
    ///
    /// [`ClientError::Connection`] if that fails or takes longer than
    /// [`connect_timeout`](Self::connect_timeout), [`ClientError::Proxy`] if the proxy refuses,
    /// [`ClientError::Url`] for another scheme, [`ClientError::Cancelled`].
    pub fn connect(&self, url: &Url) -> Result<Connection<'a>, ClientError> {
        Connection::open(self, url)
    }

    /// Fetches a file of at most `max` bytes into memory. Temporary failures are retried, and
    /// `report` gets each with the time until the next attempt.
    ///
    /// # Errors
    ///
    /// Those of [`execute`](Self::execute); [`ClientError::Status`] for any status but 200,
    /// [`ClientError::InvalidResponse`] for a longer file, too.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use underpass_client::{HttpClient, Url};
    ///
    /// let url = Url::parse("http://192.0.2.1:5000/SHA256SUMS")?;
    /// let sums = HttpClient::default().fetch_to_memory(&url, 1 << 20, 8, |error, wait| {
    ///     eprintln!("{error}; trying again in {wait:?}");
    /// })?;
    /// println!("{}", String::from_utf8_lossy(&sums));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn fetch_to_memory(
        &self,
        url: &Url,
        max: usize,
        retries: u32,
        report: impl Fn(&ClientError, Duration),
    ) -> Result<Vec<u8>, ClientError> {
        let fetch = || {
            let mut answer = self.execute(None, &Request { method: "GET", fields: &[] }, url)?;
            if answer.response.status != 200 {
                return Err(answer.connection.refusal(&answer.response));
            }
            answer.connection.read_body(&answer.response, max)
        };
        let mut backoff = Backoff::new(retries);
        loop {
            match fetch() {
                Ok(body) => return Ok(body),
                Err(error) => backoff.wait(error, false, self.cancel.as_slice(), &report)?,
            }
        }
    }

    /// Sends a request without a body and reads the head of the response, following redirects. A
    /// 303 to a method other than `GET` and `HEAD` is returned: its target only describes the
    /// result (RFC 9110 15.4.4).
    ///
    /// `idle` is a connection that may be reused if it leads to the right server; if the server has
    /// closed it, a new one is made. A `POST` always gets a new one.
    ///
    /// # Errors
    ///
    /// Those of [`connect`](Self::connect); [`ClientError::TimedOut`] if no head arrives in time,
    /// [`ClientError::InvalidResponse`] if it is not one of HTTP/1, or [`ClientError::Proxy`] if a
    /// proxy has read the request, [`ClientError::Url`] for too many redirects or one from `https`
    /// to `http`, [`ClientError::Keys`] if it cannot be signed. Any status other than a redirect is
    /// a response.
    pub fn execute(
        &self,
        idle: Option<Connection<'a>>,
        request: &Request<'_>,
        url: &Url,
    ) -> Result<OpenResponse<'a>, ClientError> {
        self.execute_with_trust(idle, request, url, true)
    }

    /// Sends a request with a body from memory to the given server, and reads the head of the
    /// response. The length of the body is added to the fields. Redirects are not followed.
    ///
    /// # Errors
    ///
    /// Those of [`execute`](Self::execute), except for the errors about redirects. Any status is a
    /// response.
    pub fn send(
        &self,
        idle: Option<Connection<'a>>,
        request: &Request<'_>,
        url: &Url,
        body: &[u8],
    ) -> Result<(Connection<'a>, Response), ClientError> {
        let length = body.len().to_string();
        let fields = [request.fields, &[("Content-Length", length.as_str())]].concat();
        let request = &Request { fields: &fields, ..*request };
        self.execute_once(idle, &AddressedRequest { request, url, is_trusted: true, body })
    }

    /// Sends a request as [`execute`](Self::execute) does, with credentials only if `is_trusted`:
    /// the server may only be known from an earlier redirect.
    ///
    /// # Errors
    ///
    /// Those of [`execute`](Self::execute).
    pub(crate) fn execute_with_trust(
        &self,
        mut idle: Option<Connection<'a>>,
        request: &Request<'_>,
        url: &Url,
        is_trusted: bool,
    ) -> Result<OpenResponse<'a>, ClientError> {
        let (mut url, mut is_trusted) = (url.clone(), is_trusted);
        for _ in 0..=self.max_redirects {
            let sent = AddressedRequest { request, url: &url, is_trusted, body: &[] };
            let (connection, response) = self.execute_once(idle.take(), &sent)?;
            let is_result = response.status == 303 && !matches!(request.method, "GET" | "HEAD");
            let next = if is_result { None } else { response.redirect(&url)? };
            let Some(next) = next else {
                self.check_coding(request, &response, &url)?;
                return Ok(OpenResponse { connection, response, url, is_trusted });
            };
            UnusableUrl::check_redirect(&url, &next)?;
            idle = connection.finish(&response);
            // A URL from another origin gets no credentials, even if it leads back.
            is_trusted &= next.origin() == url.origin();
            url = next;
        }
        Err(UnusableUrl::TooManyRedirects { max: self.max_redirects }.into())
    }

    /// Sends a request without a body and reads the head of the response, which may be a redirect.
    ///
    /// # Errors
    ///
    /// As [`execute`](Self::execute), except for the errors about redirects.
    pub fn execute_without_redirects(
        &self,
        idle: Option<Connection<'a>>,
        request: &Request<'_>,
        url: &Url,
    ) -> Result<OpenResponse<'a>, ClientError> {
        self.execute_at(idle, request, url, true)
    }

    /// Sends a request as [`execute_without_redirects`](Self::execute_without_redirects) does, with
    /// credentials only if `is_trusted`.
    ///
    /// # Errors
    ///
    /// Those of [`execute_without_redirects`](Self::execute_without_redirects).
    pub(crate) fn execute_at(
        &self,
        idle: Option<Connection<'a>>,
        request: &Request<'_>,
        url: &Url,
        is_trusted: bool,
    ) -> Result<OpenResponse<'a>, ClientError> {
        let sent = AddressedRequest { request, url, is_trusted, body: &[] };
        let (connection, response) = self.execute_once(idle, &sent)?;
        self.check_coding(request, &response, url)?;
        Ok(OpenResponse { connection, response, url: url.clone(), is_trusted })
    }

    /// Refuses a body in a coding that was not requested: its bytes are not those of the file. A
    /// file that is named after its coding, such as `x.tar.gz`, is accepted.
    fn check_coding(
        &self,
        request: &Request<'_>,
        response: &Response,
        url: &Url,
    ) -> Result<(), ClientError> {
        let asks = |(name, _): &(String, String)| name.eq_ignore_ascii_case("accept-encoding");
        let is_body = request.method == "GET" && response.is_success();
        match response.coding().filter(|_| is_body && !self.headers.iter().any(asks)) {
            Some(coding) if !is_named_after(url, &coding) => {
                Err(InvalidResponse::Encoded { coding }.into())
            }
            _ => Ok(()),
        }
    }

    /// Sends a request without following redirects; repeats it if a store's refusal says how.
    fn execute_once(
        &self,
        mut idle: Option<Connection<'a>>,
        sent: &AddressedRequest<'_>,
    ) -> Result<(Connection<'a>, Response), ClientError> {
        for _ in 0..MAX_CORRECTIONS {
            let (mut connection, mut response) = self.execute_unsigned(idle.take(), sent)?;
            if !sent.is_trusted || !connection.learn(self, &mut response) {
                return Ok((connection, response));
            }
            idle = connection.finish(&response);
        }
        self.execute_unsigned(idle, sent)
    }

    /// Sends a request once.
    fn execute_unsigned(
        &self,
        idle: Option<Connection<'a>>,
        sent: &AddressedRequest<'_>,
    ) -> Result<(Connection<'a>, Response), ClientError> {
        let is_fit = |idle: &Connection<'_>| idle.can_reuse_for(self, sent.url) && idle.is_quiet();
        // A POST on an idle connection may be carried out before the connection breaks, and must
        // not be repeated (RFC 9110 9.2.2).
        let idle = idle.filter(|idle| sent.request.method != "POST" && is_fit(idle));
        if let Some(mut connection) = idle {
            match connection.exchange_body(self, sent) {
                Ok(response) => return Ok((connection, response)),
                // The server may have closed the idle connection, whatever the request.
                Err(ClientError::Connection(
                    ConnectionError::Closed { .. } | ConnectionError::Network { .. },
                )) => {}
                Err(error) => return Err(error),
            }
        }
        let mut connection = self.connect(sent.url)?;
        let response = connection.exchange_body(self, sent)?;
        Ok((connection, response))
    }
}

impl Connection<'_> {
    /// Reads the body of a response, at most `max` bytes.
    ///
    /// # Errors
    ///
    /// [`ClientError::InvalidResponse`] if it is longer or not validly chunked,
    /// [`ClientError::Connection`] or [`ClientError::TimedOut`] if it does not arrive whole.
    pub fn read_body(&mut self, response: &Response, max: usize) -> Result<Vec<u8>, ClientError> {
        let body = self.incoming().memory(response.framing, max);
        body.map_err(|error| ClientError::receiving(self.address(), error))
    }
}

/// How often a request to a store is corrected after a refusal: its region, its time, new keys.
const MAX_CORRECTIONS: u32 = 3;

/// Returns whether the file name has the suffix of this coding.
fn is_named_after(url: &Url, coding: &str) -> bool {
    let endings: &[&str] = match coding.trim_start_matches("x-") {
        "gzip" => &[".gz", ".tgz", ".svgz"],
        "compress" => &[".z"],
        "br" => &[".br"],
        "zstd" => &[".zst", ".tzst"],
        "bzip2" => &[".bz2", ".tbz", ".tbz2"],
        "xz" => &[".xz", ".txz"],
        _ => &[],
    };
    let path = url.path().to_ascii_lowercase();
    endings.iter().any(|ending| path.ends_with(ending))
}
