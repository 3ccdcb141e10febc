//! One request with a body, and what the server says to it, early or late.

use std::fs::File;
use std::io;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use underpass_engine::{
    Chain, Confirm, Error, Heard, Options, Progress, Report, Sink, Source, Transfer, socket,
};

use super::chunks;
use super::{Event, Sending, Tell, UploadError};
use crate::client::{Agent, ClientError, Connection, Response};

/// One request on its way.
pub(super) struct Exchange<'e, 'a, 't> {
    pub(super) agent: &'e Agent<'a>,
    pub(super) connection: &'e mut Connection<'a>,
    /// The method, which tells whether an answer has a body.
    pub(super) method: &'e str,
    pub(super) sending: Sending<'e>,
    pub(super) body: Body<'e>,
    /// How long to wait for the server's word before the body; `None` to send it at once.
    pub(super) expects: Option<Duration>,
    /// Hears what the server says before its answer.
    pub(super) interim: &'e mut (dyn FnMut(&Response) + Send),
    pub(super) tell: &'e mut Tell<'t>,
    /// What was moved.
    pub(super) report: Report,
    /// What the server said while bytes were sent to it.
    pub(super) heard: Option<Result<Response, ClientError>>,
    /// Whether anything of the body was taken from its source.
    pub(super) is_begun: bool,
}

/// The bytes of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Body<'b> {
    pub(super) source: &'b Source<&'b File>,
    /// Bytes of it that the server has already.
    pub(super) skip: u64,
}

impl Body<'_> {
    /// How many bytes are sent, if that is known.
    pub(super) fn len(&self) -> Option<u64> {
        self.source.promised().map(|len| len.saturating_sub(self.skip))
    }
}

impl<'a> Exchange<'_, 'a, '_> {
    /// Sends head and body; the final answer, and whether the whole body was sent.
    pub(super) fn run(&mut self, head: Vec<u8>) -> Result<(Response, bool), UploadError> {
        let head = match self.expects {
            None => head,
            Some(patience) => {
                self.connection.send(&head)?;
                if let Some(answer) = self.await_word(patience)? {
                    return Ok((answer, false));
                }
                Vec::new()
            }
        };
        let sent = match self.body.len() {
            Some(len) => self.send_known(head, len),
            None => chunks::send(self, head),
        };
        self.answer(sent)
    }

    /// The final answer, after the body was sent or could not be.
    fn answer(&mut self, sent: Result<(), UploadError>) -> Result<(Response, bool), UploadError> {
        if sent.is_err() {
            // Nobody may take the part for the whole, however this ends.
            let _ = socket::arm_reset(self.connection.stream());
        }
        match (sent, self.heard.take()) {
            (Ok(()), None) => Ok((self.await_answer()?, true)),
            (Ok(()), Some(answer)) => Ok((answer?, true)),
            // RFC 9110 9.3.4 knows no success of a part.
            (Err(_), Some(Ok(answer))) if answer.is_success() => {
                Err(UploadError::Early { status: answer.status })
            }
            (Err(_), Some(Ok(answer))) => Ok((answer, false)),
            (Err(error @ UploadError::Source(_)), _) => Err(error),
            (Err(_), Some(Err(error))) => Err(error.into()),
            (Err(error), None) => match self.last_words() {
                Some(answer) if !answer.is_success() => Ok((answer, false)),
                Some(answer) => Err(UploadError::Early { status: answer.status }),
                None => Err(error),
            },
        }
    }

    /// Sends a body whose length is known, behind `head`, which may be empty.
    fn send_known(&mut self, head: Vec<u8>, len: u64) -> Result<(), UploadError> {
        let skip = self.body.skip;
        let at = self.body.source.offset().unwrap_or(0) + skip;
        let mut chain = Chain::new();
        let head_len = head.len() as u64;
        if !head.is_empty() {
            chain = chain.bytes(head);
        }
        if len > 0 {
            self.is_begun = true;
            chain = chain.source(self.body.source.clone().at(at).len(len));
        }
        self.transfer(chain, head_len, skip)
    }

    /// Moves a chain to the server and listens meanwhile. Of its bytes `framing` are none of the
    /// body's, and come first as far as progress is concerned; `before` are with the server.
    pub(super) fn transfer(
        &mut self,
        chain: Chain<&File>,
        framing: u64,
        before: u64,
    ) -> Result<(), UploadError> {
        let sink = self.connection.stream().try_clone().map_err(|source| self.failed(source))?;
        let session = self.connection.session().cloned();
        let expected = self.body.source.promised();
        let is_short = chain.len().is_some_and(|len| len - framing < HELD_BACK);
        let tell = &mut *self.tell;
        let observer = move |progress: &Progress| {
            let bytes = before + progress.bytes.saturating_sub(framing);
            tell(&Event::Progress(Progress { bytes, expected, ..*progress }));
        };
        let mut options = options(self.agent, &self.sending, is_short).observer(observer);
        if let Some(session) = &session {
            options = options.sink_tls(&**session);
        }
        // After a final answer nothing follows but the end.
        if self.heard.is_none() {
            let (connection, interim) = (&mut *self.connection, &mut *self.interim);
            let (method, heard) = (self.method, &mut self.heard);
            options = options.listener(move || hear(connection, method, interim, heard));
        }
        match Transfer::new(chain, Sink::socket(&sink)).options(options).run() {
            Ok(report) => {
                self.report.add(&report);
                Ok(())
            }
            Err(error) => {
                self.report.add(error.report());
                Err(sorted(error))
            }
        }
    }

    /// Listens once, without waiting; whether to go on.
    pub(super) fn listen(&mut self) -> Heard {
        hear(self.connection, self.method, self.interim, &mut self.heard)
    }

    /// Waits for leave to send the body, no longer than `patience`; the final answer, if that is
    /// what comes (RFC 9110 10.1.1).
    fn await_word(&mut self, patience: Duration) -> Result<Option<Response>, UploadError> {
        let deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if !self.connection.has_spoken(left.min(LOOK_INTERVAL)) {
                if self.agent.is_cancelled() {
                    return Err(ClientError::Cancelled.into());
                }
                if left.is_zero() {
                    return Ok(None);
                }
                continue;
            }
            let response = self.connection.response(self.method)?;
            match response.status {
                100 => return Ok(None),
                101..200 => (self.interim)(&response),
                _ => return Ok(Some(response)),
            }
        }
    }

    /// Waits for the final answer to a whole body.
    fn await_answer(&mut self) -> Result<Response, UploadError> {
        // The server may have to write all of it to its disk before it can promise anything.
        let sent = self.body.len().unwrap_or_else(|| self.report.bytes());
        let patience = self.agent.timeout + Duration::from_secs(sent / SLOWEST_DISK);
        self.connection.incoming().set_timeout(Some(patience));
        let answer = loop {
            match self.connection.response(self.method) {
                Ok(response) if response.status < 200 => (self.interim)(&response),
                answer => break answer,
            }
        };
        self.connection.incoming().set_timeout(Some(self.agent.timeout));
        Ok(answer?)
    }

    /// What the server said before the connection broke, if anything.
    fn last_words(&mut self) -> Option<Response> {
        while self.connection.has_spoken(LAST_WORDS) {
            match self.connection.response(self.method) {
                Ok(response) if response.status < 200 => {}
                answer => return answer.ok(),
            }
        }
        None
    }

    fn failed(&self, source: io::Error) -> UploadError {
        let address = self.connection.address().to_owned();
        ClientError::Network { action: "sending to", address, source }.into()
    }
}

/// Hears what the server says in the middle of a body.
fn hear(
    connection: &mut Connection<'_>,
    method: &str,
    interim: &mut (dyn FnMut(&Response) + Send),
    heard: &mut Option<Result<Response, ClientError>>,
) -> Heard {
    let answer = loop {
        // What has come may be of TLS alone.
        if !connection.has_spoken(Duration::ZERO) {
            return Heard::GoOn;
        }
        let answer = connection.response(method);
        match &answer {
            Ok(response) if response.status < 200 => interim(response),
            _ => break answer,
        }
    };
    // Success may be premature, but is no reason to break off what is welcome.
    let is_welcome = answer.as_ref().is_ok_and(Response::is_success);
    *heard = Some(answer);
    if is_welcome { Heard::Enough } else { Heard::Stop }
}

/// How the engine is to move a body.
fn options<'o>(agent: &Agent<'o>, sending: &Sending<'o>, is_short: bool) -> Options<'o> {
    let mut options = Options::default()
        .policy(sending.policy)
        .integrity(sending.integrity)
        .timeout(agent.timeout)
        // The server counts the bytes: what is found out after the last one comes too late. To hold
        // it back takes a round trip, which a body of a few packets should not wait for.
        .confirm(if is_short { Confirm::HandedOver } else { Confirm::BeforeEnd });
    if let Some(step) = sending.step {
        options = options.step(step);
    }
    if let Some(pipes) = sending.pipes {
        options = options.pipes(pipes);
    }
    if let Some(cancel) = agent.cancel {
        options = options.cancel(cancel);
    }
    options
}

/// Tells apart what the connection and what the source is to blame for.
fn sorted(error: Error) -> UploadError {
    match error {
        Error::Cancelled { .. } => ClientError::Cancelled.into(),
        Error::Stalled { .. } => ClientError::Stalled.into(),
        Error::Answered { .. } => UploadError::Broken(Box::new(error)),
        Error::Io { ref source, .. } if is_of_network(source) => {
            UploadError::Broken(Box::new(error))
        }
        error => UploadError::Source(Box::new(error)),
    }
}

/// Whether an error is one that only connections have.
fn is_of_network(error: &io::Error) -> bool {
    Errno::from_io_error(error).is_some_and(|errno| {
        matches!(
            errno,
            Errno::PIPE
                | Errno::CONNRESET
                | Errno::CONNABORTED
                | Errno::TIMEDOUT
                | Errno::HOSTUNREACH
                | Errno::HOSTDOWN
                | Errno::NETUNREACH
                | Errno::NETDOWN
                | Errno::NETRESET
                | Errno::NOTCONN
                | Errno::KEYEXPIRED // TLS: its key is worn, and the kernel cannot change it
                | Errno::PROTO // TLS: what the peer may not say
        )
    })
}

/// Bodies from this size on do not get their last byte sent before the file is known to be as it
/// was.
const HELD_BACK: u64 = 256 << 10;

/// How often a wait looks whether it is still wanted.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// How long a server that has broken off may take to say why.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// Bytes a second that a server's disk takes at least.
const SLOWEST_DISK: u64 = 16 << 20;
