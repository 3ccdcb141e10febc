//! Trees of very many levels: each request works, or is refused with nothing done.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};

use super::changes_delete::open_site;
use super::rig::{Running, request, wait_until};

/// Creates nested folders, and a file in the last one.
fn make(top: &Path, levels: usize) {
    fs::create_dir(top).unwrap();
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let mut folder = openat(CWD, top, flags, Mode::empty()).unwrap();
    for _ in 0..levels {
        mkdirat(&folder, "d", Mode::RWXU).unwrap();
        folder = openat(&folder, "d", flags, Mode::empty()).unwrap();
    }
    let file = openat(&folder, "file", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR | Mode::WUSR);
    std::io::Write::write_all(&mut File::from(file.unwrap()), b"bottom").unwrap();
}

/// The number of folders and files below a folder.
fn count(top: &Path) -> usize {
    let found = Command::new("find").arg(top).arg("-mindepth").arg("1").output().unwrap();
    found.stdout.iter().filter(|byte| **byte == b'\n').count()
}

fn ask(site: &Running, verb: &str, path: &str, to: &str) -> (u16, String) {
    let mut client = site.connect();
    let to = format!("Destination: {to}");
    client.send(request(verb, path, &[&to, "Content-Length: 0"]));
    let reply = client.reply();
    (reply.status, reply.text())
}

#[test]
fn a_tree_within_the_limit_is_copied_moved_packed_and_removed() {
    let site = open_site(&[]).start();
    make(&site.path("deep"), 498);
    assert_eq!(ask(&site, "COPY", "/deep", "/copy").0, 201);
    assert_eq!(count(&site.path("copy")), 499);
    assert_eq!(ask(&site, "MOVE", "/copy", "/moved").0, 201);
    assert_eq!(count(&site.path("moved")), 499);
    assert_eq!(site.get("/deep/?archive=tar").status, 200);
    for name in ["deep", "moved"] {
        assert_eq!(ask(&site, "DELETE", &format!("/{name}"), "/").0, 204);
        assert!(!site.path(name).exists());
    }
}

#[test]
fn a_tree_beyond_the_limit_is_refused_and_left_whole() {
    let site = open_site(&[]).start();
    make(&site.path("deep"), 2000);
    for (verb, status) in [("DELETE", 409), ("MOVE", 409), ("COPY", 409)] {
        let (found, said) = ask(&site, verb, "/deep", "/copy");
        assert_eq!(found, status, "{verb}: {said}");
        assert!(said.contains("too deep"), "{verb}: {said}");
        assert_eq!(count(&site.path("deep")), 2001, "{verb}");
        assert_eq!(fs::read_dir(site.path("")).unwrap().count(), 1, "{verb} left something");
    }
    let reply = site.get("/deep/?archive=tar");
    assert_eq!(reply.status, 413, "{}", reply.text());
    assert!(reply.text().contains("deep"), "{}", reply.text());
    assert_eq!(site.get("/deep/?simple&q=d").text(), "d/\n");
    assert!(Command::new("rm").arg("-rf").arg(site.path("deep")).status().unwrap().success());
}

#[test]
fn an_upload_to_a_long_path_is_made_or_refused() {
    let site = open_site(&[]).with_site(|site| {
        site.changes.create_parents = true;
        site.changes.sync = false;
    });
    let site = site.start();
    for (levels, status) in [(1900, 201), (2100, 400)] {
        let path = format!("/{}file", "d/".repeat(levels));
        let (found, said) = ask(&site, "PUT", &path, "/");
        assert_eq!(found, status, "{levels}: {said}");
    }
    assert_eq!(ask(&site, "DELETE", "/d", "/").0, 409);
    assert!(Command::new("rm").arg("-rf").arg(site.path("d")).status().unwrap().success());
}

#[test]
fn leftovers_are_found_at_every_level_that_a_request_can_name() {
    let site = open_site(&[]);
    let top = site.path("deep");
    make(&top, 1000);
    let part = ".x.0123456789abcdef0123456789abcdef.upload";
    let mut below = top;
    let parts: Vec<_> = (0..1000)
        .map(|_| {
            below.push("d");
            below.join(part)
        })
        .step_by(333)
        .collect();
    for part in &parts {
        fs::write(part, "x").unwrap();
    }
    const EXPIRY: Duration = Duration::from_secs(1);
    std::thread::sleep(EXPIRY);
    let site = site.with_site(|site| site.changes.expiry = EXPIRY).start();
    wait_until("all are removed", || parts.iter().all(|part| !part.exists()));
    drop(site);
}
