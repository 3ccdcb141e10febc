//! An answer before it is sent.

use std::borrow::Cow;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use underpass_engine::{Chain, Source, Version};

use super::archives::LaidOut;
use super::files::{Residence, Served};
use super::listings::Pieces;
use super::uploads::Upload;
use crate::archive;
use crate::head::{error_page, reason};
use crate::plan::PlannedBody;

/// An answer before it is sent.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) status: u16,
    /// The fields that belong to the representation, each with its line end.
    pub(super) fields: Vec<u8>,
    pub(super) body: Body,
    /// How many bytes the body has; `None` if only its end tells.
    pub(super) len: Option<u64>,
    /// Whether the connection ends with it.
    pub(super) closes: bool,
}

/// Where the bytes of a body come from.
#[derive(Debug)]
pub(super) enum Body {
    /// Nowhere: there are none.
    Nothing,
    /// Memory.
    Memory(Cow<'static, [u8]>),
    /// A file or ranges of one.
    File(Box<FileBody>),
    /// A folder as an archive.
    Archive(Box<ArchiveBody>),
    /// Helpers that make them.
    Stream {
        /// What they make.
        pieces: Pieces,
        /// Whether the client can tell the end from an interruption only by chunks.
        is_chunked: bool,
    },
    /// Not known before the body of the request is here, and then another response.
    Upload(Box<Upload>),
}

impl Body {
    /// Whether there are no bytes to be sent.
    pub(super) fn is_nothing(&self) -> bool {
        matches!(self, Self::Nothing)
    }
}

/// An archive or ranges of one.
#[derive(Debug)]
pub(super) struct ArchiveBody {
    /// Each with what stands before it.
    pub(super) parts: Vec<(Vec<u8>, archive::Body)>,
    /// What stands after the last.
    pub(super) closing: Vec<u8>,
    /// What the parts are of, which counts as memory for as long as they are sent.
    pub(super) _laid_out: Arc<LaidOut>,
}

/// A file or ranges of one.
#[derive(Debug)]
pub(super) struct FileBody {
    file: Arc<OwnedFd>,
    version: Version,
    residence: Residence,
    content: PlannedBody,
    pub(super) len: u64,
    /// Whether the file is looked at between reading and sending its bytes, so that a change is
    /// found out while another answer can still be given.
    pub(super) is_guarded: bool,
    /// Whether no step has to wait for a disk.
    pub(super) is_resident: bool,
    /// Whether somebody may be writing to the file.
    pub(super) is_unsettled: bool,
    /// Whether the file was found at rest in its version.
    is_at_rest: bool,
}

impl FileBody {
    pub(super) fn new(served: &Served, content: PlannedBody, len: u64) -> Self {
        let (file, version) = (Arc::clone(&served.file), served.version);
        let residence = served.residence.clone();
        let is_at_rest = served.is_at_rest;
        Self {
            file,
            version,
            residence,
            content,
            len,
            is_guarded: false,
            is_resident: false,
            is_unsettled: false,
            is_at_rest,
        }
    }

    /// The version that is to be sent.
    pub(super) fn version(&self) -> Version {
        self.version
    }

    /// Where to note that all of the file is in the page cache, if all of it is sent.
    pub(super) fn residence(&self) -> Option<Residence> {
        matches!(self.content, PlannedBody::Whole).then(|| self.residence.clone())
    }

    /// The head and the body as one thought.
    pub(super) fn chain(self, head: Vec<u8>) -> Chain<Arc<OwnedFd>> {
        let part = |from: u64, to: u64| {
            let source = Source::range(Arc::clone(&self.file), from, to - from);
            let source = source.version(self.version).in_place();
            if self.is_at_rest { source.at_rest() } else { source }
        };
        let chain = Chain::new().bytes(head);
        match self.content {
            PlannedBody::Whole => chain.source(part(0, self.len)),
            PlannedBody::Range(range) => chain.source(part(range.start, range.end)),
            PlannedBody::Multipart(parts) => {
                let chain = parts.parts.into_iter().fold(chain, |chain, (header, range)| {
                    chain.bytes(header).source(part(range.start, range.end))
                });
                chain.bytes(parts.closing)
            }
            PlannedBody::Message(text) => chain.bytes(text.into_owned().into_bytes()),
            PlannedBody::Nothing => chain,
        }
    }
}

impl Response {
    /// A body from memory, or nothing of it for HEAD.
    pub(super) fn memory(
        status: u16,
        media_type: &str,
        body: impl Into<Cow<'static, [u8]>>,
        is_head: bool,
    ) -> Self {
        let body = body.into();
        let mut response = Self {
            status,
            fields: Vec::with_capacity(96),
            len: Some(body.len() as u64),
            body: if is_head { Body::Nothing } else { Body::Memory(body) },
            closes: false,
        };
        response.add_field("Content-Type", media_type);
        let len = response.len.unwrap_or(0);
        response.add_field("Content-Length", &len.to_string());
        response
    }

    /// No body at all.
    pub(super) fn empty(status: u16) -> Self {
        let mut response =
            Self { status, fields: Vec::new(), body: Body::Nothing, len: Some(0), closes: false };
        if status != 204 {
            response.add_field("Content-Length", "0");
        }
        response
    }

    /// What went wrong, for people.
    pub(super) fn error(status: u16, detail: &str, wants_html: bool, is_head: bool) -> Self {
        let detail = if detail.is_empty() { reason(status) } else { detail };
        let (fields, page) = error_page(status, detail, wants_html);
        let len = Some(page.len() as u64);
        let body = if is_head { Body::Nothing } else { Body::Memory(page.into()) };
        Self { status, fields, body, len, closes: false }
    }

    /// Adds a field; the value must be fit for one.
    pub(super) fn add_field(&mut self, name: &str, value: &str) {
        for part in [name, ": ", value, "\r\n"] {
            self.fields.extend_from_slice(part.as_bytes());
        }
    }

    /// The same, as the last one on its connection.
    pub(super) fn closing(mut self) -> Self {
        self.closes = true;
        self
    }
}
