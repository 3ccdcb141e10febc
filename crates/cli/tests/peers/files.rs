//! One large file.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use serde_json::Value;

use crate::rig::{noise, noise_file};
use crate::site::{Site, assert_same};

/// Large enough for several turns, TCP windows and sixteen segments.
const LEN: usize = 48 << 20;

/// Fetches `file` with this program and compares it; returns how many requests that took.
fn fetch(program: &str, args: &[&str]) -> usize {
    let Some(site) = Site::new(&[program], &[]) else { return 0 };
    let source = noise_file(&site.source("").to_owned(), "file", LEN);
    let url = site.url("file");
    let args: Vec<_> = args.iter().map(|arg| arg.replace("URL", &url)).collect();
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    site.fetch(program, &args).succeeded();
    assert_same(&site.target("file"), &source);
    let log = site.end();
    // The last bytes of a file that was written a moment ago are held back, and copied.
    let copied = |line: &Value| line["mechanisms"]["read_write"].as_u64().unwrap_or(0);
    assert!(log.iter().all(|line| copied(line) <= 3), "{log:?}");
    log.len()
}

#[test]
fn curl_gets_a_large_file() {
    fetch("curl", &["-sSO", "URL"]);
}

#[test]
fn wget_gets_a_large_file() {
    fetch("wget", &["-q", "URL"]);
}

#[test]
fn aria2_gets_a_large_file_in_sixteen_pieces() {
    let requests = fetch("aria2c", &["-q", "-x16", "-s16", "-k1M", "URL"]);
    assert!(requests == 0 || requests >= 16, "{requests}");
}

#[test]
fn lftp_gets_a_large_file_at_once_and_in_pieces() {
    fetch("lftp", &["-c", "get URL"]);
    fetch("lftp", &["-c", "pget -n 4 URL"]);
}

#[test]
fn rclone_gets_a_large_file() {
    let Some(site) = Site::new(&["rclone"], &[]) else { return };
    let source = noise_file(&site.source("").to_owned(), "file", LEN);
    site.fetch("rclone", &["copy", ":http:file", ".", "--http-url", &site.url("")]).succeeded();
    assert_same(&site.target("file"), &source);
}

/// Offsets that do not fit into 31 and 32 bits, in a file of holes with something in it there.
#[test]
fn files_beyond_four_gib_arrive_byte_by_byte() {
    let Some(site) = Site::new(&["curl", "wget"], &[]) else { return };
    let len = (4_u64 << 30) + (1 << 20);
    let places = [0, (1 << 31) - 100, (1 << 32) - 100, len - 200];
    let file = File::create(site.source("file")).unwrap();
    file.set_len(len).unwrap();
    for place in places {
        file.write_all_at(&noise(200), place).unwrap();
    }
    let url = site.url("file");
    let args = ["-sS", "-o", "/dev/null", "-w", "%{size_download}", &url];
    assert_eq!(site.fetch("curl", &args).succeeded().text(), len.to_string());
    for place in places {
        let range = format!("{place}-{}", place + 199);
        let part = site.fetch("curl", &["-sS", "-r", &range, &url]).succeeded();
        assert!(part.stdout == noise(200), "{range}");
    }
    // Existing bytes are not requested.
    let target = File::create(site.target("file")).unwrap();
    target.set_len(len - 200).unwrap();
    site.fetch("wget", &["-q", "-c", &url]).succeeded();
    let mut tail = vec![0; 200];
    File::open(site.target("file")).unwrap().read_exact_at(&mut tail, len - 200).unwrap();
    assert!(tail == noise(200));
    assert_eq!(fs::metadata(site.target("file")).unwrap().len(), len);
}
