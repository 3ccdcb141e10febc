//! A server whose files and faults a test decides, and which records its requests.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, MutexGuard};

use underpass_testkit::http::{Request, Server, close};

/// The server's content at a path.
#[derive(Clone, Debug, Default)]
pub(crate) struct Page {
    pub(crate) body: Vec<u8>,
    /// Fields such as `ETag: "1"`.
    pub(crate) fields: Vec<String>,
    /// The number of bytes of the body after which the connection ends.
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

/// A request and its response.
#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    pub(crate) request: Request,
    pub(crate) status: u16,
    /// Bytes of the body that were sent.
    pub(crate) sent: usize,
}

#[derive(Debug, Default)]
struct State {
    pages: BTreeMap<String, Page>,
    exchanges: Vec<Exchange>,
}

/// The server.
#[derive(Debug)]
pub(crate) struct Origin {
    server: Server,
    state: Arc<Mutex<State>>,
}

impl Origin {
    pub(crate) fn start() -> Self {
        let state = Arc::<Mutex<State>>::default();
        let shared = Arc::clone(&state);
        let server = Server::start(move |request, stream| answer(request, stream, &shared));
        Self { server, state }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        self.server.url(path)
    }

    /// Puts a page at a path, or removes it.
    pub(crate) fn set(&self, path: &str, page: impl Into<Option<Page>>) {
        let mut state = lock(&self.state);
        match page.into() {
            Some(page) => state.pages.insert(path.to_owned(), page),
            None => state.pages.remove(path),
        };
    }

    /// Returns the requests since the last call.
    pub(crate) fn take_exchanges(&self) -> Vec<Exchange> {
        std::mem::take(&mut lock(&self.state).exchanges)
    }

    /// Returns the requests in short form: `GET /a 200 5`.
    pub(crate) fn log(&self) -> Vec<String> {
        let line = |Exchange { request: Request { method, path, .. }, status, sent }: Exchange| {
            format!("{method} {path} {status} {sent}")
        };
        self.take_exchanges().into_iter().map(line).collect()
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap()
}

/// Answers a request; fails where the connection cannot be used again.
fn answer(request: &Request, stream: &mut TcpStream, state: &Mutex<State>) -> io::Result<()> {
    let page = lock(state).pages.get(&request.path).cloned();
    let mut page = page.unwrap_or(Page { status: Some(404), ..Page::default() });
    if request.method == "PUT" {
        let refused = page.status.filter(|status| *status == 403);
        page = Page { status: refused.or(Some(201)), ..Page::default() };
    }
    let tag = page.fields.iter().find_map(|field| field.strip_prefix("ETag: "));
    if tag.is_some() && request.field("if-none-match") == tag {
        (page.status, page.cut) = (Some(304), None);
        page.body.clear();
    }
    let (status, len) = (page.status.unwrap_or(200), page.body.len());
    let has_body = request.method == "GET" && status != 304;
    let sent = if has_body { page.cut.unwrap_or(len).min(len) } else { 0 };
    let mut text = format!("HTTP/1.1 {status} x\r\n");
    page.fields.iter().for_each(|field| text += &format!("{field}\r\n"));
    let closes = text.contains("Connection: close");
    if status != 304 && !closes {
        text += &format!("Content-Length: {len}\r\n");
    }
    lock(state).exchanges.push(Exchange { request: request.clone(), status, sent });
    stream.write_all(&[text.as_bytes(), b"\r\n", &page.body[..sent]].concat())?;
    if closes || (has_body && sent < len) { close() } else { Ok(()) }
}
