//! A check without TLS, which shows that other failures are not the machine's.

use super::MIB;
use crate::place::Place;
use crate::program::{Server, receipt, text};
use crate::{Outcome, Result, pattern};

/// Uploads a file, fetches it again, and compares it.
pub(super) fn run(place: &Place) -> Result<Outcome> {
    let len = 8 * MIB;
    let sent = place.folder.join("sent");
    let got = place.folder.join("got");
    pattern::file(&sent, len)?;
    let server = Server::plain(place, &[])?;
    let url = format!("http://127.0.0.1:{}/plain", server.port);
    let put = receipt(&["put", text(&sent)?, &url])?;
    let get = receipt(&["get", &url, "-f", "-o", text(&got)?])?;
    pattern::compare(&got, len)?;
    for (name, receipt) in [("put", &put), ("get", &get)] {
        if receipt["user_space_bytes"] != 0 {
            return Err(format!("{name} over plain TCP: {receipt}").into());
        }
    }
    let lines = server.end()?;
    let moved = &lines.last().ok_or("the log is empty")?["mechanisms"];
    // The last bytes are held back until the file has been checked, and may be sent from memory.
    if moved["sendfile"].as_u64().unwrap_or(0) < len - 3 {
        return Err(format!("the log says that bytes were moved by {moved}").into());
    }
    Ok(Outcome::Ok(format!("{} MiB there and back, none in user space", len / MIB)))
}
