//! The rules of WebDAV (RFC 4918): the XML of its requests and responses, the `If` field, and
//! locks. This crate opens no file, reads no clock and owns no socket.
//!
//! Everything is limited: the depth, the number and the names of elements, the properties of a
//! request, and the number of locks. Document types are refused, so XML can define no entities and
//! refer to nothing external.
//!
//! ```
//! use underpass_dav::property::Live;
//! use underpass_dav::request::Propfind;
//! use underpass_dav::xml::BadXml;
//!
//! let asked = Propfind::parse(br#"<propfind xmlns="DAV:"><prop><getetag/></prop></propfind>"#)?;
//! assert!(asked.wants(Live::Etag) && !asked.wants(Live::ContentLength));
//! // Document types are refused, so no entity can expand.
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
