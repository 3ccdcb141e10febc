//! A folder as a tar, unpacked by programs that read tars.

use std::fs;
use std::os::unix::fs::symlink;

use crate::rig::noise;
use crate::site::{Site, assert_same, name, tree};

/// The name of a file that is hard on programs: it is not UTF-8, and has a newline.
const ODD: &[u8] = b"\xff\n";

/// A site with a folder `box`, in which a file has an odd name.
pub(super) fn site(programs: &[&str], args: &[&str], odd: &[u8]) -> Option<Site> {
    let site = Site::new(programs, args)?;
    fs::create_dir_all(site.source("box/in a/nother")).unwrap();
    fs::create_dir(site.source("box/empty folder")).unwrap();
    let long = "long ".repeat(45);
    for (at, contents) in [
        (&b"box/empty"[..], vec![]),
        (b"box/in a/noise", noise(5_000_000)),
        (&[b"box/", odd].concat(), vec![1]),
    ] {
        fs::write(site.source(name(at)), contents).unwrap();
    }
    fs::write(site.source("box/in a/nother").join(&long), "long").unwrap();
    symlink("in a/noise", site.source("box/link")).unwrap();
    Some(site)
}

#[test]
fn tar_and_bsdtar_unpack_what_was_in_the_folder() {
    for program in ["tar", "bsdtar"] {
        let Some(site) = site(&["curl", program], &[], ODD) else { continue };
        let script = format!("curl -sS '{}' | {program} -xf -", site.url("box/?archive=tar"));
        site.fetch("sh", &["-c", &script]).succeeded();
        assert!(tree(&site.target("box")) == tree(&site.source("box")), "{program}");
        assert!(fs::read_link(site.target("box/link")).unwrap() == name(b"in a/noise"));
    }
}

#[test]
fn an_archive_that_broke_off_is_resumed() {
    let Some(site) = site(&["curl"], &[], ODD) else { return };
    let url = site.url("box/?archive=tar");
    site.fetch("curl", &["-sS", "-o", "whole", &url]).succeeded();
    let whole = fs::read(site.target("whole")).unwrap();
    fs::write(site.target("part"), &whole[..1_234_567]).unwrap();
    site.fetch("curl", &["-sS", "-C", "-", "-o", "part", &url]).succeeded();
    assert_same(&site.target("part"), &site.target("whole"));
    let pieces = site.fetch("curl", &["-sS", "-r", "1000-1999,3000000-3000999", &url]).succeeded();
    let pieces = pieces.stdout;
    for part in [&whole[1000..2000], &whole[3_000_000..3_001_000]] {
        assert!(pieces.windows(part.len()).any(|window| window == part));
    }
}
