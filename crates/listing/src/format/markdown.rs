//! The README of a folder, below its rows.
//!
//! Raw HTML in it is dropped: tags are left out, and all markup is generated here. So a README
//! cannot run scripts, change the page or load anything from another server, and the page's content
//! security policy would forbid it anyway.

use std::collections::HashMap;
use std::fmt;

use maud::{Markup, PreEscaped, html};
use pulldown_cmark::{CowStr, Event, Options, Parser, Tag, TagEnd, html::write_html_fmt};

use crate::readme::Readme;

/// Returns the README as a part of the page.
pub(crate) fn section(readme: &Readme) -> Markup {
    let is_markdown = readme.name.to_ascii_lowercase().ends_with(".md");
    html! {
        article.readme role="region" aria-label=(readme.name) {
            @match is_markdown.then(|| rendered(&readme.text)).flatten() {
                Some(page) => (PreEscaped(page)),
                None => pre.plain { (readme.text) },
            }
        }
    }
}

/// Returns Markdown as HTML; `None` if that would be much longer or is deeply nested, as no text
/// for people is.
fn rendered(text: &str) -> Option<String> {
    if text.split(['\n', '\r']).any(nests_too_deeply) {
        return None;
    }
    let options =
        Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut events: Vec<_> = Parser::new_ext(text, options).take(MAX_EVENTS + 1).collect();
    if events.len() > MAX_EVENTS {
        return None;
    }
    name_headings(&mut events);
    let mut kept = Vec::new();
    let safe = events.into_iter().filter_map(|event| safe(event, &mut kept));
    let mut out = Bounded(String::new());
    write_html_fmt(&mut out, safe).ok()?;
    // fsspec treats every `href` as an entry of the folder. Text contains no `<` any more.
    let page = out.0.replace("<a href=", "<a Href=");
    // The content security policy forbids styles in attributes.
    let cell = |name: &str| (format!("<{name} style=\"text-align: "), format!("<{name} align=\""));
    Some(["th", "td"].map(cell).iter().fold(page, |page, (from, to)| page.replace(from, to)))
}

/// Returns whether a line may be nested in so many lists and quotations that parsing the following
/// lines, each of which is compared with all open ones, would take seconds.
fn nests_too_deeply(line: &str) -> bool {
    let (mut rest, mut columns) = (line.as_bytes(), 0);
    while columns <= MAX_NESTING * LEAST_INDENT {
        (rest, columns) = match rest {
            [b' ', rest @ ..] => (rest, columns + 1),
            [b'\t', rest @ ..] => (rest, columns + TAB),
            [b'>', rest @ ..] => (rest, columns + LEAST_INDENT),
            _ => match after_bullet(rest) {
                Some(rest) => (rest, columns + LEAST_INDENT),
                None => return false,
            },
        };
    }
    true
}

/// Returns the rest of a line after the marker of a list item.
fn after_bullet(line: &[u8]) -> Option<&[u8]> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (mark, rest) = line[digits..].split_first()?;
    let is_mark = if digits > 0 { b".)".contains(mark) } else { b"-+*".contains(mark) };
    (is_mark && matches!(rest, [] | [b' ' | b'\t', ..])).then_some(rest)
}

/// Text of limited length.
struct Bounded(String);

impl fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > MAX_HTML {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

/// Gives headings the identifiers that links within a README use.
fn name_headings(events: &mut [Event<'_>]) {
    let mut known: HashMap<String, usize> = HashMap::new();
    for start in 0..events.len() {
        if !matches!(events[start], Event::Start(Tag::Heading { .. })) {
            continue;
        }
        let inside = events[start..]
            .iter()
            .take_while(|event| !matches!(event, Event::End(TagEnd::Heading(_))));
        let text: String = inside
            .filter_map(|event| match event {
                Event::Text(text) | Event::Code(text) => Some(&**text),
                _ => None,
            })
            .collect();
        let slug = slug(&text);
        let count = known.entry(slug.clone()).or_default();
        let name = match *count {
            0 => slug,
            count => format!("{slug}-{count}"),
        };
        *count += 1;
        if let Event::Start(Tag::Heading { id, classes, attrs, .. }) = &mut events[start] {
            *id = Some(CowStr::from(format!("{PREFIX}{name}")));
            classes.clear();
            attrs.clear();
        }
    }
}

/// Returns the identifier of a heading, as GitHub generates it.
fn slug(text: &str) -> String {
    let kept =
        text.chars().filter(|char| char.is_alphanumeric() || matches!(char, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|char| if char == ' ' { '-' } else { char }).collect()
}

/// Returns the event without raw HTML, unsafe links and remote images; `None` removes it. `kept`
/// records for each open link and image whether it is kept.
fn safe<'a>(event: Event<'a>, kept: &mut Vec<bool>) -> Option<Event<'a>> {
    match event {
        Event::Html(_) | Event::InlineHtml(_) => None,
        Event::Start(Tag::Link { link_type, dest_url, title, id }) => {
            let target = link(&dest_url);
            kept.push(target.is_some());
            let dest_url = CowStr::from(target?);
            Some(Event::Start(Tag::Link { link_type, dest_url, title, id }))
        }
        Event::Start(Tag::Image { link_type, dest_url, title, id }) => {
            // A query can be a command to the server, such as `?logout`, and a picture is requested
            // without a click.
            let path = dest_url.split('?').next().unwrap_or_default();
            let is_kept = !path.is_empty() && is_relative(path);
            kept.push(is_kept);
            let dest_url = CowStr::from(path.to_owned());
            is_kept.then_some(Event::Start(Tag::Image { link_type, dest_url, title, id }))
        }
        Event::End(TagEnd::Link | TagEnd::Image) => kept.pop().unwrap_or(false).then_some(event),
        event => Some(event),
    }
}

/// Returns the target of a link if it may be followed.
fn link(target: &str) -> Option<String> {
    if let Some(name) = target.strip_prefix('#') {
        return Some(format!("#{PREFIX}{name}"));
    }
    let is_known = SCHEMES.iter().any(|scheme| {
        target.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    });
    (is_known || is_relative(target)).then(|| target.to_owned())
}

/// Returns whether an address is on this server. A scheme ends at a colon, and browsers ignore
/// control characters in it.
fn is_relative(target: &str) -> bool {
    let path = target.split(['?', '#']).next().unwrap_or_default();
    let first = path.split('/').next().unwrap_or_default();
    !target.starts_with("//")
        && !target.contains('\\')
        && !first.contains(':')
        && !target.contains(char::is_control)
}

/// The maximum length of the HTML in bytes.
const MAX_HTML: usize = 1 << 20;

/// The maximum number of parser events: starts and ends of paragraphs, bold words, links.
const MAX_EVENTS: usize = 100_000;

/// The maximum nesting of lists and quotations.
const MAX_NESTING: usize = 100;

/// The minimum indentation of the content of a list, in columns.
const LEAST_INDENT: usize = 2;

/// The maximum width of a tab, in columns.
const TAB: usize = 4;

/// The schemes of links to other servers.
const SCHEMES: [&str; 3] = ["https:", "http:", "mailto:"];

/// The prefix of identifiers in a README, which keeps them distinct from those of the page.
const PREFIX: &str = "readme-";

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        rendered(text).unwrap_or_default()
    }

    #[test]
    fn documents_whose_html_is_too_long_are_not_rendered() {
        assert_eq!(rendered(&"*a* ".repeat(30_000)), None);
        let target = "x".repeat(50_000);
        let text = format!("{}\n\n[a]: {target}\n", "[a] ".repeat(15_000));
        assert!(rendered(&text).is_none_or(|page| page.len() <= MAX_HTML));
        let columns =
            format!("{}\n{}\n{}", "|a".repeat(9_000), "|-".repeat(9_000), "|\n".repeat(9_000));
        assert!(rendered(&columns).is_none_or(|page| page.len() <= MAX_HTML));
        assert!(rendered(&">".repeat(100_000)).is_none_or(|page| page.len() <= MAX_HTML));
    }

    #[test]
    fn deeply_nested_documents_are_not_rendered() {
        for deep in ["> ", ">", "- ", "1. ", "+\t", "* > ", "  - "] {
            let lines = "a\n".repeat(30_000);
            let text = format!("# a\n\n{}a\n{lines}", deep.repeat(10_000));
            assert_eq!(rendered(&text), None, "{deep}");
            assert_eq!(rendered(&text.replace('\n', "\r")), None, "{deep}");
        }
        let indented: String =
            (0..300).map(|depth| format!("{}- a\n", "  ".repeat(depth))).collect();
        assert_eq!(rendered(&indented), None);
        for shallow in ["> > > a", "- a\n  - b\n    1. c", "----------", "***", "        let a;"] {
            assert!(rendered(shallow).is_some(), "{shallow}");
        }
        assert!(rendered(&"-".repeat(1_000)).is_some());
    }

    #[test]
    fn markdown_is_rendered() {
        let text = "# A *title*\n\nSome `code`, **bold**, ~~gone~~.\n\n- [x] done\n\n| a | b |\n|---|--:|\n| 1 | 2 |\n";
        let page = shown(text);
        for part in [
            "<h1 id=\"readme-a-title\">A <em>title</em></h1>",
            "<code>code</code>",
            "<strong>bold</strong>",
            "<del>gone</del>",
            "type=\"checkbox\"",
            "<td>1</td><td align=\"right\">2</td>",
        ] {
            assert!(page.contains(part), "{part} in {page}");
        }
    }

    #[test]
    fn links_lead_within_the_page_to_this_server_or_to_known_schemes() {
        for (target, written) in [
            ("#a-b", Some("#readme-a-b")),
            ("docs/a.md", Some("docs/a.md")),
            ("/top", Some("/top")),
            ("?sort=size", Some("?sort=size")),
            ("https://example.org/", Some("https://example.org/")),
            ("MAILTO:me@example.org", Some("MAILTO:me@example.org")),
            ("javascript:alert(1)", None),
            ("JavaScript:alert(1)", None),
            ("java\tscript:alert(1)", None),
            ("\u{1}javascript:alert(1)", None),
            ("data:text/html,x", None),
            ("vbscript:x", None),
            ("//example.org/x", None),
            ("\\\\example.org/x", None),
        ] {
            assert_eq!(link(target).as_deref(), written, "{target:?}");
        }
        let page = shown("[a](javascript:alert(1)) [b](b.md) <javascript:x>");
        assert!(!page.contains("javascript:alert"), "{page}");
        assert!(page.contains("<a Href=\"b.md\">b</a>"), "{page}");
    }

    #[test]
    fn html_in_markdown_is_escaped() {
        for text in [
            "<script>alert(1)</script>",
            "a <img src=x onerror=alert(1)> b",
            "<style>main { display: none }</style>",
            "</article><form action=//example.org>",
            "<!-- --><iframe src=x></iframe>",
            "`<script>`",
            "    <script>indented</script>",
            "```<script>\n<script>\n```",
            "![<script>](x)",
            "[a](<x\" onclick=\"alert(1)>)",
            "[a](x 'y\" onclick=\"alert(1)')",
            "# a {onclick=alert(1)}",
        ] {
            let page = shown(text);
            for bad in ["<script", "<img src=x", "<style", "<form", "<iframe", "</article", "\" on"]
            {
                assert!(!page.contains(bad), "{bad} of {text} in {page}");
            }
        }
    }

    #[test]
    fn images_of_other_servers_are_replaced_by_their_text() {
        let page = shown("![here](a.png) ![there](https://example.org/b.png)");
        assert_eq!(page, "<p><img src=\"a.png\" alt=\"here\" /> there</p>\n");
    }

    #[test]
    fn images_cannot_trigger_commands_of_the_server() {
        let page = shown("![a](?logout) ![b](b.png?raw=true) ![c](sub/&quest;archive=tar)");
        let b = "<img src=\"b.png\" alt=\"b\" />";
        assert_eq!(page, format!("<p>a {b} <img src=\"sub/\" alt=\"c\" /></p>\n"));
    }

    #[test]
    fn headings_with_the_same_text_have_distinct_identifiers() {
        let page = shown("# Use it!\n# Use it\n");
        assert!(page.contains("id=\"readme-use-it\"") && page.contains("id=\"readme-use-it-1\""));
    }
}
