//! A peer can make the receiving half hold only a limited amount of memory.

use std::io::Write;
use std::os::unix::net::UnixStream;

use super::*;

#[test]
fn a_single_byte_of_a_long_body_uses_one_step_of_memory() {
    let (near, mut far) = UnixStream::pair().expect("a pair");
    let mut incoming = Incoming::new(near, Vec::new(), Some(Duration::from_secs(20)), None);
    for count in 1..=3 {
        far.write_all(b"x").expect("written");
        assert_eq!(incoming.read(256 << 20).expect("a byte"), 1);
        assert_eq!(incoming.ahead.len(), count);
        assert!(incoming.ahead.capacity() <= 4 * EAGER, "{}", incoming.ahead.capacity());
    }
    drop(far);
    assert!(matches!(incoming.exactly(256 << 20), Err(ReceiveError::Ended)));
}

#[test]
fn a_body_of_many_steps_is_read_whole() {
    let (near, mut far) = UnixStream::pair().expect("a pair");
    let body: Vec<u8> = (0..1_000_003_u32).map(|at| (at % 251) as u8).collect();
    let sent = body.clone();
    let writer = std::thread::spawn(move || far.write_all(&sent));
    let mut incoming = Incoming::new(near, Vec::new(), Some(Duration::from_secs(20)), None);
    let read = incoming.memory(BodyFraming::Length(body.len() as u64), 2 << 20);
    assert!(read.expect("the body") == body);
    writer.join().expect("a writer").expect("written");
}
