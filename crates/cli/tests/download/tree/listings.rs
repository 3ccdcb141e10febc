//! Folders from other servers, by their listings.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use underpass_testkit::http::{close, respond, serve_until_exit};

use crate::rig::{Running, folder, has, has_rare, names, nginx, skip, underpass, until};
use crate::tree::site::{Peer, awkward, contents, files, get, same};

/// Fetches the awkward folder of a server twice; the second time nothing may be fetched.
fn fetch(what: &str, leave_out: &[&str], peer: impl FnOnce(&Path) -> Option<Peer>) {
    let (source, target) = (folder(), folder());
    awkward(source.path());
    for name in leave_out {
        fs::remove_file(source.path().join(name)).unwrap();
    }
    let Some(peer) = peer(source.path()) else { return };
    let dir = target.path().join("x");
    let first = get(&peer.url, &dir, &["--json"]).succeeded().receipt();
    assert_eq!(first["way"], "listing", "{what}");
    same(&files(&dir), &files(source.path()), what);
    let again = get(&peer.url, &dir, &["--json"]).succeeded().receipt();
    assert_eq!((&again["files"], &again["here"]), (&0.into(), &first["files"]), "{what}");
    let times = |root: &Path| {
        let all = contents(root).into_iter();
        let times = all.filter_map(|(path, found)| match found {
            crate::tree::site::Found::File(_, time, _) => Some((path, time)),
            _ => None,
        });
        times.collect::<Vec<_>>()
    };
    // Times that are whole seconds survive.
    assert_eq!(times(&dir), times(source.path()), "{what}");
    // A folder further down, from a name without a slash.
    let below = format!("{}folder%20%252F%20%22x%22", peer.url);
    get(&below, target.path(), &[]).succeeded();
    assert_eq!(names(&target.path().join("folder %2F \"x\"")), ["in ner"], "{what}");
}

/// Serves a folder by Python.
fn python_serves(root: &Path) -> Peer {
    Peer::start(|port| {
        let mut command = Command::new("python3");
        command.args(["-m", "http.server", "--bind", "127.0.0.1", "--directory"]);
        command.arg(root).arg(port.to_string());
        command
    })
}

#[test]
fn folders_of_python_are_fetched() {
    if has("python3") {
        fetch("python", &[], |root| Some(python_serves(root)));
    }
}

#[test]
fn a_folder_that_is_not_there_leaves_nothing() {
    if !has("python3") {
        return;
    }
    let (source, target) = (folder(), folder());
    let peer = python_serves(source.path());
    let missing = format!("{}missing/", peer.url);
    get(&missing, &target.path().join("new/folder"), &[]).failed(1, &["404"]);
    assert_eq!(names(target.path()), [""; 0]);
    // What was there stays.
    let old = target.path().join("old");
    fs::create_dir(&old).unwrap();
    fs::write(old.join("file"), "kept").unwrap();
    get(&missing, &old, &[]).failed(1, &["404"]);
    assert_eq!(names(&old), ["file"]);
}

#[test]
fn folders_of_caddy_are_fetched() {
    if has("caddy") {
        fetch("caddy", &[], |root| {
            Some(Peer::start(|port| {
                let mut command = Command::new("caddy");
                command.args(["file-server", "--browse", "--root"]).arg(root);
                command.args(["--listen", &format!("127.0.0.1:{port}")]);
                command
            }))
        });
    }
}

#[test]
fn folders_of_nginx_are_fetched_with_html_and_json_listings() {
    let Some(program) = system_program("nginx") else { return };
    for format in ["html", "json"] {
        let state = folder();
        fetch(&format!("nginx {format}"), &[], |root| {
            Some(Peer::start(|port| {
                let http = format!(
                    "server {{ listen 127.0.0.1:{port}; root {root}; autoindex on;\n\
                     autoindex_format {format}; }}",
                    root = root.display()
                );
                nginx::command(&program, &nginx::config(state.path(), &http))
            }))
        });
    }
}

#[test]
fn folders_of_apache_are_fetched() {
    let Some(program) = system_program("apache2") else { return };
    let modules = Path::new("/usr/lib/apache2/modules");
    if !modules.join("mod_autoindex.so").exists() {
        return skip("apache2 has its modules elsewhere");
    }
    let state = folder();
    fetch("apache", &[], |root| {
        Some(Peer::start(|port| {
            let mut text = format!(
                "ServerRoot {state}\nPidFile {state}/pid\nErrorLog {state}/log\n\
                 ServerName localhost\nListen 127.0.0.1:{port}\nDocumentRoot {root}\n\
                 AllowEncodedSlashes NoDecode\n",
                state = state.path().display(),
                root = root.display(),
            );
            for name in ["mpm_event", "authz_core", "dir", "autoindex"] {
                text += &format!("LoadModule {name}_module {}/mod_{name}.so\n", modules.display());
            }
            text += &format!(
                "<Directory {}>\nOptions +Indexes\nIndexOptions FancyIndexing NameWidth=*\n\
                 Require all granted\n</Directory>\n",
                root.display()
            );
            let config = state.path().join("conf");
            fs::write(&config, text).unwrap();
            let mut command = Command::new(&program);
            // One process, which ends at a signal and needs no other user.
            command.args(["-X", "-f"]).arg(config);
            command
        }))
    });
}

#[test]
fn folders_of_dufs_are_fetched() {
    if let Some(program) = peer_program("dufs") {
        fetch("dufs", &[], |root| {
            Some(Peer::start(|port| {
                let mut command = Command::new(program);
                command.args(["-b", "127.0.0.1", "-p", &port.to_string()]).arg(root);
                command
            }))
        });
    }
}

#[test]
fn folders_of_miniserve_are_fetched() {
    if let Some(program) = peer_program("miniserve") {
        // miniserve lists names that begin so, and responds with 400 to them.
        fetch("miniserve", &["*?[a]", "<b>"], |root| {
            Some(Peer::start(|port| {
                let mut command = Command::new(program);
                command.args(["-i", "127.0.0.1", "-p", &port.to_string()]).arg(root);
                command
            }))
        });
    }
}

/// Fetches a folder up to a file that never comes, and is killed then.
fn broken_off(peer: &Peer, dir: &Path, waits_for: &[&str]) {
    let mut command = underpass();
    command.args(["get", "-r", "-q", &peer.url, "-d"]).arg(dir);
    let running = Running::start(command);
    until("the other files", || waits_for.iter().all(|name| dir.join(name).exists()));
    running.signal("KILL");
    assert!(!running.finish().status.success());
}

/// Makes a file lose its bytes, as in a power cut: it keeps its size and time.
fn lose(path: &Path) {
    let facts = fs::metadata(path).unwrap();
    fs::write(path, vec![0; facts.len() as usize]).unwrap();
    fs::File::open(path).unwrap().set_modified(facts.modified().unwrap()).unwrap();
}

#[test]
fn after_a_power_cut_what_a_broken_run_has_written_is_fetched_again() {
    if !has("python3") {
        return;
    }
    let (source, target) = (folder(), folder());
    let (there, dir) = (source.path(), target.path().join("x"));
    let log = dir.join(".underpass-get.log");
    awkward(there);
    let peer = python_serves(there);
    get(&peer.url, &dir, &[]).succeeded();
    assert!(!log.exists(), "a folder that is complete needs no log");
    // It existed before the interrupted run.
    lose(&dir.join("with space"));
    std::thread::sleep(std::time::Duration::from_millis(50));
    fs::write(there.join("new"), "written just before the power went").unwrap();
    let pipe = there.join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    broken_off(&peer, &dir, &["new"]);
    fs::remove_file(&pipe).unwrap();
    lose(&dir.join("new"));
    let bytes = |name: &str| fs::read(dir.join(name)).unwrap();
    let text = fs::read_to_string(&log).unwrap();
    get(&peer.url, &dir, &["-f"]).succeeded();
    assert!(bytes("new").iter().all(|byte| *byte == 0), "within one boot size and time are enough");
    assert!(!log.exists());
    // The same again with another boot since.
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    fs::write(&log, text.replace(boot.trim(), &"0".repeat(boot.trim().len()))).unwrap();
    let receipt = get(&peer.url, &dir, &["-f", "--json"]).succeeded().receipt();
    assert_eq!(receipt["files"], 1, "{receipt}");
    assert_eq!(bytes("new"), fs::read(there.join("new")).unwrap());
    assert!(bytes("with space").iter().all(|byte| *byte == 0), "nothing says that it was lost");
    assert!(!log.exists());
}

#[test]
fn an_address_that_is_no_folder_is_reported() {
    if !has("python3") {
        return;
    }
    let (source, target) = (folder(), folder());
    fs::write(source.path().join("file.bin"), "bytes").unwrap();
    let peer = Peer::start(|port| {
        let mut command = Command::new("python3");
        command.args(["-m", "http.server", "--bind", "127.0.0.1", "--directory"]);
        command.arg(source.path()).arg(port.to_string());
        command
    });
    get(&format!("{}nothing/", peer.url), target.path(), &[]).failed(1, &["404"]);
    get(&format!("{}file.bin", peer.url), target.path(), &[]).failed(1, &[]);
}

/// A program that may be in a folder that is not searched for ordinary users.
fn system_program(name: &str) -> Option<PathBuf> {
    let path = Path::new("/usr/sbin").join(name);
    if path.exists() {
        return Some(path);
    }
    has(name).then(|| PathBuf::from(name))
}

/// A server that few systems have: in $UNDERPASS_PEERS, or where programs are.
fn peer_program(name: &str) -> Option<PathBuf> {
    let named = std::env::var_os("UNDERPASS_PEERS").map(|folder| PathBuf::from(folder).join(name));
    match named.filter(|path| path.exists()) {
        Some(path) => Some(path),
        None => has_rare(name).then(|| PathBuf::from(name)),
    }
}

/// Serves a page that has the name `a%3Db`. It leads to the folder `/a=b/`, as nginx and Apache encode less in
/// redirects than in pages.
fn page_with_redirect() -> String {
    serve_until_exit(|request, stream| {
        let page = |name: &str| format!("<title>Index of /</title><a href=\"{name}\">{name}</a>");
        let (status, body) = match request.path.as_str() {
            "/" => ("200 OK", page("a%3Db")),
            "/a%3Db" => ("301 Moved\nLocation: /a=b/", String::new()),
            "/a=b/" => ("200 OK", page("file")),
            _ => ("200 OK", "inside".to_owned()),
        };
        let head = format!("HTTP/1.1 {status}\nContent-Type: text/html\nConnection: close");
        respond(request, stream, &head, body.as_bytes())?;
        close()
    })
}

#[test]
fn a_file_that_became_a_folder_is_fetched_as_one() {
    let target = folder();
    get(&page_with_redirect(), &target.path().join("x"), &["-j", "1"]).succeeded();
    assert_eq!(fs::read(target.path().join("x/a=b/file")).unwrap(), b"inside");
}

#[test]
fn a_page_whose_links_all_lead_elsewhere_is_reported() {
    let url = serve_until_exit(|request, stream| {
        let links = match request.path.as_str() {
            "/behind/" => "<a href=\"/files/a\">a</a><a href=\"/files/b\">b</a>",
            _ => "<a href=\"https://example.org\">by</a>",
        };
        let page = format!("<html><title>Index of /</title><a href=\"../\">../</a>{links}</html>");
        let head = "HTTP/1.1 200 OK\nContent-Type: text/html\nConnection: close";
        respond(request, stream, head, page.as_bytes())?;
        close()
    });
    let target = folder();
    let url = url.trim_end_matches('/');
    let said = |name: &str, options: &[&str]| {
        get(&format!("{url}/{name}/"), target.path(), options).succeeded().stderr
    };
    let note =
        format!("{url}/behind/: no link leads to a file in this folder, 2 links lead elsewhere");
    assert!(said("behind", &[]).contains(&note));
    assert_eq!(said("behind", &["-q"]), "");
    assert_eq!(said("empty", &[]).lines().count(), 1);
}
