//! One stream over TLS, by `send` and `recv`.

use super::{MIB, fits};
use crate::place::Place;
use crate::program::{Listening, receipt, text};
use crate::{Outcome, Result, pattern};

/// The receiver listens, and the sender connects.
pub(super) fn send_and_receive(place: &Place) -> Result<Outcome> {
    let len = 16 * MIB + 4321;
    let source = place.folder.join("source");
    let got = place.folder.join("received");
    pattern::file(&source, len)?;
    let arguments =
        ["recv", "--tls", "--listen", "127.0.0.1:0", "-f", text(&got)?, "--json", "--quiet"];
    let receiver = Listening::start(&arguments)?;
    let address = format!("127.0.0.1:{}", receiver.port);
    let sent = receipt(&["send", "--tls", "--insecure", text(&source)?, &address])?;
    let received = receiver.receipt()?;
    pattern::compare(&got, len)?;
    for receipt in [&sent, &received] {
        fits(place, receipt)?;
    }
    Ok(Outcome::Ok(format!("{} and {}", sent["mechanisms"], received["mechanisms"])))
}
