//! Chains of many segments arrive in order, to the byte, in full packets, beyond 4 GiB, and however
//! few bytes the sink accepts at a time.

use std::fs::File;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use crate::rig::ends;
use crate::rig::ends::{Drain, Supply, To, crossings, file_with, movers, pattern};
use proptest::prelude::*;
use rustix::fs::{MemfdFlags, memfd_create};
use underpass_engine::{Chain, Mechanism, Options, Policy, Report, Sink, Source, Transfer};

/// One segment, with the bytes that it gives.
enum Piece {
    Memory(Vec<u8>),
    Source(Supply),
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Memory(bytes) => bytes,
            Self::Source(supply) => &supply.bytes,
        }
    }

    fn source(kind: ends::From, len: usize) -> Self {
        Self::Source(Supply::new(kind, len))
    }
}

fn chain_of(pieces: &[Piece]) -> Chain<BorrowedFd<'_>> {
    pieces.iter().fold(Chain::new(), |chain, piece| match piece {
        Piece::Memory(bytes) => chain.bytes(bytes.clone()),
        Piece::Source(supply) => chain.source(supply.source()),
    })
}

/// Ten segments of all kinds, whose lengths are multiples of `unit` bytes. Kinds that a mechanism
/// cannot move are replaced by files.
fn ten_segments(unit: usize, mechanism: Option<Mechanism>) -> Vec<Piece> {
    use ends::From;
    let unless = |cannot: &[Mechanism], kind: From| match mechanism {
        Some(mechanism) if cannot.contains(&mechanism) => From::File,
        _ => kind,
    };
    let memfd = unless(&[Mechanism::CopyFileRange], From::Memfd);
    let needs_pages = [Mechanism::CopyFileRange, Mechanism::Mmap, Mechanism::Sendfile];
    let pipe = unless(&needs_pages, From::Pipe);
    vec![
        Piece::Memory(b"a header".to_vec()),
        Piece::source(From::File, 3 * unit + 1),
        Piece::Memory(vec![]),
        Piece::source(From::Range, 0),
        Piece::source(memfd, 7 * unit + 3),
        Piece::source(pipe, 2 * unit + 11),
        Piece::Memory(pattern(5 * unit)),
        Piece::source(From::Range, 40 * unit + 1),
        Piece::source(From::File, 0),
        Piece::Memory(b"a trailer".to_vec()),
    ]
}

/// Moves the pieces, and checks that the sink gets them.
fn deliver(pieces: &[Piece], drain: Drain, options: Options<'_>) -> Report {
    let expected: Vec<u8> = pieces.iter().flat_map(Piece::bytes).copied().collect();
    let report = Transfer::new(chain_of(pieces), drain.sink()).options(options).run().unwrap();
    assert_eq!(report.bytes(), expected.len() as u64);
    assert!(drain.finish(expected.len()).unwrap() == expected, "other bytes");
    report
}

const STEPS: [(usize, usize); 5] =
    [(20, 1), (40, 2), (200, 13), (2_000, 4_099), (2_000, usize::MAX)];

#[test]
fn ten_segments_arrive_by_every_mechanism_at_every_step() {
    let offered = [
        (To::File, &Mechanism::ALL[1..]),
        (To::Pipe, &Mechanism::ALL[2..]),
        (To::Tcp, &Mechanism::ALL[2..]),
    ];
    for (to, mechanisms) in offered {
        for &mechanism in mechanisms {
            for (unit, step) in STEPS {
                let pieces = ten_segments(unit, Some(mechanism));
                let from_sources = (3 + 7 + 2 + 40) * unit as u64 + 1 + 3 + 11 + 1;
                let options = Options::default().policy(Policy::Require(mechanism)).step(step);
                let report = deliver(&pieces, Drain::new(to), options);
                let case = format!("{mechanism} to {to:?}, step {step}");
                assert_eq!(report.by(mechanism).bytes, from_sources, "{case}");
                assert_eq!(report.memory().bytes, 5 * unit as u64 + 17, "{case}");
                let crossed = from_sources * crossings(mechanism);
                assert_eq!(report.user_space_bytes(), crossed, "{case}");
            }
        }
    }
}

#[test]
fn ten_segments_arrive_by_any_mechanism() {
    let policies = Mechanism::ALL.map(Policy::Prefer).into_iter().chain([Policy::Auto]);
    for policy in policies {
        for to in [To::File, To::OddOffset, To::Append, To::Pipe, To::Tcp, To::Unix] {
            for (unit, step) in STEPS {
                let options = Options::default().policy(policy).step(step);
                deliver(&ten_segments(unit, None), Drain::new(to), options);
            }
        }
    }
}

#[test]
fn ten_segments_arrive_through_tiny_buffers() {
    for mechanism in &Mechanism::ALL[2..] {
        let drain = Drain::slow_tcp(Duration::from_micros(100));
        let options = Options::default().policy(Policy::Require(*mechanism));
        let report = deliver(&ten_segments(5_000, Some(*mechanism)), drain, options);
        assert!(report.waits() > 0, "{mechanism} was never held up");
    }
    let drain = Drain::slow_tcp(Duration::from_micros(100));
    let report = deliver(&ten_segments(5_000, None), drain, Options::default());
    assert!(report.waits() > 0);
}

#[test]
fn segments_of_a_chain_share_packets() {
    let policies = Mechanism::ALL[2..].iter().copied().map(Policy::Require);
    for policy in policies.chain([Policy::Auto]) {
        let mut pieces = Vec::new();
        for _ in 0..100 {
            pieces.push(Piece::Memory(pattern(100)));
            pieces.push(Piece::source(ends::From::Range, 333));
        }
        let bytes = 100 * 433;
        let (ours, mut theirs) = tcp_pair_with_small_packets();
        let transfer = Transfer::new(chain_of(&pieces), Sink::of(&ours).unwrap());
        transfer.options(Options::default().policy(policy)).run().unwrap();
        let mut got = vec![0; bytes];
        theirs.read_exact(&mut got).unwrap();
        let packets = packets_sent(&ours);
        let full = bytes.div_ceil(PACKET);
        // Some slack for moments in which the kernel may not wait.
        assert!((full..full + full / 4 + 4).contains(&packets), "{policy:?}: {packets} not {full}");
    }
}

/// Small compared to loopback's 64 KiB, large compared to the segments of a chain.
const PACKET: usize = 1_400;

fn tcp_pair_with_small_packets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let packet = i32::try_from(PACKET + TIMESTAMPS).unwrap();
    // SAFETY: the option's value is an int that lives for the length of the call.
    let outcome = unsafe {
        libc::setsockopt(
            listener.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_MAXSEG,
            std::ptr::from_ref(&packet).cast(),
            4,
        )
    };
    assert_eq!(outcome, 0);
    let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (ours, listener.accept().unwrap().0)
}

/// The bytes of a packet that TCP uses for timestamps, if they are enabled.
const TIMESTAMPS: usize = 12;

/// The number of packets with data that a socket has sent, from `TCP_INFO` (tcp(7)).
fn packets_sent(socket: &TcpStream) -> usize {
    let mut info = std::mem::MaybeUninit::<libc::tcp_info>::zeroed();
    let mut len = libc::socklen_t::try_from(size_of::<libc::tcp_info>()).unwrap();
    // SAFETY: the kernel writes at most `len` bytes, which is the structure's size; all its fields
    // are integers, for which zeros are valid too.
    let (outcome, info) = unsafe {
        let place = info.as_mut_ptr().cast();
        let fd = socket.as_raw_fd();
        let outcome = libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, place, &mut len);
        (outcome, info.assume_init())
    };
    assert_eq!(outcome, 0);
    usize::try_from(info.tcpi_data_segs_out).unwrap()
}

#[test]
fn ranges_across_2_and_4_gib_keep_their_place() {
    const HALF: usize = 100_000;
    let bytes = pattern(2 * HALF);
    for boundary in [1_u64 << 31, 0x7fff_f000, 1 << 32] {
        let at = boundary - HALF as u64;
        let source = file_with(b"");
        source.write_all_at(&bytes, at).unwrap();
        for mechanism in &Mechanism::ALL[1..] {
            for step in [30_011, usize::MAX] {
                let sink = file_with(b"");
                let range = Source::range(&source, at, 2 * HALF as u64);
                // Another offset than in the source, also across the boundary.
                let there = at + 1_234;
                let options = Options::default().policy(Policy::Require(*mechanism)).step(step);
                let report = Transfer::new(range, Sink::of(&sink).unwrap().at(there))
                    .options(options)
                    .run()
                    .unwrap();
                assert_eq!(report.by(*mechanism).bytes, 2 * HALF as u64);
                let mut got = vec![0; 2 * HALF];
                sink.read_exact_at(&mut got, there).unwrap();
                assert!(got == bytes, "{mechanism} across {boundary}, step {step}");
                let len = sink.metadata().unwrap().len();
                assert_eq!(len, there + 2 * HALF as u64, "{mechanism} across {boundary}");
            }
        }
    }
}

#[test]
fn five_gib_are_moved_though_no_call_takes_so_much() {
    const LEN: u64 = 5 << 30;
    // One large hole, which takes neither memory nor disk space.
    let source = File::from(memfd_create("hole", MemfdFlags::CLOEXEC).unwrap());
    source.set_len(LEN).unwrap();
    let sink = File::options().write(true).open("/dev/null").unwrap();
    for mechanism in [Mechanism::Sendfile, Mechanism::Splice] {
        let policy = Policy::Require(mechanism);
        let options = Options::default().policy(policy).step(usize::MAX);
        let ends = (Source::of(&source).unwrap(), Sink::of(&sink).unwrap());
        let report = Transfer::new(ends.0, ends.1).options(options).run().unwrap();
        assert_eq!(report.by(mechanism).bytes, LEN);
        assert!(report.by(mechanism).calls >= LEN.div_ceil(0x7fff_f000));
        assert_eq!(movers(&report), [mechanism]);
    }
}

fn any_piece() -> impl Strategy<Value = (Option<ends::From>, usize)> {
    use ends::From;
    let kinds = [From::File, From::Range, From::Memfd, From::Pipe, From::Unix, From::Zero];
    let kind = prop_oneof![
        Just(None),
        prop::sample::select(kinds.to_vec()).prop_map(Some),
        Just(Some(From::Procfs)),
    ];
    (kind, prop_oneof![1 => 0..3_usize, 4 => 0..20_000_usize])
}

fn any_policy() -> impl Strategy<Value = Policy> {
    let preferred = prop::sample::select(Mechanism::ALL.to_vec()).prop_map(Policy::Prefer);
    prop_oneof![1 => Just(Policy::Auto), 3 => preferred]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_chain_arrives(
        pieces in prop::collection::vec(any_piece(), 0..7),
        to in prop::sample::select(To::ALL[..6].to_vec()),
        policy in any_policy(),
        step in prop_oneof![1 => 1..10_usize, 9 => 10..30_000_usize],
        turn in 1..100_000_u64,
    ) {
        let pieces: Vec<_> = pieces
            .into_iter()
            .map(|(kind, len)| match kind {
                None => Piece::Memory(pattern(len)),
                Some(kind) => Piece::source(kind, len),
            })
            .collect();
        let options = Options::default().policy(policy).step(step).turn(turn);
        deliver(&pieces, Drain::new(to), options);
    }
}
