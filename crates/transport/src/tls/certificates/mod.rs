//! Certificates: of this program, and facts about those of peers.

mod facts;
mod host_names;
mod identity;

pub(super) use facts::CertificateFacts;
pub use identity::Identity;
pub(super) use identity::read_certificates;
