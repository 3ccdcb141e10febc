//! Reads the XML of object stores: elements with text and without attributes.

use std::borrow::Cow;

use html5gum::{Token, Tokenizer};

/// Calls `on_end` at the end of each element, with its name in lower case and the text since the
/// last tag. Malformed text is read as far as possible.
pub(crate) fn read(body: &[u8], mut on_end: impl FnMut(&[u8], &str)) {
    let mut text = Vec::new();
    for Ok(token) in Tokenizer::new(&*without_cdata(body)) {
        match token {
            Token::StartTag(_) => text.clear(),
            Token::String(more) => text.extend_from_slice(&more),
            Token::EndTag(tag) => {
                on_end(&tag.name, &String::from_utf8_lossy(&text));
                text.clear();
            }
            _ => {}
        }
    }
}

/// Replaces CDATA sections by escaped text: HTML, for which the tokenizer is, has none of them.
fn without_cdata(body: &[u8]) -> Cow<'_, [u8]> {
    let find = |text: &[u8], mark: &[u8]| text.windows(mark.len()).position(|it| it == mark);
    let mut found = find(body, CDATA);
    if found.is_none() {
        return Cow::Borrowed(body);
    }
    let (mut text, mut rest) = (Vec::with_capacity(body.len()), body);
    while let Some(at) = found {
        text.extend_from_slice(&rest[..at]);
        rest = &rest[at + CDATA.len()..];
        let end = find(rest, CDATA_END).unwrap_or(rest.len());
        for byte in &rest[..end] {
            match byte {
                b'&' => text.extend_from_slice(b"&amp;"),
                b'<' => text.extend_from_slice(b"&lt;"),
                byte => text.push(*byte),
            }
        }
        rest = rest.get(end + CDATA_END.len()..).unwrap_or_default();
        found = find(rest, CDATA);
    }
    text.extend_from_slice(rest);
    Cow::Owned(text)
}

const CDATA: &[u8] = b"<![CDATA[";
const CDATA_END: &[u8] = b"]]>";

/// The reason why an object store refused a request: the body of its answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreRefusal {
    /// The word for programs, such as `NoSuchKey`; empty if there is none.
    pub code: String,
    /// The sentence for people.
    pub message: String,
    /// The region in which the bucket is, if the store names it.
    pub region: Option<String>,
}

impl StoreRefusal {
    /// Reads the body of an answer; empty if it is not that of a store.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cdata_section_is_text() {
        for (body, expected) in [
            ("<k>t/<![CDATA[a<b>&amp;]]c]]>d</k>", "t/a<b>&amp;]]cd"),
            ("<k><![CDATA[a]]><![CDATA[b]]></k>", "ab"),
            ("<k>&amp;<![CDATA[]]></k>", "&"),
        ] {
            let mut found = Vec::new();
            read(body.as_bytes(), |name, text| found.push((name.to_vec(), text.to_owned())));
            assert_eq!(found, [(b"k".to_vec(), expected.to_owned())], "{body}");
        }
        read(b"<k><![CDATA[a</k>", |_, _| panic!("it has no end"));
    }

    #[test]
    fn a_refusal_has_a_code_a_sentence_and_perhaps_a_region() {
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
