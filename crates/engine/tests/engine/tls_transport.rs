//! TLS at an end of a transfer, as far as the engine is concerned: transports without cryptography
//! stand in for the real ones of `underpass-server`.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::Duration;

use crate::rig::ends::{
    Drain, From, Supply, To, file_with, movers, pattern, set_nonblocking, small_tcp_pair, tcp_pair,
};
use crate::rig::injection::{Call, refusing};
use crate::rig::toys::{KernelToy, Toy, bytes_of, records_of};
use proptest::prelude::*;
use rustix::io::Errno;
use rustix::net::sockopt;
use underpass_engine::Mechanism::{Mmap, ReadWrite, Sendfile, Splice};
use underpass_engine::{
    Chain, Confirm, DeclineReason, Declined, Error, Integrity, Mechanism, Options, Policy,
    RecordKind, Report, Sink, Source, Status, TlsTransport, Transfer, Wait,
};

fn to(tls: &dyn TlsTransport) -> Options<'_> {
    Options::default().sink_tls(tls)
}

fn from(tls: &dyn TlsTransport) -> Options<'_> {
    Options::default().source_tls(tls)
}

/// Returns a connection on which the peer sends these bytes and then closes.
fn saying(bytes: Vec<u8>) -> TcpStream {
    let (ours, mut theirs) = tcp_pair();
    thread::spawn(move || theirs.write_all(&bytes));
    ours
}

/// Receives all that was promised, or all up to the end, into a file, and returns its contents.
fn receive(
    socket: &TcpStream,
    promised: Option<u64>,
    options: Options<'_>,
) -> (Result<Report, Error>, Vec<u8>) {
    let file = tempfile::tempfile().unwrap();
    let source = Source::of(socket).unwrap();
    let source = match promised {
        Some(len) => source.len(len),
        None => source,
    };
    let outcome = Transfer::new(source, Sink::of(&file).unwrap()).options(options).run();
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    (outcome, bytes)
}

fn failure(outcome: Result<Report, Error>) -> (Errno, Option<Mechanism>, u64) {
    let Err(Error::Io { source, mechanism, report }) = outcome else { panic!("{outcome:?}") };
    let errno = Errno::from_io_error(&source).unwrap();
    (errno, mechanism, report.bytes())
}

#[test]
fn user_space_tls_uses_read_and_write() {
    let (file, tls) = (Supply::new(From::File, 300_000), Toy::straight());
    let drain = Drain::new(To::Tcp);
    let chain = Chain::new().bytes(&b"head"[..]).source(file.source()).source(file.source());
    let report = Transfer::new(chain, drain.sink()).options(to(&tls)).run().unwrap();
    let declined: Vec<_> = report.declined().iter().map(|d| (d.what, d.reason, d.times)).collect();
    let by_all = [Sendfile, Splice, Mmap]
        .map(|mechanism| (Declined::Mechanism(mechanism), DeclineReason::UserSpaceTls, 2));
    assert_eq!(declined, by_all);
    assert_eq!(report.declined()[0].reason.name(), "user_space_tls");
    assert_eq!(movers(&report), [ReadWrite]);
    assert_eq!(report.user_space_bytes(), 4 * 300_000);
    assert_eq!(report.by(Sendfile).calls + report.by(Splice).calls + report.by(Mmap).calls, 0);
    let got = bytes_of(&drain.finish(0).unwrap());
    assert!(got == [b"head", &file.bytes[..], &file.bytes[..]].concat());
}

#[test]
fn a_required_mechanism_is_declined_before_anything_is_sent() {
    for mechanism in [Sendfile, Splice, Mmap] {
        let (file, tls) = (Supply::new(From::File, 10_000), Toy::straight());
        let drain = Drain::new(To::Tcp);
        let options = to(&tls).policy(Policy::Require(mechanism));
        let outcome = Transfer::new(file.source(), drain.sink()).options(options).run();
        let Err(Error::Declined { mechanism: by, reason, report }) = outcome else {
            panic!("{outcome:?}")
        };
        assert_eq!((by, reason), (mechanism, DeclineReason::UserSpaceTls));
        assert_eq!((report.bytes(), report.calls()), (0, 0));
        assert_eq!(drain.finish(0).unwrap(), []);
    }
}

#[test]
fn a_transfer_is_not_done_before_the_socket_has_everything() {
    // More than the socket holds, though the transport accepts it at once.
    let (ours, mut theirs) = small_tcp_pair();
    set_nonblocking(&ours);
    let (file, tls) = (file_with(&pattern(50_000)), Toy::straight());
    let mut transfer = Transfer::new(Source::of(&file).unwrap(), Sink::of(&ours).unwrap());
    transfer = transfer.options(to(&tls));
    assert_eq!(transfer.advance().unwrap(), Status::Waiting(Wait::Sink));
    assert_eq!(transfer.report().bytes(), 50_000);
    assert!(tls.pending() > 0);
    let reader = thread::spawn(move || {
        let mut got = Vec::new();
        theirs.read_to_end(&mut got).unwrap();
        got
    });
    while transfer.advance().unwrap() != Status::Done {
        assert!(tls.pending() > 0, "it waits for nothing");
        thread::sleep(Duration::from_micros(50));
    }
    assert_eq!(tls.pending(), 0);
    drop(ours);
    assert!(bytes_of(&reader.join().unwrap()) == pattern(50_000));
}

#[test]
fn the_peer_gets_what_there_is_while_the_source_rests() {
    let (read_end, mut write_end) = std::io::pipe().unwrap();
    let (ours, mut theirs) = tcp_pair();
    let tls = Toy::awkward(7);
    let peer = thread::spawn(move || {
        for message in [pattern(3_000), pattern(500)] {
            write_end.write_all(&message).unwrap();
            let mut got = Vec::new();
            while got.len() < message.len() {
                let mut len = [0; 2];
                theirs.read_exact(&mut len).unwrap();
                let from = got.len();
                got.resize(from + usize::from(u16::from_be_bytes(len)), 0);
                theirs.read_exact(&mut got[from..]).unwrap();
            }
            assert_eq!(got.len(), message.len());
        }
    });
    let source = Source::of(&read_end).unwrap();
    let options = to(&tls).timeout(Duration::from_secs(20));
    let report = Transfer::new(source, Sink::of(&ours).unwrap()).options(options).run().unwrap();
    assert_eq!(report.bytes(), 3_500);
    peer.join().unwrap();
}

#[test]
fn only_sockets_written_by_the_kernel_are_corked() {
    let (user, kernel) = (Toy::straight(), KernelToy::default());
    for (tls, is_corked) in [(&user as &dyn TlsTransport, false), (&kernel, true)] {
        let (ours, _theirs) = tcp_pair();
        set_nonblocking(&ours);
        let file = file_with(&pattern(3 << 20));
        let mut transfer = Transfer::new(Source::of(&file).unwrap(), Sink::of(&ours).unwrap());
        transfer = transfer.options(to(tls).turn(1));
        transfer.advance().unwrap();
        assert_eq!(sockopt::tcp_cork(&ours), Ok(is_corked), "{tls:?}");
    }
}

/// Sends a file to a peer that reads nothing, up to where the transfer waits or ends.
fn send_to_nobody<'a>(
    ends: (&'a File, &'a TcpStream),
    tls: &'a dyn TlsTransport,
    confirm: Confirm,
    change: impl FnOnce(),
) -> Result<Status, Error> {
    set_nonblocking(ends.1);
    // The test has the file open for writing, but is known not to write now.
    let source = Source::of(ends.0).unwrap().stable();
    let mut transfer = Transfer::new(source, Sink::of(ends.1).unwrap());
    let options = to(tls).integrity(Integrity::Detect).confirm(confirm).turn(4_000).step(1_000);
    transfer = transfer.options(options);
    assert_eq!(transfer.advance().unwrap(), Status::Yielded);
    change();
    loop {
        match transfer.advance()? {
            Status::Yielded => {}
            status => return Ok(status),
        }
    }
}

#[test]
fn a_changed_file_is_never_whole_for_the_peer_of_tls() {
    for confirm in [Confirm::BeforeEnd, Confirm::BeforeCopiedEnd] {
        let (file, tls) = (file_with(&pattern(20_000)), Toy::straight());
        let (ours, mut theirs) = tcp_pair();
        let change = || file.write_all_at(b"other", 15_000).unwrap();
        let outcome = send_to_nobody((&file, &ours), &tls, confirm, change);
        let Err(Error::SourceChanged { report, .. }) = outcome else { panic!("{outcome:?}") };
        assert!(report.bytes() < 20_000, "{}", report.bytes());
        drop(ours);
        let mut got = Vec::new();
        assert!(theirs.read_to_end(&mut got).is_err(), "a clean end after {} bytes", got.len());
    }
}

#[test]
fn copies_need_no_acknowledgement_and_pages_do() {
    let (user, kernel) = (Toy::straight(), KernelToy::default());
    let card = KernelToy::by_reference();
    for confirm in [Confirm::BeforeEnd, Confirm::BeforeCopiedEnd, Confirm::Delivered] {
        for (tls, expected) in [
            (&user as &dyn TlsTransport, Status::Done),
            (&kernel, Status::Done),
            (&card, Status::Waiting(Wait::Acknowledgement)),
        ] {
            let file = file_with(&pattern(20_000));
            let (ours, _theirs) = tcp_pair();
            let status = send_to_nobody((&file, &ours), tls, confirm, || {}).unwrap();
            assert_eq!(status, expected, "{confirm:?} {tls:?}");
        }
    }
}

#[test]
fn the_kernel_moves_the_bytes_where_it_encrypts_them() {
    let (file, tls) = (Supply::new(From::File, 300_000), KernelToy::default());
    let drain = Drain::new(To::Tcp);
    let chain = Chain::new().bytes(&b"head"[..]).source(file.source());
    let options = to(&tls).step(100_000);
    let report = Transfer::new(chain, drain.sink()).options(options).run().unwrap();
    assert_eq!((movers(&report), report.user_space_bytes()), (vec![Sendfile], 0));
    assert_eq!(report.declined(), []);
    let taken = tls.taken();
    assert_eq!((taken[0], taken.iter().sum::<usize>()), (4, 300_004), "{taken:?}");
    assert_eq!(taken.len() as u64, report.calls() - report.waits());
    assert!(drain.finish(0).unwrap() == [b"head", &file.bytes[..]].concat());
}

#[test]
fn a_key_at_its_limit_ends_the_connection_with_its_bytes_counted() {
    let (file, tls) = (Supply::new(From::File, 300_000), KernelToy::worn_after(150_000));
    let drain = Drain::new(To::Tcp);
    let options = to(&tls).step(100_000);
    let outcome = Transfer::new(file.source(), drain.sink()).options(options).run();
    let (errno, mechanism, bytes) = failure(outcome);
    assert_eq!((errno, mechanism), (Errno::KEYEXPIRED, Some(Sendfile)));
    assert_eq!(bytes, tls.taken().iter().sum::<usize>() as u64);
}

#[test]
fn only_close_notify_ends_a_stream() {
    let said = KernelToy::with_fronts([
        Ok(RecordKind::Control),
        Ok(RecordKind::Control),
        Ok(RecordKind::End),
    ]);
    let (outcome, bytes) = receive(&saying(pattern(70_000)), None, from(&said));
    let report = outcome.unwrap();
    assert_eq!((movers(&report), report.user_space_bytes()), (vec![Splice], 0));
    assert_eq!((said.asked(), report.declined()), (3, &[][..]));
    assert!(bytes == pattern(70_000));
    for front in [Ok(RecordKind::Data), Err(Errno::CONNABORTED)] {
        let unsaid = KernelToy::with_fronts([front]);
        let (outcome, bytes) = receive(&saying(pattern(70_000)), None, from(&unsaid));
        assert_eq!(failure(outcome), (Errno::CONNABORTED, Some(Splice), 70_000));
        assert!(bytes == pattern(70_000));
    }
    let early = KernelToy::with_fronts([Ok(RecordKind::End)]);
    let (outcome, _) = receive(&saying(pattern(70_000)), Some(70_001), from(&early));
    assert!(matches!(outcome, Err(Error::SourceEnded { expected: 70_001, .. })), "{outcome:?}");
}

#[test]
fn a_refusal_counts_only_if_data_is_at_the_front() {
    for errno in [Errno::INVAL, Errno::IO, Errno::KEYEXPIRED] {
        let tls = KernelToy::with_fronts([Ok(RecordKind::Control), Err(Errno::BADMSG)]);
        let socket = saying(pattern(10));
        let refused = u32::try_from(errno.raw_os_error()).unwrap();
        let (outcome, _) =
            refusing(Call::SPLICE, refused, || receive(&socket, Some(10), from(&tls)));
        assert_eq!((failure(outcome), tls.asked()), ((Errno::BADMSG, Some(Splice), 0), 2));
    }
    let tls = KernelToy::with_fronts([Ok(RecordKind::Control), Ok(RecordKind::Data)]);
    let socket = saying(pattern(10));
    let invalid = u32::try_from(Errno::INVAL.raw_os_error()).unwrap();
    let (outcome, bytes) =
        refusing(Call::SPLICE, invalid, || receive(&socket, Some(10), from(&tls)));
    let report = outcome.unwrap();
    assert_eq!((movers(&report), report.declined().len()), (vec![ReadWrite], 1));
    assert_eq!((report.declined()[0].times, bytes), (1, pattern(10)));
}

#[test]
fn bytes_after_the_exact_length_stay_in_the_socket() {
    let tls = Toy::straight();
    let socket = saying(records_of(&pattern(50_000), 3, true));
    let (first, bytes) = receive(&socket, Some(20_001), from(&tls));
    assert_eq!((first.unwrap().bytes(), bytes), (20_001, pattern(50_000)[..20_001].to_vec()));
    let (second, bytes) = receive(&socket, None, from(&tls));
    assert_eq!((second.unwrap().bytes(), bytes), (29_999, pattern(50_000)[20_001..].to_vec()));
}

fn any_segment() -> impl Strategy<Value = (Option<From>, usize)> {
    let kinds = vec![From::File, From::Range, From::Memfd, From::Pipe, From::Tcp, From::Procfs];
    let kind = prop_oneof![Just(None), prop::sample::select(kinds).prop_map(Some)];
    (kind, prop_oneof![1 => 0..3_usize, 4 => 0..30_000_usize])
}

fn any_policy() -> impl Strategy<Value = Policy> {
    let preferred = prop::sample::select(Mechanism::ALL.to_vec()).prop_map(Policy::Prefer);
    prop_oneof![Just(Policy::Auto), Just(Policy::Require(ReadWrite)), preferred]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 150,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_chain_passes_through_an_awkward_transport(
        segments in prop::collection::vec(any_segment(), 0..6),
        policy in any_policy(),
        step in prop_oneof![1 => 1..300_usize, 9 => 300..30_000_usize],
        turn in 1..100_000_u64,
        seed in any::<u64>(),
        is_slow in any::<bool>(),
        integrity in prop::sample::select(vec![Integrity::Fast, Integrity::Detect]),
        confirm in prop::sample::select(vec![Confirm::Delivered, Confirm::BeforeCopiedEnd]),
    ) {
        let supplies: Vec<_> = segments
            .iter()
            .map(|(kind, len)| kind.map_or_else(|| Err(pattern(*len)), |k| Ok(Supply::new(k, *len))))
            .collect();
        let chain: Chain<BorrowedFd<'_>> =
            supplies.iter().fold(Chain::new(), |chain, supply| match supply {
                Ok(supply) => chain.source(supply.source()),
                Err(bytes) => chain.bytes(bytes.clone()),
            });
        let expected: Vec<u8> = supplies
            .iter()
            .flat_map(|supply| supply.as_ref().map_or_else(|bytes| bytes, |supply| &supply.bytes))
            .copied()
            .collect();
        let rest = Duration::from_micros(20);
        let drain = if is_slow { Drain::slow_tcp(rest) } else { Drain::new(To::Tcp) };
        let tls = Toy::awkward(seed);
        let options = to(&tls).policy(policy).step(step).turn(turn);
        let options = options.integrity(integrity).confirm(confirm);
        let report = Transfer::new(chain, drain.sink()).options(options).run().unwrap();
        assert_eq!(report.bytes(), expected.len() as u64);
        assert_eq!(tls.pending(), 0);
        assert!(movers(&report).iter().all(|mover| *mover == ReadWrite), "{report:?}");
        assert!(bytes_of(&drain.finish(0).unwrap()) == expected, "other bytes");
    }

    #[test]
    fn any_stream_passes_through_an_awkward_transport(
        len in 0..60_000_usize,
        cut in prop::option::of(any::<prop::sample::Index>()),
        promised in prop::option::of(0..70_000_u64),
        step in prop_oneof![1 => 1..300_usize, 9 => 300..30_000_usize],
        seed in any::<u64>(),
        policy in any_policy(),
    ) {
        let mut records = records_of(&pattern(len), seed, true);
        if let Some(cut) = cut {
            records.truncate(cut.index(records.len()));
        }
        let tls = Toy::awkward(seed);
        let options = from(&tls).policy(policy).step(step);
        let (outcome, bytes) = receive(&saying(records), promised, options);
        assert!(bytes == pattern(len)[..bytes.len()], "other bytes");
        let enough = promised.is_some_and(|promised| promised <= bytes.len() as u64);
        match outcome {
            Ok(report) => {
                assert_eq!(report.bytes(), bytes.len() as u64);
                assert_eq!(bytes.len() as u64, promised.unwrap_or(len as u64));
                assert_eq!(report.user_space_bytes(), 2 * bytes.len() as u64);
                assert!(enough || cut.is_none(), "a part was taken for the whole");
            }
            Err(Error::SourceEnded { .. }) => assert!(!enough && cut.is_none()),
            Err(error) => {
                assert_eq!(failure(Err(error)).0, Errno::CONNABORTED);
                assert!(!enough && cut.is_some());
            }
        }
    }

    #[test]
    fn bytes_pass_from_tls_to_tls(len in 0..60_000_usize, seed in any::<u64>()) {
        let (near, far) = (Toy::awkward(seed), Toy::awkward(seed / 3));
        let socket = saying(records_of(&pattern(len), seed, true));
        let drain = Drain::new(To::Tcp);
        let options = from(&near).sink_tls(&far);
        let source = Source::of(&socket).unwrap();
        let report = Transfer::new(source, drain.sink()).options(options).run().unwrap();
        assert_eq!(report.bytes(), len as u64);
        assert!(bytes_of(&drain.finish(0).unwrap()) == pattern(len), "other bytes");
    }
}
