//! What responses say of digests: `Repr-Digest` (RFC 9530 section 2), and `?hash`.

use std::sync::Arc;

use underpass_engine::Version;

use super::super::answer::Asking;
use super::super::files::Served;
use super::super::question::Question;
use super::super::response::Response;
use super::{Request, Undigested, pick};
use crate::digest::{Algorithm, Digest, parse_wanted, write_digests};
use crate::plan::Plan;
use crate::request::Method;
use crate::target::Target;

impl Asking<'_, '_, '_> {
    /// Adds the digest that the client would like to have, to the answers that have bytes of the
    /// file, or would have them after GET.
    ///
    /// It is that of the whole selected representation, also beside a part of it (RFC 9530 section
    /// 2). A 304 has no more fields than it needs (RFC 9110 15.4.5), and errors are about
    /// something else.
    pub(in crate::server) fn add_digest(
        &mut self,
        plan: &mut Plan,
        chosen: &Served,
    ) -> Result<(), Question> {
        if !matches!(plan.status, 200 | 206) || self.request.field(WANT).is_none() {
            return Ok(());
        }
        let wanted = parse_wanted(self.request.fields(WANT));
        // What cannot be had is left out: nobody has to have it (RFC 9530 section 4).
        if let Ok(digest) = self.digest(chosen, &wanted)? {
            plan.fields.extend_from_slice(b"Repr-Digest: ");
            plan.fields.extend_from_slice(write_digests([&digest]).as_bytes());
            plan.fields.extend_from_slice(b"\r\n");
        }
        Ok(())
    }

    /// The answer to `?hash`, if that is asked: the digest of the file, in hexadecimal.
    pub(in crate::server) fn hash(
        &mut self,
        target: &Target<'_>,
        served: &Served,
    ) -> Result<Option<Response>, Question> {
        let Some(name) = target.query.get("hash") else { return Ok(None) };
        let algorithm = match &*name {
            b"" => Ok(Algorithm::Sha256),
            name => str::from_utf8(name).unwrap_or_default().parse(),
        };
        let algorithm: Algorithm = match algorithm {
            Ok(algorithm) => algorithm,
            Err(unknown) => return Ok(Some(self.error(400, &unknown.to_string()))),
        };
        Ok(Some(match self.digest(served, &[algorithm])? {
            Ok(digest) => {
                let is_head = self.request.method == Method::Head;
                let text = digest.hex().into_bytes();
                let mut response = Response::memory(200, PLAIN_TEXT, text, is_head);
                // Of the file as it is now; there is no tag to ask by for another one.
                response.add_field("Cache-Control", "no-cache");
                response
            }
            Err(Undigested::Unreadable) => self.error(500, "the file cannot be read"),
            Err(undigested) => {
                let why = match undigested {
                    Undigested::Changing => "somebody is writing to this file",
                    _ => "too many digests are asked for; try again soon",
                };
                let mut response = self.error(503, why);
                response.add_field("Retry-After", "1");
                response
            }
        }))
    }

    /// A digest of the file in the version that is at hand, of one of these algorithms: one that
    /// is known already, or else the dearest.
    fn digest(
        &mut self,
        served: &Served,
        wanted: &[Algorithm],
    ) -> Result<Result<Digest, Undigested>, Question> {
        let digests = &self.worker.shared.digests;
        let known =
            || pick(&served.digests, wanted).or_else(|| digests.get(&served.version, wanted));
        let Some(&algorithm) = wanted.first() else { return Ok(Err(Undigested::Unreadable)) };
        if let Some(digest) = known() {
            return Ok(Ok(digest));
        }
        let is_changing = self.known.undigested == Some(Undigested::Changing);
        if self.known.undigested.is_some() && !(is_changing && self.known.asked_digests < ATTEMPTS)
        {
            return Ok(Err(self.known.undigested.unwrap_or(Undigested::Busy)));
        }
        if Version::of(&served.file).is_ok_and(|now| now != served.version) {
            // Whoever has asked for this will notice, and ask again about the present version.
            return Ok(Err(Undigested::Changing));
        }
        self.known.asked_digests += 1;
        let file = Arc::clone(&served.file);
        Err(Question::Digest(Request { file, version: served.version, algorithm }))
    }
}

/// What a client would like to have (RFC 9530 section 4).
const WANT: &str = "want-repr-digest";

const PLAIN_TEXT: &str = "text/plain; charset=utf-8";

/// How often a digest is begun anew because the file changed meanwhile.
const ATTEMPTS: u32 = 3;
