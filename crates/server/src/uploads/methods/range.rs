//! PUT of a part of a file, with `Content-Range` (RFC 9110 14.5), as `curl -C N -T` sends it: it goes
//! on behind what is there, and the file gets its name with its last byte.

use std::os::unix::ffi::OsStrExt;

use underpass_engine::atomic_file::AtomicFile;

use crate::routing::response::Response;
use crate::upload::{ContentRange, PartId};
use crate::uploads::methods::put::finish;
use crate::uploads::parts::part::{Part, copy_present, len_so_far, settle};
use crate::uploads::parts::target::Place;
use crate::uploads::reception::Reception;
use crate::uploads::refusal::Refusal;
use crate::uploads::state::disk_space;

/// Takes a part, and the file if it was the last one.
pub(crate) fn put(reception: &mut Reception<'_>, range: ContentRange) -> Result<Response, Refusal> {
    let place = reception.place()?;
    if reception.expected().is_some_and(|len| len != range.len) {
        return Err(Refusal::new(400, "the body is not as long as its Content-Range says"));
    }
    reception.check_size(range.total)?;
    let (part, landing) = begin(reception, &place, range)?;
    reception.superseded_by(part.superseded());
    reception.invite()?;
    let outcome = reception.body(landing.file(), range.first, Some(range.len));
    disk_space::release(landing.file());
    let written = range.first + reception.received();
    if written == 0 {
        landing.discard();
        return outcome.and_then(|_| Err(Refusal::new(400, MISSING)));
    }
    let is_whole = matches!(outcome, Ok(len) if len == range.len) && range.is_last();
    if !is_whole {
        settle(reception, &landing, written);
    }
    if outcome? != range.len {
        return Err(Refusal::new(400, MISSING).with("Upload-Offset", written));
    }
    if range.is_last() {
        return finish(reception, &place, landing, false);
    }
    // RFC 9110 15.3.3: taken, and not there yet.
    let mut response = Response::empty(202);
    response.add_field("Upload-Offset", &written.to_string());
    Ok(response)
}

/// How many bytes of a file have come that its client could go on behind.
pub(crate) fn tell(reception: &mut Reception<'_>) -> Result<Response, Refusal> {
    let place = reception.place()?;
    let Some(len) = len_so_far(reception, &place, part_id(reception, &place))? else {
        return Err(Refusal::new(404, "nothing of this file waits for its rest"));
    };
    let mut response = Response::empty(204);
    response.add_field("Upload-Offset", &len.to_string());
    response.add_field("Cache-Control", "no-store");
    Ok(response)
}

/// Opens what is there of the file, cut to where the body begins.
fn begin<'a>(
    reception: &Reception<'a>,
    place: &Place,
    range: ContentRange,
) -> Result<(Part<'a>, AtomicFile), Refusal> {
    let part = Part::take(reception, place, part_id(reception, place))?;
    let have = part.len(place)?;
    let present = place.present.as_ref().map_or(0, |present| present.len);
    let is_copied = have.is_none() && range.first > 0;
    let there = have.unwrap_or(present);
    if range.first > there {
        let detail = "the bytes before this part are not here";
        return Err(Refusal::new(416, detail).with("Upload-Offset", there));
    }
    reception.check_room(place, if is_copied { range.total } else { range.total - range.first })?;
    let landing = part.open(place, reception.shared.settings.changes.sync)?;
    let prepared = if is_copied {
        copy_present(reception, landing.file(), range.first)
    } else {
        part.go_on(&landing, range.first)
    };
    let end = range.first + range.len;
    let prepared = prepared.and_then(|()| reception.reserve(place, &landing, range.first, end));
    match prepared {
        Ok(()) => Ok((part, landing)),
        Err(refusal) => {
            if have.is_none() {
                landing.discard();
            } else {
                disk_space::release(landing.file());
            }
            Err(refusal)
        }
    }
}

/// What a part that has no address of its own is known by.
fn part_id(reception: &Reception<'_>, place: &Place) -> PartId {
    reception.upload.owner.part_of_name(place.name.as_bytes())
}

const MISSING: &str = "the body is shorter than its Content-Range says";
