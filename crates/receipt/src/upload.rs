//! The receipt of an upload.

use std::time::Duration;

use underpass_client::Url;
use underpass_client::upload::{UploadFailed, UploadOutcome};
use underpass_engine::{EndKind, Report};
use underpass_transport::digest::Computed;

use crate::download::shown;
use crate::transfer::{Receipt, TlsReceipt, UploadDigest, UploadReceipt};

impl Receipt {
    /// Creates the receipt of a successful upload of `file`, whose bytes came from a source of this
    /// kind. `digest` is the digest that was sent with it.
    #[must_use]
    pub fn of_upload(
        file: String,
        from: EndKind,
        done: &UploadOutcome,
        digest: Option<&Computed>,
        elapsed: Duration,
    ) -> Self {
        let upload = UploadReceipt {
            file,
            url: shown(&done.url),
            status: Some(done.status),
            was_there: done.was_there,
            may_have_replaced: done.may_have_replaced,
            resumed_at: done.resumed_at,
            resumable: done.is_resumable,
            digest: digest.and_then(|computed| UploadDigest::of(computed, done.digest_bytes)),
        };
        Self {
            elapsed_s: elapsed.as_secs_f64(),
            tls: done.tls.as_ref().map(TlsReceipt::from),
            upload: Some(upload),
            ..Self::of_payload(&done.report).between(from, EndKind::Socket)
        }
    }

    /// Creates the receipt of a failed upload of `file`, whose bytes come from a source of this
    /// kind, to `url`. A folder has no bytes.
    #[must_use]
    pub fn of_failed_upload(
        file: String,
        from: Option<EndKind>,
        url: &Url,
        failed: &UploadFailed,
    ) -> Self {
        let upload = UploadReceipt {
            file,
            url: shown(url),
            status: failed.error.status(),
            resumed_at: failed.resumed_at,
            resumable: failed.is_kept,
            ..UploadReceipt::default()
        };
        Self {
            error: Some(failed.error.to_string()),
            from,
            to: Some(EndKind::Socket),
            tls: failed.tls.as_deref().map(TlsReceipt::from),
            upload: Some(upload),
            ..Self::of_payload(&failed.report)
        }
    }

    /// Creates the receipt of an upload of `file` to `url` that failed before it began, with this
    /// error.
    #[must_use]
    pub fn of_no_upload(file: String, url: &Url, error: String) -> Self {
        let upload = UploadReceipt { file, url: shown(url), ..UploadReceipt::default() };
        Self { error: Some(error), upload: Some(upload), ..Self::from(&Report::default()) }
    }

    /// Creates a receipt without the overhead of the requests.
    #[must_use]
    pub fn of_payload(report: &Report) -> Self {
        let receipt = Self::from(report);
        Self { bytes: receipt.bytes - report.memory().bytes, ..receipt }
    }
}

impl UploadDigest {
    /// Returns the first computed digest. `more` bytes were read for the digests of the parts.
    fn of(computed: &Computed, more: u64) -> Option<Self> {
        let digest = computed.digests.first()?;
        Some(Self {
            algorithm: digest.algorithm().name().to_owned(),
            value: digest.hex(),
            read_bytes: computed.read_bytes + more,
        })
    }
}
