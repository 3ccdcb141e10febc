//! Digests in responses: `Repr-Digest` (RFC 9530 section 2), and `?hash`.

use std::sync::Arc;

use crate::digest::jobs::{DigestError, DigestRequest};
use crate::digest::known::pick;
use crate::digest::make;
use crate::files::lookup::is_current;
use crate::files::open_files::ServedFile;
use crate::routing::context::RequestContext;
use crate::routing::response::Response;
use underpass_protocol::digest::{Algorithm, Digest, parse_wanted, write_digests};
use underpass_protocol::request::Method;
use underpass_protocol::request::target::Target;
use underpass_protocol::response::plan::ResponsePlan;

/// Adds the digest that the client prefers to a 200 or 206, including the response to HEAD.
///
/// It is the digest of the whole selected representation, even with a part of it (RFC 9530 section
/// 2). A 304 has only required fields (RFC 9110 15.4.5), and errors have other representations.
pub(crate) async fn add_digest(
    ctx: &RequestContext<'_>,
    plan: &mut ResponsePlan,
    chosen: &ServedFile,
) {
    if !matches!(plan.status, 200 | 206) || !ctx.request.has(WANT) {
        return;
    }
    let wanted = parse_wanted(ctx.request.fields(WANT));
    // A digest that is unavailable is left out, which the client must accept (RFC 9530 section 4).
    if let Ok(digest) = digest(ctx, chosen, &wanted).await {
        plan.fields.extend_from_slice(b"Repr-Digest: ");
        plan.fields.extend_from_slice(write_digests([&digest]).as_bytes());
        plan.fields.extend_from_slice(b"\r\n");
    }
}

/// Answers a `?hash` request with the digest of the file, in hexadecimal.
pub(crate) async fn hash(
    ctx: &RequestContext<'_>,
    target: &Target<'_>,
    served: &ServedFile,
) -> Option<Response> {
    let name = target.query.get("hash")?;
    let algorithm = match &*name {
        b"" => Ok(Algorithm::Sha256),
        name => str::from_utf8(name).unwrap_or_default().parse(),
    };
    let algorithm: Algorithm = match algorithm {
        Ok(algorithm) => algorithm,
        Err(unknown) => return Some(ctx.error(400, &unknown.to_string())),
    };
    Some(match digest(ctx, served, &[algorithm]).await {
        Ok(digest) => {
            let is_head = ctx.request.method == Method::Head;
            let text = digest.hex().into_bytes();
            let mut response = Response::memory(200, PLAIN_TEXT, text, is_head);
            // The digest is of the current file, and has no ETag to revalidate it with.
            response.add_field("Cache-Control", "no-cache");
            response
        }
        Err(DigestError::Unreadable) => ctx.error(500, "the file cannot be read"),
        Err(DigestError::Changing) => ctx.busy(503, "the file is being written to"),
        Err(DigestError::Busy) => {
            ctx.busy(503, "too many digests are requested at once; try again soon")
        }
        Err(DigestError::Left) => ctx.error(400, "keep the connection open for the digest"),
    })
}

/// Returns a digest of the open version of the file by one of these algorithms: one that is known
/// already, or else by the preferred one, for which the file is read.
async fn digest(
    ctx: &RequestContext<'_>,
    served: &ServedFile,
    wanted: &[Algorithm],
) -> Result<Digest, DigestError> {
    let shared = ctx.shared();
    let known =
        || pick(&served.digests, wanted).or_else(|| shared.digests.get(&served.version, wanted));
    let &algorithm = wanted.first().ok_or(DigestError::Unreadable)?;
    if let Some(digest) = known() {
        return Ok(digest);
    }
    if !is_current(ctx, served).await {
        // The caller notices that, and asks again about the current version.
        return Err(DigestError::Changing);
    }
    let file = Arc::clone(&served.file);
    let client = ctx.peer.client_net();
    let request = DigestRequest { file, version: served.version, algorithm };
    let making = make::make(shared, client, request);
    // This can take minutes for a large file, so it stops if the client leaves.
    ctx.peer.while_connected(making).await.unwrap_or(Err(DigestError::Left))?;
    // Storing it with the file has changed the file's version.
    known().ok_or(DigestError::Changing)
}

/// The digests that a client prefers (RFC 9530 section 4).
pub(crate) const WANT: &str = "want-repr-digest";

const PLAIN_TEXT: &str = "text/plain; charset=utf-8";
