//! Reads the XML of object stores: elements with text and without attributes.

use std::borrow::Cow;

use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesRef, Event};
use quick_xml::reader::Reader;

/// Calls `on_end` at the end of each element, with its name in lower case and the text since the
/// last tag. Reading stops where the text is not well-formed, so a truncated element has no end.
pub(crate) fn read(body: &[u8], mut on_end: impl FnMut(&[u8], &str)) {
    let body = String::from_utf8_lossy(body);
    let mut reader = Reader::from_str(&body);
    reader.config_mut().expand_empty_elements = true;
    reader.config_mut().allow_dangling_amp = true;
    let mut text = String::new();
    loop {
        match reader.read_event() {
            Ok(Event::Start(_)) => text.clear(),
            Ok(Event::Text(more)) => text.push_str(&more),
            Ok(Event::CData(more)) => text.push_str(&more),
            Ok(Event::GeneralRef(entity)) => match character(&entity) {
                Some(character) => text.push_str(&character),
                None => return,
            },
            Ok(Event::End(tag)) => {
                on_end(tag.local_name().into_inner().to_ascii_lowercase().as_bytes(), &text);
                text.clear();
            }
            Ok(Event::Eof) | Err(_) => return,
            Ok(_) => {}
        }
    }
}

/// Returns the character that a reference denotes.
fn character(entity: &BytesRef<'_>) -> Option<Cow<'static, str>> {
    match entity.resolve_char_ref() {
        Ok(Some(character)) => Some(character.to_string().into()),
        Ok(None) => resolve_predefined_entity(entity).map(Cow::Borrowed),
        Err(_) => None,
    }
}

/// The reason why an object store refused a request, from the body of its response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreRefusal {
    /// The error code, such as `NoSuchKey`; empty if there is none.
    pub code: String,
    /// The message in words.
    pub message: String,
    /// The region of the bucket, if the store names it.
    pub region: Option<String>,
}

impl StoreRefusal {
    /// Parses the body of a response; empty if it is not that of a store.
    pub(super) fn parse(body: &[u8]) -> Self {
        let mut refusal = Self::default();
        read(body, |name, text| match name {
            b"code" => text.clone_into(&mut refusal.code),
            b"message" => text.clone_into(&mut refusal.message),
            b"region" => refusal.region = Some(text.to_owned()),
            _ => {}
        });
        refusal
    }
}

/// Returns the first line of a text, without control characters.
pub(super) fn plain(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    line.chars().filter(|c| !c.is_control()).take(MAX_SENTENCE).collect()
}

/// The maximum length of a store's message, in characters.
const MAX_SENTENCE: usize = 300;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_unescaped() {
        for (body, expected) in [
            ("<k>t/<![CDATA[a<b>&amp;]]c]]>d</k>", "t/a<b>&amp;]]cd"),
            ("<k><![CDATA[a]]><![CDATA[b]]></k>", "ab"),
            ("<k>&amp;<![CDATA[]]></k>", "&"),
            ("<k xmlns='s3'>a&#133;&#x85;b</k>", "a\u{85}\u{85}b"),
            ("<k/>", ""),
            ("<k>a & b</k>", "a & b"),
        ] {
            let mut found = Vec::new();
            read(body.as_bytes(), |name, text| found.push((name.to_vec(), text.to_owned())));
            assert_eq!(found, [(b"k".to_vec(), expected.to_owned())], "{body}");
        }
        for cut in ["<k><![CDATA[a</k>", "<k>a", "<k>a</k", "<k>&nbsp;</k>"] {
            read(cut.as_bytes(), |_, _| panic!("it has no end: {cut}"));
        }
    }

    #[test]
    fn a_refusal_has_a_code_a_message_and_perhaps_a_region() {
        let body = b"<?xml version=\"1.0\"?>\n<Error><Code>AuthorizationHeaderMalformed</Code>\
            <Message>the region &apos;a&apos; is wrong &amp; not &quot;b&quot;</Message><Region>b</Region></Error>";
        let refusal = StoreRefusal::parse(body);
        assert_eq!(refusal.code, "AuthorizationHeaderMalformed");
        assert_eq!(refusal.message, "the region 'a' is wrong & not \"b\"");
        assert_eq!(refusal.region.as_deref(), Some("b"));
        for body in [&b""[..], b"<", b"no such page", b"<Error>", b"</Code>"] {
            assert_eq!(StoreRefusal::parse(body), StoreRefusal::default());
        }
    }
}
