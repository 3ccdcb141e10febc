//! The search for stale uploads: the parts that it removes, and those that it leaves.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock};
use underpass_engine::atomic_file::{hidden_name, number_of};
use underpass_server::SiteSettings;

use super::rig::{Running, Site, age, wait_until};
use super::uploads::open_site;

const PART: &str = ".old.0123456789abcdef0123456789abcdef.upload";

/// A site with a part whose space is given back when the folder above it has been searched.
fn watched(site: Site) -> Option<Site> {
    fs::create_dir(site.path("later")).unwrap();
    let part = site.path("later").join(PART);
    fs::write(&part, "x").unwrap();
    let file = fs::File::options().write(true).open(&part).unwrap();
    fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 4 << 20).ok()?;
    Some(site)
}

/// Waits for the end of the search of the served folder.
fn searched(server: &Running) {
    let part = server.path("later").join(PART);
    wait_until("it was searched", || fs::metadata(&part).unwrap().blocks() * 512 < 1 << 20);
}

#[test]
fn a_part_with_the_time_of_its_original_is_not_stale() {
    let Some(site) = watched(open_site()) else { return };
    fs::write(site.path(PART), "complete").unwrap();
    age(&site.path(PART), 48 * 60 * 60);
    let server = site.start();
    searched(&server);
    assert_eq!(fs::read(server.path(PART)).unwrap(), b"complete");
}

#[test]
fn parts_of_another_process_are_left_alone() {
    let site = open_site().with_site(|site| site.changes.expiry = Duration::ZERO);
    let Some(site) = watched(site) else { return };
    fs::write(site.path(PART), "x").unwrap();
    let part = fs::File::options().write(true).open(site.path(PART)).unwrap();
    fallocate(&part, FallocateFlags::KEEP_SIZE, 0, 4 << 20).unwrap();
    flock(&part, FlockOperation::LockExclusive).unwrap();
    let server = site.start();
    let other = server.path("later").join(PART);
    wait_until("it was searched", || !other.exists());
    assert!(fs::metadata(server.path(PART)).unwrap().blocks() * 512 >= 4 << 20);
}

#[test]
fn the_time_left_for_an_upload_is_sent() {
    let site = open_site().with_site(|site| site.changes.expiry = Duration::from_secs(3600));
    let server = site.start();
    let created = server.ask("PUT", "/file", &["Upload-Complete: ?0"]);
    assert_eq!(created.field("Upload-Limit"), Some("min-size=0, max-age=3600"));
    let location = created.upload_of("/file");
    wait_until("some of it has passed", || {
        let asked = server.ask("HEAD", &location, &[]);
        let left = asked.field("Upload-Limit").unwrap().split_once("max-age=").unwrap().1;
        let left: u64 = left.parse().unwrap();
        assert!(left <= 3600);
        left < 3599
    });
}

#[test]
fn a_site_does_not_remove_what_another_site_of_its_folder_keeps() {
    let Some(site) = watched(open_site()) else { return };
    fs::create_dir(site.path("sub")).unwrap();
    let parts = [site.path(PART), site.path("sub").join(PART)];
    for part in &parts {
        fs::write(part, "kept").unwrap();
    }
    let (root, sub) = (site.path(""), site.path("sub"));
    let site = site.with(|settings| {
        for (name, root) in [("same.test", root), ("sub.test", sub)] {
            let mut short =
                SiteSettings { root: Some(root), is_default: false, ..settings.sites[0].clone() };
            short.names = vec![name.parse().unwrap()];
            short.changes.expiry = Duration::ZERO;
            settings.sites.insert(0, short);
        }
    });
    let server = site.start();
    searched(&server);
    for part in parts {
        assert_eq!(fs::read(&part).unwrap(), b"kept", "{part:?}");
    }
}

#[test]
fn hidden_files_of_a_killed_process_are_removed() {
    let site = open_site().with_site(|site| site.changes.expiry = Duration::from_secs(1));
    let number = number_of(fs::File::open(site.path("")).unwrap()).unwrap();
    let [own, copied] = [number, number ^ 1 << 31]
        .map(|number| hidden_name("file".as_ref(), Some(number)).into_string().unwrap());
    let other = ".file.7.part";
    for name in [&own, &copied, other] {
        fs::write(site.path(name), "x").unwrap();
    }
    let made = fs::metadata(site.path(other)).unwrap().created();
    let site = site.with_site(|site| site.shows_hidden = true);
    wait_until("it is old", || made.as_ref().is_ok_and(|at| at.elapsed().unwrap().as_secs() >= 2));
    let server = site.start();
    let own = server.path(&own);
    wait_until("it is removed", || !own.exists());
    assert!(server.path(other).exists() && server.path(&copied).exists());
}
