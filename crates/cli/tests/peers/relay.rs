//! A slow network that can go down, between a client and a server on this machine.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rustix::net::sockopt::set_socket_recv_buffer_size;

/// Passes connections on; towards the server slowly, and no more than is allowed.
pub(crate) struct Relay {
    address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    is_down: AtomicBool,
    /// How often it went down.
    breaks: AtomicU64,
    /// Bytes that may still go to the server.
    allowance: AtomicI64,
}

impl Relay {
    /// One to the server of this address, such as `http://127.0.0.1:5000/`.
    pub(crate) fn new(server: &str) -> Self {
        let server = server.split('/').nth(2).unwrap().to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // Buffers are small, so that bytes that the client has sent have nearly arrived.
        set_socket_recv_buffer_size(&listener, 64 << 10).unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::<State>::default();
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(&server) else { return };
                if shared.is_down.load(Ordering::Relaxed) {
                    continue;
                }
                for (from, to, is_up) in [(&client, &server, true), (&server, &client, false)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let shared = Arc::clone(&shared);
                    let begun = shared.breaks.load(Ordering::Relaxed);
                    thread::spawn(move || pass_on(&from, &to, is_up, begun, &shared));
                }
            }
        });
        Self { address, state }
    }

    /// The address that clients use instead of the server's.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Breaks all connections and lets no new ones through, or does again.
    pub(crate) fn set_down(&self, is_down: bool) {
        self.state.breaks.fetch_add(u64::from(is_down), Ordering::Relaxed);
        self.state.is_down.store(is_down, Ordering::Relaxed);
    }

    /// Lets so many bytes more through to the server, give or take a piece.
    pub(crate) fn allow(&self, bytes: usize) {
        self.state.allowance.fetch_add(bytes as i64, Ordering::Relaxed);
    }
}

/// Passes on what comes until either end, or the network, is gone.
fn pass_on(mut from: &TcpStream, mut to: &TcpStream, is_up: bool, begun: u64, state: &State) {
    let _ = from.set_read_timeout(Some(PAUSE));
    let mut piece = [0; 16 << 10];
    while state.breaks.load(Ordering::Relaxed) == begun {
        if is_up && state.allowance.load(Ordering::Relaxed) <= 0 {
            thread::sleep(PAUSE);
            continue;
        }
        match from.read(&mut piece) {
            Ok(0) => break,
            Ok(len) if to.write_all(&piece[..len]).is_err() => break,
            Ok(len) if is_up => {
                state.allowance.fetch_sub(len as i64, Ordering::Relaxed);
                thread::sleep(PAUSE);
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => break,
        }
    }
    for end in [from, to] {
        // The connection may be closed already.
        let _ = end.shutdown(Shutdown::Both);
    }
}

/// After each piece towards the server: about 3 MiB a second.
const PAUSE: Duration = Duration::from_millis(5);
