//! The kinds of bad clients: the server that they need, and what a connection does in its turn.

use std::fs;
use std::io::{self, ErrorKind};
use std::sync::LazyLock;

use super::connection::BadConnection;
use crate::error::{Result, WithPath};
use crate::load::{
    Host, LoadConnection, NGINX, NGINX_DAV, ServerFixture, ServerKind, ServerProgram,
};
use crate::record::{BadClients, Contender};

#[derive(Clone, Copy)]
pub(super) struct BadLoad {
    /// The server that is started, if it is ours.
    pub(super) ours: &'static [&'static str],
    /// The configuration of nginx under the same load, if there is one.
    nginx: Option<&'static ServerProgram>,
    /// Whether the server speaks TLS, to the good client as well.
    pub(super) is_encrypted: bool,
    /// Whether bad connections are as many as the server allows, so that it must close some.
    pub(super) fills_server: bool,
    /// The number of turns that all connections together have in a second.
    pub(super) turns_per_second: u32,
    pub(super) files: Files,
    pub(super) credentials: Option<&'static str>,
    /// Takes the turn of a connection. After an error it is closed, and starts over at its next.
    pub(super) turn: fn(&mut BadConnection, &Host) -> io::Result<()>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Files {
    Folder,
    Large,
    None,
}

impl BadLoad {
    /// Returns the server for this load; `None` if the contender does not support it.
    pub(super) fn server(&self, contender: Contender) -> Option<ServerKind> {
        match contender {
            Contender::Underpass => Some(ServerKind::Underpass(self.ours)),
            Contender::Nginx => self.nginx.map(|nginx| ServerKind::Other(nginx, None)),
            // The bare loop accepts only short heads, for files that exist.
            Contender::BareLoop if self.files != Files::Large => None,
            // The others are not set up for TLS and uploads.
            other => {
                let sends_files = self.nginx == Some(&NGINX) && !self.is_encrypted;
                sends_files.then(|| other.into())
            }
        }
    }

    pub(super) fn prepare(&self, fixture: &mut ServerFixture<'_>) -> Result<()> {
        match self.files {
            Files::None => Ok(()),
            Files::Large => fixture.create_file(LARGE, LARGE_BYTES).map(drop),
            Files::Folder => {
                let folder = fixture.site.file(FOLDER);
                fs::create_dir_all(&folder).with_path("creating", &folder)?;
                (0..ENTRIES).try_for_each(|number| {
                    let file =
                        folder.join(format!("a file of a folder with many of them {number}"));
                    Ok(fs::write(&file, b"").with_path("writing", file)?)
                })
            }
        }
    }

    pub(super) fn good_request(&self, host: &Host, path: &str) -> Vec<u8> {
        match self.credentials {
            Some(credentials) => with_credentials(host, path, credentials),
            None => host.request(path),
        }
    }
}

pub(super) fn load(kind: BadClients) -> BadLoad {
    let plain = BadLoad {
        ours: &[],
        nginx: Some(&NGINX),
        is_encrypted: false,
        fills_server: false,
        turns_per_second: 2000,
        files: Files::None,
        credentials: None,
        turn: |connection, _| connection.look(),
    };
    let idle = BadLoad { fills_server: true, turns_per_second: 4000, ..plain };
    let large = BadLoad { files: Files::Large, ..plain };
    let folder = BadLoad { nginx: None, turns_per_second: 1000, files: Files::Folder, ..plain };
    match kind {
        BadClients::Idle => idle,
        BadClients::SlowHeads => {
            BadLoad { turn: |connection, _| connection.trickle(&HEAD), ..idle }
        }
        BadClients::PartialHellos => {
            let turn = |connection: &mut BadConnection, _: &Host| connection.trickle(&HELLO);
            BadLoad { is_encrypted: true, turn, ..idle }
        }
        BadClients::SlowReaders => BadLoad { turns_per_second: 4000, turn: read_slowly, ..large },
        BadClients::Resets => BadLoad { turn: reset, ..large },
        BadClients::Ranges => {
            BadLoad { turn: |connection, _| connection.ask_again(&RANGES), ..large }
        }
        BadClients::Handshakes => BadLoad { is_encrypted: true, turn: handshake, ..plain },
        BadClients::Passwords => BadLoad {
            ours: PASSWORD,
            nginx: None,
            credentials: Some(RIGHT),
            turn: try_password,
            ..plain
        },
        BadClients::Pipelines => BadLoad { turns_per_second: 1000, turn: pipeline, ..plain },
        BadClients::Archives => BadLoad { turn: ask_for_archive, ..folder },
        BadClients::Listings => BadLoad { turn: ask_for_listing, ..folder },
        BadClients::SlowUploads => BadLoad {
            ours: &["--allow-upload"],
            nginx: Some(&NGINX_DAV),
            turn: upload_slowly,
            ..plain
        },
    }
}

fn read_slowly(connection: &mut BadConnection, host: &Host) -> io::Result<()> {
    connection.say(&host.request(&format!("/{LARGE}")))?;
    connection.read(1 << 10).map(drop)
}

/// Resets the connection in the middle of a download, by closing it with unread bytes.
fn reset(connection: &mut BadConnection, host: &Host) -> io::Result<()> {
    connection.say(&host.request(&format!("/{LARGE}")))?;
    match connection.read(1 << 10)? {
        0 => Ok(()),
        _ => Err(ErrorKind::ConnectionReset.into()),
    }
}

fn handshake(connection: &mut BadConnection, host: &Host) -> io::Result<()> {
    let Some(tls) = &mut connection.tls else {
        let mut tls = LoadConnection::new(connection.stream.try_clone()?, host.tls.as_ref())?;
        match tls.ask(&host.request("/small")) {
            // The socket is not connected yet.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            outcome => outcome?,
        }
        connection.tls = Some(tls);
        return Ok(());
    };
    match tls.read(&mut [0; 16 << 10]) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Err(ErrorKind::UnexpectedEof.into()),
    }
}

/// Tries a new wrong password each time, while the good client has the right one.
fn try_password(connection: &mut BadConnection, host: &Host) -> io::Result<()> {
    // `me:` and eight letters that are different each time.
    let number = connection.index as u64 * 100_003 + u64::from(connection.turns);
    let letters: Vec<u8> = (0..8).map(|at| b'a' + (number >> (4 * at) & 15) as u8).collect();
    let letters = String::from_utf8_lossy(&letters).into_owned();
    connection.ask_again(&with_credentials(host, "/small", &format!("bWU6{letters}")))
}

fn pipeline(connection: &mut BadConnection, _host: &Host) -> io::Result<()> {
    connection.look()?;
    // As many as the sockets take, but no more than a few at a turn.
    for _ in 0..4 {
        if !connection.say(&LONG)? {
            break;
        }
        connection.sent = 0;
    }
    Ok(())
}

/// Asks for the length of the tar of a large folder; each connection has an archive of its own.
fn ask_for_archive(connection: &mut BadConnection, _host: &Host) -> io::Result<()> {
    let number = connection.index;
    let request =
        format!("HEAD /{FOLDER}/?archive=tar&{number} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    connection.ask_again(request.as_bytes())
}

fn ask_for_listing(connection: &mut BadConnection, host: &Host) -> io::Result<()> {
    connection.look()?;
    connection.say(&host.request(&format!("/{FOLDER}/"))).map(drop)
}

fn upload_slowly(connection: &mut BadConnection, _host: &Host) -> io::Result<()> {
    let number = connection.index;
    let head = format!(
        "PUT /upload{number} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n"
    );
    connection.trickle(head.as_bytes())
}

fn with_credentials(host: &Host, path: &str, credentials: &str) -> Vec<u8> {
    let mut request = host.request(path);
    request.truncate(request.len() - 2);
    request.extend(format!("Authorization: Basic {credentials}\r\n\r\n").into_bytes());
    request
}

/// A head of 31 KB without its end, of lines that nginx accepts as well.
static HEAD: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut head = "GET /small HTTP/1.1\r\nHost: localhost\r\n".to_owned();
    for number in 0..30 {
        head += &format!("X-{number}: {}\r\n", "x".repeat(1000));
    }
    (head + "X-Last: ").into_bytes()
});

/// Four records of a first message of 64 KiB, without the end of the last one.
static HELLO: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut hello = Vec::new();
    for number in 0..4 {
        let record = hello.len();
        hello.extend([22, 3, 1, 0x40, 0]);
        if number == 0 {
            hello.extend([1, 0, 0xff, 0xf0]);
        }
        hello.resize(record + 5 + (16 << 10), 3);
    }
    hello.truncate(hello.len() - 4000);
    hello
});

/// A request for as many ranges of the large file as fit into a head, all of which overlap.
static RANGES: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let ranges: Vec<_> = (0..700).map(|from| format!("{from}-{}", 5000 - from)).collect();
    let ranges = ranges.join(",");
    format!("GET /{LARGE} HTTP/1.1\r\nHost: localhost\r\nRange: bytes={ranges}\r\n\r\n").into()
});

/// A request as long as nginx accepts.
static LONG: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let (query, agent) = ("q".repeat(7500), "u".repeat(7500));
    let head = format!("GET /nothing?{query} HTTP/1.1\r\nHost: localhost\r\n");
    format!("{head}User-Agent: {agent}\r\nReferer: {agent}\r\n\r\n").into_bytes()
});

/// `me:bench` in base64.
const RIGHT: &str = "bWU6YmVuY2g=";

/// A user `me` with the password `bench`, hashed with the usual parameters.
const PASSWORD: &[&str] = &[
    "--auth",
    "me:$argon2id$v=19$m=19456,t=2,p=1$MDEyMzQ1Njc4OWFiY2RlZg$\
    kQ1Ov47D8zGuzypRvwiRDuIl27p4HEL6tGhN5D81Zq8@/",
];

const LARGE: &str = "large";

const LARGE_BYTES: u64 = 32 << 20;

const FOLDER: &str = "folder";

const ENTRIES: u32 = 20_000;
