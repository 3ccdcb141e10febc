//! The pages and lines that explain errors to people.

use maud::{DOCTYPE, PreEscaped, html};
use underpass_protocol::response::head::{PLAIN_TEXT, push_field, push_number_field, reason};

/// Returns the representation of an error for people: its fields and its body.
///
/// `detail` is one sentence of explanation; it is escaped, and may be empty.
#[must_use]
pub(crate) fn error_page(status: u16, detail: &str, wants_html: bool) -> (Vec<u8>, Vec<u8>) {
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
                body { h1 { (title) } @if !detail.is_empty() { p { (detail) } } }
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

/// The policy of an error page: a browser may only show it. The digest is that of its style.
const ERROR_POLICY: &str = "default-src 'none'; \
     style-src 'sha256-hSZITqwI/5tnac8rvy1LQ9jXGze0BJBEBN52EBqNiV4='; form-action 'none'; base-uri 'none'; \
     frame-ancestors 'none'";

/// The style of an error page, for light and dark mode.
const ERROR_STYLE: &str = ":root{color-scheme:light dark}\
body{font:1rem/1.5 system-ui,sans-serif;max-width:40rem;margin:15vh auto 0;padding:0 1rem}\
h1{font-size:1.5rem}";

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use base64::Engine as _;
    use base64::prelude::BASE64_STANDARD;
    use sha2::{Digest as _, Sha256};

    use super::*;

    #[test]
    fn an_error_is_told_in_the_form_that_the_client_reads() {
        let (fields, body) = error_page(404, "no <such> file", false);
        assert_eq!(body, b"404 Not Found: no <such> file\n");
        assert_eq!(
            String::from_utf8(fields).unwrap(),
            "Content-Type: text/plain; charset=utf-8\r\nContent-Length: 30\r\n"
        );
        let (fields, body) = error_page(404, "no <such> file", true);
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
        assert_eq!(error_page(404, "", false).1, b"404 Not Found\n");
    }
}
