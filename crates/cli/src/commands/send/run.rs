//! Sends a file or standard input over one stream.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt;
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use underpass_engine::wait::Limits;
use underpass_engine::{Error, Report, Sink, Source, Transfer, socket};
use underpass_transport::tls::Session;

use super::args::SendArgs;
use super::range::ByteRange;
use crate::connection::{
    Stream, StreamTls, check_congestion, choose_congestion, end_stream, meet, unix_reset,
};
use crate::ends::{Input, is_dash};
use crate::failure::{Failure, Result, UsageError};
use crate::output::{self, ProgressMeter};
use crate::signals;
use underpass_receipt::{EndKind, Receipt, TlsReceipt};

/// Sends the stream.
pub(crate) fn run(args: &SendArgs) -> Result<()> {
    let show = args.movement.show;
    check_congestion(&args.stream.congestion)?;
    let (to, listen) = (args.to.as_ref(), args.listen.as_ref());
    let no_transfer = |failure: &Failure| output::print_no_transfer(show, failure);
    let policy = args.movement.engine.policy();
    let tls = args.tls.choose(to, listen, policy).inspect_err(no_transfer)?;
    let cancel = signals::cancel_flag();
    let is_fifo = || std::fs::metadata(&args.file).is_ok_and(|it| it.file_type().is_fifo());
    if args.range.is_some() && !is_dash(&args.file) && is_fifo() {
        // Opening it would wait for a writer.
        return Err(RangeError::NoSize(args.file.clone()).into());
    }
    let input = Input::open(&args.file, cancel).inspect_err(no_transfer)?;
    select(&input, args.range).inspect_err(no_transfer)?;
    let timeout = args.stream.timeout;
    let connect = || {
        let pin = tls.as_ref().and_then(StreamTls::pin);
        // From its beginning until all is sent, even a SIGKILL resets the connection.
        let stream = meet(to, listen, pin, timeout, cancel)?;
        let congestion = choose_congestion(&stream, &args.stream.congestion)?;
        let session = tls.as_ref().map(|tls| tls.handshake(&stream, timeout, cancel));
        Ok((congestion, session.transpose()?, stream))
    };
    let (congestion, session, stream) = connect().inspect_err(no_transfer)?;
    // The receiver may have been awaited for long.
    let (source, skipped) = select(&input, args.range).inspect_err(no_transfer)?;
    let kind = EndKind::from(source.kind());
    let line = Line { stream: &stream, session: session.as_ref(), cancel, timeout };

    let meter = ProgressMeter::new(show, &output::short_path(input.path()));
    let options = args.stream.apply(args.movement.options()).cancel(cancel);
    let options = meter.watch(options);
    let options = match &session {
        Some(session) => options.sink_tls(session),
        None => options,
    };
    let started = Instant::now();
    let what = format!("sending {} to {}", input.path().display(), stream.peer());
    let outcome = Transfer::new(source, Sink::socket(&stream))
        .options(options)
        .run()
        .and_then(|report| line.deliver(report));
    let elapsed_s = started.elapsed().as_secs_f64();
    let outcome = outcome.and_then(|report| line.end(report));
    meter.clear();

    let tls = session.as_ref().map(|session| TlsReceipt::from(session.facts()));
    let complete =
        |receipt: Receipt| Receipt { congestion, tls, ..receipt.between(kind, EndKind::Socket) };
    let report = match outcome {
        Ok(report) => report,
        Err(error) => return Err(Failure::transfer(what, error, show).with_receipt(complete)),
    };
    input.finish(skipped + report.bytes());
    output::finished(show, &Receipt { elapsed_s, ..complete(Receipt::from(&report)) });
    Ok(())
}

/// Returns the part of the input that is to be sent, and how many bytes are skipped before it.
fn select(input: &Input, range: Option<ByteRange>) -> Result<(Source<&File>, u64)> {
    let source = input.source()?;
    let Some(range) = range else { return Ok((source, 0)) };
    let name = || input.path().to_owned();
    let size = source.promised().ok_or_else(|| RangeError::NoSize(name()))?;
    let part = range.within(size).ok_or_else(|| RangeError::Outside { name: name(), size });
    let (skipped, len) = part?;
    let begin = source.offset().unwrap_or(0) + skipped;
    Ok((source.at(begin).len(len), skipped))
}

/// The reason why a range cannot be sent.
#[derive(Debug, thiserror::Error)]
enum RangeError {
    #[error("--range needs a file with a size, not {}", .0.display())]
    NoSize(PathBuf),
    #[error("--range lies outside of {}, which has {size} bytes", .name.display())]
    Outside { name: PathBuf, size: u64 },
}

impl UsageError for RangeError {}

/// A stream with everything that its end depends on.
struct Line<'l> {
    stream: &'l Stream,
    session: Option<&'l Session>,
    cancel: &'l AtomicBool,
    timeout: Option<Duration>,
}

impl Line<'_> {
    /// Ends the stream and waits until the peer's kernel has every byte: only then nothing is
    /// referenced any more, and nothing can be lost when this process exits.
    fn deliver(&self, report: Report) -> std::result::Result<Report, Error> {
        let Self { stream, cancel, timeout, .. } = *self;
        let failed = |source| failed(&report, source);
        if let Some(session) = self.session {
            let ended = end_stream(session, stream, cancel, timeout);
            ended.map_err(|errno| failed(errno.into()))?;
        }
        stream.finish().map_err(failed)?;
        let mut left = u64::MAX;
        let mut last_progress = Instant::now();
        let mut moment = MIN_PAUSE;
        loop {
            let now = socket::unacknowledged(stream).map_err(failed)?;
            if now == 0 {
                break;
            }
            if now < left {
                (left, last_progress) = (now, Instant::now());
            }
            if cancel.load(Ordering::Relaxed) {
                return Err(Error::Cancelled { report: Box::new(report) });
            }
            if let Some(timeout) = timeout.filter(|timeout| last_progress.elapsed() >= *timeout) {
                return Err(Error::Stalled { timeout, report: Box::new(report) });
            }
            wait_a_moment(stream, moment).map_err(|errno| failed(errno.into()))?;
            moment = (moment * 2).min(MAX_PAUSE);
        }
        Ok(report)
    }

    /// Waits a moment for the end of the receiver, which resets the connection if it cannot finish
    /// its file.
    fn end(&self, report: Report) -> std::result::Result<Report, Error> {
        let Self { stream, cancel, timeout, .. } = *self;
        let failed = |source| failed(&report, source);
        if let Stream::Tcp(socket) = stream {
            // One that keeps the connection open has every byte all the same.
            let limits = Limits::since(Instant::now(), Some(MAX_END_WAIT), Some(cancel));
            let _ = limits.until_ready(socket, PollFlags::RDHUP);
        }
        // A peer that disconnected without reading causes this error now.
        if let Ok(Err(errno)) = sockopt::socket_error(stream.as_fd()) {
            return Err(failed(errno.into()));
        }
        // Unread bytes, such as tickets of TLS, would reset the connection when it is closed.
        if let Some(session) = self.session {
            let _ = session.peek(stream.as_fd());
        }
        let limits = Limits::since(Instant::now(), timeout, Some(cancel));
        unix_reset::confirm(stream, limits).map_err(|errno| failed(errno.into()))?;
        let _ = socket::disarm_reset(stream);
        Ok(report)
    }
}

fn failed(report: &Report, source: io::Error) -> Error {
    Error::Io { mechanism: None, source, report: Box::new(report.clone()) }
}

/// Waits for this time, or less if the connection fails.
fn wait_a_moment(stream: &Stream, moment: Duration) -> std::result::Result<(), Errno> {
    let mut end = [PollFd::new(stream, PollFlags::empty())];
    let timeout = Timespec { tv_sec: 0, tv_nsec: moment.subsec_nanos().into() };
    if poll(&mut end, Some(&timeout)) != Ok(0) {
        sockopt::socket_error(stream)?.or(Err(Errno::CONNRESET))?;
        // The peer has closed properly but not yet acknowledged the last bytes.
        std::thread::sleep(moment);
    }
    Ok(())
}

/// The shortest pause: a small file over a fast network is acknowledged immediately.
const MIN_PAUSE: Duration = Duration::from_micros(20);

/// Checking a thousand times a second costs nothing compared to the transfer that is awaited.
const MAX_PAUSE: Duration = Duration::from_millis(1);

/// The maximum wait for the end of a receiver that has all bytes.
const MAX_END_WAIT: Duration = Duration::from_secs(1);
