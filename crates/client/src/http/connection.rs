//! One connection to a server.

mod answer;

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::io;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use underpass_engine::TlsTransport;
use underpass_engine::wait::{self, Limits, WaitError};
use underpass_transport::incoming::{BodyFraming, Incoming, ReceiveError};
use underpass_transport::tls::{Session, SessionFacts};
use url::Url;

use super::client::HttpClient;
use super::connect::connect;
use super::credentials::{Signature, in_url, without_credentials};
use super::response::Response;
use super::route::Route;
use super::xml::{StoreRefusal, plain};
use crate::error::{ClientError, ConnectionError, NetworkAction, TimeoutError, UnusableUrl};

pub(crate) use answer::MAX_INTERIM;

/// A request with its URL and body, ready to be sent.
#[derive(Clone, Copy)]
pub(super) struct AddressedRequest<'r> {
    pub(super) request: &'r Request<'r>,
    pub(super) url: &'r Url,
    /// Whether the server may receive credentials.
    pub(super) is_trusted: bool,
    /// The body, whose length is among the fields of the request; empty if there is none.
    pub(super) body: &'r [u8],
}

/// A request without its URL.
#[derive(Clone, Copy, Debug)]
pub struct Request<'r> {
    /// The method.
    pub method: &'r str,
    /// The fields of this request only, such as `Range`.
    pub fields: &'r [(&'r str, &'r str)],
}

/// A connection to a server, or to a proxy on the way to it.
#[derive(Debug)]
pub struct Connection<'a> {
    incoming: Incoming<'a, TcpStream>,
    route: Route,
    /// Whether the last request had credentials.
    has_identified: Cell<bool>,
    /// The region, clock and keys with which the last request was signed.
    signed: RefCell<Signature>,
    /// The reason why a store refused the last request, once it has been read.
    refusal: Option<StoreRefusal>,
}

impl<'a> Connection<'a> {
    /// Connects to the server of a URL, or to its proxy.
    pub(super) fn open(client: &HttpClient<'a>, url: &Url) -> Result<Self, ClientError> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(UnusableUrl::Scheme { scheme: url.scheme().to_owned() }.into());
        }
        let url = &*located(client, url);
        let (proxy, route) = (client.proxies.of(url), Route::of(client, url));
        let limits = Limits::since(Instant::now(), Some(client.connect_timeout), client.cancel)
            .no_later_than(client.deadline);
        let stream = connect(url, proxy, limits)?;
        let left = limits.check().ok().flatten().unwrap_or(Duration::ZERO);
        let mut incoming = Incoming::new(stream, Vec::new(), Some(left), client.cancel);
        incoming.set_deadline(client.deadline);
        incoming.is_of_server = true;
        let has_identified = Cell::new(false);
        let signed = RefCell::default();
        let mut connection = Self { incoming, route, has_identified, signed, refusal: None };
        if connection.route.secured.is_some() {
            if let Some(proxy) = proxy {
                connection.open_tunnel(client, proxy, url, left)?;
            }
            let session = client.tls.handshake(connection.stream(), url, limits)?;
            connection.incoming.set_session(Arc::new(session));
        }
        connection.incoming.set_timeout(Some(client.timeout));
        Ok(connection)
    }

    /// Returns whether a request for this URL may use the connection.
    pub(crate) fn can_reuse_for(&self, client: &HttpClient<'_>, url: &Url) -> bool {
        self.route == Route::of(client, &located(client, url))
    }

    /// Returns the TLS session, if there is one.
    #[must_use]
    pub fn session(&self) -> Option<&Arc<Session>> {
        self.incoming.session()
    }

    /// Returns the facts about the TLS session, if there is one.
    #[must_use]
    pub fn tls(&self) -> Option<&SessionFacts> {
        self.session().map(|session| session.facts())
    }

    /// Returns the incoming half.
    pub fn incoming(&mut self) -> &mut Incoming<'a, TcpStream> {
        &mut self.incoming
    }

    /// Returns the socket, which is non-blocking, as the sink of a body.
    #[must_use]
    pub fn stream(&self) -> &TcpStream {
        self.incoming.stream()
    }

    /// Returns host and port of the server, or of the proxy until the tunnel is open, for messages.
    #[must_use]
    pub fn address(&self) -> &str {
        let server = self.route.secured.as_ref().filter(|_| self.session().is_some());
        server.unwrap_or(&self.route.hop)
    }

    /// Returns whether the server is on this machine.
    #[must_use]
    pub fn is_local(&self) -> bool {
        !self.route.is_proxied && underpass_engine::socket::has_loopback_peer(self.stream())
    }

    /// Limits the kernel's receive buffer to this many bytes.
    pub(crate) fn set_window(&self, bytes: usize) {
        // Only a hint: without it, the data arrives in bursts with pauses between them.
        let _ = rustix::net::sockopt::set_socket_recv_buffer_size(self.stream(), bytes);
    }

    /// Sends a request without a body and reads the head of the response. Credentials are sent only
    /// to a trusted server.
    ///
    /// # Errors
    ///
    /// Those of [`send`](Self::send) and [`response`](Self::response); [`ClientError::Keys`].
    pub fn exchange(
        &mut self,
        client: &HttpClient<'a>,
        request: &Request<'_>,
        url: &Url,
        is_trusted: bool,
    ) -> Result<Response, ClientError> {
        self.exchange_body(client, &AddressedRequest { request, url, is_trusted, body: &[] })
    }

    /// Sends a request and its body, and reads the head of the response.
    pub(super) fn exchange_body(
        &mut self,
        client: &HttpClient<'a>,
        sent: &AddressedRequest<'_>,
    ) -> Result<Response, ClientError> {
        let mut head = self.head(client, sent.request, sent.url, sent.is_trusted)?;
        head.extend_from_slice(sent.body);
        self.send(&head)?;
        let response = self.answer(sent.request.method, &mut |_| {})?;
        // Stores send a space now and then to keep the connection of a long POST alive.
        if sent.request.method == "GET" {
            self.incoming.set_min_rate(client.min_rate);
        }
        Ok(response)
    }

    /// Returns whether nothing has arrived since the last response. Any input is the end of the
    /// connection, or belongs to no request.
    pub(super) fn is_quiet(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        !self.incoming.holds_more()
            && match self.session() {
                Some(session) => session.is_quiet(self.stream().as_fd()),
                None => matches!(recv(self.stream(), &mut [0_u8; 1], flags), Err(Errno::AGAIN)),
            }
    }

    /// Returns whether data or the end of the connection has arrived, or does within `timeout`.
    /// Control records of TLS do not count.
    pub(crate) fn has_input(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        loop {
            if self.incoming.holds_more()
                || self.session().is_some_and(|it| it.peek(self.stream().as_fd()).is_some())
            {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let mut ends = [PollFd::new(self.stream(), PollFlags::IN)];
            let is_ready = wait::poll(&mut ends, Some(left));
            if !is_ready || self.session().is_none() {
                return is_ready;
            }
            if left.is_zero() {
                return self.session().is_some_and(|it| it.peek(self.stream().as_fd()).is_some());
            }
        }
    }

    /// Returns the head of a request, including the blank line.
    ///
    /// # Errors
    ///
    /// [`ClientError::Keys`] if the request cannot be signed.
    pub fn head(
        &self,
        client: &HttpClient<'_>,
        request: &Request<'_>,
        url: &Url,
        is_trusted: bool,
    ) -> Result<Vec<u8>, ClientError> {
        let url = &*located(client, url);
        let signature = signature(client, request, url, is_trusted)?;
        let mut head = Vec::with_capacity(512);
        let mut line = |parts: &[&str]| {
            parts.iter().for_each(|part| head.extend_from_slice(part.as_bytes()));
            head.extend_from_slice(b"\r\n");
        };
        let path = &url[url::Position::BeforePath..url::Position::AfterQuery];
        // Credentials are for the server only, not for the proxy.
        let absolute = without_credentials(url);
        let target = if self.route.is_read_on_the_way() {
            &absolute[..url::Position::AfterQuery]
        } else {
            path
        };
        line(&[request.method, " ", target, " HTTP/1.1"]);
        let own = |name: &str| {
            let given = client.headers.iter().filter(|_| is_trusted).map(|(name, _)| name.as_str());
            !given
                .chain(request.fields.iter().map(|(name, _)| *name))
                .any(|given| given.eq_ignore_ascii_case(name))
        };
        let host = &url[url::Position::BeforeHost..url::Position::AfterPort];
        let standard = [
            ("Host", host),
            ("User-Agent", &client.user_agent),
            ("Accept", "*/*"),
            // Any other coding would have to be undone in user space.
            ("Accept-Encoding", "identity"),
        ];
        for (name, value) in standard.into_iter().filter(|(name, _)| own(name)) {
            line(&[name, ": ", value]);
        }
        let named = if is_trusted { client.credentials.value(url) } else { in_url(url) };
        let has_identified =
            named.is_some() || !signature.fields.is_empty() || !own("Authorization");
        self.has_identified.set(has_identified);
        if let Some(value) = named.filter(|_| own("Authorization")) {
            line(&["Authorization: ", &value]);
        }
        let proxy = client.proxies.of(url).filter(|_| self.route.is_read_on_the_way());
        if let Some(value) = proxy.and_then(in_url) {
            line(&["Proxy-Authorization: ", &value]);
        }
        for (name, value) in client.headers.iter().filter(|_| is_trusted) {
            line(&[name, ": ", value]);
        }
        for (name, value) in request.fields {
            line(&[name, ": ", value]);
        }
        for (name, value) in signature.fields.iter().filter(|(name, _)| own(name)) {
            line(&[name, ": ", value]);
        }
        line(&[]);
        self.signed.replace(signature);
        Ok(head)
    }

    /// Learns from the refusal of a store, whose body is read for this; returns whether the same
    /// request may succeed now.
    pub(crate) fn learn(&mut self, client: &HttpClient<'_>, response: &mut Response) -> bool {
        let Some(store) = client.credentials.store() else { return false };
        if !matches!(response.status, 301 | 307 | 400 | 403) {
            return false;
        }
        self.incoming.set_min_rate(client.min_rate);
        let body = self.incoming.memory(response.framing, MAX_UNWANTED);
        response.keeps_alive &= body.is_ok();
        response.framing = BodyFraming::Length(0);
        let mut refusal = StoreRefusal::parse(&body.unwrap_or_default());
        let has_learned = store.learn(response, &refusal, &self.signed.borrow());
        if let Some(failure) = store.failure().filter(|_| !has_learned) {
            let sentence = refusal.message.trim_end_matches('.');
            let separator = if sentence.is_empty() { "" } else { "; " };
            refusal.message = format!("{sentence}{separator}newer keys: {failure}");
        }
        self.refusal = Some(refusal);
        has_learned
    }

    /// Sends bytes, such as a head.
    ///
    /// # Errors
    ///
    /// [`ConnectionError::Network`], [`TimeoutError::Stalled`] or [`ClientError::Cancelled`].
    pub fn send(&self, mut bytes: &[u8]) -> Result<(), ClientError> {
        let mut last = Instant::now();
        loop {
            let outcome = match self.session() {
                // First sends bytes that TLS has accepted in an earlier call.
                Some(session) if bytes.is_empty() => {
                    session.flush(self.stream().as_fd()).map(|()| 0)
                }
                Some(session) => session.send(self.stream().as_fd(), bytes, false),
                None => send(self.stream(), bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT),
            };
            match outcome {
                Ok(_) if bytes.is_empty() => return Ok(()),
                Ok(sent) => {
                    bytes = &bytes[sent..];
                    last = Instant::now();
                    if bytes.is_empty() && self.session().is_none() {
                        return Ok(());
                    }
                }
                Err(Errno::AGAIN) => self.wait_to_send(last)?,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.failed(NetworkAction::Sending, errno.into())),
            }
        }
    }

    /// Waits until something can be sent; fails if the time limit since `last` has passed or the
    /// request was cancelled.
    fn wait_to_send(&self, last: Instant) -> Result<(), ClientError> {
        let (timeout, cancel) = self.incoming.limits();
        let limits = Limits::since(last, timeout, cancel);
        match limits.poll(&mut [PollFd::new(self.stream(), PollFlags::OUT)]) {
            Ok(_) => Ok(()),
            Err(WaitError::Cancelled) => Err(ClientError::Cancelled),
            Err(WaitError::TimedOut) => Err(TimeoutError::Stalled.into()),
        }
    }

    /// Reads the next head in response to a request of this method, which may be an interim one.
    ///
    /// # Errors
    ///
    /// Those of [`ClientError::receiving`]; [`ClientError::InvalidResponse`] for an invalid head or
    /// more than 64 KiB, or [`ClientError::Proxy`] if a proxy reads the requests.
    pub fn response(&mut self, method: &str) -> Result<Response, ClientError> {
        let is_http = self.incoming.starts_with(b"HTTP/");
        if !is_http.map_err(|error| ClientError::receiving(self.address(), error))? {
            let problem = "it is not HTTP (is this the right port?)";
            return Err(self.route.invalid(problem));
        }
        let head = match self.incoming.head(MAX_HEAD) {
            Ok(Some(head)) => head,
            Ok(None) | Err(ReceiveError::Ended) => {
                return Err(ConnectionError::Closed { by: self.route.peer().into() }.into());
            }
            Err(ReceiveError::TooLong) => return Err(self.route.invalid("its head is too long")),
            Err(error) => return Err(ClientError::receiving(self.address(), error)),
        };
        Response::parse(&head, method).map_err(|error| self.route.attributed(error))
    }

    /// Discards the rest of a response, if it is short; returns the connection if it can be reused.
    #[must_use]
    pub fn finish(mut self, response: &Response) -> Option<Self> {
        let is_read = response.keeps_alive && self.soon(response.framing, MAX_UNWANTED).is_ok();
        is_read.then_some(self)
    }

    /// Reads a body that is not essential, if it arrives within [`DISCARD_TIMEOUT`].
    fn soon(&mut self, framing: BodyFraming, max: usize) -> Result<Vec<u8>, ReceiveError> {
        let (deadline, soon) = (self.incoming.set_deadline(None), Instant::now() + DISCARD_TIMEOUT);
        self.incoming.set_deadline(Some(deadline.map_or(soon, |deadline| deadline.min(soon))));
        let body = self.incoming.memory(framing, max);
        self.incoming.set_deadline(deadline);
        body
    }

    /// Returns the code with which a store refused the last request, if it was read.
    #[must_use]
    pub fn refusal_code(&self) -> Option<&str> {
        self.refusal.as_ref().map(|refusal| refusal.code.as_str())
    }

    /// Returns the error for a failure status, with the text of the body if it is short.
    #[must_use]
    pub fn refusal(mut self, response: &Response) -> ClientError {
        let now = std::time::SystemTime::now();
        let read = self.refusal.take();
        let (code, detail) = match read.or_else(|| self.store_refusal(response)) {
            Some(refusal) => (refusal.code, plain(&refusal.message)),
            None => (String::new(), self.detail(response)),
        };
        let schemes = response.other_schemes();
        ClientError::Status {
            status: response.status,
            code: plain(&code),
            detail: schemes.as_ref().map_or(detail, |schemes| format!("it requires {schemes}")),
            has_identified: self.has_identified.get(),
            needs_other_scheme: schemes.is_some(),
            retry_after: response.retry_after(now),
        }
    }

    /// Reads why a store refused a request, if the body is XML.
    fn store_refusal(&mut self, response: &Response) -> Option<StoreRefusal> {
        let media_type = response.fields.text("content-type")?;
        if !media_type.starts_with("application/xml") && !media_type.starts_with("text/xml") {
            return None;
        }
        let body = self.soon(response.framing, MAX_DETAIL).unwrap_or_default();
        Some(StoreRefusal::parse(&body))
    }

    /// Returns the first line of a response's body, if it is a short text.
    pub(super) fn detail(&mut self, response: &Response) -> String {
        let is_text = response.coding().is_none()
            && response.fields.text("content-type").is_some_and(|it| it.starts_with("text/plain"));
        if !is_text {
            return String::new();
        }
        let body = self.soon(response.framing, MAX_DETAIL).unwrap_or_default();
        response.reason_in(&body)
    }

    pub(super) fn failed(&self, action: NetworkAction, source: io::Error) -> ClientError {
        ConnectionError::Network { action, address: self.address().to_owned(), source }.into()
    }
}

impl Drop for Connection<'_> {
    /// Sends `close_notify` (RFC 8446 6.1), so that the connection does not look truncated.
    fn drop(&mut self) {
        if let Some(session) = self.session() {
            session.close(self.stream().as_fd());
        }
    }
}

/// Returns the URL under which a store has this one.
fn located<'u>(client: &HttpClient<'_>, url: &'u Url) -> Cow<'u, Url> {
    let moved = client.credentials.store().and_then(|store| store.locate(url));
    moved.map_or(Cow::Borrowed(url), Cow::Owned)
}

/// Returns the fields that sign a request to a store.
fn signature(
    client: &HttpClient<'_>,
    request: &Request<'_>,
    url: &Url,
    is_trusted: bool,
) -> Result<Signature, ClientError> {
    let Some(store) = client.credentials.store().filter(|_| is_trusted) else {
        return Ok(Signature::default());
    };
    let given = client.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let fields: Vec<_> = given.chain(request.fields.iter().copied()).collect();
    store.sign(request.method, url, &fields)
}

/// The maximum size of a head in bytes.
const MAX_HEAD: usize = 64 << 10;

/// The time limit for a body that is not essential.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(1);

/// The maximum size of a body that is read only to keep the connection, in bytes.
const MAX_UNWANTED: usize = 64 << 10;

/// The maximum size of a body that explains a failure, in bytes.
const MAX_DETAIL: usize = 4 << 10;
