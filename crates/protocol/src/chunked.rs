//! Finds the end of a chunked body, a piece at a time (RFC 9112 7.1).
//!
//! A connection can only be used again once the body of its last message has been read to the
//! end. The framing between chunks is bounded, and that of requests is read strictly: a lenient
//! reader of chunk extensions is another way to smuggle a request.

use std::ops::Range;

use crate::response::head::is_token_char;

/// Reads a chunked body that comes in pieces of any size.
#[derive(Clone, Debug)]
pub struct Chunked {
    state: ChunkState,
    /// The number of bytes of framing still allowed, chunk extensions and trailers together.
    allowance: usize,
    /// Whether it is the body of a response.
    is_response: bool,
}

/// The result of [`Chunked::step`] for the start of the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkStep {
    /// The number of bytes that belong to this step; the next one begins after them.
    pub consumed: usize,
    /// The range of the data among them; empty if they were framing only.
    pub data: Range<usize>,
    /// Whether the body ends here. What follows is the next request.
    pub is_done: bool,
}

/// The body is not chunked as RFC 9112 7.1 requires. Answer 400 and close.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadChunk {
    /// A chunk is longer than a 64-bit number.
    #[error("a chunk of the body is too long")]
    TooLong,
    /// A byte that cannot stand there.
    #[error("unexpected byte {0:#04x} between two chunks")]
    Unexpected(u8),
    /// More than [`MAX_FRAMING`] bytes of extensions and trailers.
    #[error("too many chunk extensions or trailer fields")]
    TooMuchFraming,
}

/// The position of the next byte in the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ChunkState {
    /// In the digits of a length, with the number of digits so far.
    Size { size: u64, digits: u32 },
    /// In an extension, which follows the digits.
    Extension { size: u64, part: ExtensionPart },
    /// Before the LF that ends the line of a length.
    SizeLf { size: u64 },
    /// In the data, with the number of bytes left.
    Data { left: u64 },
    /// Before the CR after the data.
    DataCr,
    /// Before the LF after the data.
    DataLf,
    /// At the start of a line of the trailer.
    TrailerStart,
    /// In the name of a field of the trailer.
    TrailerName,
    /// In the value of one.
    Trailer,
    /// Before the LF that ends a line of the trailer.
    TrailerLf,
    /// Before the LF that ends the body.
    LastLf,
    /// After the end.
    Done,
}

/// A part of `; name = value` or `; name = "value"` (RFC 9112 7.1.1), with white space between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ExtensionPart {
    /// After white space: a semicolon must follow.
    Space,
    /// Before a name.
    NameStart,
    Name,
    /// In white space after a name.
    NameEnd,
    /// Before a value.
    ValueStart,
    Value,
    Quoted,
    /// After a backslash in quotes.
    Escaped,
    /// After a closing quote.
    QuotedEnd,
}

impl ExtensionPart {
    /// Returns the part after one byte; `None` if it cannot stand there.
    fn after(self, byte: u8) -> Option<Self> {
        let is_space = matches!(byte, b' ' | b'\t');
        Some(match (self, byte) {
            (Self::Quoted, b'"') => Self::QuotedEnd,
            (Self::Quoted, b'\\') => Self::Escaped,
            (Self::Quoted | Self::Escaped, byte) if is_text(byte) => Self::Quoted,
            (Self::NameStart | Self::ValueStart, _) if is_space => self,
            (Self::NameStart | Self::Name, byte) if is_token_char(byte) => Self::Name,
            (Self::ValueStart, b'"') => Self::Quoted,
            (Self::ValueStart | Self::Value, byte) if is_token_char(byte) => Self::Value,
            (Self::Name | Self::NameEnd, b'=') => Self::ValueStart,
            (Self::Name | Self::NameEnd, _) if is_space => Self::NameEnd,
            (Self::Space | Self::Value | Self::QuotedEnd, _) if is_space => Self::Space,
            (Self::Space | Self::Name | Self::NameEnd | Self::Value | Self::QuotedEnd, b';') => {
                Self::NameStart
            }
            _ => return None,
        })
    }

    /// Returns whether the line may end here.
    fn is_end(self) -> bool {
        matches!(self, Self::Name | Self::Value | Self::QuotedEnd)
    }
}

impl Default for Chunked {
    fn default() -> Self {
        let state = ChunkState::Size { size: 0, digits: 0 };
        Self { state, allowance: MAX_FRAMING, is_response: false }
    }
}

impl Chunked {
    /// Creates the reader of a response's body. It is more lenient, because no proxy can read a
    /// response differently: spaces may follow the length of a chunk, as old servers send them, and
    /// the allowance holds for each chunk.
    #[must_use]
    pub fn of_response() -> Self {
        Self { is_response: true, ..Self::default() }
    }

    /// Reads the next run of framing or of data.
    ///
    /// It consumes at least one byte unless there is none or the body is done.
    ///
    /// # Errors
    ///
    /// See [`BadChunk`]; the connection cannot be used again.
    pub fn step(&mut self, bytes: &[u8]) -> Result<ChunkStep, BadChunk> {
        let mut consumed = 0;
        while self.state != ChunkState::Done {
            if let ChunkState::Data { left } = self.state {
                return Ok(self.take_data(left, consumed, bytes));
            }
            let Some(&byte) = bytes.get(consumed) else { break };
            self.state = self.after(byte)?;
            consumed += 1;
        }
        let is_done = self.state == ChunkState::Done;
        Ok(ChunkStep { consumed, data: consumed..consumed, is_done })
    }

    /// Skips all available framing and data; `data` of the result is meaningless.
    ///
    /// # Errors
    ///
    /// See [`BadChunk`].
    pub fn skip(&mut self, bytes: &[u8]) -> Result<ChunkStep, BadChunk> {
        let mut consumed = 0;
        loop {
            let step = self.step(&bytes[consumed..])?;
            consumed += step.consumed;
            if step.is_done || step.consumed == 0 {
                return Ok(ChunkStep { consumed, data: 0..0, is_done: step.is_done });
            }
        }
    }

    /// Returns the length of the data that comes next, if data does, and continues after it: the
    /// caller takes that data elsewhere.
    pub fn pass_data(&mut self) -> Option<u64> {
        let ChunkState::Data { left } = self.state else { return None };
        self.state = ChunkState::DataCr;
        Some(left)
    }

    /// Returns how many bytes of framing are certain to come before any data, or before the end;
    /// 0 once the body is done.
    #[must_use]
    pub fn needed(&self) -> usize {
        match self.state {
            // The shortest line is one digit and its end.
            ChunkState::Size { digits: 0, .. } => 3,
            ChunkState::Size { .. } | ChunkState::Extension { .. } => 2,
            ChunkState::SizeLf { size: 0 } => 3,
            ChunkState::DataCr => 5,
            ChunkState::DataLf => 4,
            ChunkState::TrailerStart => 2,
            // The rest of this line, and the blank one.
            ChunkState::Trailer => 4,
            ChunkState::TrailerName => 5,
            ChunkState::TrailerLf => 3,
            ChunkState::SizeLf { .. } | ChunkState::LastLf => 1,
            ChunkState::Data { .. } | ChunkState::Done => 0,
        }
    }

    /// Takes the available data of a chunk.
    fn take_data(&mut self, left: u64, start: usize, bytes: &[u8]) -> ChunkStep {
        let here = bytes.len() - start;
        let len = usize::try_from(left).map_or(here, |left| left.min(here));
        let left = left - len as u64;
        self.state = if left == 0 { ChunkState::DataCr } else { ChunkState::Data { left } };
        ChunkStep { consumed: start + len, data: start..start + len, is_done: false }
    }

    /// Returns the state after one byte of framing.
    fn after(&mut self, byte: u8) -> Result<ChunkState, BadChunk> {
        Ok(match (self.state, byte) {
            (ChunkState::Size { size, digits }, byte) => {
                return self.after_digit(size, digits, byte);
            }
            (ChunkState::Extension { size, part }, b'\r')
                if part.is_end() || self.is_response && part == ExtensionPart::Space =>
            {
                ChunkState::SizeLf { size }
            }
            (ChunkState::SizeLf { size: 0 }, b'\n') => ChunkState::TrailerStart,
            (ChunkState::SizeLf { size }, b'\n') => ChunkState::Data { left: size },
            (ChunkState::DataCr, b'\r') => ChunkState::DataLf,
            (ChunkState::DataLf, b'\n') => {
                if self.is_response {
                    self.allowance = MAX_FRAMING;
                }
                ChunkState::Size { size: 0, digits: 0 }
            }
            (ChunkState::TrailerStart, b'\r') => ChunkState::LastLf,
            (ChunkState::Trailer, b'\r') => ChunkState::TrailerLf,
            (ChunkState::TrailerLf, b'\n') => ChunkState::TrailerStart,
            (ChunkState::LastLf, b'\n') => ChunkState::Done,
            (ChunkState::Extension { size, part }, byte) => {
                let part = part.after(byte).ok_or(BadChunk::Unexpected(byte))?;
                self.spend(ChunkState::Extension { size, part })?
            }
            (ChunkState::TrailerStart | ChunkState::TrailerName, byte) if is_token_char(byte) => {
                self.spend(ChunkState::TrailerName)?
            }
            (ChunkState::TrailerName, b':') => self.spend(ChunkState::Trailer)?,
            (ChunkState::Trailer, byte) if is_text(byte) => self.spend(ChunkState::Trailer)?,
            (_, byte) => return Err(BadChunk::Unexpected(byte)),
        })
    }

    /// Returns the state after one byte of the line with a chunk's length.
    fn after_digit(&mut self, size: u64, digits: u32, byte: u8) -> Result<ChunkState, BadChunk> {
        match (char::from(byte).to_digit(16), byte) {
            // 64 bits have at most sixteen digits; more, even zeros, have no honest use.
            (Some(_), _) if digits == 16 => Err(BadChunk::TooLong),
            (Some(digit), _) => {
                Ok(ChunkState::Size { size: size << 4 | u64::from(digit), digits: digits + 1 })
            }
            (None, b'\r') if digits > 0 => Ok(ChunkState::SizeLf { size }),
            (None, b';' | b' ' | b'\t') if digits > 0 => {
                let part =
                    if byte == b';' { ExtensionPart::NameStart } else { ExtensionPart::Space };
                self.spend(ChunkState::Extension { size, part })
            }
            _ => Err(BadChunk::Unexpected(byte)),
        }
    }

    /// Accounts for one byte that carries no data.
    fn spend(&mut self, state: ChunkState) -> Result<ChunkState, BadChunk> {
        self.allowance = self.allowance.checked_sub(1).ok_or(BadChunk::TooMuchFraming)?;
        Ok(state)
    }
}

/// Returns whether a byte may be in quotes or in the value of a field: all but control
/// characters.
fn is_text(byte: u8) -> bool {
    byte == b'\t' || !byte.is_ascii_control()
}

/// The most bytes of chunk extensions and trailers in one body; no known client uses any.
pub const MAX_FRAMING: usize = 16 * 1024;

/// Returns a chunk of a body whose length is not known (RFC 9112, section 7.1).
#[must_use]
pub fn chunk(piece: &[u8]) -> Vec<u8> {
    let mut framed = format!("{:x}\r\n", piece.len()).into_bytes();
    framed.extend_from_slice(piece);
    framed.extend_from_slice(b"\r\n");
    framed
}
