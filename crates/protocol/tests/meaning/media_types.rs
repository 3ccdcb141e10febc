use underpass_protocol::response::media_types::{BadType, MAX_TYPES, MediaTypes, is_media_type};

fn types(chosen: &[&str], system: &str) -> MediaTypes {
    let mut types = MediaTypes::default();
    for text in chosen {
        types.choose(text).unwrap();
    }
    types.add_system(system);
    types
}

#[test]
fn chosen_types_win_over_known_ones_and_these_over_those_of_the_system() {
    let system = "# comment\n\
                  application/x-gguf\tgguf GGML2 # and more\n\
                  text/x-strange  strange\n\
                  text/x-feed+xml  feed\n\
                  not-a-type nat\n\
                  application/x-none\n\
                  application/x-other html bin gguf\n";
    let types = types(&["html=application/x-html", ".THING=text/thing; charset=utf-16"], system);
    for (name, expected) in [
        ("a.html", "application/x-html"),
        ("a.HTML", "application/x-html"),
        ("a.thing", "text/thing; charset=utf-16"),
        ("a.gguf", "application/octet-stream"), // known here, as bytes to be saved
        ("a.ggml2", "application/x-gguf"),
        ("a.strange", "text/x-strange; charset=utf-8"),
        ("a.feed", "text/x-feed+xml"),
        ("a.nat", "application/octet-stream"),
        ("a.json", "application/json"),
        ("html", "application/octet-stream"),
        (".html", "application/octet-stream"),
        ("a.\u{130}", "application/octet-stream"),
    ] {
        assert_eq!(types.of(name.as_bytes()), expected, "{name}");
    }
    assert_eq!(types.of(b"a.\xff"), "application/octet-stream");
}

#[test]
fn malformed_media_types_are_refused() {
    for text in [
        "",
        "html",
        "=a/b",
        "html=",
        "html=text",
        "html=text/",
        "html=/html",
        "a.b=a/b",
        "a/b=a/b",
        "a=a/b c",
        "a=a/b; c\r\nd: e",
        "a=a/b\n",
        "a b=a/b",
        "a=a/\u{e4}",
        "a=a/b;c=\u{e4}",
    ] {
        let mut types = MediaTypes::default();
        let is_trimmed = text == "a=a/b\n";
        assert_eq!(types.choose(text), if is_trimmed { Ok(()) } else { Err(BadType) }, "{text:?}");
    }
    assert!(is_media_type("application/vnd.oci.image.manifest.v1+json"));
    assert!(is_media_type("text/html;charset=\"utf-8\"") && !is_media_type("text/html\r\nX: y"));
}

#[test]
fn the_types_of_the_system_are_bounded() {
    let lines: String =
        (0..=MAX_TYPES).map(|number| format!("application/x-{number} e{number}\n")).collect();
    let types = types(&[], &lines);
    assert_eq!(types.of(b"a.e0"), "application/x-0");
    assert_eq!(types.of(format!("a.e{MAX_TYPES}").as_bytes()), "application/octet-stream");
}
