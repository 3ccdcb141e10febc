//! Limits on the resources that all clients together, and each of them, can use.

pub(crate) mod admission; // connections
pub(crate) mod batches; // work that is done once for several clients
pub(crate) mod budget; // memory for requests that are not answered
pub(crate) mod disk_queue;
pub(crate) mod evictions; // idle connections that other workers are to close
pub(crate) mod memory_budget; // memory for listings and archives
pub(crate) mod priority;
pub(crate) mod turn_queue; // the processor time of a worker
