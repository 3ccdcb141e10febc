//! Sends listings.

use underpass_engine::{Chain, Confirm, socket};

use super::SlowResponse;
use crate::connection::outcome::SendFailure;
use crate::listing::make::ListingPieces;

impl SlowResponse<'_> {
    /// Sends a listing piece by piece. Without chunks the end of the connection delimits it, so any
    /// early end is a reset, even after a `SIGKILL`.
    pub(super) async fn send_listing(&mut self, mut pieces: ListingPieces, is_chunked: bool) {
        if !is_chunked {
            let _ = socket::arm_reset(&self.link.peer.socket);
        }
        loop {
            let Some(piece) = self.while_wanted(pieces.next()).await else { return };
            let Ok(piece) = piece else { return self.fail(SendFailure::Stream) };
            let Some(piece) = piece else { break };
            if !self.send_chain(Chain::new().bytes(piece), Confirm::HandedOver).await {
                return;
            }
        }
        if is_chunked {
            self.send_chain(Chain::new().bytes(&b"0\r\n\r\n"[..]), Confirm::HandedOver).await;
        } else {
            let _ = socket::disarm_reset(&self.link.peer.socket);
        }
    }
}
