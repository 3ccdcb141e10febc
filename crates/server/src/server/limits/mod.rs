//! Limits on the resources that all clients together, and each of them, can use.

pub(crate) mod admission;
pub(crate) mod batches;
pub(crate) mod budget;
pub(crate) mod change_slots;
pub(crate) mod client_budget;
pub(crate) mod disk_queue;
pub(crate) mod evictions;
pub(crate) mod helper_shares;
pub(crate) mod priority;
pub(crate) mod step_jobs;
pub(crate) mod turn_queue;
