//! WebDAV locks: only the client that holds one may change the file.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Barrier;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use underpass_server::SiteSettings;
use underpass_server::auth::Access;

use super::changes_delete::{open_site, statuses};
use super::dav::send;
use super::rig::{Reply, Running, request};

const ALICE: &str = "Authorization: Basic YWxpY2U6c2VjcmV0MQ=="; // alice:secret1
const BOB: &str = "Authorization: Basic Ym9iOnNlY3JldDI="; // bob:secret2

/// Requests a lock of this scope.
pub(crate) fn lock(site: &Running, path: &str, scope: &str, fields: &[&str]) -> Reply {
    let body = format!(
        "<D:lockinfo xmlns:D='DAV:'><D:lockscope><D:{scope}/></D:lockscope>\
         <D:locktype><D:write/></D:locktype><D:owner>me</D:owner></D:lockinfo>"
    );
    send(site, "LOCK", path, fields, &body)
}

/// Takes a lock, and returns its token in angle brackets.
pub(crate) fn token(site: &Running, path: &str, fields: &[&str]) -> String {
    let reply = lock(site, path, "exclusive", fields);
    assert!(matches!(reply.status, 200 | 201), "{path}: {} {}", reply.status, reply.text());
    reply.field("Lock-Token").unwrap().to_owned()
}

#[test]
fn every_change_honours_a_lock() {
    let site = open_site(&[("file", b"x"), ("other", b"y"), ("dir/a", b"a")]).start();
    let token = token(&site, "/file", &["Depth: 0"]);
    let (own, wrong) = (format!("If: ({token})"), "If: (<urn:uuid:1>) (Not <DAV:no-lock>)");
    let (to, from) = ("Destination: /file", "Destination: /new");
    let empty = "Content-Length: 0";
    statuses(
        &site,
        &[
            ("PUT", "/file", &[empty], 423),
            ("PUT", "/file", &[wrong, empty], 423),
            ("PATCH", "/file", &["X-Update-Range: append", empty], 423),
            ("DELETE", "/file", &[], 423),
            ("MOVE", "/file", &[from], 423),
            ("MOVE", "/other", &[to], 423),
            ("COPY", "/other", &[to], 423),
            ("PROPPATCH", "/file", &[empty], 423),
            ("COPY", "/file", &[from], 201),
            ("GET", "/file", &[], 200),
            ("PUT", "/file", &[&own, empty], 204),
            ("COPY", "/other", &[to, &own], 412), // it is the other that is not locked
            ("COPY", "/other", &[to, &format!("If: </file> ({token})")], 204),
        ],
    );
    assert_eq!(fs::read(site.path("file")).unwrap(), b"y");
    let found = site.ask("PROPFIND", "/file", &["Depth: 0"]).text();
    assert!(found.contains(&token[1..token.len() - 1]), "{found}");
    let left = found.split_once("Second-").and_then(|(_, rest)| rest.split_once('<')).unwrap().0;
    // The full time, less what has passed.
    assert!((3000..=3600).contains(&left.parse().unwrap()), "{found}");
    assert!(found.contains("<D:lockroot><D:href>/file</D:href>"), "{found}");
    statuses(
        &site,
        &[
            ("UNLOCK", "/file", &["Lock-Token: <urn:uuid:1>"], 409),
            ("UNLOCK", "/file", &[], 400),
            ("UNLOCK", "/file", &[&format!("Lock-Token: {token}")], 204),
            ("UNLOCK", "/file", &[&format!("Lock-Token: {token}")], 409),
            ("DELETE", "/file", &[], 204),
        ],
    );
}

#[test]
fn a_locked_folder_keeps_its_names() {
    let site = open_site(&[("flat/a", b"a"), ("deep/er/a", b"a")]).start();
    let flat = token(&site, "/flat/", &["Depth: 0"]);
    let deep = token(&site, "/deep/", &[]);
    let (own_flat, own_deep) = (format!("If: </flat/> ({flat})"), format!("If: </deep/> ({deep})"));
    let empty = "Content-Length: 0";
    statuses(
        &site,
        &[
            ("PUT", "/flat/a", &[empty], 204),
            ("PUT", "/flat/new", &[empty], 423),
            ("MKCOL", "/flat/new", &[], 423),
            ("DELETE", "/flat/a", &[], 423),
            ("PUT", "/flat/new", &[&own_flat, empty], 201),
            ("PUT", "/deep/er/a", &[empty], 423),
            ("MKCOL", "/deep/er/new", &[], 423),
            ("PUT", "/deep/er/a", &[&own_deep, empty], 204),
            ("DELETE", "/deep", &[], 423),
            ("DELETE", "/deep/", &[&own_deep], 204),
            ("MKCOL", "/deep", &[], 201), // the lock has ended with the folder
            ("PUT", "/deep/a", &[empty], 201),
        ],
    );
}

#[test]
fn a_locked_folder_keeps_its_names_where_folders_are_made_on_the_way() {
    let site = open_site(&[("file", b"x"), ("flat/a", b"a")]);
    let site = site.with_site(|site| site.changes.create_parents = true).start();
    let flat = token(&site, "/flat/", &["Depth: 0"]);
    let (own, empty) = (format!("If: </flat/> ({flat})"), "Content-Length: 0");
    let to = "Destination: /flat/new/er/b";
    statuses(
        &site,
        &[
            ("PUT", "/flat/new/b", &[empty], 423),
            ("PUT", "/flat/new/er/b", &[empty], 423),
            ("MKCOL", "/flat/new/b", &[], 423),
            ("COPY", "/file", &[to], 423),
            ("MOVE", "/file", &[to], 423),
        ],
    );
    assert!(!site.path("flat/new").exists());
    statuses(&site, &[("MOVE", "/file", &[to, &own], 201), ("PUT", "/flat/new/c", &[empty], 201)]);
}

#[test]
fn locks_and_properties_respect_http_conditions() {
    let site = open_site(&[("file", b"x")]).start();
    let (none, any, other) = ("If-None-Match: *", "If-Match: *", "If-Match: \"other\"");
    for (path, field) in [("/new", any), ("/new", other), ("/file", none), ("/file", other)] {
        assert_eq!(lock(&site, path, "exclusive", &[field]).status, 412, "{path} {field}");
    }
    assert!(!site.path("new").exists());
    let token = format!("Lock-Token: {}", token(&site, "/file", &[any]));
    statuses(
        &site,
        &[
            ("UNLOCK", "/file", &[&token, other], 412),
            ("UNLOCK", "/file", &[&token, any], 204),
            ("PROPPATCH", "/file", &[other, "Content-Length: 0"], 412),
        ],
    );
}

#[test]
fn the_locks_in_a_folder_end_when_something_takes_its_place() {
    let files: &[(&str, &[u8])] = &[("file", b"f"), ("dir/a", b"a"), ("other/a", b"b")];
    let site = open_site(files).start();
    let (at, inside) = (token(&site, "/dir/", &["Depth: 0"]), token(&site, "/dir/a", &[]));
    let own = |tokens: &str| format!("If: </dir/> ({tokens})");
    let (to, yes) = ("Destination: /dir", "Overwrite: T");
    let (one, both) = (own(&at), format!("{} </dir/a> ({inside})", own(&at)));
    statuses(
        &site,
        &[
            ("COPY", "/file", &[to, yes], 423),
            ("MOVE", "/file", &[to, yes, &one], 423),
            ("MOVE", "/file", &[to, yes, &both], 204),
            ("DELETE", "/dir", &[], 423),
            ("DELETE", "/dir", &[&one], 204), // only the lock of the name itself is left
            ("MOVE", "/other", &[to], 201),
            ("DELETE", "/dir/a", &[], 204),
        ],
    );
}

#[test]
fn a_lock_excludes_others_and_a_shared_one_only_exclusive_ones() {
    let site = open_site(&[("file", b"x"), ("dir/a", b"a")]).start();
    assert_eq!(lock(&site, "/file", "shared", &[]).status, 200);
    assert_eq!(lock(&site, "/file", "shared", &[]).status, 200);
    let reply = lock(&site, "/file", "exclusive", &[]);
    assert_eq!(reply.status, 423);
    assert!(reply.text().contains("no-conflicting-lock><D:href>/file<"), "{}", reply.text());
    assert_eq!(lock(&site, "/dir/", "exclusive", &["Depth: infinity"]).status, 200);
    assert_eq!(lock(&site, "/dir/a", "exclusive", &[]).status, 423);
    assert_eq!(lock(&site, "/dir/a", "shared", &[]).status, 423);
    assert_eq!(lock(&site, "/file", "exclusive", &["Depth: 1"]).status, 400);
}

#[test]
fn a_lock_creates_an_empty_file_if_there_is_none() {
    let site = open_site(&[("dir/a", b"a")]).start();
    let reply = lock(&site, "/dir/new", "exclusive", &["Timeout: Second-600"]);
    assert_eq!(reply.status, 201, "{}", reply.text());
    assert!(reply.text().contains("Second-600"), "{}", reply.text());
    assert_eq!(fs::read(site.path("dir/new")).unwrap(), b"");
    let token = reply.field("Lock-Token").unwrap();
    let own = format!("If: ({token})");
    let longer = site.ask("LOCK", "/dir/new", &[&own, "Timeout: Second-1200"]);
    assert_eq!(longer.status, 200);
    assert!(longer.text().contains("Second-1200"), "{}", longer.text());
    for (path, status) in [("/none/new", 409), ("/.hidden", 403), ("/new/", 409)] {
        assert_eq!(lock(&site, path, "exclusive", &[]).status, status, "{path}");
        assert_eq!(site.ask("LOCK", path, &[]).status, 412, "{path}: nothing to refresh");
    }
    assert!(!site.path("new").exists() && !site.path(".hidden").exists());
}

#[test]
fn a_link_to_nothing_is_not_locked() {
    let site = open_site(&[]).start();
    for (name, target) in [("dangling", "nothing"), ("out", "/dev/null")] {
        symlink(target, site.path(name)).unwrap();
        assert_eq!(lock(&site, &format!("/{name}"), "exclusive", &[]).status, 409, "{name}");
        assert_eq!(site.ask("DELETE", &format!("/{name}"), &[]).status, 204, "{name}");
    }
}

#[test]
fn a_lock_is_that_of_its_user_and_ends_by_itself() {
    let rules = ["alice:secret1@/:rw", "bob:secret2@/:rw"];
    let site = open_site(&[("file", b"x")]).auth(&rules).start();
    let held = token(&site, "/file", &[ALICE, "Timeout: Second-2"]);
    let (own, empty) = (format!("If: ({held})"), "Content-Length: 0");
    let unlock = format!("Lock-Token: {held}");
    statuses(
        &site,
        &[
            ("PUT", "/file", &[BOB, &own, empty], 423),
            ("UNLOCK", "/file", &[BOB, &unlock], 403),
            ("PUT", "/file", &[ALICE, &own, empty], 204),
        ],
    );
    super::rig::wait_for("the end of the lock", || {
        (site.ask("PUT", "/file", &[BOB, empty]).status == 204).then_some(())
    });
    assert_eq!(site.ask("UNLOCK", "/file", &[ALICE, &unlock]).status, 409);
}

#[test]
fn conditions_of_if_are_checked() {
    let site = open_site(&[("file", b"x"), ("other", b"y")]).start();
    let etag = site.ask("HEAD", "/other", &[]).field("ETag").unwrap().to_owned();
    let (right, wrong) = (format!("If: </other> ([{etag}])"), "If: </other> ([\"x\"])");
    let elsewhere = format!("If: <http://elsewhere/other> ([{etag}])");
    let empty = "Content-Length: 0";
    statuses(
        &site,
        &[
            ("PUT", "/file", &[wrong, empty], 412),
            ("PUT", "/file", &[&elsewhere, empty], 412),
            ("PUT", "/file", &["If: ()", empty], 400),
            ("PUT", "/file", &["If: (<DAV:no-lock>)", empty], 412),
            ("PUT", "/file", &["If: (Not <DAV:no-lock>)", empty], 204),
            ("PUT", "/file", &[&right, empty], 204),
            ("DELETE", "/other", &[&format!("If: ([{etag}])")], 204),
        ],
    );
}

/// A change of a path, and how often it is made at the same moment as a lock of `/dir/a0`.
type Race = (&'static str, &'static str, usize);

#[test]
fn a_lock_granted_during_a_change_holds() {
    let site = open_site(&[]).start();
    let races: [Race; 3] =
        [("DELETE", "/dir", 30), ("MOVE", "/dir", 30), ("DELETE", "/dir/a0", 100)];
    for (verb, changed, rounds) in races {
        for round in 0..rounds {
            let _ = fs::remove_dir_all(site.path("moved"));
            fs::create_dir_all(site.path("dir")).unwrap();
            (0..100).for_each(|i| fs::write(site.path(&format!("dir/a{i}")), b"a").unwrap());
            let ready = Barrier::new(2);
            let (changed, locked) = std::thread::scope(|scope| {
                let change = scope.spawn(|| {
                    let mut client = site.connect();
                    ready.wait();
                    client.ask(verb, changed, &["Destination: /moved"]).status
                });
                ready.wait();
                let locked = lock(&site, "/dir/a0", "exclusive", &[]);
                (change.join().unwrap(), locked)
            });
            let case = format!("{verb} {round}: {changed}, LOCK: {}", locked.status);
            if let Some(token) = locked.field("Lock-Token") {
                assert!(site.path("dir/a0").exists(), "{case}: there is nothing that is locked");
                let unlock = format!("Lock-Token: {token}");
                assert_eq!(site.ask("UNLOCK", "/dir/a0", &[&unlock]).status, 204, "{case}");
            } else {
                assert!(changed < 300, "{case}");
            }
        }
    }
}

#[test]
fn fifos_and_sockets_cannot_be_locked() {
    let site = open_site(&[("file", b"x")]).start();
    for (name, kind) in [("pipe", FileType::Fifo), ("socket", FileType::Socket)] {
        mknodat(CWD, site.path(name), kind, Mode::RUSR, 0).unwrap();
        let reply = lock(&site, &format!("/{name}"), "exclusive", &[]);
        assert_eq!(reply.status, 409, "{name}: {}", reply.text());
    }
}

#[test]
fn a_lock_of_a_link_locks_its_target() {
    let site = open_site(&[("d/x", b"x"), ("file", b"f"), ("e/f", b"e")]).start();
    symlink("d", site.path("ln")).unwrap();
    symlink("d/x", site.path("lf")).unwrap();
    let empty = "Content-Length: 0";
    let deep = token(&site, "/ln/", &["Depth: infinity"]);
    let own = |at: &str| format!("If: <{at}> ({deep})");
    let (to_link, to_folder) = ("Destination: /ln/new", "Destination: /d/new");
    statuses(
        &site,
        &[
            ("PUT", "/ln/x", &[empty], 423),
            ("PUT", "/d/x", &[empty], 423),
            ("DELETE", "/ln/x", &[], 423),
            ("DELETE", "/d", &[], 423),
            ("DELETE", "/ln", &[], 423),
            ("PUT", "/lf", &[empty], 423),
            ("PUT", "/d/new", &[empty], 423),
            ("MKCOL", "/ln/new", &[], 423),
            ("COPY", "/file", &[to_link], 423),
            ("MOVE", "/file", &[to_folder], 423),
            ("PROPPATCH", "/ln/x", &[empty], 423),
            ("PUT", "/ln/x", &[&own("/ln/"), empty], 204),
            ("PUT", "/d/x", &[&own("/ln"), empty], 204),
            ("PUT", "/ln/x", &[&own("/d/"), empty], 204),
            ("PUT", "/ln/x", &[&format!("If: ({deep})"), empty], 204),
        ],
    );
    for path in ["/ln/y", "/d/y", "/d/", "/ln/", "/lf"] {
        assert_eq!(lock(&site, path, "exclusive", &[]).status, 423, "{path}");
    }
    for path in ["/ln/", "/d/", "/d/x", "/ln/x", "/lf"] {
        let found = site.ask("PROPFIND", path, &["Depth: 0"]).text();
        assert_eq!(found.matches(&deep[1..deep.len() - 1]).count(), 1, "{path}: {found}");
    }
    let again = site.ask("LOCK", "/d/", &[&format!("If: ({deep})"), "Timeout: Second-60"]);
    assert_eq!(again.status, 200, "{}", again.text());
    let unlock = format!("Lock-Token: {deep}");
    statuses(&site, &[("UNLOCK", "/d/", &[&unlock], 204), ("PUT", "/ln/x", &[empty], 204)]);
    assert_eq!(site.ask("UNLOCK", "/ln/", &[&unlock]).status, 409);
    // A lock of a link also holds for the link itself, even once a file has replaced it.
    let file = token(&site, "/lf", &[]);
    let (own, unlock) = (format!("If: ({file})"), format!("Lock-Token: {file}"));
    statuses(
        &site,
        &[
            ("PUT", "/d/x", &[empty], 423),
            ("DELETE", "/d/x", &[], 423),
            ("PUT", "/lf", &[empty], 423),
            ("PUT", "/lf", &[&own, empty], 204),
            ("PUT", "/lf", &[empty], 423),
            ("UNLOCK", "/lf", &[&unlock], 204),
            ("PUT", "/d/x", &[empty], 204),
            ("PUT", "/lf", &[empty], 204),
        ],
    );
}

#[test]
fn a_link_locks_nothing_that_its_user_may_not_change() {
    let site = open_site(&[("in/file", b"x"), ("kept/file", b"y")]);
    let rules = ["alice:secret1@/in:rw,/kept", "bob:secret2@/:rw"];
    let site = site.auth(&rules).start();
    symlink("../kept", site.path("in/link")).unwrap();
    symlink("../kept/file", site.path("in/file2")).unwrap();
    for path in ["/in/link/", "/in/file2", "/in/link/file"] {
        assert_eq!(lock(&site, path, "exclusive", &[ALICE]).status, 403, "{path}");
    }
    statuses(&site, &[("PUT", "/kept/file", &[BOB, "Content-Length: 0"], 204)]);
}

#[test]
fn a_lock_holds_at_all_sites_that_serve_the_file() {
    let site = open_site(&[("file", b"x"), ("sub/file", b"y"), ("sub/.kept/file", b"z")]);
    let (sub, root) = (site.path("sub"), site.path("."));
    symlink("sub", site.path("link")).unwrap();
    let site = site.with(|settings| {
        settings.sites[0].shows_hidden = true;
        let rules = ["alice:other@/:rw".to_owned(), "bob:secret2@/:rw".to_owned()];
        let (open, theirs) = (Access::default(), Access::parse(&rules).unwrap());
        let others = [("sub.test", sub, open.clone()), ("same.test", root, open)];
        let mut others = others.to_vec();
        others.push(("users.test", others[0].1.clone(), theirs));
        for (name, folder, access) in others {
            let names = vec![name.parse().unwrap()];
            let (is_default, root) = (false, Some(folder));
            let site =
                SiteSettings { names, root, is_default, access, ..settings.sites[0].clone() };
            settings.sites.push(SiteSettings { shows_hidden: false, ..site });
        }
    });
    let site = site.start();
    let empty = "Content-Length: 0";
    let token = token(&site, "/sub/", &["Depth: infinity"]);
    let own = format!("If: ({token})");
    statuses(
        &site,
        &[
            ("PUT", "http://sub.test/file", &[empty], 423),
            ("PUT", "http://same.test/sub/file", &[empty], 423),
            ("PUT", "http://same.test/link/file", &[empty], 423),
            ("DELETE", "http://same.test/sub", &[], 423),
            ("PUT", "http://sub.test/new", &[empty], 423),
            ("PUT", "http://users.test/new", &[BOB, empty], 423),
            ("PUT", "http://same.test/file", &[empty], 204),
            ("PUT", "http://sub.test/file", &[&own, empty], 204),
        ],
    );
    let refused = lock(&site, "http://sub.test/file", "exclusive", &[]);
    assert_eq!(refused.status, 423);
    assert!(refused.text().contains("<D:href>/</D:href>"), "{}", refused.text());
    let found = site.ask("PROPFIND", "http://sub.test/file", &["Depth: 0"]).text();
    assert!(found.contains(&token[1..token.len() - 1]), "{found}");
    assert!(found.contains("<D:lockroot><D:href>/</D:href>"), "{found}");
    let unlock = format!("Lock-Token: {token}");
    statuses(&site, &[("UNLOCK", "http://sub.test/", &[&unlock], 204)]);
    // The other site reveals nothing of what is hidden there.
    let hidden = self::token(&site, "/sub/.kept/file", &[]);
    let refused = site.ask("DELETE", "http://same.test/sub", &[]);
    assert!(refused.status == 423 && !refused.text().contains(".kept"), "{}", refused.text());
    let unlock = format!("Lock-Token: {hidden}");
    statuses(&site, &[("UNLOCK", "/sub/.kept/file", &[&unlock], 204)]);
    // Users of the same name at sites with other passwords are different users.
    let theirs = self::token(&site, "http://users.test/file", &[BOB]);
    let own = format!("If: ({theirs})");
    statuses(
        &site,
        &[
            ("PUT", "http://sub.test/file", &[&own, empty], 423),
            ("PUT", "/sub/file", &[&own, empty], 423),
            ("PUT", "http://users.test/file", &[BOB, &own, empty], 204),
        ],
    );
}

#[test]
fn a_lock_granted_while_properties_arrive_holds() {
    let site = open_site(&[("file", b"x")]).start();
    let body = "<D:propertyupdate xmlns:D='DAV:'><D:set><D:prop><a/></D:prop></D:set>\
                </D:propertyupdate>";
    let mut client = site.connect();
    let length = format!("Content-Length: {}", body.len());
    client.send(request("PROPPATCH", "/file", &[&length]) + &body[..20]);
    let token = token(&site, "/file", &[]);
    client.send(&body[20..]);
    assert_eq!(client.reply().status, 423);
    let own = format!("If: ({token})");
    assert_eq!(send(&site, "PROPPATCH", "/file", &[&own], body).status, 207);
    // Only a new lock is returned with its token; a refresh names it.
    let refreshed = site.ask("LOCK", "/file", &[&own]);
    assert_eq!((refreshed.status, refreshed.field("Lock-Token")), (200, None));
    assert!(refreshed.text().contains(&token[1..token.len() - 1]));
}
