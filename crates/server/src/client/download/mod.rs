//! Downloads: what other servers have, whole, in files of ours.
//!
//! The first answer tells what there is: how long, in which version, and whether ranges of it can
//! be had. Then as many connections as are worth it take pieces from a board, and what each has put
//! into the file is noted in a journal beside it, so that whoever comes after a crash goes on from
//! there. Nothing here prints or reads the environment.

#![allow(clippy::single_range_in_vec_init)] // lists of ranges are what is meant

mod check;
mod error;
mod interpret;
mod journal;
mod name;
mod options;
mod partial_file;
mod rate_limit;
mod run;
mod scheduler;
mod workers;

use underpass_engine::PipePool;
use url::Url;

use super::http::Agent;
use run::Job;

pub use error::{Done, DownloadError, Failed, Kept};
pub use name::name_of;
pub use options::{Event, Gauge, Taken, Target, Wishes};

/// Fetches files.
#[derive(Debug)]
pub struct Downloader<'a> {
    agent: Agent<'a>,
    wishes: Wishes,
    pipes: PipePool,
}

impl<'a> Downloader<'a> {
    /// Fetches in this way.
    #[must_use]
    pub fn new(agent: Agent<'a>, wishes: Wishes) -> Self {
        Self { agent, wishes, pipes: PipePool::default() }
    }

    /// Fetches what is at `url`. `gauge` shows how far it is, `tell` is told what happens.
    ///
    /// # Errors
    ///
    /// [`Failed`], which says what has been moved up to then and what is kept to be gone on with.
    pub fn fetch(
        &self,
        url: &Url,
        target: &Target<'_>,
        gauge: &Gauge,
        tell: &(dyn Fn(&Event<'_>) + Sync),
    ) -> Result<Done, Failed> {
        let Self { agent, wishes, pipes } = self;
        Job::new(agent, wishes, pipes, url, target, gauge, tell).run()
    }
}
