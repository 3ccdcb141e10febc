//! Small XML documents as trees: the bodies of requests, and stored properties.

use std::borrow::Cow;

use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesRef, BytesStart, Event};
use quick_xml::name::{PrefixDeclaration, ResolveResult};
use quick_xml::reader::NsReader;

/// The namespace of WebDAV.
pub const DAV: &str = "DAV:";

/// The namespace of `xml:lang`.
const XML: &str = "http://www.w3.org/XML/1998/namespace";

/// The namespace of namespace declarations, which nothing else may use.
const XMLNS: &str = "http://www.w3.org/2000/xmlns/";

/// The name of an element or attribute.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Name {
    /// The namespace; empty for none.
    pub space: Box<str>,
    /// The name in the namespace.
    pub local: Box<str>,
}

/// An element with its contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element {
    /// Its name.
    pub name: Name,
    attributes: Vec<(Name, String)>,
    content: Vec<Node>,
}

/// A part of an element's content.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    Element(Element),
    Text(String),
}

/// The reason why a document is refused with status 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadXml {
    /// It is not well-formed, or neither in UTF-8 nor, with a byte order mark, in UTF-16.
    #[error("the XML of the request is not well-formed UTF-8 or UTF-16")]
    Malformed,
    /// A namespace prefix is undeclared, declared as empty, or reserved.
    #[error("the XML of the request has an undeclared or reserved namespace")]
    Namespace,
    /// It has a document type, or an entity that is not predefined.
    #[error("the XML of the request has a document type or an unknown entity")]
    Entity,
    /// It is too deep, or has too many elements or too long names.
    #[error("the XML of the request is too large")]
    TooLarge,
    /// Its elements do not match the request.
    #[error("the XML is not that of this method")]
    Unexpected,
}

impl Name {
    /// Creates a name in the WebDAV namespace.
    #[must_use]
    pub fn dav(local: &str) -> Self {
        Self { space: DAV.into(), local: local.into() }
    }

    /// Returns whether it is this name in the WebDAV namespace.
    #[must_use]
    pub fn is_dav(&self, local: &str) -> bool {
        &*self.space == DAV && &*self.local == local
    }

    fn new(space: &ResolveResult<'_>, local: &str) -> Result<Self, BadXml> {
        let space = match space {
            ResolveResult::Bound(space) => unescape(space.0)?,
            ResolveResult::Unbound => String::new(),
            ResolveResult::Unknown(_) => return Err(BadXml::Namespace),
        };
        // Namespaces in XML 1.0, 3.
        if space == XMLNS {
            return Err(BadXml::Namespace);
        }
        if space.len() > MAX_NAME || local.len() > MAX_NAME {
            return Err(BadXml::TooLarge);
        }
        let mut chars = local.chars();
        let is_name = chars.next().is_some_and(begins_name) && chars.all(is_in_name);
        // These characters occur in no URI.
        if !is_name || space.contains(|c: char| c.is_control() || "<>\" ".contains(c)) {
            return Err(BadXml::Malformed);
        }
        Ok(Self { space: space.into(), local: local.into() })
    }
}

impl Element {
    /// Parses a document.
    ///
    /// # Errors
    ///
    /// See [`BadXml`].
    pub fn parse(document: &[u8]) -> Result<Self, BadXml> {
        let document = decode(document)?;
        let mut reader = NsReader::from_str(&document);
        reader.config_mut().expand_empty_elements = true;
        let (mut open, mut root, mut count) = (Vec::<Self>::new(), None, 0);
        loop {
            let (space, event) = reader.read_resolved_event().map_err(|_| BadXml::Malformed)?;
            match event {
                Event::Start(start) if root.is_none() => {
                    count += 1;
                    if open.len() == MAX_DEPTH || count > MAX_ELEMENTS {
                        return Err(BadXml::TooLarge);
                    }
                    let name = Name::new(&space, start.local_name().into_inner())?;
                    // The prefix that `write` declares could not be bound to this namespace.
                    if &*name.space == XML {
                        return Err(BadXml::Namespace);
                    }
                    let attributes = read_attributes(&reader, &start)?;
                    open.push(Self { name, attributes, content: Vec::new() });
                }
                Event::End(_) => match (open.pop(), open.last_mut()) {
                    (Some(element), Some(above)) => above.content.push(Node::Element(element)),
                    (element, _) => root = element,
                },
                Event::Text(text) => push_text(&mut open, &text)?,
                Event::CData(text) => push_text(&mut open, &text)?,
                Event::GeneralRef(entity) => push_text(&mut open, &character(&entity)?)?,
                Event::Decl(_) | Event::Comment(_) | Event::PI(_) => {}
                Event::DocType(_) => return Err(BadXml::Entity),
                Event::Eof if open.is_empty() => return root.ok_or(BadXml::Malformed),
                _ => return Err(BadXml::Malformed),
            }
        }
    }

    /// Creates a document that holds properties and can be parsed again.
    #[must_use]
    pub fn stored(properties: Vec<Self>) -> Self {
        let content = properties.into_iter().map(Node::Element).collect();
        let name = Name { space: "".into(), local: "properties".into() };
        // The prefix by which WebDAV elements are written.
        let prefix = (Name { space: "".into(), local: "xmlns:D".into() }, DAV.to_owned());
        Self { name, attributes: vec![prefix], content }
    }

    /// Returns its child elements.
    pub fn elements(&self) -> impl Iterator<Item = &Self> {
        self.content.iter().filter_map(|node| match node {
            Node::Element(element) => Some(element),
            Node::Text(_) => None,
        })
    }

    /// Returns its child elements as owned values. They keep the language that they inherit from it
    /// (RFC 4918 4.3).
    pub fn into_elements(self) -> impl Iterator<Item = Self> {
        let is_language =
            |(name, _): &(Name, String)| &*name.space == XML && &*name.local == "lang";
        let language = self.attributes.into_iter().find(is_language);
        self.content.into_iter().filter_map(move |node| match node {
            Node::Element(mut element) => {
                if !element.attributes.iter().any(is_language) {
                    element.attributes.extend(language.clone());
                }
                Some(element)
            }
            Node::Text(_) => None,
        })
    }

    /// Returns the first child element with this WebDAV name.
    #[must_use]
    pub fn find(&self, local: &str) -> Option<&Self> {
        self.elements().find(|element| element.name.is_dav(local))
    }

    /// Returns the text directly in it, without white space at the ends.
    #[must_use]
    pub fn text(&self) -> String {
        let parts = self.content.iter().filter_map(|node| match node {
            Node::Text(text) => Some(text.as_str()),
            Node::Element(_) => None,
        });
        parts.collect::<String>().trim().to_owned()
    }

    /// Writes it, for a document in which the prefix `D` means [`DAV`] and no other is declared.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.push(b'<');
        push_tag(out, &self.name, "x");
        if !self.name.space.is_empty() && &*self.name.space != DAV {
            push_attribute(out, "xmlns:x", &self.name.space);
        }
        for (index, (name, value)) in self.attributes.iter().enumerate() {
            match &*name.space {
                "" => push_attribute(out, &name.local, value),
                XML => push_attribute(out, &format!("xml:{}", name.local), value),
                space => {
                    push_attribute(out, &format!("xmlns:a{index}"), space);
                    push_attribute(out, &format!("a{index}:{}", name.local), value);
                }
            }
        }
        if self.content.is_empty() {
            return out.extend_from_slice(b"/>");
        }
        out.push(b'>');
        for node in &self.content {
            match node {
                Node::Element(element) => element.write(out),
                Node::Text(text) => escape(out, text),
            }
        }
        out.extend_from_slice(b"</");
        push_tag(out, &self.name, "x");
        out.push(b'>');
    }
}

/// Returns the text of a document, without a byte order mark. It has at most three bytes for every
/// two of the document.
fn decode(document: &[u8]) -> Result<Cow<'_, str>, BadXml> {
    let (units, to_unit): (_, fn([u8; 2]) -> u16) = match document {
        [0xfe, 0xff, units @ ..] => (units, u16::from_be_bytes),
        [0xff, 0xfe, units @ ..] => (units, u16::from_le_bytes),
        _ => {
            let text = str::from_utf8(document).map_err(|_| BadXml::Malformed)?;
            return Ok(Cow::Borrowed(text.strip_prefix('\u{feff}').unwrap_or(text)));
        }
    };
    let pairs = units.chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return Err(BadXml::Malformed);
    }
    let text = char::decode_utf16(pairs.map(|pair| to_unit([pair[0], pair[1]])));
    text.collect::<Result<String, _>>().map(Cow::Owned).map_err(|_| BadXml::Malformed)
}

/// Writes an empty element with this name.
pub(crate) fn write_empty(out: &mut Vec<u8>, name: &Name) {
    Element { name: name.clone(), attributes: Vec::new(), content: Vec::new() }.write(out);
}

/// Writes the start tag of a WebDAV element.
pub(crate) fn open(out: &mut Vec<u8>, name: &str) {
    for part in ["<D:", name, ">"] {
        out.extend_from_slice(part.as_bytes());
    }
}

/// Writes the end tag of a WebDAV element.
pub(crate) fn close(out: &mut Vec<u8>, name: &str) {
    for part in ["</D:", name, ">"] {
        out.extend_from_slice(part.as_bytes());
    }
}

/// Writes text so that none of it is markup. Characters that XML 1.0 forbids become U+FFFD.
pub fn escape(out: &mut Vec<u8>, text: &str) {
    let mut utf8 = [0; 4];
    for char in text.chars() {
        out.extend_from_slice(match char {
            '&' => b"&amp;",
            '<' => b"&lt;",
            '>' => b"&gt;",
            '"' => b"&quot;",
            // A bare one would be parsed as a line feed.
            '\r' => b"&#13;",
            char if is_xml(char) => char.encode_utf8(&mut utf8).as_bytes(),
            _ => "\u{fffd}".as_bytes(),
        });
    }
}

/// Returns whether XML 1.0 allows this character (2.2).
fn is_xml(char: char) -> bool {
    !matches!(char, '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}')
}

/// Returns whether a name without a prefix can begin with this character (2.3).
fn begins_name(char: char) -> bool {
    matches!(char,
        'A'..='Z' | 'a'..='z' | '_' | '\u{c0}'..='\u{d6}' | '\u{d8}'..='\u{f6}'
        | '\u{f8}'..='\u{2ff}' | '\u{370}'..='\u{37d}' | '\u{37f}'..='\u{1fff}'
        | '\u{200c}' | '\u{200d}' | '\u{2070}'..='\u{218f}' | '\u{2c00}'..='\u{2fef}'
        | '\u{3001}'..='\u{d7ff}' | '\u{f900}'..='\u{fdcf}' | '\u{fdf0}'..='\u{fffd}'
        | '\u{10000}'..='\u{effff}')
}

/// Returns whether such a name can contain this character after the first.
fn is_in_name(char: char) -> bool {
    let is_more = matches!(char,
        '-' | '.' | '0'..='9' | '\u{b7}' | '\u{300}'..='\u{36f}' | '\u{203f}' | '\u{2040}');
    is_more || begins_name(char)
}

fn push_tag(out: &mut Vec<u8>, name: &Name, prefix: &str) {
    match &*name.space {
        "" => {}
        DAV => out.extend_from_slice(b"D:"),
        _ => out.extend_from_slice(format!("{prefix}:").as_bytes()),
    }
    out.extend_from_slice(name.local.as_bytes());
}

fn push_attribute(out: &mut Vec<u8>, name: &str, value: &str) {
    out.extend_from_slice(format!(" {name}=\"").as_bytes());
    for char in value.chars() {
        match char {
            // A parser treats bare ones as spaces (XML 1.0, 3.3.3).
            '\t' => out.extend_from_slice(b"&#9;"),
            '\n' => out.extend_from_slice(b"&#10;"),
            char => escape(out, char.encode_utf8(&mut [0; 4])),
        }
    }
    out.push(b'"');
}

/// Reads the attributes of an element, without namespace declarations.
fn read_attributes(
    reader: &NsReader<&[u8]>,
    start: &BytesStart<'_>,
) -> Result<Vec<(Name, String)>, BadXml> {
    let mut attributes = Vec::new();
    for (index, attribute) in start.attributes().enumerate() {
        if index == MAX_WRITTEN {
            return Err(BadXml::TooLarge);
        }
        let attribute = attribute.map_err(|_| BadXml::Malformed)?;
        match attribute.key.as_namespace_binding() {
            // Namespaces in XML 1.0, 2.2: only the default namespace can be undeclared.
            Some(PrefixDeclaration::Named(_)) if attribute.value.is_empty() => {
                return Err(BadXml::Namespace);
            }
            Some(_) => continue,
            None => {}
        }
        if attributes.len() == MAX_ATTRIBUTES {
            return Err(BadXml::TooLarge);
        }
        let (space, local) = reader.resolver().resolve_attribute(attribute.key);
        let name = Name::new(&space, local.into_inner())?;
        if attributes.iter().any(|(other, _)| *other == name) {
            return Err(BadXml::Malformed);
        }
        attributes.push((name, unescape(&attribute.value)?));
    }
    Ok(attributes)
}

/// Returns the value of an attribute; only predefined entities and characters are resolved.
fn unescape(value: &str) -> Result<String, BadXml> {
    let value = quick_xml::escape::unescape(value).map_err(|_| BadXml::Entity)?;
    if value.chars().all(is_xml) { Ok(value.into_owned()) } else { Err(BadXml::Malformed) }
}

/// Returns the text that a reference stands for.
fn character(entity: &BytesRef<'_>) -> Result<String, BadXml> {
    match entity.resolve_char_ref() {
        Ok(Some(char)) => return Ok(char.into()),
        Ok(None) => {}
        Err(_) => return Err(BadXml::Malformed),
    }
    resolve_predefined_entity(entity).map(str::to_owned).ok_or(BadXml::Entity)
}

/// Adds text to the innermost open element; outside of the root, only white space is allowed.
fn push_text(open: &mut [Element], text: &str) -> Result<(), BadXml> {
    if !text.chars().all(is_xml) {
        return Err(BadXml::Malformed);
    }
    let Some(element) = open.last_mut() else {
        return if text.trim().is_empty() { Ok(()) } else { Err(BadXml::Malformed) };
    };
    match element.content.last_mut() {
        _ if text.is_empty() => {}
        Some(Node::Text(before)) => before.push_str(text),
        _ => element.content.push(Node::Text(text.to_owned())),
    }
    Ok(())
}

/// The maximum depth of elements.
const MAX_DEPTH: usize = 32;

/// The maximum number of elements in a document.
const MAX_ELEMENTS: usize = 1024;

/// The maximum number of attributes of an element, each of which is compared with all others.
const MAX_ATTRIBUTES: usize = 32;

/// The same including namespace declarations. [`Element::write`] makes one for each attribute, one
/// for the name, and one for `D`.
const MAX_WRITTEN: usize = 2 * MAX_ATTRIBUTES + 2;

/// The maximum length of a namespace, and of a name in it, in bytes.
const MAX_NAME: usize = 255;
