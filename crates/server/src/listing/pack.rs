//! Prepares the text of a listing for sending, piece by piece: compressed, if the client accepts
//! that, and framed.

use flate2::{Compress, Compression, Crc, FlushCompress};

use underpass_protocol::chunked::chunk;

/// The encoding of a listing's text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Packing {
    /// Whether the client prefers a text that is compressed by gzip.
    pub(crate) is_gzipped: bool,
    /// Whether the listing is made and sent in chunks (RFC 9112, section 7.1).
    pub(crate) is_chunked: bool,
}

/// Compresses and frames the pieces of one listing.
#[derive(Debug)]
pub(super) struct Packer {
    /// Compresses the pieces, if they are compressed.
    gzip: Option<Gzip>,
    is_chunked: bool,
}

/// A gzip stream (RFC 1952) that ends on a byte boundary after each piece. So the compressor, which
/// takes 300 KiB, can be dropped between pieces, and a new one continues.
#[derive(Debug)]
struct Gzip {
    level: Compression,
    deflate: Option<Compress>,
    crc: Crc,
    has_begun: bool,
}

impl Packer {
    /// Creates a packer that compresses and frames as requested. A text that `is_short` is
    /// compressed well, because it is mostly styles and scripts; a longer one fast.
    pub(super) fn new(packing: Packing, is_short: bool) -> Self {
        let level = if is_short { Compression::default() } else { Compression::fast() };
        let gzip = Gzip { level, deflate: None, crc: Crc::new(), has_begun: false };
        Self { gzip: packing.is_gzipped.then_some(gzip), is_chunked: packing.is_chunked }
    }

    /// Returns the bytes that can be sent after one more piece; `None` if there are none yet.
    pub(super) fn pack(&mut self, piece: Vec<u8>) -> Option<Vec<u8>> {
        let packed = match &mut self.gzip {
            Some(gzip) if !piece.is_empty() => gzip.compress(&piece),
            _ => piece,
        };
        self.framed(packed)
    }

    /// Returns the bytes to send after the last piece, if any.
    pub(super) fn finish(&mut self) -> Option<Vec<u8>> {
        let rest = self.gzip.take()?.finish();
        self.framed(rest)
    }

    /// Gives back the memory that only the next piece needs.
    pub(super) fn shrink(&mut self) {
        if let Some(gzip) = &mut self.gzip {
            gzip.deflate = None;
        }
    }

    /// Returns a piece with its framing. An empty chunk would end the body.
    fn framed(&self, piece: Vec<u8>) -> Option<Vec<u8>> {
        match piece.is_empty() {
            true => None,
            false if self.is_chunked => Some(chunk(&piece)),
            false => Some(piece),
        }
    }
}

impl Gzip {
    /// Returns a piece in compressed form.
    fn compress(&mut self, piece: &[u8]) -> Vec<u8> {
        let deflate = self.deflate.get_or_insert_with(|| Compress::new(self.level, false));
        let mut packed = if self.has_begun { Vec::new() } else { HEADER.to_vec() };
        self.has_begun = true;
        self.crc.update(piece);
        let mut rest = piece;
        loop {
            packed.reserve(rest.len() / 4 + 1024);
            let before = deflate.total_in();
            let written = deflate.compress_vec(rest, &mut packed, FlushCompress::Sync);
            written.expect("nothing was finished");
            rest = &rest[(deflate.total_in() - before) as usize..];
            // With room left, everything is written.
            if rest.is_empty() && packed.len() < packed.capacity() {
                return packed;
            }
        }
    }

    /// Returns the end of the stream.
    fn finish(self) -> Vec<u8> {
        let mut end = if self.has_begun { Vec::new() } else { HEADER.to_vec() };
        end.extend(EMPTY_BLOCK);
        end.extend(self.crc.sum().to_le_bytes());
        end.extend(self.crc.amount().to_le_bytes());
        end
    }
}

/// A gzip header: deflate, without a file name, a time or an operating system.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];

/// The last block of a stream, with nothing in it (RFC 1951, section 3.2.6).
const EMPTY_BLOCK: [u8; 2] = [3, 0];

/// Returns the maximum length of a text of this length once it is compressed: text that does not
/// shrink is stored in blocks, each with five more bytes.
pub(super) fn longest_packed(len: u64) -> u64 {
    len.saturating_add(len / 1000).saturating_add(1024)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    const PLAIN: Packing = Packing { is_gzipped: false, is_chunked: false };
    const GZIPPED: Packing = Packing { is_gzipped: true, ..PLAIN };

    fn packed(pieces: &[&[u8]], packing: Packing) -> Vec<Vec<u8>> {
        let mut packer = Packer::new(packing, pieces.len() < 3);
        let mut packed = Vec::new();
        for (at, piece) in pieces.iter().enumerate() {
            packed.extend(packer.pack(piece.to_vec()));
            if at.is_multiple_of(2) {
                packer.shrink();
            }
        }
        packed.extend(packer.finish());
        assert_eq!(packer.finish(), None);
        packed
    }

    #[test]
    fn compressed_pieces_form_one_stream_without_an_early_end() {
        let noise: Vec<u8> =
            (0..100_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for pieces in [&[b"one".as_slice(), b"", b"two"][..], &[&noise, &noise], &[]] {
            let whole = pieces.concat();
            assert_eq!(packed(pieces, PLAIN).concat(), whole);
            let compressed = packed(pieces, GZIPPED);
            assert!(compressed.iter().all(|piece| !piece.is_empty()));
            let compressed = compressed.concat();
            assert!(compressed.len() as u64 <= longest_packed(whole.len() as u64));
            let mut read = Vec::new();
            let read_to_end = flate2::read::GzDecoder::new(&*compressed).read_to_end(&mut read);
            assert!(read_to_end.is_ok() && read == whole);
            for chunk in packed(pieces, Packing { is_chunked: true, ..GZIPPED }) {
                assert!(!chunk.starts_with(b"0\r\n"));
            }
        }
    }
}
