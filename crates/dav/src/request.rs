//! The bodies of `PROPFIND`, `PROPPATCH` and `LOCK`.

use crate::property::Live;
use crate::xml::{BadXml, Element, Name};

/// The properties that a `PROPFIND` requests (RFC 4918 9.1).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Propfind {
    /// All cheap properties, and these.
    All(Vec<Name>),
    /// The names of all properties.
    Names,
    /// These properties.
    Some(Vec<Name>),
}

impl Propfind {
    /// Parses a body; an empty one requests all properties.
    ///
    /// # Errors
    ///
    /// See [`BadXml`].
    pub fn parse(body: &[u8]) -> Result<Self, BadXml> {
        if body.is_empty() {
            return Ok(Self::All(Vec::new()));
        }
        let root = Element::parse(body)?;
        if !root.name.is_dav("propfind") {
            return Err(BadXml::Unexpected);
        }
        let [all, names, some] = ["allprop", "propname", "prop"].map(|name| root.find(name));
        match (all, names, some) {
            (Some(_), None, None) => {
                root.find("include").map_or(Ok(Vec::new()), names_in).map(Self::All)
            }
            (None, Some(_), None) => Ok(Self::Names),
            (None, None, Some(prop)) => names_in(prop).map(Self::Some),
            _ => Err(BadXml::Unexpected),
        }
    }

    /// Returns whether a response includes this property or its name.
    #[must_use]
    pub fn wants(&self, live: Live) -> bool {
        let is_named = |names: &[Name]| names.iter().any(|name| name.is_dav(live.name()));
        match self {
            Self::All(others) => live.is_of_all() || is_named(others),
            Self::Names => true,
            Self::Some(names) => is_named(names),
        }
    }

    /// Returns whether a response includes properties that clients have stored.
    #[must_use]
    pub fn wants_stored(&self) -> bool {
        match self {
            Self::All(_) | Self::Names => true,
            Self::Some(names) => names.iter().any(|name| Live::of(name).is_none()),
        }
    }
}

/// Returns the names of the elements in an element without duplicates, because a response repeats
/// each for every entry of a folder.
fn names_in(element: &Element) -> Result<Vec<Name>, BadXml> {
    if element.elements().count() > MAX_NAMES {
        return Err(BadXml::TooLarge);
    }
    let mut names: Vec<Name> = Vec::new();
    for element in element.elements() {
        if !names.contains(&element.name) {
            names.push(element.name.clone());
        }
    }
    Ok(names)
}

/// One change by a `PROPPATCH` (RFC 4918 9.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Patch {
    /// Sets a property.
    Set(Element),
    /// Removes a property, if there is one.
    Remove(Name),
}

impl Patch {
    /// Parses a body.
    ///
    /// # Errors
    ///
    /// See [`BadXml`].
    pub fn parse(body: &[u8]) -> Result<Vec<Self>, BadXml> {
        let root = Element::parse(body)?;
        if !root.name.is_dav("propertyupdate") {
            return Err(BadXml::Unexpected);
        }
        let mut patches = Vec::new();
        for update in root.into_elements() {
            let is_set = update.name.is_dav("set");
            if !is_set && !update.name.is_dav("remove") {
                continue;
            }
            let props = update.into_elements().filter(|element| element.name.is_dav("prop"));
            for property in props.flat_map(Element::into_elements) {
                patches.push(if is_set {
                    Self::Set(property)
                } else {
                    Self::Remove(property.name)
                });
            }
        }
        match patches.len() {
            0 => Err(BadXml::Unexpected),
            1..=MAX_NAMES => Ok(patches),
            _ => Err(BadXml::TooLarge),
        }
    }

    /// Returns the name of the property.
    #[must_use]
    pub fn name(&self) -> &Name {
        match self {
            Self::Set(property) => &property.name,
            Self::Remove(name) => name,
        }
    }
}

/// The lock that a `LOCK` requests (RFC 4918 9.10).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockInfo {
    /// Whether no other client may have a lock.
    pub is_exclusive: bool,
    /// The client's description of itself, as XML; it is returned to others.
    pub owner: String,
}

impl LockInfo {
    /// Parses a body.
    ///
    /// # Errors
    ///
    /// See [`BadXml`].
    pub fn parse(body: &[u8]) -> Result<Self, BadXml> {
        let root = Element::parse(body)?;
        let scope = root.find("lockscope").ok_or(BadXml::Unexpected)?;
        let is_exclusive = scope.find("exclusive").is_some();
        let is_shared = scope.find("shared").is_some();
        let is_write = root.find("locktype").is_some_and(|kind| kind.find("write").is_some());
        if !root.name.is_dav("lockinfo") || is_exclusive == is_shared || !is_write {
            return Err(BadXml::Unexpected);
        }
        let mut owner = Vec::new();
        root.find("owner").into_iter().for_each(|element| element.write(&mut owner));
        if owner.len() > MAX_OWNER {
            return Err(BadXml::TooLarge);
        }
        let owner = String::from_utf8(owner).map_err(|_| BadXml::Malformed)?;
        Ok(Self { is_exclusive, owner })
    }
}

/// The maximum number of properties in one request.
const MAX_NAMES: usize = 64;

/// The maximum length of a lock's owner, in bytes.
const MAX_OWNER: usize = 1024;
