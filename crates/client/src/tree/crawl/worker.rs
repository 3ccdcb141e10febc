//! A worker that performs tasks over its own connection.

use std::sync::atomic::Ordering;

use rustix::io::Errno;
use underpass_transport::incoming::ReceiveError;
use url::Url;

use super::queue::{CrawlQueue, CrawlTask};
use super::state::Crawl;
use crate::download::{DownloadError, Missing, TargetError};
use crate::error::{ClientError, ConnectionError, InvalidResponse, ProxyError};
use crate::http::{Connection, OpenResponse, Request, Response};
use crate::tree::error::{
    Result, SourceFolderError, TreeError, TreeOutcome, explain, is_about_name,
};
use crate::tree::options::TreeEvent;
use crate::tree::retry::Retry;

/// Fetches over its own connection until no task is left. If the server refuses this connection and
/// serves others, their workers do the rest.
pub(super) fn work(crawl: &Crawl<'_, '_, '_>) -> TreeOutcome {
    let _guard = PanicGuard(&crawl.queue);
    let mut worker = CrawlWorker { crawl, idle: None, done: TreeOutcome::default() };
    while let Some(mut task) = crawl.queue.next_task() {
        worker.done.connections = 1;
        let mut retry = Retry::new(crawl.tree);
        let outcome = loop {
            match worker.fetch(&task) {
                Ok(()) => {
                    crawl.has_given_up.store(false, Ordering::Relaxed);
                    break Ok(());
                }
                Err(error) => match retry.wait(error) {
                    Ok(()) => {}
                    Err(error) => break Err(error),
                },
            }
        };
        let outcome = match outcome {
            Ok(()) => Ok(()),
            Err(error) => {
                if !task.is_given_back && is_of_connection(&error) {
                    task.is_given_back = true;
                    match crawl.queue.leave(task) {
                        None => break,
                        Some(own) => task = own,
                    }
                }
                worker.give_up(&task, error)
            }
        };
        crawl.queue.done(outcome);
    }
    worker.done
}

/// Stops all workers if this one panics. Its task is lost: the others would wait for its entries,
/// and files that it did not list would be removed.
struct PanicGuard<'q>(&'q CrawlQueue);

impl Drop for PanicGuard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail(TreeError::Panicked);
        }
    }
}

/// Returns whether the server may have refused the connection rather than the request.
fn is_of_connection(error: &TreeError) -> bool {
    let source = match error {
        TreeError::Client(source) => source,
        TreeError::Download { source, .. } => match &**source {
            DownloadError::Client(source) => source,
            _ => return false,
        },
        _ => return false,
    };
    matches!(
        source,
        ClientError::Connection(ConnectionError::Closed { .. } | ConnectionError::Network { .. })
            | ClientError::Status { status: 429 | 503, .. }
    )
}

/// Returns the system's error about the name of one file or folder, however it is fetched.
fn errno_of_name(error: &TreeError) -> Option<Errno> {
    let source = match error {
        TreeError::Io { source, .. } => source,
        TreeError::Download { source, .. } => match &**source {
            DownloadError::Local { source, .. } => source,
            _ => return None,
        },
        _ => return None,
    };
    Errno::from_io_error(source).filter(|errno| is_about_name(*errno))
}

/// A worker with its connection.
pub(super) struct CrawlWorker<'w, 'c, 'j, 'a> {
    pub(super) crawl: &'w Crawl<'c, 'j, 'a>,
    pub(super) idle: Option<Connection<'a>>,
    pub(super) done: TreeOutcome,
}

impl<'a> CrawlWorker<'_, '_, '_, 'a> {
    fn fetch(&mut self, task: &CrawlTask) -> Result<()> {
        if task.entry.is_folder { self.list(task) } else { self.file(task) }
    }

    /// Decides whether the crawl continues after a failed task: yes if only this one seems to fail.
    fn give_up(&mut self, task: &CrawlTask, error: TreeError) -> Result<()> {
        let path = &task.entry.path;
        match (errno_of_name(&error), &error) {
            // The obstacle has the name of the partial file, not of the file itself.
            (Some(_), TreeError::Download { source, .. }) => {
                self.leave_out(path, &source.to_string());
                return Ok(());
            }
            (Some(errno), _) => {
                let prune = self.crawl.prune.as_ref();
                if !prune.is_some_and(|prune| prune.makes_room(path, errno)) {
                    self.leave_out(path, &explain(errno));
                }
                return Ok(());
            }
            (None, _) => {}
        }
        match error {
            TreeError::Client(ref source) if task.depth > 0 && self.is_of_one(source) => {
                self.leave_out(&task.entry.path, &error.to_string());
                Ok(())
            }
            TreeError::Download { ref source, .. }
                if source.is_about_name() || self.is_of_one_file(source) =>
            {
                self.leave_out(&task.entry.path, &source.to_string());
                Ok(())
            }
            TreeError::Source(SourceFolderError::NotAFolder { .. }) if task.depth > 0 => {
                self.leave_out(&task.entry.path, &error.to_string());
                Ok(())
            }
            error => Err(error),
        }
    }

    /// Returns whether other requests may succeed after this one failed for good. After two broken
    /// connections without a success between them, the server counts as gone.
    fn is_of_one(&self, error: &ClientError) -> bool {
        match error {
            ClientError::InvalidResponse(InvalidResponse::Body(ReceiveError::Engine(_))) => false,
            ClientError::Status { .. }
            | ClientError::InvalidResponse(_)
            | ClientError::Proxy(ProxyError::Scheme { .. } | ProxyError::InvalidResponse { .. })
            | ClientError::Url(_) => true,
            ClientError::Connection(
                ConnectionError::Closed { .. } | ConnectionError::Network { .. },
            )
            | ClientError::TimedOut(_) => !self.crawl.has_given_up.swap(true, Ordering::Relaxed),
            _ => false,
        }
    }

    /// Returns the same for a file that had a download of its own.
    fn is_of_one_file(&self, error: &DownloadError) -> bool {
        match error {
            DownloadError::Client(error) => self.is_of_one(error),
            error => matches!(
                error,
                DownloadError::Target(TargetError::Busy)
                    | DownloadError::Changed
                    | DownloadError::Digest(_)
                    | DownloadError::Missing(Missing::Validator)
            ),
        }
    }

    pub(super) fn leave_out(&mut self, path: &[u8], reason: &str) {
        self.done.left_out += 1;
        (self.crawl.tree.on_event)(&TreeEvent::LeftOut { path, reason });
    }

    pub(super) fn request(
        &mut self,
        method: &str,
        fields: &[(&str, &str)],
        url: &Url,
        is_trusted: bool,
    ) -> Result<OpenResponse<'a>> {
        let request = Request { method, fields };
        let answer = self.crawl.tree.client.execute_with_trust(
            self.idle.take(),
            &request,
            url,
            is_trusted,
        )?;
        self.crawl.tree.mark_answered();
        self.done.tls = answer.connection.tls().cloned();
        // Other successes, such as 202, 204 or an unrequested part, are not the whole content.
        if answer.response.status == 200 {
            return Ok(answer);
        }
        Err(answer.connection.refusal(&answer.response).into())
    }

    /// Keeps a connection for reuse after the response was read completely.
    pub(super) fn keep(&mut self, connection: Connection<'a>, response: &Response) {
        if response.keeps_alive {
            self.idle = Some(connection);
        }
    }
}
