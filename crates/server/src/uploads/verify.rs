//! Verifies the digests that come with a file (RFC 9530): it gets its name only if they are right.

use std::fs::File;

use underpass_engine::Version;

use crate::uploads::active_upload::ActiveUpload;
use crate::uploads::refusal::{Result, UploadRefusal};
use underpass_protocol::digest::Digest;
use underpass_transport::digest::{ComputeError, Offer, OfferError};

impl ActiveUpload<'_> {
    /// Returns the digests in the request, of its file and of its own body.
    pub(crate) fn offer(&self) -> Result<Offer> {
        let (whole, content) =
            (self.request.fields("repr-digest"), self.request.fields("content-digest"));
        // The client wants certainty, so a digest that cannot be parsed must not be ignored.
        Offer::parse(whole, content).map_err(|fault| UploadRefusal::new(400, fault.to_string()))
    }

    /// Compares a complete file, and the bytes that this request has brought, with the digests in
    /// the request. The returned digests are to be [remembered](Self::remember).
    ///
    /// The file is read for that, from the page cache, which it has just entered.
    pub(crate) fn verify(&self, file: &File) -> Result<Vec<Digest>> {
        let offer = self.offer()?;
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
