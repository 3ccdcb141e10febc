//! Verifies the digests that come with a file (RFC 9530): it gets its name only if they match.

use std::fs::File;

use underpass_engine::Version;

use crate::uploads::active_upload::ActiveUpload;
use crate::uploads::refusal::{Result, UploadRefusal};
use underpass_protocol::digest::{Digest, parse_digests};
use underpass_transport::digest::{ComputeError, Offer, OfferError};

impl ActiveUpload<'_> {
    /// Returns the digests of the file in the request.
    pub(crate) fn digests(&self) -> Result<Vec<Digest>> {
        let digests = parse_digests(self.request.fields("repr-digest"));
        digests.map_err(|fault| UploadRefusal::new(400, fault.to_string()))
    }

    /// Returns the digests in the request: of its file and, if wanted, of its own body.
    pub(crate) fn offer(&self, wants_content: bool) -> Result<Offer> {
        let whole = self.request.fields("repr-digest");
        let content = self.request.fields("content-digest").filter(|_| wants_content);
        // The client wants certainty, so a digest that cannot be parsed must not be ignored.
        Offer::parse(whole, content).map_err(|fault| UploadRefusal::new(400, fault.to_string()))
    }

    /// Compares a complete file with the digests in the request, and with that of an earlier one,
    /// and the bytes that this request has sent, unless [`verify_content`](Self::verify_content)
    /// has compared them. The returned digests are to be [remembered](Self::remember).
    pub(crate) fn verify(
        &self,
        file: &File,
        earlier: Option<Digest>,
        is_content_verified: bool,
    ) -> Result<Vec<Digest>> {
        self.check_digests(&self.offer(!is_content_verified)?.with(earlier), file)
    }

    /// Compares the bytes that this request has sent, one part of a file, with their digests in
    /// the request.
    pub(crate) fn verify_content(&self, file: &File) -> Result<()> {
        let offer = Offer::parse([], self.request.fields("content-digest"))
            .map_err(|fault| UploadRefusal::new(400, fault.to_string()))?;
        self.check_digests(&offer, file).map(drop)
    }

    /// Compares digests with the file, which was just written, and so is read from the page cache.
    fn check_digests(&self, offer: &Offer, file: &File) -> Result<Vec<Digest>> {
        if offer.is_empty() {
            return Ok(Vec::new());
        }
        let len = Version::of(file)?.size();
        let mut read_bytes = 0;
        let checked = offer.check(file, len, self.content(), |read| {
            read_bytes = read;
            true
        });
        let metrics = &self.site.shared.metrics;
        metrics.digest(checked.as_ref().map_or(read_bytes, |c| c.read_bytes), checked.is_ok());
        match checked {
            Ok(checked) => Ok(checked.whole),
            Err(OfferError::Compute(ComputeError::Io(error))) => Err(error.into()),
            Err(error) => Err(UploadRefusal::new(400, error.to_string())),
        }
    }

    /// Remembers the digests of a file that has its name now, for later requests.
    pub(crate) fn remember(&self, file: File, version: Version, digests: &[Digest]) {
        if !digests.is_empty() {
            self.site.shared.digests.remember(&file.into(), version, digests);
        }
    }
}
