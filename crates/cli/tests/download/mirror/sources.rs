//! `get --mirror`: one file from several servers.

use std::fs;
use std::path::Path;

use crate::mirror::origin::{Origin, Page};
use crate::mirror::peers::Peer;
use crate::rig::{Finished, Running, folder, names, noise, underpass};

fn get(here: &Path, args: &[&str]) -> Finished {
    let mut command = underpass();
    command.env("HOME", here).env_remove("http_proxy").env_remove("all_proxy");
    command.current_dir(here).arg("get").args(args);
    Running::start(command).finish()
}

const LEN: usize = 40 << 20;

/// The SHA-256 of a file, by the program itself.
fn digest(here: &Path, url: &str) -> String {
    let printed = get(here, &[url, "-o", "digest", "--digest-print", "-q"]).succeeded().text();
    fs::remove_file(here.join("digest")).unwrap();
    format!("sha-256:{}", printed.split(' ').next().unwrap())
}

#[test]
fn parts_come_from_servers_with_the_same_tag_or_a_digest() {
    let (root, here) = (folder(), folder());
    let bytes = noise(LEN);
    fs::write(root.path().join("file"), &bytes).unwrap();
    // The same inode has the same entity tag on both.
    let (one, two) = (Peer::ours(root.path()), Peer::ours(root.path()));
    let urls = [&one, &two].map(|peer| format!("{}file", peer.url));
    // Slowly enough for both to have a part in it.
    get(here.path(), &["--rate", "40M", &urls[0], "--mirror", &urls[1]]).succeeded();
    assert!(fs::read(here.path().join("file")).unwrap() == bytes);
    assert_eq!(names(here.path()), ["file"]);
    for peer in [&one, &two] {
        assert!(!peer.requests().is_empty(), "a server was not asked");
    }
    // A copy has another tag: it is left out, unless the digest is known.
    let copy = folder();
    fs::write(copy.path().join("file"), &bytes).unwrap();
    let other = Peer::ours(copy.path());
    let third = format!("{}file", other.url);
    let said =
        get(here.path(), &["-f", "--rate", "40M", &urls[0], "--mirror", &third]).succeeded().stderr;
    assert!(said.contains(&format!("{third} is left out: it has a different file")), "{said}");
    assert!(fs::read(here.path().join("file")).unwrap() == bytes);
    let right = digest(here.path(), &urls[0]);
    let args = ["-f", "--rate", "40M", &urls[0], "--mirror", &third, "--digest", &right];
    let said = get(here.path(), &args).succeeded().stderr;
    assert!(!said.contains("left out"), "{said}");
    assert!(fs::read(here.path().join("file")).unwrap() == bytes);
    // A server with wrong bytes is detected at any position, and the file is fetched from another.
    let mut wrong = bytes.clone();
    wrong.iter_mut().step_by(4_096).for_each(|byte| *byte ^= 1);
    fs::write(copy.path().join("file"), &wrong).unwrap();
    let said = get(here.path(), &args).succeeded().stderr;
    assert!(said.contains(&format!("{third} is left out: ")), "{said}");
    assert!(said.contains("sha-256"), "{said}");
    for more in [None, Some(&urls[1])] {
        let mut args =
            vec!["-f", "--rate", "40M", &third, "--mirror", &urls[0], "--digest", &right];
        more.inspect(|url| args.extend(["--mirror", url]));
        let said = get(here.path(), &args).succeeded().stderr;
        assert!(said.contains(&format!("{third} is left out: ")), "{said}");
        assert!(fs::read(here.path().join("file")).unwrap() == bytes);
        assert_eq!(names(here.path()), ["file"]);
    }
    // If all of them lie, the old file stays.
    get(here.path(), &["-f", &third, "--mirror", &third, "--digest", &right])
        .failed(1, &["sha-256"]);
    assert!(fs::read(here.path().join("file")).unwrap() == bytes);
    assert_eq!(names(here.path()), ["file"]);
    // One of another length is left out.
    fs::write(copy.path().join("file"), &wrong[1..]).unwrap();
    let said = get(here.path(), &args).succeeded().stderr;
    assert!(said.contains("is left out"), "{said}");
    assert!(fs::read(here.path().join("file")).unwrap() == bytes);
    get(here.path(), &[&urls[0], "x", "--mirror", &third]).failed(2, &["--mirror"]);
}

#[test]
fn the_server_with_wrong_bytes_is_named_among_several() {
    let (root, bad, here) = (folder(), folder(), folder());
    let bytes = noise(LEN);
    fs::write(root.path().join("file"), &bytes).unwrap();
    let mut wrong = bytes.clone();
    wrong.iter_mut().step_by(4_096).for_each(|byte| *byte ^= 1);
    fs::write(bad.path().join("file"), &wrong).unwrap();
    let honest: Vec<_> = (0..3).map(|_| Peer::ours(root.path())).collect();
    let urls: Vec<_> = honest.iter().map(|peer| format!("{}file", peer.url)).collect();
    let liar = Peer::ours(bad.path());
    let liar = format!("{}file", liar.url);
    let right = digest(here.path(), &urls[0]);
    for order in [[&urls[1], &liar, &urls[2]], [&urls[1], &urls[2], &liar]] {
        let mut args = vec!["-f", "--rate", "40M", &urls[0], "--digest", &right];
        order.iter().for_each(|url| args.extend(["--mirror", url]));
        let said = get(here.path(), &args).succeeded().stderr;
        assert!(said.contains(&format!("{liar} is left out: ")), "{said}");
        assert_eq!(said.matches("is left out").count(), 1, "{said}");
        assert!(fs::read(here.path().join("file")).unwrap() == bytes);
    }
}

#[test]
fn a_server_that_fails_is_left_out() {
    let (root, here, origin) = (folder(), folder(), Origin::start());
    let bytes = noise(LEN);
    fs::write(root.path().join("file"), &bytes).unwrap();
    let peer = Peer::ours(root.path());
    let url = format!("{}file", peer.url);
    let right = digest(here.path(), &url);
    let dead = "http://127.0.0.1:1/file".to_owned();
    let missing = origin.url("/none");
    // It ends in the middle, and has no ranges.
    let mut cut = Page::new(&bytes, &["ETag: \"x\""]);
    cut.cut = Some(LEN / 3);
    origin.set("/cut", cut);
    let cut = origin.url("/cut");
    for bad in [&dead, &missing, &cut] {
        for (first, second) in [(&url, bad), (bad, &url)] {
            let args =
                ["-o", "got", "--retries", "0", first, "--mirror", second, "--digest", &right];
            let said = get(here.path(), &args).succeeded().stderr;
            let is_said = said.contains(&format!("{bad} is left out: "));
            assert!(is_said || first == &url, "{bad}: {said}");
            assert!(fs::read(here.path().join("got")).unwrap() == bytes, "{bad}");
            assert_eq!(names(here.path()), ["got"], "{bad}");
            fs::remove_file(here.path().join("got")).unwrap();
        }
    }
    let args = ["-o", "got", "--retries", "0", &dead, "--mirror", &missing];
    get(here.path(), &args).failed(1, &["404"]);
    assert_eq!(names(here.path()), [""; 0]);
}
