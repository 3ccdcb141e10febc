//! What the uploads of all workers have in common.

use std::sync::{Arc, Mutex};

use underpass_engine::PipePool;

use crate::uploads::state::locks::UploadLocks;
use crate::uploads::state::slots::Slots;
use crate::uploads::state::waiting::Waiting;
use crate::uploads::state::written::Written;

/// What the uploads of all workers have in common.
#[derive(Debug)]
pub(crate) struct Uploads {
    pub(crate) slots: Arc<Slots>,
    pub(crate) locks: UploadLocks,
    /// Parts that wait for their rest.
    pub(crate) waiting: Waiting,
    /// Held by whoever reserves space.
    pub(crate) reserving: Mutex<()>,
    pub(crate) pipes: PipePool,
    /// What of parts is believed.
    pub(crate) written: Written,
}

impl Uploads {
    /// Nothing is under way yet. To be called before the server is confined.
    pub(crate) fn new() -> Self {
        Self {
            slots: Arc::default(),
            locks: UploadLocks::default(),
            waiting: Waiting::default(),
            reserving: Mutex::default(),
            pipes: PipePool::default(),
            written: Written::new(),
        }
    }
}
