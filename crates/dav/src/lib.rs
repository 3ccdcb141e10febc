//! The rules of WebDAV (RFC 4918): the XML of its requests and responses, the `If` field, and the
//! rules of locks. It opens no file, reads no clock and owns no socket.
//!
//! Everything is bounded: the depth, the number and the names of elements, the properties of a
//! request, and the number of locks. XML has no document types here, so no entities of its own and
//! nothing external.
//!
//! ```
//! use underpass_dav::property::Live;
//! use underpass_dav::request::Propfind;
//! use underpass_dav::xml::BadXml;
//!
//! let asked = Propfind::parse(br#"<propfind xmlns="DAV:"><prop><getetag/></prop></propfind>"#)?;
//! assert!(asked.wants(Live::Etag) && !asked.wants(Live::ContentLength));
//! // No document types, so no entities: nothing can grow.
//! assert_eq!(Propfind::parse(b"<!DOCTYPE x><propfind/>"), Err(BadXml::Entity));
//! # Ok::<(), BadXml>(())
//! ```

#![deny(missing_docs)]
#![forbid(unsafe_code)]

pub mod condition;
pub mod locks;
pub mod multistatus;
pub mod property;
pub mod request;
pub mod xml;
