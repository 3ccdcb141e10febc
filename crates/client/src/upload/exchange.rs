//! A request with a body: sends bytes while listening to the server.

use std::fs::File;
use std::io;
use std::time::Duration;

use rustix::io::Errno;
use underpass_engine::wait::StallDetector;
use underpass_engine::{
    Chain, Confirm, Error, Integrity, Options, PeerMessage, Progress, Report, Sink, Source,
    Transfer, socket,
};
use underpass_transport::limit_loopback_buffer;
use url::Url;

use super::error::{Result, UploadError};
use super::options::{OnEvent, SendOptions, UploadEvent};
use crate::error::{ClientError, ConnectionError, NetworkAction, TimeoutError, is_of_network};
use crate::http::{Connection, HttpClient, MAX_INTERIM, Response};

/// A request whose body is being sent.
pub(crate) struct UploadExchange<'e, 'a, 't> {
    pub(crate) client: &'e HttpClient<'a>,
    pub(crate) connection: &'e mut Connection<'a>,
    /// The method, which determines whether a response has a body.
    pub(crate) method: &'e str,
    pub(crate) send_options: SendOptions<'e>,
    pub(crate) body: UploadBody<'e>,
    /// The time to wait for `100 Continue` before the body; `None` to send it at once.
    pub(crate) expects: Option<Duration>,
    /// Whether the body may be sent after `100 Continue` only if a 104 came before it.
    pub(crate) needs_104: bool,
    /// Receives interim responses.
    pub(crate) interim: &'e mut (dyn FnMut(&Response) + Send),
    pub(crate) on_event: &'e mut OnEvent<'t>,
    /// Measures how much the server accepts while the client waits for it.
    pub(crate) stall: StallDetector,
    /// The bytes moved, and how.
    pub(crate) report: Report,
    /// The final response, if it arrived while the body was sent.
    pub(crate) heard: Option<Result<Response, ClientError>>,
    /// Whether any byte of the body was read from its source.
    pub(crate) is_begun: bool,
}

/// The bytes of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UploadBody<'b> {
    pub(crate) source: &'b Source<&'b File>,
    /// The number of bytes that the server has already.
    pub(crate) skip: u64,
}

impl UploadBody<'_> {
    /// Returns the number of bytes to send, if known.
    pub(crate) fn len(&self) -> Option<u64> {
        self.source.promised().map(|len| len.saturating_sub(self.skip))
    }
}

impl UploadExchange<'_, '_, '_> {
    /// Moves a chain to the server, while listening to it. The first `framing` bytes do not belong
    /// to the body, of which the server has `before` bytes already.
    pub(crate) fn transfer(
        &mut self,
        chain: Chain<&File>,
        framing: u64,
        before: u64,
    ) -> Result<()> {
        let sink = self.connection.stream().try_clone().map_err(|source| self.failed(source))?;
        let session = self.connection.session().cloned();
        let expected = self.body.source.promised();
        let is_short = chain.len().is_some_and(|len| len - framing < MIN_HELD_BACK);
        let on_event = &mut *self.on_event;
        let observer = move |progress: &Progress| {
            let bytes = before + progress.bytes.saturating_sub(framing);
            on_event(&UploadEvent::Progress(Progress { bytes, expected, ..*progress }));
        };
        let mut options = options(self.client, &self.send_options, is_short)
            .observer(observer)
            .stall_detector(&mut self.stall);
        if let Some(session) = &session {
            options = options.sink_tls(&**session);
        }
        // After a final response only the end of the connection can follow.
        if self.heard.is_none() {
            let (connection, interim) = (&mut *self.connection, &mut *self.interim);
            let (method, heard) = (self.method, &mut self.heard);
            options = options.listener(move || receive_interim(connection, method, interim, heard));
        }
        match Transfer::new(chain, Sink::socket(&sink)).options(options).run() {
            Ok(report) => {
                self.report.add(&report);
                Ok(())
            }
            Err(mut error) => {
                self.report.add(error.report());
                // Each chunk is a transfer, but the error reports all of them.
                error.report_mut().clone_from(&self.report);
                Err(sorted(error))
            }
        }
    }

    /// Listens once, without waiting; returns whether to continue.
    pub(crate) fn listen(&mut self) -> PeerMessage {
        receive_interim(self.connection, self.method, self.interim, &mut self.heard)
    }

    fn failed(&self, source: io::Error) -> UploadError {
        let address = self.connection.address().to_owned();
        ClientError::from(ConnectionError::Network {
            action: NetworkAction::Sending,
            address,
            source,
        })
        .into()
    }
}

/// Returns a connection to the server of a URL, ready for a body.
pub(crate) fn connect<'a>(
    client: &HttpClient<'a>,
    idle: Option<Connection<'a>>,
    url: &Url,
    rate: Option<u64>,
) -> Result<Connection<'a>, ClientError> {
    let idle = idle.filter(|idle| idle.can_reuse_for(client, url));
    // An idle connection with unsolicited data is about to close.
    let is_over = idle.as_ref().is_some_and(|idle| idle.has_input(Duration::ZERO));
    let mut connection = match idle.filter(|_| !is_over) {
        Some(connection) => connection,
        None => client.connect(url)?,
    };
    // Nothing can arrive over it that must not be read.
    connection.incoming().is_eager = true;
    socket::avoid_pacing_on_loopback(connection.stream());
    limit_loopback_buffer(connection.stream());
    if let Some(rate) = rate {
        // If the kernel cannot pace, it sends as fast as possible.
        let _ = socket::set_pacing_rate(connection.stream(), rate);
    }
    Ok(connection)
}

/// Receives responses that the server sends while the body is being sent.
fn receive_interim(
    connection: &mut Connection<'_>,
    method: &str,
    interim: &mut (dyn FnMut(&Response) + Send),
    heard: &mut Option<Result<Response, ClientError>>,
) -> PeerMessage {
    let mut interim_answers = 0;
    let answer = loop {
        // It may only be TLS control data. A server that never stops must not block the body.
        if interim_answers == MAX_INTERIM || !connection.has_input(Duration::ZERO) {
            return PeerMessage::Continue;
        }
        let answer = connection.response(method);
        match &answer {
            Ok(response) if response.status < 200 => interim(response),
            _ => break answer,
        }
        interim_answers += 1;
    };
    // A success may be premature, but is no reason to stop sending.
    let is_welcome = answer.as_ref().is_ok_and(Response::is_success);
    *heard = Some(answer);
    if is_welcome { PeerMessage::StopListening } else { PeerMessage::Abort }
}

/// Returns the engine's options for a body.
fn options<'o>(
    client: &HttpClient<'o>,
    send_options: &SendOptions<'o>,
    is_short: bool,
) -> Options<'o> {
    // A lease waits for the peer in any case.
    let is_quick = is_short && send_options.integrity != Integrity::Lease;
    let mut options = Options::default()
        .policy(send_options.policy)
        .integrity(send_options.integrity)
        // The server counts the bytes: a change detected after the last one comes too late. Holding
        // that one back takes a round trip, for which a body of a few packets should not wait.
        .confirm(if is_quick { Confirm::HandedOver } else { Confirm::BeforeEnd });
    if let Some(step) = send_options.step {
        options = options.step(step);
    }
    if let Some(pipes) = send_options.pipes {
        options = options.pipes(pipes);
    }
    if let Some(cancel) = client.cancel {
        options = options.cancel(cancel);
    }
    options
}

/// Converts an error of the engine into one of the connection or the source.
fn sorted(error: Error) -> UploadError {
    match error {
        Error::Cancelled { .. } => ClientError::Cancelled.into(),
        Error::Stalled { .. } => ClientError::from(TimeoutError::Stalled).into(),
        Error::Answered { .. } => UploadError::Broken(Box::new(error)),
        Error::Io { ref source, .. } if is_write_error(source) => {
            UploadError::Broken(Box::new(error))
        }
        error => UploadError::Source(Box::new(error)),
    }
}

/// Returns whether an error can only come from writing to a connection.
fn is_write_error(error: &io::Error) -> bool {
    is_of_network(error)
        || matches!(
            Errno::from_io_error(error),
            Some(
                Errno::PIPE
                    | Errno::NOTCONN
                    | Errno::KEYEXPIRED // TLS: its key is worn, and the kernel cannot change it
                    | Errno::PROTO // TLS: what the peer may not say
            )
        )
}

/// Returns whether a media type is that of an HTML page.
pub(crate) fn is_html(media_type: Option<&str>) -> bool {
    let text = media_type.unwrap_or_default().to_ascii_lowercase();
    text.starts_with("text/html") || text.starts_with("application/xhtml")
}

/// Returns whether the response to a HEAD request is that of a generated page, whatever the target
/// is: files have a length.
pub(super) fn is_page(response: &Response, target: &Url) -> bool {
    response.status == 200
        && is_html(response.fields.text("content-type"))
        && response.fields.get("content-length").is_none()
        && !is_page_name(target)
}

/// Returns whether the name of a file is that of a page.
pub(crate) fn is_page_name(url: &Url) -> bool {
    let path = url.path().to_ascii_lowercase();
    [".html", ".htm", ".xhtml", ".xht"].iter().any(|end| path.ends_with(end))
}

/// The minimum size of a body in bytes whose last byte is held back until the file is known to be
/// unchanged.
const MIN_HELD_BACK: u64 = 256 << 10;
