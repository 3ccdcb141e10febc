//! Interrupted downloads that are resumed: with the same file, or with another in its place.

use std::fs;

use crate::rig::{Running, noise, until};
use crate::site::{Site, assert_same};

const LEN: usize = 24 << 20;

/// Programs that resume a download, and the options for it.
const PROGRAMS: [(&str, &[&str]); 3] = [
    ("curl", &["-sS", "-C", "-", "-o", "file"]),
    ("wget", &["-nv", "-c"]),
    ("lftp", &["-c", "get", "-c"]),
];

/// A program after it was killed in the middle of a download.
struct Broken {
    site: Site,
    program: &'static str,
    args: Vec<String>,
}

impl Broken {
    fn off(program: &'static str, args: &[&str]) -> Option<Self> {
        Self::off_after(1 << 20, program, args)
    }

    /// Kills the program after it has this many bytes.
    fn off_after(len: u64, program: &'static str, args: &[&str]) -> Option<Self> {
        // Slowly, so that there is a middle.
        let site = Site::new(&["curl", program], &["--rate", "16M"])?;
        site.replace("file", &noise(LEN));
        let mut args: Vec<_> = args.iter().map(|arg| (*arg).to_owned()).collect();
        args.push(site.url("file"));
        if program == "lftp" {
            args = vec!["-c".to_owned(), args[1..].join(" ")];
        }
        let broken = Self { site, program, args };
        let mut client = Running::start(broken.site.peer(program, &broken.args()));
        until("a part has arrived", || broken.len() > len);
        client.child.kill().unwrap();
        client.finish();
        assert!(broken.len() < LEN as u64, "{program} was too fast");
        broken.site.rest();
        Some(broken)
    }

    fn args(&self) -> Vec<&str> {
        self.args.iter().map(String::as_str).collect()
    }

    /// The number of bytes that the client has.
    fn len(&self) -> u64 {
        fs::metadata(self.site.target("file")).map_or(0, |facts| facts.len())
    }

    /// Resumes the download; returns whether the client reports success.
    fn goes_on(&self) -> bool {
        self.site.fetch(self.program, &self.args()).status.success()
    }
}

#[test]
fn other_clients_resume_a_broken_download() {
    for (program, args) in PROGRAMS {
        let Some(broken) = Broken::off(program, args) else { continue };
        assert!(broken.goes_on(), "{program}");
        assert_same(&broken.site.target("file"), &broken.site.source("file"));
        let log = broken.site.end();
        let resumed: Vec<_> = log.iter().filter(|line| line["status"] == 206).collect();
        assert!(resumed.len() == 1 && resumed[0]["sent"].as_u64() < Some(LEN as u64), "{log:?}");
    }
}

#[test]
fn two_versions_are_never_mixed() {
    let new: Vec<u8> = noise(LEN + 4096).into_iter().map(|byte| !byte).collect();
    for (program, args) in PROGRAMS {
        for len in [LEN + 4096, LEN, 1000] {
            let Some(broken) = Broken::off(program, args) else { continue };
            let part = fs::read(broken.site.target("file")).unwrap();
            broken.site.replace("file", &new[..len]);
            // However often it is tried.
            for _ in 0..2 {
                assert!(!broken.goes_on(), "{program} believes to have all of {len} bytes");
                assert!(fs::read(broken.site.target("file")).unwrap() == part, "{program} {len}");
            }
            fs::remove_file(broken.site.target("file")).unwrap();
            assert!(broken.goes_on(), "{program}");
            assert_same(&broken.site.target("file"), &broken.site.source("file"));
        }
    }
}

#[test]
fn a_file_written_in_place_is_another_version_too() {
    let Some(broken) = Broken::off("curl", PROGRAMS[0].1) else { return };
    fs::write(broken.site.source("file"), vec![1; LEN]).unwrap();
    assert!(!broken.goes_on());
}

#[test]
fn if_range_gets_the_whole_of_a_new_file() {
    let Some(broken) = Broken::off("curl", PROGRAMS[0].1) else { return };
    let tag = broken.site.get_head("file", "etag");
    let url = broken.site.url("file");
    let request = format!("If-Range: {tag}");
    let args = ["-sS", "-H", &request, "-r", "1000-", "-w", "%{http_code}", "-o", "got", &url];
    assert_eq!(broken.site.fetch("curl", &args).succeeded().text(), "206");
    broken.site.replace("file", &noise(5000));
    assert_eq!(broken.site.fetch("curl", &args).succeeded().text(), "200");
    assert_same(&broken.site.target("got"), &broken.site.source("file"));
}

#[test]
fn a_log_that_grows_can_be_followed() {
    let Some(site) = Site::new(&["curl", "wget"], &[]) else { return };
    let (mut log, url) = (noise(1 << 20), site.url("log"));
    for _ in 0..3 {
        fs::write(site.source("log"), &log).unwrap();
        site.fetch("curl", &["-sS", "-C", "-", "-o", "by curl", &url]).succeeded();
        site.fetch("wget", &["-q", "-c", &url]).succeeded();
        assert_same(&site.target("by curl"), &site.source("log"));
        assert_same(&site.target("log"), &site.source("log"));
        log.extend(noise(70_000));
    }
}

/// aria2 keeps a record of its pieces, and looks at the length alone. It asks for the whole file
/// before it asks for a piece.
#[test]
fn aria2_resumes_its_pieces_but_not_those_of_another_version() {
    for connections in ["-x1", "-x4"] {
        let args = ["-q", "-c", connections, "-s4", "-k1M", "--file-allocation=none"];
        let args = [&args[..], &["--auto-save-interval=1"]].concat();
        let Some(broken) = Broken::off("aria2c", &args) else { return };
        assert!(broken.goes_on());
        assert_same(&broken.site.target("file"), &broken.site.source("file"));

        // It has saved by then what it has, after a second.
        let Some(broken) = Broken::off_after(20 << 20, "aria2c", &args) else { return };
        let new: Vec<u8> = noise(LEN).into_iter().map(|byte| !byte).collect();
        broken.site.replace("file", &new);
        // With several parts it may not have saved anything, and then begins anew.
        let is_same = || fs::read(broken.site.target("file")).unwrap() == new;
        assert!(!broken.goes_on() || is_same(), "{connections}");
    }
}
