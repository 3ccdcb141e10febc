//! Reloads that wait for a disk, or meet something that is no file.

use std::fs;
use std::io::Write;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Command;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use underpass_testkit::tls::certificate;

use super::{SECURE, Sites, TWO, two_roots, with_keys, write_config};
use crate::rig::fuse::{Fuse, waits_for_fuse};
use crate::rig::lease::hold_lease;
use crate::rig::{Running, folder, has, underpass, until};

/// Waits until the server has opened or read a file.
struct ReadWatch(OwnedFd);

impl ReadWatch {
    fn new(path: &Path, event: WatchFlags) -> Self {
        let watch = inotify::init(CreateFlags::NONBLOCK).unwrap();
        inotify::add_watch(&watch, path, event).unwrap();
        Self(watch)
    }

    fn wait(&self) {
        let mut buffer = [MaybeUninit::uninit(); 512];
        let mut events = inotify::Reader::new(&self.0, &mut buffer);
        until("the server has read it", || events.next().is_ok());
    }
}

/// Sites of which `b.test` has its certificate on this file system, in front of which there may be
/// other options. `None`, with a message, where there can be no such file system.
fn with_a_key_on_fuse(options: &str) -> Option<(Sites, Fuse)> {
    let fuse = Fuse::new()?;
    certificate(&fuse.store(), "b.test", &["b.test"]);
    let keys = fuse.root().to_str().unwrap().to_owned();
    let config = SECURE.replace("DIR/keys/b.test", &format!("{keys}/b.test"));
    Some((Sites::new(&format!("{options}{config}"), with_keys), fuse))
}

#[test]
fn a_reload_that_waits_for_a_site_has_renewed_the_certificate_of_the_server() {
    if !has("curl") {
        return;
    }
    let of_server = "tls_cert = 'DIR/keys/a.test.pem'\ntls_key = 'DIR/keys/a.test.key'\n";
    let Some((sites, fuse)) = with_a_key_on_fuse(of_server) else { return };
    // Other files would be read after the sites.
    for suffix in ["pem", "key"] {
        let path = |name: &str| sites.path(&format!("keys/{name}.{suffix}"));
        fs::copy(path("c.test"), path("a.test")).unwrap();
    }
    let _stopped = fuse.stop();
    sites.server.signal("HUP");
    until("the reload waits", || waits_for_fuse(&sites.server));
    let url = format!("https://c.test:{}/same", sites.port());
    let resolve = format!("c.test:{}:127.0.0.1", sites.port());
    let shown = sites.curl(&["--resolve", &resolve, "--cacert", "keys/c.test.pem", &url]);
    shown.succeeded();
    assert!(waits_for_fuse(&sites.server));
}

#[test]
fn a_pipe_is_no_config_for_which_a_reload_waits() {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let folder = folder();
    two_roots(folder.path());
    writer.write_all(TWO.replace("DIR", folder.path().to_str().unwrap()).as_bytes()).unwrap();
    drop(writer);
    // As in `--config <(...)`: at the start a pipe is a config.
    let mut command = underpass();
    command.args(["serve", "--port", "0", "--config", "/dev/stdin"]).stdin(reader);
    assert!(Running::listening(command).end().stderr.contains("2 sites"));
    let sites = Sites::new(TWO, two_roots);
    let config = sites.path("config/underpass.toml");
    fs::remove_file(&config).unwrap();
    assert!(Command::new("mkfifo").arg(&config).status().unwrap().success());
    let opened = ReadWatch::new(&config, WatchFlags::OPEN);
    sites.server.signal("HUP");
    opened.wait();
    fs::remove_file(&config).unwrap();
    sites.reload(&TWO.replace("DIR/a", "DIR/b"));
    until("the next config counts", || sites.body("a.test", "/same") == "of b\n");
    let said = sites.end().0;
    assert!(said.contains("underpass.toml: a pipe is read only at the start"), "{said}");
}

#[test]
fn a_pipe_is_no_certificate_for_which_a_reload_waits() {
    if !has("curl") {
        return;
    }
    let keys = folder();
    let (pem, key) = certificate(keys.path(), "a.test", &["a.test"]);
    // As in `--tls-cert <(...)`: at the start a pipe has a certificate.
    let mut command = underpass();
    command.args(["serve", "--port", "0", "--tls-cert", "/dev/stdin", "--tls-key"]).arg(key);
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(&fs::read(pem).unwrap()).unwrap();
    drop(writer);
    command.stdin(reader).current_dir(&keys);
    Running::listening(command).end();
    let of_server = "tls_cert = 'DIR/keys/c.test.pem'\ntls_key = 'DIR/keys/c.test.key'\n";
    let config = format!("{of_server}{SECURE}");
    let sites = Sites::new(&config, with_keys);
    for name in ["keys/b.test.pem", "keys/c.test.key"] {
        fs::remove_file(sites.path(name)).unwrap();
        assert!(Command::new("mkfifo").arg(sites.path(name)).status().unwrap().success());
    }
    sites.reload(&config.replace("DIR/a'", "DIR/b'"));
    let url = format!("https://a.test:{}/same", sites.port());
    until("the reload has ended", || sites.curl(&["-k", &url]).text() == "of b\n");
    let said = sites.end().0;
    for name in ["b.test.pem", "c.test.key"] {
        let expected = format!("{name} is not a regular file: others are read only at the start");
        assert!(said.contains(&expected), "{said}");
    }
    assert_eq!(said.matches("the previous certificate stays in use").count(), 2, "{said}");
}

#[test]
fn a_reload_that_waits_does_not_keep_the_server_from_ending() {
    let Some((sites, fuse)) = with_a_key_on_fuse("") else { return };
    let _stopped = fuse.stop();
    sites.server.signal("HUP");
    until("the reload waits", || waits_for_fuse(&sites.server));
    sites.end();
}

#[test]
fn a_refused_config_without_a_cache_does_not_lose_the_cache() {
    let origin = Sites::with("", &["b"], two_roots);
    let site = "[[site]]\nnames = ['a.test']\nroot = 'DIR/a'\n";
    let config = format!(
        "{site}[[site]]\nnames = ['b.test']\norigin = '{}'\ncache = 'DIR/cache'\ncache_free = '0'\n",
        origin.server.address
    );
    let sites = Sites::with(&config, &["--no-sandbox"], two_roots);
    // That a name is there twice is found once all is open.
    let read = ReadWatch::new(&sites.path("config/underpass.toml"), WatchFlags::CLOSE_NOWRITE);
    sites.reload(&format!("{site}{site}"));
    // No later SIGHUP is one with this.
    read.wait();
    sites.reload(&config.replace("DIR/a'", "DIR/b'"));
    until("the right config counts", || sites.body("a.test", "/same") == "of b\n");
    assert_eq!(sites.body("b.test", "/same"), "of b\n");
    let notes = sites.end().0;
    assert!(notes.contains("the previous sites stay in use"), "{notes}");
}

#[test]
fn a_reload_waits_until_another_program_has_released_its_lease() {
    if !has("curl") || !has("python3") {
        return;
    }
    let sites = Sites::new(SECURE, with_keys);
    write_config(sites.folder.path(), &SECURE.replace("DIR/b'", "DIR/a'"));
    let names = ["config/underpass.toml", "keys/a.test.pem", "keys/b.test.pem", "keys/b.test.key"];
    let holders = names.map(|name| hold_lease(&sites.path(name)));
    sites.server.signal("HUP");
    let url = format!("https://b.test:{}/same", sites.port());
    until("the new config counts", || sites.curl(&["-k", &url]).text() == "of a\n");
    for holder in holders {
        holder.finish().succeeded();
    }
    let said = sites.end().0;
    assert!(!said.contains("stays in use"), "{said}");
}

#[test]
fn a_pipe_is_no_authority_for_which_the_server_waits() {
    // In the sandbox, the folder of a new cache is refused anyway.
    let sites = Sites::with(TWO, &["--no-sandbox"], two_roots);
    let (pem, _) = certificate(sites.folder.path(), "authority", &["authority"]);
    let pipe = sites.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let site = |authority: &str| {
        format!(
            "{TWO}\n[[site]]\nnames = ['c.test']\norigin = 'https://localhost:1'\n\
             cache = 'DIR/cache'\norigin_cacert = '{authority}'\n"
        )
    };
    // As in `--origin-cacert <(...)`: at the start a pipe has a certificate.
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(&fs::read(pem).unwrap()).unwrap();
    drop(writer);
    let of_start = |authority: &str| {
        write_config(sites.folder.path(), &site(authority));
        let mut command = underpass();
        command.args(["serve", "--port", "0", "--config"]);
        command.arg(sites.path("config/underpass.toml"));
        command
    };
    let mut command = of_start("/dev/stdin");
    command.stdin(reader);
    Running::listening(command).end();
    let refused = Running::start(of_start("DIR/pipe")).finish().failed(2, &["a named pipe"]);
    assert_eq!(refused.stderr.lines().count(), 1, "{}", refused.stderr);
    let read = ReadWatch::new(&sites.path("config/underpass.toml"), WatchFlags::CLOSE_NOWRITE);
    sites.server.signal("HUP");
    // No later SIGHUP is one with this.
    read.wait();
    sites.reload(&TWO.replace("DIR/a", "DIR/b"));
    until("the next config counts", || sites.body("a.test", "/same") == "of b\n");
    let said = sites.end().0;
    let lines: Vec<_> = said.lines().filter(|line| line.contains("pipe")).collect();
    assert!(matches!(lines[..], [line] if line.contains("stay in use")), "{said}");
}
