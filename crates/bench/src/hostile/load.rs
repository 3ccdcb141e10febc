//! What a kind of bad clients is, and what each of their connections can do.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SocketFlags, SocketType, bind, connect, recv, socket_with, sockopt,
};
use serde::{Deserialize, Serialize};

use super::loads;
use crate::error::Result;
use crate::serve::{Host, Kind as Server, Stage, Wire};

/// The kinds of bad clients.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// They connect and say nothing
    Idle,
    /// They send a long head, the end of it a byte at a time
    SlowHeads,
    /// They ask for a large file and read a little now and then
    SlowReaders,
    /// They ask for a large file and reset the connection
    Resets,
    /// They ask for as many ranges as fit into a head
    Ranges,
    /// They begin a handshake and do not end it
    PartialHellos,
    /// They shake hands, ask once and leave
    Handshakes,
    /// They try passwords
    Passwords,
    /// They ask again and again and never read
    Pipelines,
    /// They ask how large a folder is as a tar
    Archives,
    /// They ask for the page of a large folder and do not read it
    Listings,
    /// They upload a byte at a time
    SlowUploads,
}

/// A kind of bad clients. Its connections take turns, of which each is short.
pub(crate) trait Load: Sync {
    /// The server that is started, if it is ours.
    fn ours(&self) -> Server {
        Server::Underpass(&[])
    }

    /// The server that is started, if it is nginx; none if nginx has nothing of the kind.
    fn nginx(&self) -> Option<Server> {
        Some(Server::Nginx)
    }

    /// Whether the server speaks TLS, to the good client as well.
    fn is_encrypted(&self) -> bool {
        false
    }

    /// Whether the server may have no more connections than the bad clients: theirs are idle, and
    /// have to give way.
    fn fills_server(&self) -> bool {
        false
    }

    /// Makes the files that are asked for.
    fn prepare(&self, _stage: &mut Stage<'_>) -> Result<()> {
        Ok(())
    }

    /// What the good client asks.
    fn good_request(&self, host: &Host, path: &str) -> Vec<u8> {
        host.request(path)
    }

    /// How many turns all connections together have in a second.
    fn turns_per_second(&self) -> u32;

    /// Takes the turn of a connection. After an error it is closed, and begun anew at its next turn.
    fn turn(&self, connection: &mut Connection, host: &Host) -> io::Result<()>;
}

impl Kind {
    /// All of them, in the order in which they are measured.
    pub(crate) fn all() -> Vec<Self> {
        <Self as clap::ValueEnum>::value_variants().to_vec()
    }

    /// What it does.
    pub(crate) fn load(self) -> &'static dyn Load {
        match self {
            Self::Idle => &loads::Idle,
            Self::SlowHeads => &loads::SlowHeads,
            Self::SlowReaders => &loads::SlowReaders,
            Self::Resets => &loads::Resets,
            Self::Ranges => &loads::Ranges,
            Self::PartialHellos => &loads::PartialHellos,
            Self::Handshakes => &loads::Handshakes,
            Self::Passwords => &loads::Passwords,
            Self::Pipelines => &loads::Pipelines,
            Self::Archives => &loads::Archives,
            Self::Listings => &loads::Listings,
            Self::SlowUploads => &loads::SlowUploads,
        }
    }

    /// What it is called.
    pub(crate) fn name(self) -> String {
        clap::ValueEnum::to_possible_value(&self)
            .map_or_else(String::new, |value| value.get_name().replace('-', " "))
    }
}

/// A connection of a bad client, which never waits.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    /// Which of all connections it is.
    pub(crate) index: usize,
    /// Turns that it has had.
    pub(crate) turns: u32,
    /// Bytes that it has sent.
    pub(crate) sent: usize,
    /// TLS over it, for those who use it.
    pub(crate) wire: Option<Wire>,
}

impl Connection {
    /// Begins to connect, from an address of its own share of loopback.
    pub(crate) fn begin(host: &Host, index: usize) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        // What is not read stays with the server.
        sockopt::set_socket_recv_buffer_size(&socket, RECEIVE_BUFFER)?;
        // Ends with a reset, so that no port waits for a minute.
        sockopt::set_socket_linger(&socket, Some(Duration::ZERO))?;
        let last = u8::try_from(1 + index % ADDRESSES).unwrap_or(1);
        bind(&socket, &SocketAddrV4::new(Ipv4Addr::new(127, 0, 1, last), 0))?;
        match connect(&socket, &host.address) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(errno) => return Err(errno.into()),
        }
        Ok(Self { stream: socket.into(), index, turns: 0, sent: 0, wire: None })
    }

    /// Sends what is missing of these bytes, as far as the socket takes it; whether that was all.
    pub(crate) fn say(&mut self, bytes: &[u8]) -> io::Result<bool> {
        while self.sent < bytes.len() {
            match self.stream.write(&bytes[self.sent..]) {
                Ok(len) => self.sent += len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Sends these bytes, and then one more at each turn.
    pub(crate) fn trickle(&mut self, begin: &[u8]) -> io::Result<()> {
        self.look()?;
        if self.say(begin)? {
            match self.stream.write(b"x") {
                Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Fails if the server has ended the connection.
    pub(crate) fn look(&self) -> io::Result<()> {
        match recv(&self.stream, &mut [0; 1], RecvFlags::PEEK) {
            Ok((_, 0)) => Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) | Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Reads at most `most` bytes, and how many there were; fails at the end.
    pub(crate) fn take(&mut self, most: usize) -> io::Result<usize> {
        let mut taken = 0;
        let mut buffer = [0; 16 << 10];
        while taken < most {
            let room = buffer.len().min(most - taken);
            match self.stream.read(&mut buffer[..room]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(len) => taken += len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(taken)
    }

    /// Asks, reads what comes, and asks again when anything of an answer has come.
    pub(crate) fn ask_again(&mut self, request: &[u8]) -> io::Result<()> {
        if self.say(request)? && self.take(1 << 20)? > 0 {
            self.sent = 0;
            self.say(request)?;
        }
        Ok(())
    }
}

/// The addresses from which bad clients come.
const ADDRESSES: usize = 64;

const RECEIVE_BUFFER: usize = 16 << 10;

/// The name of the large file.
pub(crate) const LARGE: &str = "large";

/// Its size.
pub(crate) const LARGE_BYTES: u64 = 32 << 20;

/// The name of the folder with many files.
pub(crate) const FOLDER: &str = "folder";

/// Makes the large file.
pub(crate) fn make_large(stage: &mut Stage<'_>) -> Result<()> {
    stage.make(LARGE, LARGE_BYTES).map(drop)
}

/// Makes the folder with many files.
pub(crate) fn make_folder(stage: &Stage<'_>) -> Result<()> {
    use crate::error::WithPath;
    let folder = stage.site.file(FOLDER);
    std::fs::create_dir_all(&folder).with_path("creating", &folder)?;
    for number in 0..ENTRIES {
        let file = folder.join(format!("a file of a folder with many of them {number}"));
        std::fs::write(&file, b"").with_path("writing", file)?;
    }
    Ok(())
}

/// Files of that folder.
const ENTRIES: u32 = 20_000;
