//! A server whose files and faults a test decides, and which remembers what it was asked.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};

/// What the server has at a path.
#[derive(Clone, Debug, Default)]
pub(crate) struct Page {
    pub(crate) body: Vec<u8>,
    /// Fields such as `ETag: "1"`.
    pub(crate) fields: Vec<String>,
    /// After so many bytes of the body the connection ends.
    pub(crate) cut: Option<usize>,
    /// Another status than 200.
    pub(crate) status: Option<u16>,
}

impl Page {
    pub(crate) fn new(body: &[u8], fields: &[&str]) -> Self {
        let fields = fields.iter().map(|field| (*field).to_owned()).collect();
        Self { body: body.to_vec(), fields, ..Self::default() }
    }
}

/// A request and what it got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) status: u16,
    /// Bytes of the body that were sent.
    pub(crate) sent: usize,
    pub(crate) head: String,
}

#[derive(Debug, Default)]
struct State {
    pages: BTreeMap<String, Page>,
    asked: Vec<Asked>,
}

/// The server.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl Origin {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::<Mutex<State>>::default();
        let shared = Arc::clone(&state);
        // It ends with the process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                std::thread::spawn(move || serve(&stream, &state));
            }
        });
        Self { address, state }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Puts a page at a path, or removes it.
    pub(crate) fn set(&self, path: &str, page: impl Into<Option<Page>>) {
        let mut state = lock(&self.state);
        match page.into() {
            Some(page) => state.pages.insert(path.to_owned(), page),
            None => state.pages.remove(path),
        };
    }

    /// Returns what was asked since the last call.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut lock(&self.state).asked)
    }

    /// Returns the same in short: `GET /a 200 5`.
    pub(crate) fn log(&self) -> Vec<String> {
        let line = |it: Asked| format!("{} {} {} {}", it.method, it.path, it.status, it.sent);
        self.asked().into_iter().map(line).collect()
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap()
}

fn serve(stream: &TcpStream, state: &Mutex<State>) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if !reader.read_line(&mut head).is_ok_and(|read| read > 0) {
                return;
            }
        }
        let is_put = head.starts_with("PUT ");
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        let length = length.and_then(|length| length.parse().ok()).unwrap_or(0);
        if is_put && reader.read_exact(&mut vec![0; length]).is_err() {
            return;
        }
        if !answer(stream, state, head) {
            let _ = stream.shutdown(Shutdown::Both);
            return;
        }
    }
}

/// Answers a request; returns whether the connection can be used again.
fn answer(mut stream: &TcpStream, state: &Mutex<State>, head: String) -> bool {
    let mut words = head.split(' ');
    let (method, path) = (words.next().unwrap().to_owned(), words.next().unwrap().to_owned());
    let field = |name: &str| {
        let line = head.lines().find(|line| line.to_lowercase().starts_with(&format!("{name}: ")));
        line.map(|line| line[name.len() + 2..].to_owned())
    };
    let page = lock(state).pages.get(&path).cloned();
    let mut page = page.unwrap_or(Page { status: Some(404), ..Page::default() });
    if method == "PUT" {
        let refused = page.status.filter(|status| *status == 403);
        page = Page { status: refused.or(Some(201)), ..Page::default() };
    }
    let tag = page.fields.iter().find_map(|field| field.strip_prefix("ETag: "));
    if tag.is_some() && field("if-none-match").as_deref() == tag {
        (page.status, page.cut) = (Some(304), None);
        page.body.clear();
    }
    let (status, len) = (page.status.unwrap_or(200), page.body.len());
    let has_body = method == "GET" && status != 304;
    let sent = if has_body { page.cut.unwrap_or(len).min(len) } else { 0 };
    let mut text = format!("HTTP/1.1 {status} x\r\n");
    page.fields.iter().for_each(|field| text += &format!("{field}\r\n"));
    if status != 304 && !text.contains("Connection: close") {
        text += &format!("Content-Length: {len}\r\n");
    }
    let asked = Asked { method, path, status, sent, head: head.clone() };
    lock(state).asked.push(asked);
    let bytes = [text.as_bytes(), b"\r\n", &page.body[..sent]].concat();
    stream.write_all(&bytes).is_ok()
        && !(has_body && sent < len)
        && !text.contains("Connection: close")
}
