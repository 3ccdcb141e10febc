//! Archives that broke off, and what has happened to them until they are resumed.

use std::fs;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use underpass_client::Url;
use underpass_client::tree::TreeOptions;
use underpass_testkit::http::{close, serve_until_exit};
use underpass_testkit::noise;

use crate::hostile::{Outcome, attempt_again, file};

const LEN: usize = 12 << 20;

/// A server of an archive with a large file, which breaks off in it until it is well.
fn broken_off(contents: &[u8], is_well: &Arc<AtomicBool>) -> Url {
    let archive = [file(b"large", contents), vec![0; 1024]].concat();
    let is_well = Arc::clone(is_well);
    let url = serve_until_exit(move |request, stream| {
        let range = request.range(archive.len()).unwrap_or(0..archive.len());
        let (status, len) =
            if range.start > 0 { ("206 Part", range.len()) } else { ("200 OK", archive.len()) };
        let place = format!("bytes {}-{}/{}", range.start, range.end - 1, archive.len());
        let place =
            if range.start > 0 { format!("Content-Range: {place}\r\n") } else { String::new() };
        let fields = format!("ETag: \"e\"\r\nContent-Type: application/x-tar\r\n{place}");
        write!(stream, "HTTP/1.1 {status}\r\n{fields}Content-Length: {len}\r\n\r\n")?;
        if request.method == "HEAD" {
            return Ok(());
        }
        if is_well.load(Ordering::Relaxed) {
            return stream.write_all(&archive[range]);
        }
        stream.write_all(&archive[..LEN / 2])?;
        close()
    });
    Url::parse(&format!("{url}x/")).unwrap()
}

#[test]
fn a_part_that_was_replaced_is_not_resumed() {
    let contents = noise(LEN);
    for (is_replaced, is_old) in [(false, false), (true, false), (false, true), (true, true)] {
        let is_well = Arc::default();
        let url = broken_off(&contents, &is_well);
        let wishes = TreeOptions { retries: 0, ..TreeOptions::default() };
        let Outcome { place, outcome, .. } =
            attempt_again(tempfile::tempdir().unwrap(), &wishes, &url);
        outcome.unwrap_err();
        is_well.store(true, Ordering::Relaxed);
        let part = place.path().join("x.part/.underpass-get.part");
        if is_replaced {
            let other = place.path().join("x.part/other");
            fs::write(&other, vec![7; LEN + 1]).unwrap();
            fs::rename(&other, &part).unwrap();
        }
        if is_old {
            // Older versions noted less.
            let journal = place.path().join("x.part.journal");
            let text = fs::read_to_string(&journal).unwrap();
            let lines = text.lines().filter(|line| !line.starts_with("part "));
            fs::write(&journal, lines.map(|line| format!("{line}\n")).collect::<String>()).unwrap();
        }
        let Outcome { place, outcome, left_out } = attempt_again(place, &wishes, &url);
        let done = outcome.unwrap();
        assert_eq!(left_out, Vec::<String>::new());
        assert_eq!(done.resumed_at > 1 << 20, !is_replaced && !is_old, "{is_replaced} {is_old}");
        assert!(fs::read(place.path().join("x/large")).unwrap() == contents, "other bytes");
    }
}
