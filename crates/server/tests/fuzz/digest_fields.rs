//! Parsed digest fields are written back with the same meaning, and no preference is for nothing.

use underpass_protocol::digest::{
    Digest, parse_digests, parse_wanted, write_digests, write_wanted,
};

/// Where the search begins.
pub(crate) const SEEDS: &[&[u8]] = &[
    b"sha-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:, md5=:AA==:;a=1",
    b"sha-512=:YMAam51Jz/jOATT6/zvHrLVgOYTGFy1d6GJiOHTohq4yP+pgk4vf2aCsyRZOtw8MjkM7iw7yZ/WkppmM44T3\
qg==:",
    b"sha-256=10,\tsha-512=3\nsha-256=0",
    b"sha-256:44aff4ab2d7c3250525675a08f0cfa9591168cffe51791c5f5bbc417c15a6c38",
];

/// The lines of a field.
pub(crate) fn check(data: &[u8]) {
    let lines = || data.split(|byte| *byte == b'\n');
    if let Ok(digests) = parse_digests(lines()) {
        assert!(digests.len() <= 2);
        let written = write_digests(&digests);
        assert_eq!(parse_digests([written.as_bytes()]).as_ref(), Ok(&digests), "{written}");
        for digest in &digests {
            assert_eq!(digest.to_string().parse().as_ref(), Ok(digest));
        }
    }
    let wanted = parse_wanted(lines());
    assert_eq!(parse_wanted([write_wanted(&wanted).as_bytes()]), wanted);
    if let Some(digest) = str::from_utf8(data).ok().and_then(|text| text.parse::<Digest>().ok()) {
        assert_eq!(digest.hex().parse(), Ok(digest));
    }
}
