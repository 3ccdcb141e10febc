//! Programs that find what they need by the layout of files: repositories, and lists of parts.

use std::fs;
use std::process::Command;

use crate::rig::noise;
use crate::site::Site;

#[test]
fn git_clones_a_repository_of_plain_files() {
    let Some(site) = Site::new(&["git"], &[]) else { return };
    let git = |args: &[&str]| {
        let mut command = Command::new("git");
        command.args(["-c", "user.name=n", "-c", "user.email=n@example.org"]);
        assert!(command.args(args).current_dir(site.source("")).status().unwrap().success());
    };
    git(&["init", "-q", "work"]);
    fs::write(site.source("work/file"), "text").unwrap();
    git(&["-C", "work", "add", "file"]);
    git(&["-C", "work", "commit", "-q", "-m", "first"]);
    git(&["clone", "-q", "--bare", "work", "project.git"]);
    git(&["-C", "project.git", "update-server-info"]);
    site.fetch("git", &["clone", "-q", &site.url("project.git"), "got"]).succeeded();
    assert_eq!(fs::read_to_string(site.target("got/file")).unwrap(), "text");
}

#[test]
fn axel_and_wget2_get_a_file_in_parts() {
    let Some(site) = Site::new(&["axel", "wget2"], &[]) else { return };
    let bytes = noise(5_000_000);
    fs::write(site.source("large"), &bytes).unwrap();
    let url = site.url("large");
    site.fetch("axel", &["-q", "-n", "4", "-o", "by-axel", &url]).succeeded();
    assert!(fs::read(site.target("by-axel")).unwrap() == bytes);
    // The download is resumed.
    fs::write(site.target("large"), &bytes[..2_000_000]).unwrap();
    site.fetch("wget2", &["-q", "-c", &url]).succeeded();
    assert!(fs::read(site.target("large")).unwrap() == bytes);
}

#[test]
fn zsync_gets_what_an_older_version_lacks() {
    let Some(site) = Site::new(&["zsync", "zsyncmake"], &[]) else { return };
    let mut bytes = noise(3_000_000);
    fs::write(site.target("older"), &bytes).unwrap();
    bytes[1_500_000..1_500_100].fill(b'n');
    fs::write(site.source("image"), &bytes).unwrap();
    let made = Command::new("zsyncmake")
        .args(["-u", &site.url("image"), "-o", "image.zsync", "image"])
        .current_dir(site.source(""))
        .status();
    assert!(made.unwrap().success());
    let args = ["-q", "-i", "older", "-o", "image", &site.url("image.zsync")];
    site.fetch("zsync", &args).succeeded();
    assert!(fs::read(site.target("image")).unwrap() == bytes);
}
