//! Servers that send without end: the memory of the program stays bounded.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use underpass_testkit::http::{Request, close, serve_until_exit, write_head};

use crate::rig::{Running, folder, tar_header, underpass};

/// Serves an archive in which the same folders come again and again, `count` members in all.
fn serve_folders(count: usize) -> String {
    let url = serve_until_exit(move |request, stream| {
        answer(request, stream, count)?;
        close()
    });
    format!("{url}x/")
}

fn answer(request: &Request, stream: &mut TcpStream, count: usize) -> std::io::Result<()> {
    let len = count * 512 + 1024;
    write_head(
        stream,
        &format!(
            "HTTP/1.1 200 OK\nContent-Type: application/x-tar\nContent-Length: {len}\n\
             ETag: \"e\"\nConnection: close\n\n"
        ),
    )?;
    if request.method == "HEAD" {
        return Ok(());
    }
    let names = [[b'a'; 95], [b'b'; 95]].map(|name| tar_header(&name, b'5'));
    let many: Vec<u8> = names.iter().cycle().take(256).flatten().copied().collect();
    for begin in (0..count).step_by(256) {
        stream.write_all(&many[..(count - begin).min(256) * 512])?;
    }
    stream.write_all(&[0; 1024])
}

/// The peak memory of a command in KiB, and the size of its journal.
fn memory(place: &Path, url: &str) -> (u64, u64) {
    let mut command: Command = underpass();
    command.args(["get", "-r", "-q", url]).current_dir(place);
    let mut running = Running::start(command);
    let (mut most, mut kept) = (0, 0);
    while running.child.try_wait().unwrap().is_none() {
        most = running.peak_kib().unwrap_or(most);
        for entry in fs::read_dir(place).unwrap().flatten() {
            let facts = entry.metadata().ok().filter(|facts| facts.is_file());
            kept = kept.max(facts.map_or(0, |facts| facts.len()));
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    running.finish().succeeded();
    (most, kept)
}

#[test]
fn a_folder_that_is_repeated_without_end_takes_no_memory() {
    let place = folder();
    let (few, _) = memory(place.path(), &serve_folders(2_000));
    let again = folder();
    let (many, kept) = memory(again.path(), &serve_folders(60_000));
    assert!(few > 0 && many < few + (6 << 10), "{few} KiB for few, {many} KiB for many");
    assert!(kept < 64 << 10, "{kept} bytes in the journal");
    assert_eq!(fs::read_dir(again.path().join("x")).unwrap().count(), 2);
}
