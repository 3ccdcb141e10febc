//! A folder as a zip, read and unpacked by programs that read zips.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::archive;
use crate::rig::{Running, folder, has, noise, piped, underpass};
use crate::site::{Site, assert_same, tree};

/// The same with the times and modes that a zip has.
fn site(programs: &[&str], args: &[&str]) -> Option<Site> {
    let site = archive::site(programs, args, "\u{e4}\u{1f600}".as_bytes())?;
    let modified = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_001);
    let file = fs::File::options().write(true).open(site.source("box/in a/noise")).unwrap();
    file.set_modified(modified).unwrap();
    file.set_permissions(PermissionsExt::from_mode(0o741)).unwrap();
    Some(site)
}

#[test]
fn unzip_and_bsdtar_unpack_what_was_in_the_folder() {
    for (program, args) in [("unzip", &["-q"][..]), ("bsdtar", &["-x", "-f"])] {
        let Some(site) = site(&["curl", program], &[]) else { continue };
        let url = site.url("box/?archive=zip");
        site.fetch("curl", &["-sS", "-o", "box.zip", &url]).succeeded();
        let mut command = site.peer(program, args);
        command.arg("box.zip").env("LC_ALL", "C.UTF-8");
        Running::start(command).finish().succeeded();
        assert!(tree(&site.target("box")) == tree(&site.source("box")), "{program}");
        assert_eq!(fs::read_link(site.target("box/link")).unwrap().to_str(), Some("in a/noise"));
        let facts = |path: std::path::PathBuf| {
            let metadata = fs::metadata(path).unwrap();
            (metadata.modified().unwrap(), metadata.permissions().mode())
        };
        let noise = "box/in a/noise";
        assert_eq!(facts(site.target(noise)), facts(site.source(noise)), "{program}");
    }
}

#[test]
fn unzip_finds_no_error_and_bsdtar_every_name() {
    let Some(site) = site(&["curl", "unzip", "bsdtar"], &[]) else { return };
    let url = site.url("box/?archive=zip");
    site.fetch("curl", &["-sS", "-o", "box.zip", &url]).succeeded();
    let tested = site.fetch("unzip", &["-t", "box.zip"]).succeeded().text();
    assert!(tested.contains("No errors detected"), "{tested}");
    let names = site.fetch("bsdtar", &["-tf", "box.zip"]).succeeded().text();
    assert_eq!(names.lines().count(), tree(&site.source("box")).len() + 1, "{names}");
    // Without a file to seek in, it goes by the local headers.
    let script = format!("curl -sS '{url}' | bsdtar -xf -");
    site.fetch("sh", &["-c", &script]).succeeded();
    assert_same(&site.target("box/in a/noise"), &site.source("box/in a/noise"));
}

#[test]
fn python_reads_names_times_modes_and_contents() {
    let Some(site) = site(&["curl", "python3"], &[]) else { return };
    let url = site.url("box/?archive=zip");
    site.fetch("curl", &["-sS", "-o", "box.zip", &url]).succeeded();
    let script = "
import zipfile
box = zipfile.ZipFile('box.zip')
assert box.testzip() is None
noise = box.getinfo('box/in a/noise')
print(noise.date_time, oct(noise.external_attr >> 16), noise.file_size)
print('box/\u{e4}\u{1f600}' in box.namelist(), box.read('box/link').decode())
print([info.filename for info in box.infolist() if info.is_dir()])
";
    let read = site.fetch("python3", &["-c", script]).succeeded().text();
    let expected = "(2001, 9, 9, 1, 46, 40) 0o100741 5000000\nTrue in a/noise\n\
        ['box/', 'box/empty folder/', 'box/in a/', 'box/in a/nother/']\n";
    assert_eq!(read, expected);
}

#[test]
fn a_member_of_more_than_4_gib_is_read_by_python() {
    let Some(site) = Site::new(&["curl", "python3"], &[]) else { return };
    fs::create_dir(site.source("box")).unwrap();
    let len = (4 << 30) + 5;
    fs::File::create(site.source("box/a")).unwrap().set_len(len).unwrap();
    fs::write(site.source("box/b"), "behind it").unwrap();
    // All that is between these two ranges is zeros.
    let url = site.url("box/?archive=zip");
    for (range, name) in [("0-999", "head"), ("-1000", "tail")] {
        site.fetch("curl", &["-sS", "-r", range, "-o", name, &url]).succeeded();
    }
    let len = site.get_head("box/?archive=zip", "content-length");
    let script = format!(
        "
import zipfile
with open('box.zip', 'wb') as out:
    out.write(open('head', 'rb').read())
    out.seek({len} - 1000)
    out.write(open('tail', 'rb').read())
box = zipfile.ZipFile('box.zip')
print(box.testzip(), [info.file_size for info in box.infolist()], box.read('box/b'))
"
    );
    let read = site.fetch("python3", &["-c", &script]).succeeded().text();
    assert_eq!(read, "None [0, 4294967301, 9] b'behind it'\n");
}

#[test]
fn a_zip_that_broke_off_is_resumed() {
    let Some(site) = site(&["curl"], &[]) else { return };
    let url = site.url("box/?archive=zip");
    let script = format!("curl -sS '{url}' | head -c 1234567 > part");
    site.fetch("sh", &["-c", &script]);
    site.fetch("curl", &["-sS", "-C", "-", "-o", "part", &url]).succeeded();
    site.fetch("curl", &["-sS", "-o", "whole", &url]).succeeded();
    assert_same(&site.target("part"), &site.target("whole"));
    // Nothing is appended to the beginning of another version, once the server knows of that.
    let failures = || {
        let page = site.fetch("curl", &["-sS", &site.url(".underpass/metrics")]).text();
        let line = page.lines().find(|line| line.starts_with(FAILURES)).map(str::to_owned);
        line.unwrap_or_default()
    };
    let before = failures();
    site.fetch("sh", &["-c", &script]);
    crate::rig::until("the reset is seen", || failures() != before);
    let tag = || site.get_head("box/?archive=zip", "etag");
    let before = tag();
    fs::write(site.source("box/empty"), "not any more").unwrap();
    crate::rig::until("the change is seen", || tag() != before);
    let resumed = site.fetch("curl", &["-sS", "--fail", "-C", "-", "-o", "part", &url]);
    assert!(!resumed.status.success());
    assert_eq!(fs::metadata(site.target("part")).unwrap().len(), 1_234_567);
}

#[test]
fn files_are_sent_by_sendfile_and_read_for_their_checksum_only_once() {
    if !has("strace") || !has("curl") {
        return;
    }
    const LEN: usize = 6_000_000;
    let (served, traced) = (folder(), folder());
    fs::create_dir(served.path().join("box")).unwrap();
    fs::write(served.path().join("box/large-file"), noise(LEN)).unwrap();
    let trace = traced.path().join("trace");
    let mut command = piped("strace");
    // The server is the child, and strace its grandchild.
    // With a file for each thread, no call is split over two lines.
    command.args(["-D", "-ff", "-y", "-qq", "-e", CALLS, "-o"]).arg(&trace);
    command.arg(underpass().get_program()).args(["serve", "--port", "0"]).arg(served.path());
    let server = Running::listening(command);
    let url = format!("{}box/?archive=zip", server.address);
    let mut bytes = Vec::new();
    for _ in 0..2 {
        let got = Command::new("curl").args(["-sS", "--fail", &url]).output().unwrap();
        assert!(got.status.success() && got.stdout.len() > LEN);
        let files = fs::read_dir(traced.path()).unwrap();
        let trace = files.map(|file| fs::read_to_string(file.unwrap().path()).unwrap());
        let trace = trace.collect::<Vec<_>>().concat();
        let sum = |is_meant: fn(&str) -> bool| -> usize {
            let lines = trace.lines().filter(|line| line.contains("/large-file>"));
            let results = lines.filter(|line| is_meant(line)).filter_map(|line| {
                line.rsplit_once(" = ").and_then(|(_, result)| result.parse::<usize>().ok())
            });
            results.sum()
        };
        // What is not in the page cache is brought there by sendfile(2) into /dev/null.
        let sent = sum(|line| line.contains("sendfile(") && !line.contains("/dev/null"));
        let others = sum(|line| !line.contains("sendfile("));
        bytes.push((sent, others));
    }
    assert_eq!(bytes, [(LEN, LEN), (2 * LEN, LEN)]);
    server.signal("TERM");
    server.finish();
}

/// All calls by which bytes of a file could be moved or mapped.
const CALLS: &str = "trace=read,pread64,readv,preadv,preadv2,mmap,splice,sendfile,copy_file_range";

/// The metric of responses that were cut off by their clients.
const FAILURES: &str = "underpass_responses_failed_total{reason=\"reset\"}";
