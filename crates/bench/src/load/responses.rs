//! The position of a connection in its responses: heads, lengths, bodies. This module is pure, so
//! that tests can feed it any pieces. Everything but complete responses of the right length, which
//! are all that is measured, is an error.

use std::io;

#[derive(Clone, Debug)]
pub(crate) struct Responses {
    expected: u64,
    /// The beginning of a head whose end has not arrived yet.
    head: Vec<u8>,
    /// The missing bytes of a body, which may be [skipped](Self::skip); `None` between two
    /// responses and within a head.
    pub(super) left: Option<u64>,
    /// The number of complete responses.
    pub(super) finished: u64,
    pub(super) body_bytes: u64,
}

/// The reason why a response is not the expected one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ResponseFault {
    /// The connection ended within a response, or instead of one.
    #[error("the server closed the connection")]
    End,
    #[error("the head of a response has no end")]
    EndlessHead,
    /// The body is not as long as the file.
    #[error("{}", length_text(*.found, *.expected))]
    Length { found: Option<u64>, expected: u64 },
    /// Nothing arrived for as long as the bench waits.
    #[error("the server does not answer")]
    Silence,
    /// Another status than 200; its first line.
    #[error("the server answered: {0}")]
    Status(String),
    /// Bytes that were not requested.
    #[error("the server sent more than it was asked for")]
    Surplus,
}

impl Responses {
    pub(crate) const fn new(expected: u64) -> Self {
        Self { expected, head: Vec::new(), left: None, finished: 0, body_bytes: 0 }
    }

    /// Returns whether no incomplete response has begun.
    pub(crate) const fn is_between(&self) -> bool {
        self.left.is_none() && self.head.is_empty()
    }

    /// Parses a piece of received bytes, and passes on the parts of bodies in it.
    pub(crate) fn feed(
        &mut self,
        mut piece: &[u8],
        mut body: impl FnMut(&[u8]),
    ) -> Result<(), ResponseFault> {
        while !piece.is_empty() {
            if let Some(left) = self.left {
                let len = usize::try_from(left).unwrap_or(usize::MAX).min(piece.len());
                body(&piece[..len]);
                self.skip(len as u64)?;
                piece = &piece[len..];
            } else {
                piece = self.feed_head(piece)?;
            }
        }
        Ok(())
    }

    /// Counts `len` bytes of the current body as received.
    pub(crate) fn skip(&mut self, len: u64) -> Result<(), ResponseFault> {
        let left =
            self.left.and_then(|left| left.checked_sub(len)).ok_or(ResponseFault::Surplus)?;
        self.body_bytes += len;
        self.left = Some(left);
        self.end_if_whole();
        Ok(())
    }

    /// Parses the head, or a part of it; returns the bytes after it.
    fn feed_head<'p>(&mut self, piece: &'p [u8]) -> Result<&'p [u8], ResponseFault> {
        // A head that arrives in one piece, as nearly all do, is not copied.
        if self.head.is_empty()
            && let Some(len) = head_len(piece)
        {
            self.begin_body(&piece[..len])?;
            return Ok(&piece[len..]);
        }
        let before = self.head.len();
        self.head.extend_from_slice(&piece[..piece.len().min(MAX_HEAD)]);
        let Some(len) = head_len(&self.head) else {
            return if self.head.len() > MAX_HEAD {
                Err(ResponseFault::EndlessHead)
            } else {
                Ok(&[])
            };
        };
        let head = std::mem::take(&mut self.head);
        self.begin_body(&head[..len])?;
        Ok(&piece[len - before..])
    }

    fn begin_body(&mut self, head: &[u8]) -> Result<(), ResponseFault> {
        require_status(head, b"HTTP/1.1 200 ")?;
        let found = head.split(|byte| *byte == b'\n').find_map(content_length);
        if found != Some(self.expected) {
            return Err(ResponseFault::Length { found, expected: self.expected });
        }
        self.left = found;
        self.end_if_whole();
        Ok(())
    }

    fn end_if_whole(&mut self) {
        if self.left == Some(0) {
            self.left = None;
            self.finished += 1;
        }
    }
}

/// Fails unless a response begins with these bytes, which are its version and status.
pub(crate) fn require_status(response: &[u8], status: &[u8]) -> Result<(), ResponseFault> {
    if response.starts_with(status) {
        return Ok(());
    }
    let line = response.split(|byte| *byte == b'\n').next().unwrap_or_default();
    Err(ResponseFault::Status(String::from_utf8_lossy(line).trim().to_owned()))
}

/// Returns the length of a head with its blank line, if that is there.
fn head_len(bytes: &[u8]) -> Option<usize> {
    bytes.windows(END.len()).position(|window| window == END).map(|at| at + END.len())
}

/// Returns the value of a line that names the length of a body.
fn content_length(line: &[u8]) -> Option<u64> {
    let (name, value) = line.split_at_checked(NAME.len())?;
    if !name.eq_ignore_ascii_case(NAME) {
        return None;
    }
    str::from_utf8(value).ok()?.trim().parse().ok()
}

fn length_text(found: Option<u64>, expected: u64) -> String {
    match found {
        Some(found) => format!("a response of {found} bytes instead of {expected}"),
        None => "a response without a length".to_owned(),
    }
}

impl From<ResponseFault> for io::Error {
    fn from(unexpected: ResponseFault) -> Self {
        Self::other(unexpected)
    }
}

const END: &[u8] = b"\r\n\r\n";

const NAME: &[u8] = b"content-length:";

/// The longest accepted head, far longer than any about a file.
const MAX_HEAD: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn response(body: &[u8]) -> Vec<u8> {
        let head = format!(
            "HTTP/1.1 200 OK\r\nServer: one\r\nCONTENT-Length:  {}\r\nETag: \"a\n\"\r\n\r\n",
            body.len()
        );
        [head.as_bytes(), body].concat()
    }

    #[test]
    fn responses_are_counted_however_they_are_cut_into_pieces() {
        let body = b"body with a blank line:\r\n\r\nand HTTP/1.1 500 in it";
        let stream = response(body).repeat(5);
        for len in 1..stream.len() {
            let mut responses = Responses::new(body.len() as u64);
            let mut bodies = Vec::new();
            for (index, piece) in stream.chunks(len).enumerate() {
                // Like the load: the rest of a body may be skipped unread.
                match responses.left.filter(|left| *left >= piece.len() as u64) {
                    Some(_) if index % 2 == 0 => {
                        responses.skip(piece.len() as u64).unwrap();
                        bodies.extend_from_slice(piece);
                    }
                    _ => responses.feed(piece, |bytes| bodies.extend_from_slice(bytes)).unwrap(),
                }
            }
            assert_eq!((responses.finished, responses.left), (5, None), "{len}");
            assert_eq!(responses.body_bytes, 5 * body.len() as u64);
            assert_eq!(bodies, body.repeat(5));
        }
    }

    #[test]
    fn an_unfinished_response_does_not_count() {
        let stream = response(b"body");
        let mut responses = Responses::new(4);
        responses.feed(&stream[..stream.len() - 1], |_| {}).unwrap();
        assert_eq!((responses.finished, responses.left), (0, Some(1)));
        assert!(!responses.is_between());
        responses.feed(&stream[stream.len() - 1..], |_| {}).unwrap();
        assert!(responses.is_between());
        responses.feed(b"HTTP", |_| {}).unwrap();
        assert!(!responses.is_between());
    }

    #[test]
    fn an_empty_file_is_a_response_too() {
        let mut responses = Responses::new(0);
        responses.feed(&response(b"").repeat(3), |_| {}).unwrap();
        assert_eq!((responses.finished, responses.left), (3, None));
    }

    #[test]
    fn incomplete_responses_are_faults() {
        let length = |found| ResponseFault::Length { found, expected: 4 };
        let long = vec![b'x'; MAX_HEAD + 1];
        let cases: [(&[u8], ResponseFault); 6] = [
            (
                b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\n",
                ResponseFault::Status("HTTP/1.1 404 Not Found".to_owned()),
            ),
            (b"nonsense\r\n\r\n", ResponseFault::Status("nonsense".to_owned())),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", length(Some(5))),
            (b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", length(None)),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", length(None)),
            (&long, ResponseFault::EndlessHead),
        ];
        for (stream, fault) in cases {
            let mut responses = Responses::new(4);
            let mut pieces = stream.chunks(1000);
            let found = pieces.find_map(|piece| responses.feed(piece, |_| {}).err());
            assert_eq!(found, Some(fault));
        }
        assert_eq!(Responses::new(4).skip(1), Err(ResponseFault::Surplus));
    }
}
