//! Downloads: what other servers have, whole, in files of ours.
//!
//! The first answer tells what there is: how long, in which version, and whether ranges of it can
//! be had. Then as many connections as are worth it take pieces from a scheduler, and what each has put
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

use super::http::HttpClient;
use run::Download;

pub use error::{Done, DownloadError, Failed, Kept};
pub use name::name_of;
pub use options::{DownloadOptions, Event, Gauge, IfExists, Target};

/// Fetches files.
#[derive(Debug)]
pub struct Downloader<'a> {
    client: HttpClient<'a>,
    options: DownloadOptions,
    pipes: PipePool,
}

impl<'a> Downloader<'a> {
    /// Fetches in this way.
    #[must_use]
    pub fn new(client: HttpClient<'a>, options: DownloadOptions) -> Self {
        Self { client, options, pipes: PipePool::default() }
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
        let Self { client, options, pipes } = self;
        Download::new(client, options, pipes, url, target, gauge, tell).run()
    }
}
