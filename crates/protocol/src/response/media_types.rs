//! The media types of files: those that the operator chose, those known here, and those of the
//! system's `mime.types`.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use super::media;

/// Media types by the extension of a name, in addition to those that [`media`] knows. Clones share
/// those of the system.
///
/// # Examples
///
/// ```
/// use underpass_protocol::response::media_types::{BadType, MediaTypes};
///
/// let mut types = MediaTypes::default();
/// types.choose("gguf=application/x-gguf")?;
/// assert_eq!(types.of(b"model.GGUF"), "application/x-gguf");
/// assert_eq!(types.of(b"model.unknown"), "application/octet-stream");
/// # Ok::<(), BadType>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MediaTypes {
    /// The types that win over those known here.
    chosen: HashMap<String, String>,
    /// The types of extensions that are not known here.
    others: Arc<HashMap<String, String>>,
}

impl MediaTypes {
    /// Chooses the type of an extension, from `EXT=TYPE`: with or without its dot, in any case.
    ///
    /// # Errors
    ///
    /// [`BadType`] if the extension or the type is invalid.
    pub fn choose(&mut self, text: &str) -> Result<(), BadType> {
        let (extension, media_type) = text.split_once('=').ok_or(BadType)?;
        let extension = extension.strip_prefix('.').unwrap_or(extension);
        let media_type = media_type.trim();
        if !is_extension(extension) || !is_media_type(media_type) {
            return Err(BadType);
        }
        self.chosen.insert(extension.to_ascii_lowercase(), media_type.to_owned());
        Ok(())
    }

    /// Adds the types of a file such as `/etc/mime.types`: lines of a type and its extensions. What
    /// is not understood is left out, and so are types beyond [`MAX_TYPES`].
    pub fn add_system(&mut self, text: &str) {
        let others = Arc::make_mut(&mut self.others);
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or_default();
            let mut words = line.split_ascii_whitespace();
            let Some(media_type) = words.next().filter(|label| is_media_type(label)) else {
                continue;
            };
            let is_text = media_type.starts_with("text/") && !media::is_xml(media_type);
            let charset = if is_text { "; charset=utf-8" } else { "" };
            for extension in words.filter(|label| is_extension(label)) {
                if others.len() >= MAX_TYPES {
                    return;
                }
                let extension = extension.to_ascii_lowercase();
                others.entry(extension).or_insert_with(|| format!("{media_type}{charset}"));
            }
        }
    }

    /// Returns the media type for a file of this name, `application/octet-stream` if the name does
    /// not tell.
    #[must_use]
    pub fn of(&self, name: &[u8]) -> Cow<'static, str> {
        let owned = |found: &str| Cow::Owned(found.to_owned());
        self.chosen(name)
            .map(owned)
            .or_else(|| media::known_type(name).map(Cow::Borrowed))
            .or_else(|| find(&self.others, name).map(owned))
            .unwrap_or(Cow::Borrowed(media::UNKNOWN))
    }

    /// Returns the media type that was [chosen](Self::choose) for a file of this name, if any.
    #[must_use]
    pub fn chosen(&self, name: &[u8]) -> Option<&str> {
        find(&self.chosen, name)
    }
}

/// Returns the media type of the extension of a name.
fn find<'t>(types: &'t HashMap<String, String>, name: &[u8]) -> Option<&'t str> {
    if types.is_empty() {
        return None;
    }
    let extension = str::from_utf8(media::extension(name)?).ok()?;
    types.get(&extension.to_ascii_lowercase()).map(String::as_str)
}

/// The text is not `EXT=TYPE` with a media type such as `application/x-thing`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write an extension and a media type, such as gguf=application/x-gguf")]
pub struct BadType;

/// Returns whether this is a media type (RFC 9110 8.3.1), with or without parameters.
#[must_use]
pub fn is_media_type(text: &str) -> bool {
    let (essence, parameters) = text.split_once(';').unwrap_or((text, ""));
    let is_token = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte))
    };
    let is_typed = essence
        .trim_end()
        .split_once('/')
        .is_some_and(|(kind, sub)| is_token(kind) && is_token(sub));
    is_typed && parameters.bytes().all(|byte| (b' '..=b'~').contains(&byte))
}

/// Returns whether this can follow the last dot of a name.
fn is_extension(text: &str) -> bool {
    !text.is_empty()
        && !text.contains(['.', '/'])
        && !text.chars().any(|c| c.is_control() || c.is_whitespace())
}

/// The maximum number of extensions of the system; Debian's file has some 1,500.
pub const MAX_TYPES: usize = 16_384;
