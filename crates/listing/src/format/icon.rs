//! Selects the icon before a name. The images are in the style sheet.

use crate::entry::ListedEntry;

/// Returns the class of an entry's link.
pub(crate) fn icon(entry: &ListedEntry) -> &'static str {
    if entry.attributes.is_folder() {
        return "dir";
    }
    let Some(extension) = extension(entry) else { return "file" };
    let by_extension =
        ICONS.iter().find(|(_, extensions)| extensions.contains(&extension.as_slice()));
    by_extension.map_or("file", |(icon, _)| icon)
}

/// Returns whether browsers show the file as a picture.
pub(crate) fn is_picture(entry: &ListedEntry) -> bool {
    !entry.attributes.is_folder()
        && extension(entry).is_some_and(|extension| PICTURES.contains(&extension.as_slice()))
}

/// Returns the part of a name after its last dot, in lower case.
fn extension(entry: &ListedEntry) -> Option<Vec<u8>> {
    let dot = entry.name.iter().rposition(|&byte| byte == b'.')?;
    Some(entry.name[dot + 1..].to_ascii_lowercase())
}

/// The extensions of pictures that browsers can show.
const PICTURES: [&[u8]; 9] =
    [b"avif", b"bmp", b"gif", b"ico", b"jpeg", b"jpg", b"png", b"svg", b"webp"];

/// The extensions of each icon. Only common ones are listed, because an icon is just a visual hint.
const ICONS: [(&str, &[&[u8]]); 5] = [
    (
        "pack",
        &[
            b"7z", b"apk", b"br", b"bz2", b"deb", b"gz", b"img", b"iso", b"jar", b"qcow2", b"rar",
            b"rpm", b"tar", b"tbz", b"tgz", b"txz", b"whl", b"xz", b"zip", b"zst",
        ],
    ),
    ("sound", &[b"aac", b"aiff", b"flac", b"m4a", b"mid", b"mp3", b"oga", b"ogg", b"opus", b"wav"]),
    (
        "image",
        &[
            b"avif", b"bmp", b"gif", b"heic", b"ico", b"jpeg", b"jpg", b"jxl", b"png", b"psd",
            b"raw", b"svg", b"tif", b"tiff", b"webp",
        ],
    ),
    (
        "text",
        &[
            b"c", b"cfg", b"conf", b"cpp", b"css", b"csv", b"doc", b"docx", b"epub", b"go", b"h",
            b"htm", b"html", b"ini", b"java", b"js", b"json", b"log", b"md", b"odt", b"pdf", b"py",
            b"rs", b"rst", b"sh", b"sql", b"toml", b"ts", b"txt", b"xml", b"yaml", b"yml",
        ],
    ),
    ("video", &[b"avi", b"m4v", b"mkv", b"mov", b"mp4", b"mpeg", b"mpg", b"ogv", b"webm", b"wmv"]),
];
