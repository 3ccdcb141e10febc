//! A response before it is sent.

use std::borrow::Cow;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::SystemTime;

use underpass_engine::{Chain, FilePart, Policy, SMALL_TRANSFER, Source, Version};
use underpass_observe::access_log::BodyPart;

use crate::archive;
use crate::archive::layouts::FolderLayout;
use crate::connection::peer::Peer;
use crate::files::open_files::{ResidentUntil, ServedFile};
use crate::listing::make::ListingPieces;
use crate::routing::cached::{CacheFacts, CachedBody};
use crate::routing::error_page::error_page;
use crate::routing::path_fields::has_field;
use crate::server::limits::client_budget::Reservation;
use crate::server::settings::SiteSettings;
use underpass_protocol::request::negotiate::wants_html;
use underpass_protocol::request::{Method, Request};
use underpass_protocol::response::plan::{PlannedBody, ResponsePlan};
use underpass_protocol::response::resumption::ResumableDownload;
use underpass_transport::tls::EncryptedBy;

/// The `Retry-After` of a response to a request that cannot be answered at the moment, in seconds.
pub(crate) const RETRY_SOON: &str = "1";

/// The `Retry-After` of a response to a connection beyond the limit, in seconds.
pub(crate) const RETRY_LATER: &str = "5";

/// The status of a response whose client left, or ended its side of the connection, before the
/// response was known.
pub(crate) const CLIENT_LEFT: u16 = 408;

/// A response before it is sent.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// The fields that belong to the representation, each with its line end.
    pub(crate) fields: Vec<u8>,
    /// Fields before `fields`, as they were written for an earlier response.
    pub(crate) rendered: Option<Arc<[u8]>>,
    /// The lines that are sent in place of those of every response of the site.
    pub(crate) custom: Option<Vec<u8>>,
    pub(crate) body: Body,
    /// The length of the body in bytes; `None` if it is known only at the end.
    pub(crate) len: Option<u64>,
    /// Whether the connection closes after it.
    pub(crate) closes: bool,
    /// The download to remember if it is interrupted.
    pub(crate) download: Option<ResumableDownload>,
    /// The log's fields about the cache, if there is one.
    pub(crate) cache: Option<Box<CacheFacts>>,
    /// When it was made, if not now.
    pub(crate) date: Option<SystemTime>,
    /// Whether it is logged in the access log.
    pub(crate) is_logged: bool,
    /// Which part of a single served file, or of the archive of the whole root, the body is.
    pub(crate) part: Option<BodyPart>,
    /// Whether the request gave a whole file its name.
    pub(crate) has_stored: bool,
}

/// Returns which part of a file or archive, of `whole` bytes with this entity tag, a body is.
pub(crate) fn body_part(
    plan: &ResponsePlan,
    whole: u64,
    etag: &str,
    is_archive: bool,
) -> Option<BodyPart> {
    let start = match &plan.body {
        PlannedBody::Whole => 0,
        PlannedBody::Range(range) => range.start,
        // The whole of an empty file.
        PlannedBody::Nothing if plan.status == 200 && whole == 0 => 0,
        _ => return None,
    };
    let version = BuildHasherDefault::<DefaultHasher>::default().hash_one(etag);
    Some(BodyPart { start, whole, version, is_archive })
}

/// The source of a body's bytes.
#[derive(Debug)]
pub(crate) enum Body {
    /// No body.
    Nothing,
    /// Bytes in memory.
    Memory(Cow<'static, [u8]>),
    /// A file or ranges of one.
    File(FileBody),
    /// A body from the cache.
    Cached(Box<CachedBody>),
    /// A folder as an archive.
    Archive(Box<ArchiveBody>),
    /// Pieces that helper threads make.
    Stream {
        /// The pieces.
        pieces: ListingPieces,
        /// Whether they are chunks; otherwise their length is known.
        is_chunked: bool,
    },
}

/// An archive or ranges of one.
#[derive(Debug)]
pub(crate) struct ArchiveBody {
    /// The parts, each with the bytes before it.
    pub(crate) parts: Vec<(Vec<u8>, archive::ArchiveRange)>,
    /// The bytes after the last part.
    pub(crate) closing: Vec<u8>,
    /// The layout of the archive, which counts as memory while the parts are sent.
    pub(crate) laid_out: Arc<FolderLayout>,
    /// The number of files that stay open until the client has read them.
    pub(crate) max_unread: usize,
    /// The files that are open while the response is sent.
    pub(crate) _files: Reservation,
}

/// A file or ranges of one.
#[derive(Debug)]
pub(crate) struct FileBody {
    file: Arc<OwnedFd>,
    version: Version,
    /// The note to set once all of the file is in the page cache, if that is not known yet.
    pub(crate) resident_until: Option<ResidentUntil>,
    content: PlannedBody,
    pub(crate) len: u64,
    /// Whether the file is checked between reading and sending its bytes, so that a change is found
    /// while another response is still possible.
    pub(crate) is_guarded: bool,
    /// Whether all bytes are in memory, so that no step has to wait for a disk.
    pub(crate) is_resident: bool,
    /// Whether a program may be writing to the file.
    pub(crate) is_unsettled: bool,
    /// Whether it is one part of a file at rest that is sent from one buffer with the head.
    pub(crate) is_copied: bool,
    /// Whether the file was found at rest in its version.
    is_stable: bool,
    /// Whether the file is on a local file system.
    is_local: bool,
}

impl FileBody {
    pub(crate) fn new(served: &ServedFile, content: PlannedBody, len: u64) -> Self {
        let (file, version) = (Arc::clone(&served.file), served.version);
        let is_stable = served.is_stable;
        Self {
            file,
            version,
            resident_until: None,
            content,
            len,
            is_guarded: false,
            is_resident: false,
            is_unsettled: false,
            is_copied: false,
            is_stable,
            is_local: served.is_local,
        }
    }

    /// Returns the part to be sent, if it is one part of a file at rest in memory, which needs no
    /// transfer.
    pub(crate) fn simple_part(&self) -> Option<FilePart<&OwnedFd>> {
        let offset = match &self.content {
            PlannedBody::Whole => 0,
            PlannedBody::Range(range) => range.start,
            _ => return None,
        };
        let is_simple = self.is_resident && self.is_stable && !self.is_unsettled;
        let len = usize::try_from(self.len).ok().filter(|_| is_simple)?;
        Some(FilePart { file: &*self.file, offset, len, version: Some(self.version) })
    }

    /// Leaves out the first bytes of a body that is one part, because they were sent.
    pub(crate) fn skip(&mut self, bytes: u64) {
        let range = match &self.content {
            PlannedBody::Range(range) => range.clone(),
            _ => 0..self.len,
        };
        self.len -= bytes;
        self.content = PlannedBody::Range(range.start + bytes..range.end);
    }

    /// Returns the note to make once all of the file is in the page cache, if all of it is sent.
    pub(crate) fn take_resident_until(&mut self) -> Option<ResidentUntil> {
        self.resident_until.take().filter(|_| matches!(self.content, PlannedBody::Whole))
    }

    /// Returns the head and the body as one chain.
    pub(crate) fn chain(self, head: Vec<u8>) -> Chain<Arc<OwnedFd>> {
        let part = |from: u64, to: u64| {
            let source = Source::range(Arc::clone(&self.file), from, to - from);
            let source = source.version(self.version).in_place();
            let source = if self.is_stable { source.stable() } else { source };
            if self.is_local { source } else { source.remote() }
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
            PlannedBody::Message(text) => chain.bytes(text.into_bytes()),
            PlannedBody::Nothing => chain,
        }
    }
}

impl Response {
    pub(crate) fn new(status: u16, fields: Vec<u8>, body: Body, len: Option<u64>) -> Self {
        Self {
            status,
            fields,
            rendered: None,
            custom: None,
            body,
            len,
            closes: false,
            download: None,
            cache: None,
            date: None,
            is_logged: true,
            part: None,
            has_stored: false,
        }
    }

    /// Creates a response with a body from memory; for HEAD, the body is left out.
    pub(crate) fn memory(
        status: u16,
        media_type: &str,
        body: impl Into<Cow<'static, [u8]>>,
        is_head: bool,
    ) -> Self {
        let body = body.into();
        let len = body.len() as u64;
        let body = if is_head { Body::Nothing } else { Body::Memory(body) };
        let mut response = Self::new(status, Vec::with_capacity(96), body, Some(len));
        response.add_field("Content-Type", media_type);
        response.add_field("Content-Length", &len.to_string());
        response
    }

    /// Creates a response without a body.
    pub(crate) fn empty(status: u16) -> Self {
        let mut response = Self::new(status, Vec::new(), Body::Nothing, Some(0));
        if status != 204 {
            response.add_field("Content-Length", "0");
        }
        response
    }

    /// Creates an error response in plain text, for a request that is not known or whose body is
    /// not read.
    pub(crate) fn error(status: u16, detail: &str) -> Self {
        let (fields, text) = error_page(status, detail, false, &[]);
        let len = Some(text.len() as u64);
        Self::new(status, fields, Body::Memory(text.into()), len)
    }

    /// Creates an error response in the form that the client of a request prefers.
    pub(crate) fn error_for(
        request: &Request<'_, '_>,
        status: u16,
        detail: &str,
        navigation_links: &[(String, &str)],
    ) -> Self {
        let (fields, page) = error_page(status, detail, wants_html(request), navigation_links);
        let len = Some(page.len() as u64);
        let body = match request.method {
            Method::Head => Body::Nothing,
            _ => Body::Memory(page.into()),
        };
        Self::new(status, fields, body, len)
    }

    /// Adds a field; the value must be valid for one.
    pub(crate) fn add_field(&mut self, name: &str, value: &str) {
        if let Some(rendered) = self.rendered.take() {
            self.fields.splice(..0, rendered.iter().copied());
        }
        for part in [name, ": ", value, "\r\n"] {
            self.fields.extend_from_slice(part.as_bytes());
        }
    }

    /// Adds the fields of every response about a file or archive. `mechanism` is the one that is
    /// expected to move its bytes.
    pub(crate) fn add_common(
        &mut self,
        peer: &Peer,
        settings: &SiteSettings,
        explains: bool,
        mechanism: impl FnOnce() -> &'static str,
    ) {
        if let Some(value) = &settings.cache_control
            && matches!(self.status, 200 | 206 | 304)
            && !has_field(&self.fields, "cache-control")
        {
            self.add_field("Cache-Control", value);
        }
        if explains {
            let mechanism = match self.body {
                Body::File(_) | Body::Archive(_) | Body::Cached(_) => mechanism(),
                Body::Nothing | Body::Memory(_) | Body::Stream { .. } => "none",
            };
            let integrity = settings.integrity.name();
            let tls = peer.session().map(|session| match session.facts().encrypted_by {
                EncryptedBy::Kernel => ", tls;desc=\"kernel\"".to_owned(),
                EncryptedBy::UserSpace(why) => format!(", tls;desc=\"user_space {}\"", why.name()),
            });
            let tls = tls.unwrap_or_default();
            let timing = format!("path;desc=\"{mechanism}\", integrity;desc=\"{integrity}\"{tls}");
            self.add_field("Server-Timing", &timing);
        }
    }

    /// Returns the response without a line in the access log.
    pub(crate) fn unlogged(mut self) -> Self {
        self.is_logged = false;
        self
    }

    /// Returns whether it is the last one on its connection, the end of which may delimit its body.
    pub(crate) fn is_last(&self) -> bool {
        self.closes
            || match &self.body {
                Body::Stream { is_chunked, .. } => !is_chunked && self.len.is_none(),
                Body::Cached(body) => body.ends_with_connection(),
                _ => false,
            }
    }

    /// Returns the response as the last one on its connection.
    pub(crate) fn closing(mut self) -> Self {
        self.closes = true;
        self
    }
}

/// Returns whether a file's bytes are sent from one buffer with the head.
pub(crate) fn is_copied(peer: &Peer, policy: Policy, len: u64, body: &PlannedBody) -> bool {
    let is_one = matches!(body, PlannedBody::Whole | PlannedBody::Range(_));
    is_one && len <= max_copied(peer) as u64 && policy == Policy::Auto
}

/// Returns the maximum size of a file that is sent from one buffer with its head. Data that passes
/// through user space anyway is encrypted and sent in one call.
pub(crate) fn max_copied(peer: &Peer) -> usize {
    if peer.encrypts_here() { MAX_ENCRYPTED_COPY } else { SMALL_TRANSFER }
}

/// The maximum size of a file that is sent from one buffer with its head if this process encrypts:
/// four TLS records.
const MAX_ENCRYPTED_COPY: usize = 64 << 10;
