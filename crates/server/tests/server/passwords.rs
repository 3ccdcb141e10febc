//! Passwords that are slow to check: who waits for whom.

use std::net::{Shutdown, SocketAddr};
use std::time::Duration;

use argon2::password_hash::PasswordHasher;
use argon2::{Argon2, Params};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::rig::{Client, Running, Site, request};

/// A site of which alice may read everything, with a password that takes so much memory to check.
fn site(kib: u32) -> Running {
    let params = Params::new(kib, 1, 1, None).unwrap();
    let hash =
        Argon2::from(params).hash_password_with_salt(b"secret", b"saltstring").unwrap().to_string();
    let site = Site::of(&[("a", b"contents"), ("open/a", b"open")]);
    site.auth(&[&format!("alice:{hash}@/"), "@/open"]).start()
}

fn basic(credentials: &str) -> String {
    format!("Authorization: Basic {}", STANDARD.encode(credentials))
}

/// Checks whether a client's wrong password, sent through the same proxy, is refused while the one
/// that another client sent before still waits for its refusal.
fn is_faster_than(site: &Running, patient: &str, new: &str) -> bool {
    let guess = |of: &str| {
        let mut proxy = site.connect();
        let forwarded = format!("X-Forwarded-For: {of}");
        proxy.send(request("GET", "/a", &[&basic("alice:wrong"), &forwarded]));
        proxy
    };
    let (mut delayed, mut fresh) = (guess(patient), guess(new));
    assert_eq!(fresh.reply().status, 401);
    delayed.stream.set_nonblocking(true).unwrap();
    delayed.head().is_err()
}

#[test]
fn behind_a_proxy_each_client_waits_for_its_own_wrong_passwords() {
    let hash = Argon2::from(Params::new(8, 1, 1, None).unwrap());
    let hash = hash.hash_password_with_salt(b"secret", b"saltstring").unwrap().to_string();
    let site = Site::of(&[("a", b"contents")]).auth(&[&format!("alice:{hash}@/")]);
    let site = site.with(|settings| settings.trusted_proxies.add("127.0.0.1").unwrap()).start();
    let guesses: Vec<_> = (0..16)
        .map(|number| {
            let mut proxy = site.connect();
            let wrong = basic(&format!("alice:guess{number}"));
            proxy.send(request("GET", "/a", &[&wrong, "X-Forwarded-For: 192.0.2.1"]));
            proxy
        })
        .collect();
    for mut guess in guesses {
        // On a busy machine too many of them are waiting.
        let status = guess.reply().status;
        assert!(matches!(status, 401 | 429), "{status}");
    }
    // If the proxy's address counted, the second could never be faster; on a busy machine it may
    // need some attempts.
    let new = (2..12).find(|last| is_faster_than(&site, "192.0.2.1", &format!("192.0.2.{last}")));
    assert!(new.is_some());
}

/// A connection from another address of this machine.
fn connect_from(site: &Running, last: u8) -> Client {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let from = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&from, &SocketAddr::from(([127, 0, 0, last], 0))).unwrap();
    connect(&from, &site.socket()).unwrap();
    Client::new(from.into())
}

#[test]
fn a_right_password_is_accepted_while_others_guess() {
    let site = site(64 << 10);
    let mut guessing: Vec<Client> = (0..100)
        .map(|number| {
            let mut client = connect_from(&site, 2);
            client.send(request("GET", "/a", &[&basic(&format!("alice:guess{number}"))]));
            client
        })
        .collect();
    // The queue is full once the first are refused.
    let mut refused = None;
    super::rig::wait_until("a refusal", || {
        refused = guessing.iter_mut().find_map(|client| {
            client.stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
            client.head().ok().filter(|reply| reply.status == 429)
        });
        refused.is_some()
    });
    assert_eq!(refused.unwrap().field("Retry-After"), Some("1"));
    let alice = [&*basic("alice:secret")];
    assert_eq!(site.ask("GET", "/a", &alice).text(), "contents", "whose turn comes next");
    assert_eq!(site.get("/open/a").text(), "open");
    // A refusal may have arrived meanwhile; the queue is far from empty anyway.
    let is_waiting = |client: &mut Client| {
        client.stream.set_nonblocking(true).unwrap();
        client.head().is_err()
    };
    let waiting = guessing.iter_mut().map(is_waiting).filter(|&is_waiting| is_waiting).count();
    assert!(waiting > 20, "only {waiting} are left: the others were served first");
    for _ in 0..100 {
        assert_eq!(site.ask("GET", "/a", &alice).status, 200, "the password is remembered");
    }
}

#[test]
fn closed_clients_are_not_awaited_and_half_closed_ones_are_answered() {
    let site = site(8);
    let mut client = site.connect();
    client.send(request("GET", "/a", &[&basic("alice:secret")]));
    client.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.reply().text(), "contents");
}

#[test]
fn a_client_that_leaves_instead_of_waiting_learns_nothing() {
    let site = Site::of(&[("a", b"contents")]).auth(&["bob:right@/"]).start();
    let begin = |password: &str| {
        let mut client = site.connect();
        client.send(request("GET", "/a", &[&basic(&format!("bob:{password}"))]));
        client
    };
    let known = connect_from(&site, 2).ask("GET", "/a", &[&basic("bob:right")]);
    assert_eq!(known.status, 200);
    // Those that leave at once are too few to have anything checked for the rest.
    let mut waiting: Vec<_> = (0..40).map(|number| begin(&format!("wrong{number}"))).collect();
    super::rig::wait_until("the guesses count", || {
        let wrong = site.ask("GET", "/a", &[&basic("bob:wrong")]).status;
        assert!(matches!(wrong, 401 | 429));
        wrong == 429
    });
    assert_eq!(begin("right").reply().status, 429, "another guess waits already");
    let again = connect_from(&site, 2).ask("GET", "/a", &[&basic("bob:right")]);
    assert_eq!(again.status, 200, "another address, that has used it");
    waiting.clear();
    super::rig::wait_until("its turn comes", || {
        std::thread::sleep(Duration::from_millis(100));
        begin("right").reply().status == 200
    });
    assert_eq!(begin("right").reply().text(), "contents");
}

#[test]
fn wrong_passwords_are_answered_later_and_later_but_right_ones_at_once() {
    let site = site(8);
    let mut slowest = Duration::ZERO;
    for number in 1..=12 {
        let begun = std::time::Instant::now();
        let wrong = basic(&format!("alice:wrong{}", number % 4));
        let reply = site.ask("GET", "/a", &[&wrong]);
        assert_eq!(reply.status, 401, "{number}");
        slowest = begun.elapsed();
    }
    assert!(slowest >= Duration::from_millis(800), "{slowest:?}: the delay doubles");
    assert_eq!(site.ask("GET", "/a", &[&basic("alice:secret")]).status, 200);
}
