//! Parses the input as an archive: parsing must end within its bytes, and no path may lead out of
//! the folder.

use underpass_client::tree::tar::{Decoder, MemberKind, TarEvent};
use underpass_client::tree::{check_target, relative};

/// The initial inputs. A block with a wrong checksum is rejected immediately, so headers get the
/// right one before they are parsed.
pub(crate) const SEEDS: &[&[u8]] = &[
    b"",
    b"a/name\0\0\0\0",
    b"0name\0x0000644\0size\0mtime",
    b"x\x00\x00\x01\x0011 path=a/b\n20 mtime=-1.00000001\n",
];

/// Checks the members of the archive in the input.
pub(crate) fn check(data: &[u8]) {
    let mut archive = data.to_vec();
    archive.resize(data.len().next_multiple_of(512), 0);
    let mut decoder = Decoder::default();
    let mut at = 0;
    loop {
        let needed = decoder.needed();
        assert!(needed > 0 && needed % 512 == 0 && needed <= (1 << 20) + 512);
        let Some(bytes) = archive.get_mut(at..at + needed) else { return };
        // Half of all blocks get a valid checksum.
        if !decoder.is_extended() && bytes[0] % 2 == 0 && bytes.iter().any(|byte| *byte != 0) {
            seal(bytes);
        }
        let Ok(step) = decoder.step(bytes) else { return };
        at += needed;
        match step {
            TarEvent::More => {}
            TarEvent::End => return,
            TarEvent::Member(member) => {
                check_path(&member.path);
                if let MemberKind::Symlink(target) = &member.kind {
                    check_link(&member.path, target);
                }
                assert!(member.mode <= 0o777 && member.modified.tv_nsec < 1_000_000_000);
                assert!(member.padded() >= member.size && member.padded() % 512 == 0);
                assert!(
                    member.kind == MemberKind::File || member.size == 0 || is_other(&member.kind)
                );
                let Ok(padded) = usize::try_from(member.padded()) else { return };
                let Some(end) = at.checked_add(padded) else { return };
                at = end;
            }
        }
    }
}

fn is_other(kind: &MemberKind) -> bool {
    matches!(kind, MemberKind::Other(_))
}

/// Writes the right checksum into a header.
fn seal(block: &mut [u8]) {
    block[148..156].fill(b' ');
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
}

fn check_path(path: &[u8]) {
    let Ok(path) = relative(path) else { return };
    assert!(!path.starts_with(b"/") && !path.contains(&0));
    let mut parts = path.split(|byte| *byte == b'/');
    assert!(path.is_empty() || parts.all(|part| !matches!(part, b"" | b"." | b"..")));
    assert_eq!(relative(&path), Ok(path.clone()));
}

/// An allowed link never leads above the folder, wherever names lead within it.
fn check_link(path: &[u8], target: &[u8]) {
    let Ok(path) = relative(path) else { return };
    if check_target(&path, target).is_err() {
        return;
    }
    let mut depth = path.iter().filter(|byte| **byte == b'/').count();
    for part in target.split(|byte| *byte == b'/') {
        match part {
            b".." => {
                assert!(depth > 0);
                depth -= 1;
            }
            b"" | b"." => {}
            _ => return,
        }
    }
}
