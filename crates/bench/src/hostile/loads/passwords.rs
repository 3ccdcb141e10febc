//! Wrong passwords, each another one, while somebody has the right one.

use std::io;

use super::super::load::{Connection, Load};
use crate::serve::{Host, Kind};

pub(crate) struct Passwords;

impl Load for Passwords {
    fn ours(&self) -> Kind {
        Kind::Underpass(OPTIONS)
    }

    fn nginx(&self) -> Option<Kind> {
        None
    }

    fn good_request(&self, host: &Host, path: &str) -> Vec<u8> {
        request(host, path, RIGHT)
    }

    fn turns_per_second(&self) -> u32 {
        2000
    }

    fn turn(&self, connection: &mut Connection, host: &Host) -> io::Result<()> {
        // `me:` and eight letters that are always others.
        let number = connection.index as u64 * 100_003 + u64::from(connection.turns);
        let letters: Vec<u8> = (0..8).map(|at| b'a' + (number >> (4 * at) & 15) as u8).collect();
        let letters = String::from_utf8_lossy(&letters).into_owned();
        connection.ask_again(&request(host, "/small", &format!("bWU6{letters}")))
    }
}

fn request(host: &Host, path: &str, credentials: &str) -> Vec<u8> {
    let mut request = host.request(path);
    request.truncate(request.len() - 2);
    request.extend(format!("Authorization: Basic {credentials}\r\n\r\n").into_bytes());
    request
}

/// `me:bench` in base64.
const RIGHT: &str = "bWU6YmVuY2g=";

/// A user `me` with the password `bench`, hashed with the usual parameters.
const OPTIONS: &[&str] = &[
    "--auth",
    "me:$argon2id$v=19$m=19456,t=2,p=1$MDEyMzQ1Njc4OWFiY2RlZg$\
    kQ1Ov47D8zGuzypRvwiRDuIl27p4HEL6tGhN5D81Zq8@/",
];
