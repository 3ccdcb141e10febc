//! A worker that fetches tasks over a connection of its own.

use rustix::io::Errno;
use url::Url;

use super::state::{Crawl, CrawlTask};
use crate::error::ClientError;
use crate::http::{Connection, OpenResponse, Request, Response};
use crate::tree::error::{Result, TreeDone, TreeError, explain, is_about_name};
use crate::tree::options::{Reason, TreeEvent};
use crate::tree::retry::Retry;

/// Fetches with a connection of its own until nothing is left.
pub(super) fn work(crawl: &Crawl<'_, '_, '_>) -> TreeDone {
    let mut worker = CrawlWorker { crawl, idle: None, done: TreeDone::default() };
    while let Some(task) = crawl.queue.take() {
        worker.done.connections = 1;
        let mut retry = Retry::new(crawl.tree);
        let outcome = loop {
            match worker.fetch(&task) {
                Ok(()) => break Ok(()),
                Err(error) => match retry.wait(error) {
                    Ok(()) => {}
                    Err(error) => break worker.give_up(&task, error),
                },
            }
        };
        crawl.queue.done(outcome);
    }
    worker.done
}

/// A worker with its connection.
pub(super) struct CrawlWorker<'w, 'c, 'j, 'a> {
    pub(super) crawl: &'w Crawl<'c, 'j, 'a>,
    pub(super) idle: Option<Connection<'a>>,
    pub(super) done: TreeDone,
}

impl<'a> CrawlWorker<'_, '_, '_, 'a> {
    fn fetch(&mut self, task: &CrawlTask) -> Result<()> {
        if task.entry.is_folder { self.list(task) } else { self.file(task) }
    }

    /// Decides whether the rest goes on when one task fails: yes if the server refuses only this
    /// one.
    fn give_up(&mut self, task: &CrawlTask, error: TreeError) -> Result<()> {
        match error {
            TreeError::Client(ClientError::Status { .. }) if task.depth > 0 => {
                self.leave_out(&task.entry.path, &error);
                Ok(())
            }
            TreeError::Download { ref source, .. } if source.is_about_name() => {
                self.leave_out(&task.entry.path, source);
                Ok(())
            }
            TreeError::NotAFolder { .. } if task.depth > 0 => {
                self.leave_out(&task.entry.path, &error);
                Ok(())
            }
            TreeError::Io { ref source, .. } => {
                let errno = Errno::from_io_error(source).filter(|errno| is_about_name(*errno));
                let Some(errno) = errno else { return Err(error) };
                let path = &task.entry.path;
                let prune = self.crawl.prune.as_ref();
                if !prune.is_some_and(|prune| prune.makes_room(path, errno)) {
                    self.leave_out(path, &explain(errno));
                }
                Ok(())
            }
            error => Err(error),
        }
    }

    pub(super) fn leave_out(&mut self, path: &[u8], reason: &dyn Reason) {
        self.done.left_out += 1;
        (self.crawl.tree.on_event)(&TreeEvent::LeftOut { path, reason });
    }

    pub(super) fn request(
        &mut self,
        method: &str,
        fields: &[(&str, &str)],
        url: &Url,
    ) -> Result<OpenResponse<'a>> {
        let request = Request { method, fields };
        // The listing may be that of another server, to which a redirect led.
        let is_trusted = self.crawl.tree.trusts(url);
        let answer = self.crawl.tree.client.execute_with_trust(
            self.idle.take(),
            &request,
            url,
            is_trusted,
        )?;
        self.crawl.tree.mark_answered();
        self.done.tls = answer.connection.tls().cloned();
        // Other successes, such as 202, 204 or a part that was not requested, are not the whole.
        if answer.response.status == 200 {
            return Ok(answer);
        }
        Err(answer.connection.refusal(&answer.response).into())
    }

    /// Keeps a connection whose answer was read completely.
    pub(super) fn keep(&mut self, connection: Connection<'a>, response: &Response) {
        if response.keeps_alive {
            self.idle = Some(connection);
        }
    }
}
