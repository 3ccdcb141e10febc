//! A folder as one zip: its checksums are made once, and only where they are needed.

use std::fs;

use super::archives::{
    BYTES, TAR, check_changing_members, check_ranges, check_resumption, check_whole, site,
};
use super::rig::{Running, Site, pattern, request, threads, wait_until};

const ZIP: &str = "/folder/?archive=zip";

fn read_bytes(site: &Running) -> f64 {
    site.metric("digest_read_bytes_total")
}

#[test]
fn a_folder_is_a_zip_of_known_length_that_unpacks_to_itself() {
    let site = site().start();
    let reply = site.ask("HEAD", ZIP, &[]);
    assert_eq!(read_bytes(&site), 0.0, "the head needs no checksum");
    assert_eq!(reply.field("Content-Type"), Some("application/zip"));
    assert_eq!(reply.field("Content-Disposition"), Some("attachment; filename=\"folder.zip\""));
    let zip = check_whole(&site, ZIP, [("unzip", "-q"), ("bsdtar", "-xf")]);
    // Each file was read once, and is not for the next client.
    assert_eq!(read_bytes(&site), BYTES);
    assert!(site.get(ZIP).body == zip);
    assert_eq!(read_bytes(&site), BYTES);
}

#[test]
fn ranges_of_a_zip_are_those_of_the_whole() {
    let site = site().start();
    let ask = |range| site.ask("GET", ZIP, &[range]).body;
    // The middle of a file needs no checksum.
    let middle = ask("Range: bytes=1000000-1000099");
    assert_eq!(read_bytes(&site), 0.0);
    // The end needs those of all files, though none of them is sent.
    let end = ask("Range: bytes=-650");
    assert_eq!(read_bytes(&site), BYTES);
    let whole = check_ranges(&site, ZIP, &[(29, 31), (1000, 5_200_000)]);
    assert!(middle == whole[1_000_000..1_000_100] && end == whole[whole.len() - 650..]);
}

#[test]
fn a_broken_download_of_a_zip_is_resumed_only_if_nothing_changed() {
    let site = site().start();
    let tar = site.ask("HEAD", TAR, &[]);
    let tag = check_resumption(&site, ZIP);
    assert_ne!(tar.field("ETag"), Some(tag.as_str()));
    // Only the checksum of the changed file is made again.
    site.get(ZIP);
    assert_eq!(read_bytes(&site), BYTES + 5.0);
}

#[test]
fn a_member_that_changes_in_mid_zip_resets_the_connection() {
    check_changing_members(ZIP);
}

#[test]
fn a_checksum_is_made_once_for_all_that_wait_for_it() {
    let site = Site::new();
    site.write("folder/large", &pattern(48 << 20));
    let site = site.start();
    let mut clients: Vec<_> = (0..8).map(|_| site.connect_narrow()).collect();
    for client in &mut clients {
        client.send(request("GET", ZIP, &["Range: bytes=-100"]));
    }
    let ends: Vec<_> =
        clients.iter_mut().map(|client| client.try_reply(true).unwrap().body).collect();
    assert!(ends.iter().all(|end| end.len() == 100 && *end == ends[0]));
    assert_eq!(read_bytes(&site), (48 << 20) as f64);
}

#[test]
fn a_checksum_is_abandoned_when_its_client_leaves() {
    let site = Site::new();
    let file = fs::File::create(site.path("sparse")).unwrap();
    file.set_len(1 << 40).unwrap();
    fs::create_dir(site.path("folder")).unwrap();
    fs::rename(site.path("sparse"), site.path("folder/sparse")).unwrap();
    let site = site.start();
    let mut client = site.connect();
    client.send(request("GET", ZIP, &["Range: bytes=-100"]));
    assert_eq!(client.head().unwrap().status, 206);
    wait_until("it is read", || read_bytes(&site) > 0.0);
    drop(client);
    // It would take minutes; the thread ends when nothing is left to do.
    wait_until("nothing is read any more", || threads("checksum") == 0);
    assert!(read_bytes(&site) < (1_u64 << 40) as f64);
}
