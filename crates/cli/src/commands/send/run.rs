//! Sends a file or standard input over one stream.

use std::fs::File;
use std::os::unix::fs::FileTypeExt;
use std::path::PathBuf;
use std::time::Instant;

use underpass_copy::ends::{Input, is_dash};
use underpass_engine::wait::MIN_RATE;
use underpass_engine::{Sink, Source, Transfer};
use underpass_transport::stream::Outgoing;

use super::args::SendArgs;
use super::range::ByteRange;
use crate::connection::{StreamTls, check_congestion, choose_congestion, meet};
use crate::failure::{Failure, Result, UsageError};
use crate::output::{self, ProgressMeter};
use crate::signals::{self, opener};
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
        // Opening a FIFO would wait for a writer.
        return Err(RangeError::NoSize(args.file.clone()).into());
    }
    let input =
        Input::open(&args.file, &opener(cancel)).map_err(Failure::from).inspect_err(no_transfer)?;
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
    // The wait for the receiver may have been long.
    let (source, skipped) = select(&input, args.range).inspect_err(no_transfer)?;
    let kind = EndKind::from(source.kind());
    let line = Outgoing { stream: &stream, session: session.as_ref(), cancel, timeout };

    let meter = ProgressMeter::new(show, &output::short_path(input.path()));
    let mut stall = args.stream.stall_detector(MIN_RATE);
    let options = args.stream.apply(args.movement.options(), &mut stall).cancel(cancel);
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
