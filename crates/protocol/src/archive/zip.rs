//! The records of a zip, after PKWARE's APPNOTE.TXT 6.3.10: the header and the data descriptor of
//! each member, and the directory at the end.
//!
//! Members are stored (method 0). The CRC-32 of a file follows its contents in a data descriptor,
//! whether or not it is known before: the bytes of the archive must not depend on that. Folders,
//! links and empty files have none.
//!
//! Records have fields of four bytes for sizes and offsets; what does not fit is in an extra field
//! (zip64). Times are those of MS-DOS, two seconds each and here in UTC, and Unix times in another
//! extra field.

use super::header::{MemberFacts, MemberType};

/// The maximum length of a path in bytes: its length has 16 bits, and a whole entry should not be
/// longer either.
pub(super) const MAX_PATH: usize = 65_000;

/// The extra bytes at the end of an archive that has a value too large for its field.
pub(super) const END_GROWTH: u64 = 56 + 20;

/// Returns whether the contents of a member are followed by its CRC-32.
pub(super) fn has_descriptor(size: u64) -> bool {
    size > 0
}

/// Returns the length of what [`write_head`] writes.
pub(super) fn head_len(facts: &MemberFacts<'_>) -> u64 {
    let zip64 = if is_large(facts.size) { 4 + 16 } else { 0 };
    let target = target(facts).len();
    (30 + facts.path.len() + zip64 + time_len(facts) + target) as u64
}

/// Writes the header of a member, and the contents of a link.
pub(super) fn write_head(out: &mut Vec<u8>, facts: &MemberFacts<'_>) {
    let target = target(facts);
    let is_large = is_large(facts.size);
    out.extend_from_slice(b"PK\x03\x04");
    push_common(out, facts, is_large);
    if has_descriptor(facts.size) {
        // 4.4.4: the descriptor has the values.
        push32(out, 0);
        let size = if is_large { u32::MAX } else { 0 };
        push32(out, size);
        push32(out, size);
    } else {
        push32(out, crc32fast::hash(target));
        push32(out, target.len() as u32);
        push32(out, target.len() as u32);
    }
    push16(out, facts.path.len() as u16);
    push16(out, (if is_large { 4 + 16 } else { 0 } + time_len(facts)) as u16);
    out.extend_from_slice(facts.path);
    if is_large {
        // 4.3.9.2: it announces that the descriptor has eight bytes for each size.
        push16(out, ZIP64);
        push16(out, 16);
        out.extend_from_slice(&[0; 16]);
    }
    push_time(out, facts);
    out.extend_from_slice(target);
}

/// Returns the length of what [`write_tail`] writes.
pub(super) fn tail_len(size: u64) -> u64 {
    match size {
        0 => 0,
        size if is_large(size) => 24,
        _ => 16,
    }
}

/// Writes the data descriptor of a member (4.3.9).
pub(super) fn write_tail(out: &mut Vec<u8>, size: u64, crc: u32) {
    out.extend_from_slice(b"PK\x07\x08");
    push32(out, crc);
    for _ in ["compressed", "uncompressed"] {
        if is_large(size) {
            push64(out, size);
        } else {
            push32(out, size as u32);
        }
    }
}

/// Returns the length of what [`write_entry`] writes.
pub(super) fn entry_len(facts: &MemberFacts<'_>, start: u64) -> u64 {
    let zip64 = match large_values(facts.size, start).count() {
        0 => 0,
        count => 4 + count * 8,
    };
    (46 + facts.path.len() + zip64 + time_len(facts)) as u64
}

/// Writes the entry of a member in the directory (4.3.12). `start` is the offset of its header.
pub(super) fn write_entry(out: &mut Vec<u8>, facts: &MemberFacts<'_>, start: u64, crc: u32) {
    let target = target(facts);
    let (crc, size) = match facts.kind {
        MemberType::Symlink(_) => (crc32fast::hash(target), target.len() as u64),
        MemberType::File | MemberType::Folder => (crc, facts.size),
    };
    let large: Vec<_> = large_values(size, start).collect();
    out.extend_from_slice(b"PK\x01\x02");
    push16(out, MADE_BY);
    push_common(out, facts, !large.is_empty());
    push32(out, crc);
    push32(out, clamp32(size));
    push32(out, clamp32(size));
    push16(out, facts.path.len() as u16);
    let zip64 = if large.is_empty() { 0 } else { 4 + large.len() * 8 };
    push16(out, (zip64 + time_len(facts)) as u16);
    push16(out, 0); // no comment
    push16(out, 0); // the first disk
    push16(out, 0); // binary data
    push32(out, external_attributes(facts));
    push32(out, clamp32(start));
    out.extend_from_slice(facts.path);
    if !large.is_empty() {
        push16(out, ZIP64);
        push16(out, (large.len() * 8) as u16);
        large.into_iter().for_each(|value| push64(out, value));
    }
    push_time(out, facts);
}

/// Returns the length of what [`write_end`] writes.
pub(super) fn end_len(members: u64, start: u64, len: u64) -> u64 {
    if needs_large_end(members, start, len) { 22 + END_GROWTH } else { 22 }
}

/// Writes the end of the archive (4.3.14 to 4.3.16), whose directory begins at `start` and has this
/// length.
pub(super) fn write_end(out: &mut Vec<u8>, members: u64, start: u64, len: u64) {
    if needs_large_end(members, start, len) {
        out.extend_from_slice(b"PK\x06\x06");
        push64(out, 56 - 12); // the length of the rest of this record
        push16(out, MADE_BY);
        push16(out, NEEDS_ZIP64);
        push32(out, 0); // this disk
        push32(out, 0); // the disk with the directory
        for value in [members, members, len, start] {
            push64(out, value);
        }
        out.extend_from_slice(b"PK\x06\x07");
        push32(out, 0); // the disk with the record above
        push64(out, start + len);
        push32(out, 1); // disks
    }
    out.extend_from_slice(b"PK\x05\x06");
    push16(out, 0);
    push16(out, 0);
    let members = u16::try_from(members).unwrap_or(u16::MAX);
    push16(out, members);
    push16(out, members);
    push32(out, clamp32(len));
    push32(out, clamp32(start));
    push16(out, 0); // no comment
}

/// Writes what both headers of a member have in common: the required version, the flags, the
/// method, and the time.
fn push_common(out: &mut Vec<u8>, facts: &MemberFacts<'_>, is_large: bool) {
    push16(out, if is_large { NEEDS_ZIP64 } else { NEEDS_FOLDERS });
    let mut flags = 0;
    if has_descriptor(facts.size) {
        flags |= HAS_DESCRIPTOR;
    }
    // A name that is not UTF-8 is written as it is; programs read it in their own character set.
    if !facts.path.is_ascii() && std::str::from_utf8(facts.path).is_ok() {
        flags |= IS_UTF8;
    }
    push16(out, flags);
    push16(out, STORED);
    let (date, time) = dos_time(facts.modified.seconds);
    push16(out, time);
    push16(out, date);
}

/// Returns the contents of a link; empty for anything else.
fn target<'a>(facts: &MemberFacts<'a>) -> &'a [u8] {
    match facts.kind {
        MemberType::Symlink(target) => target,
        MemberType::File | MemberType::Folder => b"",
    }
}

/// Returns the mode as Unix has it in the upper half, with the attributes of MS-DOS below.
fn external_attributes(facts: &MemberFacts<'_>) -> u32 {
    let (kind, dos) = match facts.kind {
        MemberType::File => (0o100_000, 0),
        MemberType::Folder => (0o040_000, 0x10),
        MemberType::Symlink(_) => (0o120_000, 0),
    };
    // Permissions without set-user-ID and the like, as in a tar.
    ((kind | facts.mode & 0o777) << 16) | dos
}

/// Returns the length of the extra field with the time.
fn time_len(facts: &MemberFacts<'_>) -> usize {
    if i32::try_from(facts.modified.seconds).is_ok() { 4 + 5 } else { 0 }
}

/// Writes the time as Info-ZIP has it, in whole seconds since 1970.
fn push_time(out: &mut Vec<u8>, facts: &MemberFacts<'_>) {
    if let Ok(seconds) = i32::try_from(facts.modified.seconds) {
        push16(out, TIMES);
        push16(out, 5);
        out.push(1); // the time of modification
        out.extend_from_slice(&seconds.to_le_bytes());
    }
}

/// Returns date and time in the form of MS-DOS, which has the years 1980 to 2107.
fn dos_time(seconds: i64) -> (u16, u16) {
    let seconds = seconds.clamp(FIRST_SECOND, LAST_SECOND);
    let (mut days, second) = (seconds / DAY, seconds % DAY);
    let mut year = 1970_i64;
    let is_leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    while days >= 365 + i64::from(is_leap(year)) {
        days -= 365 + i64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + i64::from(is_leap(year));
    let mut month = 1;
    for len in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if days < len {
            break;
        }
        days -= len;
        month += 1;
    }
    let date = (((year - 1980) as u16) << 9) | (month << 5) | (days as u16 + 1);
    let (hours, minutes) = (second / 3600, second / 60 % 60);
    let time = (hours << 11) | (minutes << 5) | (second % 60 / 2);
    (date, time as u16)
}

/// Returns the values that the four bytes of their field cannot hold, in the order of the extra
/// field: both sizes, the offset.
fn large_values(size: u64, start: u64) -> impl Iterator<Item = u64> {
    [size, size, start].into_iter().filter(|&value| is_large(value))
}

/// Returns whether a value does not fit into four bytes; all ones mean that it does not.
fn is_large(value: u64) -> bool {
    value >= u64::from(u32::MAX)
}

fn needs_large_end(members: u64, start: u64, len: u64) -> bool {
    members >= u64::from(u16::MAX) || is_large(start) || is_large(len)
}

fn clamp32(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

fn push16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn push32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn push64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Bit 3: CRC-32 and sizes follow the contents.
const HAS_DESCRIPTOR: u16 = 1 << 3;

/// Bit 11: the name is UTF-8.
const IS_UTF8: u16 = 1 << 11;

/// The method of members that are not compressed.
const STORED: u16 = 0;

/// Version 2.0 of the format has folders, 4.5 has zip64.
const NEEDS_FOLDERS: u16 = 20;
const NEEDS_ZIP64: u16 = 45;

/// Made on Unix (3), by a program that knows version 4.5: modes are those of Unix.
const MADE_BY: u16 = (3 << 8) | NEEDS_ZIP64;

/// The extra field for large values.
const ZIP64: u16 = 1;

/// The extra field for Unix times, as Info-ZIP defines it.
const TIMES: u16 = 0x5455;

const DAY: i64 = 86_400;

/// The first and the last second that MS-DOS has: 1980-01-01 and the end of 2107.
const FIRST_SECOND: i64 = 315_532_800;
const LAST_SECOND: i64 = 4_354_819_199;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_ms_dos() {
        let fields = |seconds| {
            let (date, time) = dos_time(seconds);
            let date = (1980 + (date >> 9), date >> 5 & 15, date & 31);
            (date, (time >> 11, time >> 5 & 63, (time & 31) * 2))
        };
        // As `date -u -d @N` prints them.
        for (seconds, date, time) in [
            (i64::MIN, (1980, 1, 1), (0, 0, 0)),
            (0, (1980, 1, 1), (0, 0, 0)),
            (951_782_399, (2000, 2, 28), (23, 59, 58)),
            (951_782_400, (2000, 2, 29), (0, 0, 0)),
            (1_700_000_001, (2023, 11, 14), (22, 13, 20)),
            (1_735_689_599, (2024, 12, 31), (23, 59, 58)),
            (4_107_542_400, (2100, 3, 1), (0, 0, 0)),
            (i64::MAX, (2107, 12, 31), (23, 59, 58)),
        ] {
            assert_eq!(fields(seconds), (date, time), "{seconds}");
        }
    }
}
