//! Gets certificates for names from a certificate authority (ACME, RFC 8555), stores them in a
//! folder and renews them.
//!
//! `instant-acme` implements the protocol; our own HTTP client sends its requests, so that nothing
//! here needs a runtime: one thread sends requests, waits and renews. The server answers the
//! challenges, sharing the [`Identities`](underpass_transport::tls::Identities).
//!
//! # Examples
//!
//! ```no_run
//! use underpass_acme::{Acme, AcmeOptions, LETS_ENCRYPT, Names, name};
//! use underpass_client::{TlsSetup, Url};
//! use underpass_transport::tls::{Acceptor, Identities};
//!
//! let identities = Identities::default();
//! let options = AcmeOptions {
//!     names: Names::new([name("files.example.org")?]),
//!     email: None,
//!     directory: Url::parse(LETS_ENCRYPT)?,
//!     state: "/var/lib/files/acme".into(),
//!     tls: TlsSetup::default(),
//! };
//! let acme = Acme::open(options, identities.clone())?;
//! println!("still missing: {:?}", acme.missing());
//! acme.start(false, |event| eprintln!("{event:?}"))?;
//! // Answers the challenges, and then uses the certificates.
//! let acceptor = Acceptor::with_identities(identities, true)?.for_challenges();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![deny(missing_docs)]
#![forbid(unsafe_code)]

mod acme;
mod error;
mod http;
mod name;
mod names;
mod order;
mod schedule;
mod state;

pub use acme::{Acme, AcmeEvent, AcmeOptions, LETS_ENCRYPT};
pub use error::AcmeError;
pub use name::{InvalidHostname, is_public, name};
pub use names::{Names, NamesControl};
