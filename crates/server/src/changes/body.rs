//! Reads the small bodies of requests into memory: XML, and forms.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use crate::connection::peer::Activity;
use crate::routing::context::RequestContext;
use crate::routing::response::Response;
use crate::uploads::{BodyState, CONTINUE, ReceivedUpload, write_interim};
use underpass_protocol::chunked::Chunked;
use underpass_protocol::request::BodyLength;

#[derive(Debug)]
pub(crate) struct BodyKind {
    max_len: usize,
    /// The bytes held for each byte of a body: the byte in a growing buffer, and the values parsed
    /// from it.
    weight: usize,
    too_long: &'static str,
}

pub(crate) const XML: BodyKind =
    BodyKind { max_len: 64 << 10, weight: 2, too_long: "the XML of a request has at most 64 KiB" };

/// A body of a method that takes none.
const UNUSED: BodyKind = BodyKind { max_len: 4 << 10, weight: 1, too_long: "" };

/// The names of entries.
pub(crate) const NAMES: BodyKind = BodyKind {
    // 2,000 names of 255 percent-encoded bytes are less.
    max_len: 2 << 20,
    // Each name is a separate vector, and `entry=a` a short line.
    weight: 7,
    too_long: "the names of a request have at most 2 MiB",
};

/// Reads the body of a request; empty if it has none.
///
/// # Errors
///
/// The refusal, if it is too long, malformed or does not arrive.
pub(crate) async fn read(ctx: &RequestContext<'_>, kind: &BodyKind) -> Result<Vec<u8>, Response> {
    let length = ctx.request.body().map_err(|fault| ctx.error(400, &fault.to_string()))?;
    match length {
        BodyLength::None | BodyLength::Length(0) => return Ok(Vec::new()),
        BodyLength::Length(len) if len > kind.max_len as u64 => {
            return Err(ctx.error(413, kind.too_long));
        }
        _ => {}
    }
    ctx.peer.set_activity(Activity::Discarding, Instant::now());
    let mut received = ReceivedUpload::nothing(BodyState::Incomplete);
    let outcome = match invite(ctx, &mut received) {
        Ok(()) => receive(ctx, length, kind).await,
        Err(()) => Err(ctx.error(400, "the body of the request did not arrive")),
    };
    if outcome.is_ok() {
        received.body = BodyState::Read;
    }
    ctx.received.set(Some(Box::new(received)));
    ctx.peer.set_activity(Activity::Waiting, Instant::now());
    outcome
}

/// Refuses a body of a method that takes none (RFC 4918 8.4). An empty body is none, but a chunked
/// one of an upload is refused unread.
pub(crate) async fn refuse(ctx: &RequestContext<'_>, is_of_upload: bool) -> Option<Response> {
    let is_empty = match ctx.request.body() {
        Ok(BodyLength::None | BodyLength::Length(0)) => true,
        // Whether a chunked body is empty is not known before it is read.
        Ok(BodyLength::Chunked) if !is_of_upload && !ctx.request.expects_continue() => {
            match read(ctx, &UNUSED).await {
                Ok(body) => body.is_empty(),
                Err(refusal) if refusal.status != 413 => return Some(refusal),
                Err(_) => false,
            }
        }
        _ => false,
    };
    (!is_empty).then(|| ctx.error(415, "this method takes no body"))
}

/// Sends `100 Continue`, if the client waits for it.
fn invite(ctx: &RequestContext<'_>, received: &mut ReceivedUpload) -> Result<(), ()> {
    if !ctx.request.expects_continue() {
        return Ok(());
    }
    received.interim = CONTINUE.len() as u64;
    // Nothing else is in flight, so the socket has room.
    let session = ctx.peer.session().map(|session| &**session);
    write_interim(ctx.peer.socket.as_fd(), session, CONTINUE, Duration::ZERO).map_err(drop)
}

/// Receives a body, and keeps the bytes after it for the next request.
async fn receive(
    ctx: &RequestContext<'_>,
    length: BodyLength,
    kind: &BodyKind,
) -> Result<Vec<u8>, Response> {
    let max_len = kind.max_len;
    let mut buffer = ctx.ahead.take();
    let mut body = Vec::new();
    let mut chunks = Chunked::default();
    loop {
        let (consumed, is_all) = match length {
            BodyLength::Length(len) => {
                let missing = usize::try_from(len).unwrap_or(usize::MAX) - body.len();
                let consumed = missing.min(buffer.len());
                body.extend_from_slice(&buffer[..consumed]);
                (consumed, consumed == missing)
            }
            BodyLength::None | BodyLength::Chunked => {
                read_chunks(&mut chunks, &buffer, &mut body, max_len)
                    .map_err(|()| ctx.error(400, "the chunks of the body are malformed"))?
            }
        };
        buffer.drain(..consumed);
        if body.len() > max_len {
            return Err(ctx.error(413, kind.too_long));
        }
        if is_all {
            ctx.ahead.set(buffer);
            return Ok(body);
        }
        let held = kind.weight * body.len() + READ_LEN;
        if !ctx.shared().requests.hold(&ctx.peer.requests, ctx.peer.address(), held) {
            return Err(ctx.busy(503, "too many large requests at once; try again soon"));
        }
        if !read_more(ctx, &mut buffer).await {
            return Err(if ctx.peer.is_expired() {
                ctx.error(408, "the body of the request was not complete in time")
            } else {
                ctx.error(400, "the body of the request is not complete")
            });
        }
    }
}

/// Appends the data of all buffered chunks to `body`; returns how many bytes they took, and whether
/// the body ends with them.
fn read_chunks(
    chunks: &mut Chunked,
    buffer: &[u8],
    body: &mut Vec<u8>,
    max_len: usize,
) -> Result<(usize, bool), ()> {
    let mut used = 0;
    while used < buffer.len() && body.len() <= max_len {
        let step = chunks.step(&buffer[used..]).map_err(drop)?;
        body.extend_from_slice(&buffer[used..][step.data]);
        used += step.consumed;
        if step.is_done {
            return Ok((used, true));
        }
    }
    Ok((used, false))
}

/// Waits for more bytes; returns false at the end of the connection.
async fn read_more(ctx: &RequestContext<'_>, buffer: &mut Vec<u8>) -> bool {
    loop {
        if ctx.peer.readable().await.is_err() {
            return false;
        }
        let mut scratch = ctx.worker.scratch.borrow_mut();
        match ctx.peer.read(&mut scratch) {
            Ok(Some(0)) | Err(_) => return false,
            Ok(Some(read)) => {
                buffer.extend_from_slice(&scratch[..read]);
                return true;
            }
            Ok(None) => {}
        }
    }
}

/// The number of bytes that one read may add.
const READ_LEN: usize = 64 << 10;
