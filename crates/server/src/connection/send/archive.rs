//! Sends folders as archives.

use std::os::fd::AsFd;
use std::sync::Arc;

use underpass_engine::{Chain, Confirm, Status, Wait};

use super::SlowResponse;
use super::unread::{Unread, UnreadFile};
use crate::archive::ArchiveError;
use crate::archive::checksum::ChecksumResult;
use crate::archive::checksum_task::{ChecksumTask, begin};
use crate::connection::outcome::SendFailure;
use crate::routing::response::ArchiveBody;

impl SlowResponse<'_> {
    /// Sends an archive, or ranges of one.
    pub(super) async fn send_archive(&mut self, archive: ArchiveBody) {
        let laid_out = Arc::clone(&archive.laid_out);
        self.send_archive_parts(archive).await;
        if self.outcome.failure.is_some() {
            laid_out.break_off();
        }
    }

    /// Sends the parts of an archive; a failure is in the outcome.
    async fn send_archive_parts(&mut self, archive: ArchiveBody) {
        self.unread = Some(Unread::new(archive.max_unread));
        let client = self.link.peer.client_net();
        for (header, mut part) in archive.parts {
            if !header.is_empty()
                && !self.send_chain(Chain::new().bytes(header), Confirm::HandedOver).await
            {
                return;
            }
            loop {
                // Opening files may wait for a disk.
                let open = move || (part.next_chain(), part);
                let opening = self.link.worker.helpers.run(client, open);
                let Some(next) = self.while_wanted(opening).await else { return };
                let Ok((next, rest)) = next else { return self.fail(SendFailure::Panicked) };
                part = rest;
                self.link.worker.shared.metrics.digest(part.take_read_bytes(), false);
                let chain = match next {
                    Ok(Some(chain)) => chain,
                    Ok(None) => break,
                    Err(error) => return self.fail(SendFailure::Archive(error)),
                };
                // The next chain needs the checksum, which is computed while this chain is sent.
                let making =
                    part.take_request().map(|one| begin(&self.link.worker.shared, client, one));
                let is_last = part.remaining() == 0;
                let confirm = if is_last { Confirm::BeforeEnd } else { Confirm::HandedOver };
                let chain = match &mut self.unread {
                    Some(unread) if is_last => unread.precede(chain),
                    _ => chain,
                };
                if chain.len() != Some(0) && !self.send_chain(chain, confirm).await {
                    return;
                }
                if !is_last && !self.bound_unread().await {
                    return;
                }
                if let Some(making) = making {
                    let version = making.version;
                    let Some(checksum) = self.checksum(making).await else { return };
                    part.learn(version, checksum);
                }
            }
        }
        if !archive.closing.is_empty() {
            self.send_chain(Chain::new().bytes(archive.closing), Confirm::HandedOver).await;
        }
    }

    /// Waits until the client has few enough files left to read; fails and returns false if a file
    /// was changed before the client had read it.
    async fn bound_unread(&mut self) -> bool {
        while let Some(unread) = self.unread.as_mut().filter(|unread| unread.is_full()) {
            // This order matters: bytes that are acknowledged later must not count.
            let acknowledged = self.link.peer.acknowledged();
            let waiting =
                self.link.worker.capabilities.unread_by_tcp_peer(self.link.peer.socket.as_fd());
            let read = unread.take_read(acknowledged.saturating_sub(waiting));
            let (is_full, are_remote) = (unread.is_full(), read.iter().any(UnreadFile::is_remote));
            let are_unchanged = move || read.iter().all(UnreadFile::is_unchanged);
            let are_unchanged = if are_remote {
                let helpers = &self.link.worker.helpers;
                let checked = helpers.run(self.link.peer.client_net(), are_unchanged);
                let Some(answer) = self.while_wanted(checked).await else { return false };
                answer.unwrap_or_default()
            } else {
                are_unchanged()
            };
            if !are_unchanged {
                self.fail(SendFailure::Changed);
                return false;
            }
            if is_full && !self.wait(Status::Waiting(Wait::Acknowledgement)).await {
                return false;
            }
        }
        self.waiting_since = None;
        true
    }

    /// Waits for a checksum; fails and returns `None` if there will be none.
    async fn checksum(&mut self, making: ChecksumTask) -> Option<u32> {
        let made: Option<ChecksumResult> = self.while_connected(making.made).await?.ok();
        match made {
            Some(Ok(checksum)) => Some(checksum),
            Some(Err(undone)) => {
                let error = undone.of(&making.path);
                self.fail(SendFailure::Archive(error));
                None
            }
            None => {
                self.fail(SendFailure::Archive(ArchiveError::Busy));
                None
            }
        }
    }
}
