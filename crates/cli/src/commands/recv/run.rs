//! Receives one stream into a file.

use std::os::fd::AsFd;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use underpass_copy::ends::{OutputTarget, OverwriteRule, is_stdout};
use underpass_engine::wait::{Limits, MIN_RATE};
use underpass_engine::{Error, Integrity, Kind, Report, Source, Transfer};
use underpass_transport::stream::{Stream, acknowledge, expect_confirmation, expect_end};
use underpass_transport::tls::Session;

use super::args::{RecvArgs, RecvError};
use crate::connection::{StreamTls, check_congestion, choose_congestion, meet};
use crate::failure::{Failure, Result};
use crate::output::{self, ProgressMeter};
use crate::signals::{self, opener};
use underpass_engine::Size;
use underpass_receipt::{EndKind, Receipt, TlsReceipt};

/// Receives the stream.
pub(crate) fn run(args: &RecvArgs) -> Result<()> {
    let (from, path) = args.ends()?;
    check_congestion(&args.stream.congestion)?;
    let show = args.movement.show;
    let listen = args.listen.as_ref();
    let no_transfer = |failure: &Failure| output::print_no_transfer(show, failure);
    let policy = args.movement.engine.policy();
    let tls = args.tls.choose(from.as_ref(), listen, policy).inspect_err(no_transfer)?;
    let cancel = signals::cancel_flag();
    if is_stdout(path) && show.json {
        return Err(RecvError::OutputTwice.into());
    }
    if args.movement.integrity != Integrity::Fast && !show.quiet {
        output::note("--integrity guards nothing here: give it to the sender");
    }
    let connect = || {
        let mut target = match (args.append, args.force) {
            (true, _) => OutputTarget::append(path, &opener(cancel))?,
            (_, true) => OutputTarget::create(path, OverwriteRule::Always, &opener(cancel))?,
            _ => OutputTarget::create(path, OverwriteRule::Never, &opener(cancel))?,
        };
        target.reserve(args.size.map_or(0, |Size(bytes)| bytes))?;
        let (pin, timeout) = (tls.as_ref().and_then(StreamTls::pin), args.stream.timeout);
        // If receiving fails, the sender sees a reset.
        let stream = meet(from.as_ref(), listen, pin, timeout, cancel)?;
        expect_confirmation(&stream).map_err(|errno| Failure::Network {
            action: "receiving from",
            address: stream.peer(),
            source: errno.into(),
        })?;
        let congestion = choose_congestion(&stream, &args.stream.congestion)?;
        let session = tls.as_ref().map(|tls| tls.handshake(&stream, timeout, cancel));
        let session = session.transpose()?;
        // The wait for the sender may have been long.
        target.find_end()?;
        Ok((target, congestion, session, stream))
    };
    let (target, congestion, session, stream) = connect().inspect_err(no_transfer)?;
    let meter = ProgressMeter::new(show, &output::short_path(target.path()));
    let kind = target.sink()?.kind().into();
    let started = Instant::now();
    let outcome = receive(args, &stream, session.as_ref(), &target, cancel, &meter);
    meter.clear();
    let tls = session.as_ref().map(|session| TlsReceipt::from(session.facts()));
    let complete =
        |receipt: Receipt| Receipt { congestion, tls, ..receipt.between(EndKind::Socket, kind) };
    let report = match outcome {
        Ok(report) => report,
        Err(failure) => {
            if let Err(uncut) = target.abandon(failure.moved_bytes()) {
                output::problem(&uncut.into());
            }
            return Err(failure.with_receipt(complete));
        }
    };
    let elapsed_s = started.elapsed().as_secs_f64();
    let receipt = Receipt { elapsed_s, ..complete(Receipt::from(&report)) };
    let may_be_empty = args.size.is_some() || !matches!(stream, Stream::Tcp(_));
    let named = name(target, report.bytes(), may_be_empty);
    named.inspect_err(|failed| {
        let error = Some(failed.to_string());
        output::print_json(show, &Receipt { error, ..receipt.clone() });
    })?;
    acknowledge(&stream);
    if let Some(session) = &session {
        session.close(stream.as_fd());
    }
    output::finished(show, &receipt);
    Ok(())
}

fn receive(
    args: &RecvArgs,
    stream: &Stream,
    session: Option<&Session>,
    target: &OutputTarget,
    cancel: &AtomicBool,
    meter: &ProgressMeter,
) -> Result<Report> {
    let what = format!("receiving {} from {}", target.path().display(), stream.peer());
    let source = Source::of(stream).map_err(|source| Failure::Network {
        action: "receiving from",
        address: stream.peer(),
        source,
    })?;
    let source = match args.size {
        Some(Size(size)) => source.len(size),
        None => source,
    };
    let sink = target.sink()?;
    // Output other than a file may be a live stream, in which pauses are normal.
    let is_live = args.size.is_none() && sink.kind() != Kind::Regular;
    let mut stall = args.stream.stall_detector(if is_live { 0 } else { MIN_RATE });
    let options = args.stream.apply(args.movement.options(), &mut stall).cancel(cancel);
    let options = match session {
        Some(session) => options.source_tls(session),
        None => options,
    };
    // The length is not known in advance; a new file has its space reserved already.
    let options = if target.is_appended() { options.reserve() } else { options };
    let outcome = Transfer::new(source, sink).options(meter.watch(options)).run();
    let outcome = match (outcome, args.size) {
        (Ok(report), Some(Size(size))) => {
            let limits = Limits::since(Instant::now(), args.stream.timeout, Some(cancel));
            match expect_end(stream, session, size, limits) {
                Ok(()) => Ok(report),
                Err(source) => Err(Error::Io { mechanism: None, source, report: Box::new(report) }),
            }
        }
        (outcome, _) => outcome,
    };
    outcome.map_err(|error| Failure::transfer(what, error, args.movement.show))
}

/// Gives the file its name. A file that is not empty is not replaced by an empty stream, such as that of a
/// port scan, unless an empty file is expected.
fn name(mut target: OutputTarget, bytes: u64, may_be_empty: bool) -> Result<()> {
    target.look_again()?;
    let path = target.path();
    let has_bytes = || std::fs::metadata(path).is_ok_and(|found| found.len() > 0);
    if bytes == 0 && !may_be_empty && target.keeps_old() && has_bytes() {
        return Err(Failure::line(format!(
            "nothing was received, so {} is left unchanged (--size 0 accepts an empty file)",
            path.display()
        )));
    }
    Ok(target.finish(bytes)?)
}
