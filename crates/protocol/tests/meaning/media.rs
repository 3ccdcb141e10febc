use proptest::prelude::*;
use underpass_protocol::response::media::{is_active, media_type};

const PLAIN: &str = "text/plain; charset=utf-8";
const UNKNOWN: &str = "application/octet-stream";

#[test]
fn a_name_tells_the_media_type() {
    for (name, expected) in [
        ("index.html", "text/html; charset=utf-8"),
        ("INDEX.HTM", "text/html; charset=utf-8"),
        ("style.css", "text/css; charset=utf-8"),
        ("app.js", "text/javascript; charset=utf-8"),
        ("app.mjs", "text/javascript; charset=utf-8"),
        ("app.js.map", "application/json"),
        ("data.json", "application/json"),
        ("data.jsonl", "application/x-ndjson"),
        ("site.webmanifest", "application/manifest+json"),
        ("table.csv", "text/csv; charset=utf-8"),
        ("feed.xml", "text/xml"),
        ("style.xsl", "text/xml"),
        ("drawing.svg", "image/svg+xml"),
        ("notes.txt", PLAIN),
        ("notes.md", "text/markdown; charset=utf-8"),
        ("main.rs", PLAIN),
        ("main.py", PLAIN),
        ("run.sh", PLAIN),
        ("Cargo.toml", PLAIN),
        ("deploy.yaml", PLAIN),
        ("a.log", PLAIN),
        ("README", PLAIN),
        ("Makefile", PLAIN),
        ("LICENSE", PLAIN),
        ("SHA256SUMS", PLAIN),
        (".gitignore", PLAIN),
        ("picture.png", "image/png"),
        ("picture.jpeg", "image/jpeg"),
        ("picture.webp", "image/webp"),
        ("picture.avif", "image/avif"),
        ("film.mp4", "video/mp4"),
        ("film.mkv", "video/matroska"),
        ("film.webm", "video/webm"),
        ("film.ts", "video/mp2t"),
        ("song.mp3", "audio/mpeg"),
        ("song.flac", "audio/flac"),
        ("captions.vtt", "text/vtt; charset=utf-8"),
        ("font.woff2", "font/woff2"),
        ("paper.pdf", "application/pdf"),
        ("code.wasm", "application/wasm"),
        ("a.zip", "application/zip"),
        ("a.tar", "application/x-tar"),
        ("a.tar.gz", "application/gzip"),
        ("a.tgz", "application/gzip"),
        ("a.tar.zst", "application/zstd"),
        ("a.tar.xz", "application/x-xz"),
        ("a.7z", "application/x-7z-compressed"),
        ("a.deb", "application/vnd.debian.binary-package"),
        ("a.rpm", "application/x-rpm"),
        ("a.iso", "application/x-iso9660-image"),
        ("disk.img", UNKNOWN),
        ("model.safetensors", UNKNOWN),
        ("model.gguf", UNKNOWN),
        ("program", UNKNOWN),
        ("a.unheard-of", UNKNOWN),
        ("a.", UNKNOWN),
        (".", UNKNOWN),
        ("", UNKNOWN),
        (".hidden", UNKNOWN),
        ("a.aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", UNKNOWN),
    ] {
        assert_eq!(media_type(name.as_bytes()), expected, "{name}");
    }
    assert_eq!(media_type(b"a.\xff"), UNKNOWN);
}

proptest! {
    #[test]
    fn text_says_its_character_set(extension in "[a-z0-9]{1,5}") {
        let found = media_type(format!("a.{extension}").as_bytes());
        prop_assert_eq!(found.starts_with("text/"), found.ends_with("; charset=utf-8"), "{}", found);
    }
}

#[test]
fn a_type_is_active_if_one_of_a_field_with_several_is() {
    for active in [
        "text/html",
        "Text/HTML; charset=utf-8",
        "image/svg+xml",
        "text/plain, text/html",
        "text/html (a comment)",
        "application/xhtml+xml\t",
    ] {
        assert!(is_active(active), "{active}");
    }
    for passive in ["text/plain", "text/htmlx", "image/png; charset=utf-8", "application/json", ""]
    {
        assert!(!is_active(passive), "{passive}");
    }
}
