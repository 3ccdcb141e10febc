//! XML of WebDAV is refused, or written again so that it means the same; conditions of `If` name only
//! what they were given.

use underpass_dav::condition::IfField;
use underpass_dav::request::{LockInfo, Patch, Propfind};
use underpass_dav::xml::{BadXml, Element};

/// Where the search begins.
pub(crate) const SEEDS: &[&[u8]] = &[
    b"<?xml version='1.0'?><propfind xmlns='DAV:'><prop><getetag/><a xmlns='u'/></prop></propfind>",
    b"<D:propfind xmlns:D='DAV:'><D:allprop/><D:include><D:x/></D:include></D:propfind>",
    b"<p xmlns='DAV:' xmlns:x='u'><set><prop><x:a xml:lang='d' x:b='&lt;'>&amp;&#65;</x:a></prop></set></p>",
    b"<lockinfo xmlns='DAV:'><lockscope><shared/></lockscope><locktype><write/></locktype>\
      <owner><![CDATA[<me>]]></owner></lockinfo>",
    b"<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>",
    b"</a> (<urn:uuid:1> [\"etag\"]) (Not <DAV:no-lock>)",
];

/// A body, or the value of an `If` field.
pub(crate) fn check(data: &[u8]) {
    let (propfind, patch) = (Propfind::parse(data), Patch::parse(data));
    assert!(propfind.is_err() || patch.is_err() || data.is_empty());
    if let Ok(lock) = LockInfo::parse(data) {
        assert!(lock.owner.len() <= 1024);
    }
    if let Ok(element) = Element::parse(data) {
        let mut stored = Vec::new();
        Element::stored(vec![element.clone()]).write(&mut stored);
        let again =
            Element::parse(&stored).map(|stored| stored.into_elements().collect::<Vec<_>>());
        match again {
            // One more level may be one too many.
            Err(fault) => assert_eq!(fault, BadXml::TooLarge),
            Ok(again) => assert_eq!(again, [element], "{}", String::from_utf8_lossy(&stored)),
        }
    }
    if let Some(field) = IfField::parse(data) {
        let text = str::from_utf8(data).unwrap();
        assert!(field.tokens().iter().all(|token| text.contains(&format!("<{token}>"))));
        assert!(!field.lists().is_empty());
        let empty = field.lists().iter().any(|list| list.conditions.is_empty());
        assert!(!empty);
    }
}
