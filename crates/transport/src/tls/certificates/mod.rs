//! Our own certificates, and facts about those of peers.

mod facts;
mod host_names;
mod identities;
mod identity;
mod key_files;

pub(super) use facts::CertificateFacts;
pub(super) use identities::ACME_PROTOCOL;
pub use identities::Identities;
pub use identity::Identity;
pub(super) use identity::read_certificates;
pub use key_files::KeyFiles;
