//! Features of a machine besides the mechanisms.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::Write;

use rustix::io::Errno;
use underpass_diagnose::probe;
use underpass_engine::PipePool;

#[test]
fn the_probe_agrees_with_the_settings_of_the_kernel() {
    let setting = |path: &str| fs::read_to_string(path).ok()?.trim().parse::<u32>().ok();
    match (probe::io_uring(), setting("/proc/sys/kernel/io_uring_disabled")) {
        // Still, a filter of system calls may refuse it.
        (made, Some(0)) => assert!(made != Err(Errno::FAULT) && made != Err(Errno::INVAL)),
        (made, Some(2)) => assert_eq!(made, Err(Errno::PERM)),
        (made, _) => assert!(made != Err(Errno::FAULT), "{made:?}"),
    }
    match probe::landlock() {
        Ok(version) => assert!((1..100).contains(&version), "{version}"),
        Err(errno) => assert!([Errno::NOSYS, Errno::OPNOTSUPP].contains(&errno), "{errno:?}"),
    }
    let most = setting("/proc/sys/fs/pipe-max-size").map_or(usize::MAX, |most| most as usize);
    let capacity = PipePool::capacity().unwrap();
    assert!((4096..=most.min(1 << 20)).contains(&capacity), "{capacity}");
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&[7; LEN]).unwrap();
    match probe::cached(&file, 0, LEN as u64) {
        Ok(bytes) => assert!((1..=LEN as u64).contains(&bytes), "{bytes}"),
        Err(errno) => assert!([Errno::NOSYS, Errno::PERM].contains(&errno), "{errno:?}"),
    }
}

const LEN: usize = 25 << 12;
