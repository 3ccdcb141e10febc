//! Prepares the text of a listing for sending, piece by piece: compressed, if the client accepts
//! that, and framed.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use underpass_protocol::chunked::chunk;

/// Takes the pieces of one listing.
#[derive(Debug)]
pub(super) struct Packer {
    /// Compresses the pieces, if they are compressed.
    gzip: Option<GzEncoder<Vec<u8>>>,
    is_chunked: bool,
}

impl Packer {
    /// Creates a packer that compresses and frames as requested.
    pub(super) fn new(is_gzipped: bool, is_chunked: bool) -> Self {
        let gzip = is_gzipped.then(|| GzEncoder::new(Vec::new(), Compression::fast()));
        Self { gzip, is_chunked }
    }

    /// Returns what can be sent after one more piece; `None` if that is nothing yet.
    pub(super) fn pack(&mut self, piece: Vec<u8>) -> Option<Vec<u8>> {
        let packed = match &mut self.gzip {
            None => piece,
            Some(gzip) => {
                gzip.write_all(&piece).expect("memory takes every byte");
                std::mem::take(gzip.get_mut())
            }
        };
        self.framed(packed)
    }

    /// Returns what has to be sent after the last piece, if anything.
    pub(super) fn finish(&mut self) -> Option<Vec<u8>> {
        let rest = self.gzip.take()?.finish().expect("memory takes every byte");
        self.framed(rest)
    }

    /// Returns a piece with its framing. An empty one would be the end.
    fn framed(&self, piece: Vec<u8>) -> Option<Vec<u8>> {
        match piece.is_empty() {
            true => None,
            false if self.is_chunked => Some(chunk(&piece)),
            false => Some(piece),
        }
    }
}

/// Returns the maximum length of a text of this length once it is compressed: what cannot be
/// compressed is stored, in blocks with five bytes each.
pub(super) fn longest_packed(len: u64) -> u64 {
    len.saturating_add(len / 1000).saturating_add(1024)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn packed(pieces: &[&[u8]], is_gzipped: bool, is_chunked: bool) -> Vec<Vec<u8>> {
        let mut packer = Packer::new(is_gzipped, is_chunked);
        let mut packed: Vec<_> =
            pieces.iter().filter_map(|piece| packer.pack(piece.to_vec())).collect();
        packed.extend(packer.finish());
        assert_eq!(packer.finish(), None);
        packed
    }

    #[test]
    fn compressed_pieces_are_one_stream_and_never_an_end_in_the_middle() {
        let noise: Vec<u8> =
            (0..100_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for pieces in [&[b"one".as_slice(), b"", b"two"][..], &[&noise, &noise], &[]] {
            let whole = pieces.concat();
            assert_eq!(packed(pieces, false, false).concat(), whole);
            let compressed = packed(pieces, true, false);
            assert!(compressed.iter().all(|piece| !piece.is_empty()));
            let compressed = compressed.concat();
            assert!(compressed.len() as u64 <= longest_packed(whole.len() as u64));
            let mut read = Vec::new();
            let read_to_end = flate2::read::GzDecoder::new(&*compressed).read_to_end(&mut read);
            assert!(read_to_end.is_ok() && read == whole);
            for chunk in packed(pieces, true, true) {
                assert!(!chunk.starts_with(b"0\r\n"));
            }
        }
    }
}
