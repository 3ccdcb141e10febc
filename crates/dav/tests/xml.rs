//! XML that clients send, and malicious XML.

#![allow(clippy::unwrap_used, missing_docs)]

use underpass_dav::property::Live;
use underpass_dav::request::{LockInfo, Patch, Propfind};
use underpass_dav::xml::{BadXml, Element, Name};

fn named(space: &str, local: &str) -> Name {
    Name { space: space.into(), local: local.into() }
}

#[test]
fn a_propfind_is_parsed() {
    assert_eq!(Propfind::parse(b""), Ok(Propfind::All(vec![])));
    let body = b"<?xml version='1.0'?><propfind xmlns='DAV:'><allprop/></propfind>";
    assert_eq!(Propfind::parse(body), Ok(Propfind::All(vec![])));
    let body = b"\xef\xbb\xbf<a:propfind xmlns:a='DAV:'><a:propname/></a:propfind>\n";
    assert_eq!(Propfind::parse(body), Ok(Propfind::Names));
    let body =
        b"<D:propfind xmlns:D='DAV:' xmlns:x='urn:x'><D:prop><D:getetag/><x:y/><z xmlns=''/>\
        </D:prop></D:propfind>";
    let names = vec![Name::dav("getetag"), named("urn:x", "y"), named("", "z")];
    let some = Propfind::parse(body).unwrap();
    assert_eq!(some, Propfind::Some(names));
    assert!(some.wants(Live::Etag) && !some.wants(Live::LastModified) && some.wants_stored());
    let body =
        b"<propfind xmlns='DAV:'><allprop/><include><quota-used-bytes/></include></propfind>";
    let all = Propfind::parse(body).unwrap();
    assert!(all.wants(Live::QuotaUsed) && !all.wants(Live::QuotaAvailable));
}

#[test]
fn a_property_named_twice_is_answered_once() {
    let names = "<D:getetag/><x:y/><D:lockdiscovery/>".repeat(20);
    for kind in ["prop", "include"] {
        let body = format!(
            "<D:propfind xmlns:D='DAV:' xmlns:x='urn:x'><D:allprop/><D:{kind}>{names}</D:{kind}>\
             </D:propfind>"
        );
        let body = if kind == "prop" { body.replace("<D:allprop/>", "") } else { body };
        let found = Propfind::parse(body.as_bytes()).unwrap();
        let (Propfind::All(names) | Propfind::Some(names)) = found else { panic!("{found:?}") };
        assert_eq!(names.len(), 3, "{kind}");
    }
}

#[test]
fn malformed_propfind_bodies_are_refused() {
    use BadXml::{Entity, Malformed, Namespace, TooLarge, Unexpected};
    let deep = format!("{}{}", "<a>".repeat(33), "</a>".repeat(33));
    let wide = format!("<a>{}</a>", "<b/>".repeat(2000));
    let many: String = (0..65).map(|number| format!("<D:p{number}/>")).collect();
    let many = format!("<D:propfind xmlns:D='DAV:'><D:prop>{many}</D:prop></D:propfind>");
    let attributes: String = (0..33).map(|number| format!(" a{number}=''")).collect();
    let attributes = format!("<a{attributes}/>");
    let long = format!("<a xmlns='{}'/>", "x".repeat(256));
    let bomb = "<!DOCTYPE a [<!ENTITY b 'bbbb'><!ENTITY c '&b;&b;'>]><a>&c;</a>";
    let cases: &[(&str, BadXml)] = &[
        ("<propfind xmlns='DAV:'/>", Unexpected),
        ("<propfind><allprop/></propfind>", Unexpected),
        ("<propfind xmlns='DAV:'><allprop/><propname/></propfind>", Unexpected),
        ("<lockinfo xmlns='DAV:'><allprop/></lockinfo>", Unexpected),
        ("<propfind xmlns='DAV:'><allprop/>", Malformed),
        ("<propfind xmlns='DAV:'><allprop></propfind></allprop>", Malformed),
        ("<a/><b/>", Malformed),
        ("text", Malformed),
        ("<a/>text", Malformed),
        ("", Malformed),
        ("<a>\u{1}</a>", Malformed),
        ("<a>&#0;</a>", Malformed),
        ("<a b='' b=''/>", Malformed),
        ("<a xmlns:x='u' xmlns:y='u' x:b='' y:b=''/>", Malformed),
        ("<1/>", Malformed),
        ("<a½/>", Malformed),
        ("<a xmlns='u\"'/>", Malformed),
        ("<a xmlns='u\n'/>", Malformed),
        ("<D:propfind xmlns:D='DAV:'><D:prop><x:y/></D:prop></D:propfind>", Namespace),
        ("<D:propfind xmlns:D='DAV:' xmlns:x=''><D:allprop/></D:propfind>", Namespace),
        ("<propfind xmlns='DAV:'><prop><xmlns:y/></prop></propfind>", Namespace),
        ("<propfind xmlns='DAV:'><prop><xml:y/></prop></propfind>", Namespace),
        (bomb, Entity),
        ("<!DOCTYPE a SYSTEM 'file:///etc/passwd'><a/>", Entity),
        ("<a>&b;</a>", Entity),
        ("<a b='&c;'/>", Entity),
        (&deep, TooLarge),
        (&wide, TooLarge),
        (&many, TooLarge),
        (&attributes, TooLarge),
        (&long, TooLarge),
    ];
    for (body, expected) in cases {
        let refused = if body.is_empty() {
            Element::parse(b"").map(drop)
        } else {
            Propfind::parse(body.as_bytes()).map(drop)
        };
        assert_eq!(refused, Err(*expected), "{body}");
    }
    assert_eq!(Element::parse(b"<a>\xff</a>"), Err(Malformed));
}

#[test]
fn a_namespace_may_have_an_escaped_ampersand() {
    let space = "http://example.org/?a=1&b=2";
    for escaped in ["http://example.org/?a=1&amp;b=2", "http://example.org/?a=1&#38;b=2"] {
        let root = Element::parse(format!("<x:p xmlns:x='{escaped}' x:q='1'/>").as_bytes());
        let root = root.unwrap();
        assert_eq!(&*root.name.space, space);
        let mut written = Vec::new();
        root.write(&mut written);
        assert_eq!(
            Element::parse(&written).unwrap(),
            root,
            "{}",
            String::from_utf8_lossy(&written)
        );
    }
    let root = Element::parse(b"<propfind xmlns='DAV&#58;'/>").unwrap();
    assert!(root.name.is_dav("propfind"));
    let reserved = b"<x:a xmlns:x='http://www.w3.org/2000/xmlns&#47;'/>";
    assert_eq!(Element::parse(reserved), Err(BadXml::Namespace));
    assert_eq!(Element::parse(b"<a xmlns='u&b;'/>"), Err(BadXml::Entity));
    for control in ["u&#10;", "u&#32;", "u&quot;", "u&lt;"] {
        let body = format!("<a xmlns='{control}'/>");
        assert_eq!(Element::parse(body.as_bytes()), Err(BadXml::Malformed), "{body}");
    }
}

#[test]
fn a_patch_keeps_its_order() {
    let body = b"<D:propertyupdate xmlns:D='DAV:' xmlns:x='urn:x'>\
        <D:remove><D:prop><x:a/></D:prop></D:remove>\
        <D:set><D:prop><x:a>1</x:a><x:b/></D:prop></D:set></D:propertyupdate>";
    let patches = Patch::parse(body).unwrap();
    let names: Vec<_> = patches.iter().map(|patch| &*patch.name().local).collect();
    assert_eq!(names, ["a", "a", "b"]);
    assert!(matches!(&patches[0], Patch::Remove(_)));
    assert!(matches!(&patches[1], Patch::Set(property) if property.text() == "1"));
    assert_eq!(Patch::parse(b"<D:propertyupdate xmlns:D='DAV:'/>"), Err(BadXml::Unexpected));
}

#[test]
fn a_lock_has_one_scope() {
    let lock = |inside: &str| {
        LockInfo::parse(format!("<D:lockinfo xmlns:D='DAV:'>{inside}</D:lockinfo>").as_bytes())
    };
    let write = "<D:locktype><D:write/></D:locktype>";
    let exclusive = "<D:lockscope><D:exclusive/></D:lockscope>";
    let shared = "<D:lockscope><D:shared/></D:lockscope>";
    let info = lock(&format!("{exclusive}{write}<D:owner>me &amp; <D:href>x</D:href></D:owner>"));
    let info = info.unwrap();
    assert!(info.is_exclusive);
    assert_eq!(info.owner, "<D:owner>me &amp; <D:href>x</D:href></D:owner>");
    assert!(!lock(&format!("{shared}{write}")).unwrap().is_exclusive);
    assert_eq!(lock(exclusive), Err(BadXml::Unexpected));
    assert_eq!(lock(write), Err(BadXml::Unexpected));
    let both = "<D:lockscope><D:shared/><D:exclusive/></D:lockscope>";
    assert_eq!(lock(&format!("{both}{write}")), Err(BadXml::Unexpected));
    let owner = format!("<D:owner>{}</D:owner>", "x".repeat(1024));
    assert_eq!(lock(&format!("{exclusive}{write}{owner}")), Err(BadXml::TooLarge));
}

#[test]
fn stored_properties_are_read_back() {
    let values = [
        "<x:a xmlns:x='urn:x'>text &lt;&#13;&quot;&amp;amp;</x:a>",
        "<a>none</a>",
        "<D:known xmlns:D='DAV:'/>",
        "<x:a xmlns:x='urn:&quot;'/>",
        "<a xmlns='u' xml:lang='de' b='&lt;1&gt;' xmlns:z='v' z:c='&quot;'><b xmlns=''>x</b> y </a>",
        "<a><![CDATA[<b> & ]]><![CDATA[]]></a>",
        "<a><![CDATA[]]></a>",
        "<é.1-·><b/>\r\n</é.1-·>",
        "<a>\u{10000}\u{85}</a>",
    ];
    let read = |value: &&str| Element::parse(value.as_bytes());
    let elements: Vec<_> = values.iter().filter_map(|value| read(value).ok()).collect();
    assert_eq!(elements.len(), 8, "a namespace with a quotation mark is refused");
    let mut stored = Vec::new();
    Element::stored(elements.clone()).write(&mut stored);
    let again: Vec<_> = Element::parse(&stored).unwrap().into_elements().collect();
    assert_eq!(again, elements, "{}", String::from_utf8_lossy(&stored));
}

#[test]
fn tabs_and_line_feeds_of_attributes_survive_a_round_trip() {
    let element = Element::parse(b"<a b='1&#9;2&#10;3'/>").unwrap();
    let mut written = Vec::new();
    element.write(&mut written);
    assert_eq!(written, b"<a b=\"1&#9;2&#10;3\"/>");
}

#[test]
fn the_number_of_attributes_survives_a_round_trip() {
    let attributes: String = (0..32).map(|number| format!(" q:a{number}='{number}'")).collect();
    let element = format!("<q:many xmlns:q='urn:q'{attributes}/>");
    let element = Element::parse(element.as_bytes()).unwrap();
    let mut stored = Vec::new();
    Element::stored(vec![element.clone()]).write(&mut stored);
    let again: Vec<_> = Element::parse(&stored).unwrap().into_elements().collect();
    assert_eq!(again, [element]);
}

#[test]
fn a_property_keeps_the_inherited_language() {
    let body = "<D:propertyupdate xmlns:D='DAV:' xml:lang='en'>\
        <D:set><D:prop xml:lang='de'><a/><b xml:lang='fr'/></D:prop></D:set>\
        <D:set><D:prop><c/></D:prop></D:set></D:propertyupdate>";
    let patches = Patch::parse(body.as_bytes()).unwrap();
    let written = patches.iter().map(|patch| {
        let Patch::Set(property) = patch else { panic!("{patch:?}") };
        let mut out = Vec::new();
        property.write(&mut out);
        String::from_utf8(out).unwrap()
    });
    let expected = ["<a xml:lang=\"de\"/>", "<b xml:lang=\"fr\"/>", "<c xml:lang=\"en\"/>"];
    assert_eq!(written.collect::<Vec<_>>(), expected);
}

#[test]
fn a_document_in_utf_16_is_read() {
    let text = "<?xml version='1.0' encoding='UTF-16'?><a><b>\u{e9}\u{20ac}\u{1f600}</b></a>";
    let encode = |to_bytes: fn(u16) -> [u8; 2]| -> Vec<u8> {
        "\u{feff}".encode_utf16().chain(text.encode_utf16()).flat_map(to_bytes).collect()
    };
    let expected = Element::parse(text.as_bytes()).unwrap();
    for document in [encode(u16::to_be_bytes), encode(u16::to_le_bytes)] {
        assert_eq!(Element::parse(&document).unwrap(), expected);
        let odd = &document[..document.len() - 1];
        assert_eq!(Element::parse(odd), Err(BadXml::Malformed));
    }
    let half_of_a_pair = b"\xfe\xff\0<\0a\0>\xd8\x3d\0<\0/\0a\0>";
    assert_eq!(Element::parse(half_of_a_pair), Err(BadXml::Malformed));
}
