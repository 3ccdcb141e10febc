//! Notices clients that leave while their response is being prepared.

use std::future::poll_fn;
use std::os::fd::AsFd;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use tokio::io::Interest;
use tokio::time::timeout;

use super::{Activity, Peer};
use crate::connection::socket::READABLE;

impl Peer {
    /// Runs long work, unless the client leaves before it is done.
    pub(crate) async fn while_connected<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let (mut work, mut disconnected) = (pin!(work), pin!(self.disconnected()));
        poll_fn(|context| match work.as_mut().poll(context) {
            Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
            Poll::Pending => disconnected.as_mut().poll(context).map(|()| None),
        })
        .await
    }

    /// Returns once the client has shut down its side of the connection; never returns if another
    /// request has arrived, behind which that cannot be seen.
    async fn disconnected(&self) {
        while self.readable().await.is_ok() {
            if let Some(session) = self.session() {
                match session.peek(self.socket.as_fd()) {
                    None => self.socket.clear_ready(READABLE),
                    Some(true) => std::future::pending().await,
                    Some(false) => return,
                }
                continue;
            }
            match recv(&self.socket, &mut [0], RecvFlags::PEEK) {
                Err(Errno::AGAIN) => self.socket.clear_ready(Interest::READABLE),
                Err(Errno::INTR) => {}
                Ok((1, _)) => std::future::pending().await,
                Ok(_) | Err(_) => return,
            }
        }
    }

    /// Waits for `work`, unless the client leaves first, so that an unresponsive file system does
    /// not hold the connection.
    ///
    /// A client that has only shut down its side of the connection cannot be distinguished from one
    /// that has left. It gets the result if that is known within [`LEFT_INTERVAL`].
    pub(crate) async fn until_left<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        loop {
            match timeout(LEFT_INTERVAL, work.as_mut()).await {
                Ok(outcome) => return Some(outcome),
                // An upload that is being received notices the end itself.
                Err(_) if self.activity() == Activity::Waiting && self.has_left() => return None,
                Err(_) => {}
            }
        }
    }

    /// Returns whether the client has shut down its side of the connection, or all of it, even
    /// after sending another request.
    fn has_left(&self) -> bool {
        self.polls(PollFlags::RDHUP, PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR)
    }
}

/// The interval at which a client that waits for a response is checked.
const LEFT_INTERVAL: Duration = Duration::from_secs(2);
