//! Archives and listings that many request at once: made once, by few threads, in bounded memory.

use std::fs;
use std::io::Read;

use super::rig::{Client, Running, Site, request, threads};

/// Files of a folder whose walk takes long enough for others to join.
const MANY: usize = 3_000;

fn site() -> Site {
    let site = Site::new();
    fs::create_dir(site.path("many")).unwrap();
    for at in 0..MANY {
        fs::File::create(site.path(&format!("many/{at:05}"))).unwrap();
    }
    site
}

/// Clients that have sent these requests, one each.
fn asking<S: AsRef<str>>(site: &Running, requests: &[S]) -> Vec<Client> {
    let mut clients: Vec<_> = requests.iter().map(|_| site.connect_narrow()).collect();
    for (client, request) in clients.iter_mut().zip(requests) {
        client.send(request.as_ref());
    }
    clients
}

#[test]
fn one_walk_serves_all_simultaneous_requests_for_an_archive() {
    let site = site().start();
    let head = request("HEAD", "/many/?archive=tar", &[]);
    let mut clients = asking(&site, &vec![head; 60]);
    let replies: Vec<_> = clients.iter_mut().map(|one| one.try_reply(false).unwrap()).collect();
    let tag = replies[0].field("ETag").unwrap();
    for reply in &replies {
        assert_eq!((reply.status, reply.field("ETag")), (200, Some(tag)));
    }
    let walks = site.metric("folder_walks_total");
    // More than one only where they took longer than it is kept.
    assert!((1.0..=6.0).contains(&walks), "{walks}");
}

#[test]
fn an_archive_of_too_many_entries_is_refused_with_the_limit() {
    let site = Site::of(&[("folder/a", b"1"), ("folder/b", b"2"), ("folder/in/c", b"3")]);
    let site = site.with(|settings| settings.max_archive_entries = 3).start();
    let refused = site.get("/folder/?archive=tar");
    assert_eq!(refused.status, 413);
    assert!(refused.text().contains("more than 3 entries"), "{}", refused.text());
    assert_eq!(site.get("/folder/in/?archive=tar").status, 200);
}

#[test]
fn one_listing_serves_all_waiting_requests_and_is_never_older_than_them() {
    let site = site().start();
    let mut clients = asking(&site, &vec![request("GET", "/many/?json", &[]); 60]);
    let replies: Vec<_> = clients.iter_mut().map(Client::reply).collect();
    assert!(replies.iter().all(|reply| reply.status == 200 && reply.body == replies[0].body));
    let listings = site.metric("listings_total");
    assert!((1.0..=30.0).contains(&listings), "{listings}");
    for at in 0..5 {
        // While the listing is made over and over for others.
        let _others = asking(&site, &vec![request("GET", "/many/?simple", &[]); 8]);
        let name = format!("new{at}");
        fs::write(site.path(&format!("many/{name}")), b"").unwrap();
        assert!(site.get("/many/?simple").text().contains(&name));
    }
}

#[test]
fn unread_listings_hold_no_threads() {
    let site = Site::new();
    for at in 0..10_100 {
        fs::File::create(site.path(&format!("{at:05}"))).unwrap();
    }
    let site = site.start();
    // The same for many, and too large to be sorted; and some that are each their own.
    let requests: Vec<_> =
        (0..150).map(|at| request("GET", &format!("/?ndjson&q=&limit=&x={at}"), &[])).collect();
    let distinct: Vec<_> =
        (0..50).map(|at| request("GET", &format!("/?ndjson&limit={}", 9_000 + at), &[])).collect();
    let mut clients = asking(&site, &[requests, distinct].concat());
    for client in &mut clients {
        let status = client.head().unwrap().status;
        assert!(matches!(status, 200 | 503), "{status}");
        let (quick, long) = (threads("listing"), threads("long-listing"));
        // The servers of other tests have some, too.
        assert!(quick <= 40 && long <= 20, "{quick} {long}");
    }
    let reply = site.get("/?simple&limit=3");
    assert_eq!(reply.text().lines().count(), 3);
}

#[test]
fn a_listing_that_is_made_for_each_client_is_whole() {
    let site = Site::new();
    for at in 0..10_100 {
        fs::File::create(site.path(&format!("{at:05}"))).unwrap();
    }
    let site = site.start();
    // The length of such a listing is not known before it is made, so it is not shared.
    let properties = r#"<propfind xmlns="DAV:"><prop><resourcetype/></prop></propfind>"#;
    let len = format!("Content-Length: {}", properties.len());
    let (plain, gzip) = (["Depth: 1", &len, "X: y"], ["Depth: 1", &len, "Accept-Encoding: gzip"]);
    let mut requests =
        [plain, gzip, plain, gzip].map(|fields| request("PROPFIND", "/", &fields) + properties);
    requests[2] = requests[2].replace("HTTP/1.1", "HTTP/1.0");
    let mut clients = asking(&site, &requests);
    let (mut gzipped, mut with_length) = (0, 0);
    for client in &mut clients {
        let reply = client.reply();
        let mut text = reply.text();
        // A client of HTTP/1.0 could not tell a part from the whole otherwise.
        with_length += usize::from(reply.field("Content-Length").is_some());
        if reply.field("Content-Encoding") == Some("gzip") {
            assert!(reply.body.len() < 1 << 20, "{}", reply.body.len());
            text.clear();
            flate2::read::GzDecoder::new(&*reply.body).read_to_string(&mut text).unwrap();
        }
        gzipped += usize::from(reply.field("Content-Encoding").is_some());
        let hrefs = text.split("href>/").skip(1).filter(|rest| !rest.starts_with('<'));
        let mut names: Vec<_> = hrefs.map(|rest| rest[..5].to_owned()).collect();
        names.sort();
        assert!(names == (0..10_100).map(|at| format!("{at:05}")).collect::<Vec<_>>());
    }
    assert_eq!((gzipped, with_length), (2, 1));
}
