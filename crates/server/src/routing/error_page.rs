//! The pages and lines that explain errors to people.

use maud::{DOCTYPE, PreEscaped, html};
use underpass_protocol::request::target::Target;
use underpass_protocol::response::head::{PLAIN_TEXT, push_field, push_number_field, reason};

/// Returns the representation of an error for people: its fields and its body.
///
/// `detail` is one sentence of explanation; it is escaped, and may be empty. `navigation_links` are
/// links and their text.
pub(crate) fn error_page(
    status: u16,
    detail: &str,
    wants_html: bool,
    navigation_links: &[(String, &str)],
) -> (Vec<u8>, Vec<u8>) {
    let title = format!("{status} {}", reason(status));
    let (media_type, body) = if wants_html {
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    title { (title) }
                    style { (PreEscaped(ERROR_STYLE)) }
                }
                body {
                    main {
                        h1 { (title) }
                        @if !detail.is_empty() { p { (detail) } }
                        @if !navigation_links.is_empty() {
                            nav { @for (href, text) in navigation_links { a href=(href) { (text) } } }
                        }
                    }
                }
            }
        };
        ("text/html; charset=utf-8", page.into_string())
    } else if detail.is_empty() {
        (PLAIN_TEXT, format!("{title}\n"))
    } else {
        (PLAIN_TEXT, format!("{title}: {detail}\n"))
    };
    let mut fields = Vec::new();
    push_field(&mut fields, "Content-Type", media_type.as_bytes());
    push_number_field(&mut fields, "Content-Length", body.len() as u64);
    if wants_html {
        push_field(&mut fields, "Content-Security-Policy", ERROR_POLICY.as_bytes());
    }
    (fields, body.into_bytes())
}

/// Returns the links from a path of this server to the folder that it is in and to the root. They
/// are relative, because a proxy may have another prefix; so there are none for a path with doubled
/// slashes, which browsers count.
pub(crate) fn navigation_links(target: &Target<'_>) -> Vec<(String, &'static str)> {
    if target.path.is_empty() || target.raw_path.windows(2).any(|pair| pair == b"//") {
        return Vec::new();
    }
    let above = target.path.iter().filter(|byte| **byte == b'/').count();
    let (own, levels) = if target.is_folder { ("../", above + 1) } else { ("./", above) };
    let root = if levels == 0 { "./".to_owned() } else { "../".repeat(levels) };
    match above {
        0 => vec![(root, "All files")],
        1..=MAX_LEVELS => vec![(own.to_owned(), "Folder above"), (root, "All files")],
        _ => vec![(own.to_owned(), "Folder above")],
    }
}

/// The maximum depth of a path from which a link leads to the root, so that the page stays small.
const MAX_LEVELS: usize = 8;

/// The policy of an error page: a browser may only show it. The digest is that of its style.
const ERROR_POLICY: &str = "default-src 'none'; \
     style-src 'sha256-Z0RLHHSOcbw/4dJDCzR4BhLbKWZDRgPuYlikv96fSAs='; form-action 'none'; base-uri 'none'; \
     frame-ancestors 'none'";

/// The style of an error page, for light and dark mode.
const ERROR_STYLE: &str = include_str!("error.css");

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::prelude::BASE64_STANDARD;
    use sha2::{Digest as _, Sha256};

    use super::*;

    #[test]
    fn error_pages_are_in_the_format_the_client_accepts() {
        let (fields, body) = error_page(404, "no <such> file", false, &[]);
        assert_eq!(body, b"404 Not Found: no <such> file\n");
        assert_eq!(
            String::from_utf8(fields).unwrap(),
            "Content-Type: text/plain; charset=utf-8\r\nContent-Length: 30\r\n"
        );
        let ways = [("../".to_owned(), "Folder above")];
        let (fields, body) = error_page(404, "no <such> file", true, &ways);
        assert!(body.len() < 1_024, "with its head it fits into one packet");
        let (fields, body) = (String::from_utf8(fields).unwrap(), String::from_utf8(body).unwrap());
        assert!(
            body.starts_with("<!DOCTYPE html>") && body.contains("no &lt;such&gt; file"),
            "{body}"
        );
        assert!(fields.starts_with("Content-Type: text/html; charset=utf-8\r\n"), "{fields}");
        assert!(fields.contains(&format!("\r\nContent-Length: {}\r\n", body.len())), "{fields}");
        // The policy allows only the page's own style, which it names by its digest.
        let style = body.split_once("<style>").unwrap().1.split_once("</style>").unwrap().0;
        let digest = BASE64_STANDARD.encode(Sha256::digest(style));
        assert!(fields.contains(&format!("style-src 'sha256-{digest}'")), "{digest}: {fields}");
        assert!(fields.contains("\r\nContent-Security-Policy: default-src 'none'; "), "{fields}");
        assert_eq!(error_page(404, "", false, &ways).1, b"404 Not Found\n");
        assert!(body.contains("<a href=\"../\">Folder above</a>"), "{body}");
    }

    #[test]
    fn links_of_an_error_page_are_relative_to_its_path() {
        let hrefs = |path: &str| {
            let target = Target::parse(path.as_bytes(), b"/prefix").unwrap();
            navigation_links(&target).into_iter().map(|(href, _)| href).collect::<Vec<_>>()
        };
        for (path, expected) in [
            ("/prefix/", &[][..]),
            ("/prefix/a", &["./"]),
            ("/prefix/a/", &["../"]),
            ("/prefix/a/b", &["./", "../"]),
            ("/prefix/a/b/", &["../", "../../"]),
            ("/prefix/a/b/c?q", &["./", "../../"]),
            ("/prefix//a/b", &[]),
        ] {
            assert_eq!(hrefs(path), expected, "{path}");
        }
        assert_eq!(hrefs(&format!("/prefix{}", "/a".repeat(100))), ["./"]);
    }
}
