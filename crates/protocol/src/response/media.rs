//! The media type of a file, by its name alone: no byte of a file is read for it.
//!
//! People open a file server in a browser to look at files, so everything that is text is sent as
//! text: a browser shows text/plain and offers most other types for saving.

/// Returns the media type for a file of this name, `application/octet-stream` if the name does
/// not tell.
///
/// Text says `charset=utf-8`. JSON does not, as it is UTF-8 by definition (RFC 8259 8.1), nor does
/// XML, which says its encoding itself: a charset would win over that (RFC 7303 3).
#[must_use]
pub fn media_type(name: &[u8]) -> &'static str {
    known_type(name).unwrap_or(UNKNOWN)
}

/// Returns the media type for a file of this name, if the name tells.
pub(super) fn known_type(name: &[u8]) -> Option<&'static str> {
    match extension(name) {
        Some(extension) => by_extension(extension),
        None => by_whole_name(name),
    }
}

/// Returns whether a browser runs scripts in files of this media type. Browsers differ in what they
/// take from a field with several types or with a comment, so one that is active is enough.
#[must_use]
pub fn is_active(media_type: &str) -> bool {
    let lower = media_type.to_ascii_lowercase();
    lower.split([';', ',', ' ', '\t', '(']).any(|part| {
        matches!(part, "text/html" | "text/xml" | "application/xml" | "text/xsl")
            || part.ends_with("+xml")
    })
}

/// Returns what follows the last dot, unless that is the first character or the last.
pub(super) fn extension(name: &[u8]) -> Option<&[u8]> {
    let dot = name.iter().rposition(|&byte| byte == b'.')?;
    (dot > 0 && dot + 1 < name.len()).then(|| &name[dot + 1..])
}

/// Returns the media type for this extension.
fn by_extension(extension: &[u8]) -> Option<&'static str> {
    let mut lower = [0; MAX_EXTENSION];
    let lower = lower.get_mut(..extension.len())?;
    lower.copy_from_slice(extension);
    lower.make_ascii_lowercase();
    let lower = str::from_utf8(lower).ok()?;
    corrected(lower).or_else(|| mime_guess::from_ext(lower).first_raw().map(with_charset))
}

/// Returns the types that mime_guess lacks, or has under an old name or one that hides text.
fn corrected(extension: &str) -> Option<&'static str> {
    Some(match extension {
        // Source and configuration: to be read.
        "adoc" | "awk" | "bash" | "bat" | "bib" | "c" | "cc" | "cfg" | "clj" | "cmake" | "cmd"
        | "conf" | "cpp" | "cs" | "cxx" | "dart" | "desktop" | "diff" | "el" | "env" | "erl"
        | "ex" | "exs" | "fish" | "fs" | "gitignore" | "go" | "gradle" | "graphql" | "groovy"
        | "h" | "hcl" | "hh" | "hpp" | "hs" | "hxx" | "in" | "ini" | "java" | "jl" | "kt"
        | "less" | "lisp" | "list" | "lock" | "log" | "lua" | "m4" | "mk" | "ml" | "mli"
        | "nfo" | "nim" | "nix" | "org" | "pas" | "patch" | "php" | "pl" | "pm" | "properties"
        | "proto" | "ps1" | "py" | "pyi" | "r" | "rb" | "rs" | "rst" | "sass" | "scala" | "scm"
        | "scss" | "service" | "sh" | "socket" | "sql" | "srt" | "swift" | "tcl" | "tex" | "tf"
        | "toml" | "tsx" | "txt" | "v" | "vb" | "vim" | "yaml" | "yml" | "zig" | "zsh" => PLAIN,
        "asc" | "md5" | "sha1" | "sha256" | "sha512" | "sum" => PLAIN,
        "js" | "cjs" | "mjs" => "text/javascript; charset=utf-8", // RFC 9239
        "map" | "ipynb" => "application/json",
        "jsonl" | "ndjson" => "application/x-ndjson",
        "md" | "markdown" => "text/markdown; charset=utf-8", // RFC 7763
        "vcf" => "text/vcard; charset=utf-8",
        // Compressed files and archives. A .gz is sent as what it is, not as what it holds.
        "br" => "application/x-brotli",
        "gz" | "tgz" => "application/gzip", // RFC 6713
        "lz4" => "application/x-lz4",
        "zst" | "tzst" => "application/zstd", // RFC 8878
        "txz" => "application/x-xz",
        "rar" => "application/vnd.rar",
        "deb" => "application/vnd.debian.binary-package",
        "rpm" => "application/x-rpm",
        "jar" | "war" => "application/java-archive",
        "whl" | "nupkg" | "xpi" => "application/zip",
        // Disk images, models, data: only ever saved.
        "bin" | "ckpt" | "dat" | "ggml" | "gguf" | "img" | "npy" | "onnx" | "pt" | "pth"
        | "qcow2" | "raw" | "safetensors" | "vdi" | "vhd" | "vhdx" | "vmdk" => UNKNOWN,
        "iso" => "application/x-iso9660-image",
        "npz" => "application/zip",
        "parquet" => "application/vnd.apache.parquet",
        "sqlite" | "sqlite3" => "application/vnd.sqlite3",
        // Sound and pictures.
        "avif" => "image/avif",
        "jxl" => "image/jxl",
        "m3u8" => "application/vnd.apple.mpegurl", // RFC 8216
        "m4a" => "audio/mp4",
        "m4s" => "video/iso.segment",
        "m4v" => "video/mp4",
        "mkv" => "video/matroska", // RFC 9559
        "opus" => "audio/ogg",
        "ts" | "m2ts" => "video/mp2t", // a file server has more films than sources of TypeScript
        "ico" => "image/x-icon",
        _ => return None,
    })
}

/// Returns the media type for a name without an ending.
fn by_whole_name(name: &[u8]) -> Option<&'static str> {
    let is_listed = TEXT_NAMES.iter().any(|text| name.eq_ignore_ascii_case(text.as_bytes()));
    is_listed.then_some(PLAIN)
}

/// Adds the character set to the type of a text.
fn with_charset(media_type: &'static str) -> &'static str {
    macro_rules! text {
        ($($subtype:literal)*) => {
            match media_type {
                $(concat!("text/", $subtype) => concat!("text/", $subtype, "; charset=utf-8"),)*
                "text/xml" => media_type,
                // Rare kinds of text: as text to be read.
                other if other.starts_with("text/") => PLAIN,
                other => other,
            }
        };
    }
    text!("cache-manifest" "calendar" "css" "csv" "html" "javascript" "markdown" "n3" "plain"
        "richtext" "sgml" "tab-separated-values" "turtle" "uri-list" "vcard" "vtt")
}

/// Returns whether a media type is one of XML, which declares its own encoding.
pub(super) fn is_xml(media_type: &str) -> bool {
    matches!(media_type, "text/xml" | "text/xml-external-parsed-entity" | "text/xsl")
        || media_type.ends_with("+xml")
}

/// Text without further meaning.
const PLAIN: &str = "text/plain; charset=utf-8";

/// Bytes without known meaning (RFC 2046 4.5.1).
pub(super) const UNKNOWN: &str = "application/octet-stream";

/// No ending that is known is longer; `safetensors` has eleven letters.
const MAX_EXTENSION: usize = 24;

/// Names without an extension that belong to text files on every system.
const TEXT_NAMES: [&str; 41] = [
    ".bashrc",
    ".dockerignore",
    ".editorconfig",
    ".env",
    ".gitattributes",
    ".gitignore",
    ".gitmodules",
    ".mailmap",
    ".npmrc",
    ".profile",
    "authors",
    "brewfile",
    "changelog",
    "changes",
    "codeowners",
    "containerfile",
    "contributors",
    "copying",
    "copyright",
    "credits",
    "dockerfile",
    "gemfile",
    "gnumakefile",
    "history",
    "install",
    "jenkinsfile",
    "justfile",
    "kconfig",
    "license",
    "maintainers",
    "makefile",
    "md5sums",
    "news",
    "notice",
    "procfile",
    "rakefile",
    "readme",
    "sha256sums",
    "sha512sums",
    "todo",
    "vagrantfile",
];
