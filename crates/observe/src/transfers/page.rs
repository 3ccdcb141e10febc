//! A small page about the transfers, which reloads itself without a script.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use percent_encoding::percent_decode;
use underpass_engine::printable::changes_display;

use crate::transfers::View;

/// The maximum number of transfers shown: they fit into 20 KiB even if all names are escaped.
const MAX_SHOWN: usize = 16;

/// The maximum number of characters of a path shown; the rest is left out in its middle.
const MAX_PATH: usize = 80;

/// The maximum number of characters of a user and of an address shown: an IPv6 address with its
/// port fits.
const MAX_NAME: usize = 48;

/// Renders the page, with the newest transfers first.
pub(super) fn render(views: &[View]) -> String {
    let shown = views.iter().rev().take(MAX_SHOWN);
    let left_out = views.len().saturating_sub(MAX_SHOWN);
    let rate: u64 = views.iter().map(|view| view.rate).sum();
    let content = html! {
        header {
            h1 { (heading(views.len())) }
            @if !views.is_empty() { p.total { (size(rate)) "/s" } }
            a href="?json" { "JSON" }
        }
        @if views.is_empty() {
            p.none { "Transfers that take longer than a moment appear here." }
        } @else {
            ul { @for view in shown { (entry(view)) } }
        }
        @if left_out > 0 {
            p.none { "and " (left_out) " older ones, which the " a href="?json" { "JSON" } " lists" }
        }
    };
    reloading(&format!("{} under way", views.len()), &content)
}

/// Renders a page with this title and content, which reloads itself every two seconds.
pub(super) fn reloading(title: &str, content: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta http-equiv="refresh" content="2";
                title { (title) " - underpass" }
                style { (PreEscaped(STYLE)) }
            }
            body { (content) }
        }
    };
    page.into_string()
}

/// Returns the heading.
fn heading(transfers: usize) -> String {
    match transfers {
        0 => "No transfers".into(),
        1 => "1 transfer".into(),
        _ => format!("{transfers} transfers"),
    }
}

/// Renders one transfer.
fn entry(view: &View) -> Markup {
    let facts = view.facts();
    let percent = percent(view.bytes, facts.expected);
    html! {
        li {
            p.name {
                bdi { (path(&facts.target)) }
                span { (percent) "%" }
            }
            progress aria-label="sent" value=(view.bytes.min(facts.expected)) max=(facts.expected.max(1)) {}
            p.how {
                span {
                    (size(view.bytes)) " of " (size(facts.expected)) ", "
                    @if view.rate > 0 { (size(view.rate)) "/s" } @else { em { "stalled" } }
                }
                span { "for " (duration(view.elapsed.as_secs())) (left(view)) }
            }
            p.how {
                span {
                    @if let Some(user) = &facts.user { (middle_cut(user, MAX_NAME)) " at " }
                    (middle_cut(&facts.peer, MAX_NAME))
                }
                span {
                    (facts.status)
                    @if view.bytes > 0 { " by " (view.mechanism) }
                }
            }
        }
    }
}

/// Returns the time left, if known.
fn left(view: &View) -> String {
    match view.remaining() {
        Some(seconds) if view.bytes < view.facts().expected => {
            format!(", {} left", duration(seconds))
        }
        _ => String::new(),
    }
}

/// Returns the percentage sent; 100 only if all of it is.
pub(super) fn percent(bytes: u64, expected: u64) -> u64 {
    if expected == 0 || bytes >= expected {
        return 100;
    }
    u64::try_from(u128::from(bytes) * 100 / u128::from(expected)).unwrap_or(100)
}

/// Returns the path in readable form, with escapes such as `%20` decoded.
pub(super) fn path(target: &[u8]) -> String {
    let path = percent_decode(target).decode_utf8_lossy();
    middle_cut(&path.replace(changes_display, "\u{fffd}"), MAX_PATH)
}

/// Cuts the middle out of a long text: both ends of a path are more telling.
fn middle_cut(text: &str, max: usize) -> String {
    let len = text.chars().count();
    if len <= max {
        return text.into();
    }
    let head: String = text.chars().take(max / 2).collect();
    let tail: String = text.chars().skip(len - max + max / 2 + 1).collect();
    format!("{head}\u{2026}{tail}")
}

/// Formats bytes in binary units.
pub(super) fn size(bytes: u64) -> String {
    let mut size = bytes as f64;
    let mut units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"].into_iter();
    let mut unit = units.next().unwrap_or_default();
    // A value that would be shown as 1024 belongs to the next unit.
    while size >= 1023.95 {
        let Some(next) = units.next() else { break };
        size /= 1024.0;
        unit = next;
    }
    if unit == "B" { format!("{bytes} B") } else { format!("{size:.1} {unit}") }
}

/// Formats seconds with at most two units.
fn duration(seconds: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")];
    let at = UNITS.iter().position(|(unit, _)| seconds >= *unit).unwrap_or(UNITS.len() - 1);
    let (unit, name) = UNITS[at];
    let first = format!("{} {name}", seconds / unit);
    match UNITS.get(at + 1) {
        Some((below, name)) if seconds % unit >= *below => {
            format!("{first} {} {name}", seconds % unit / below)
        }
        _ => first,
    }
}

/// The Content-Security-Policy of the page: browsers may only display it. The digest is of its
/// style.
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; \
     style-src 'sha256-nreT0+uV4nZ6vVn7MfVtY9DvPv7ruAVNdEzic21QvUI='; form-action 'none'; base-uri 'none'; \
     frame-ancestors 'none'";

/// The whole style; the page loads no other file.
pub(super) const STYLE: &str = "\
:root{--ink:#1a2129;--faint:#5d6975;--line:#dde3e9;--card:#fff;--ground:#f4f6f8;--bar:#0b6e6e}\
@media(prefers-color-scheme:dark){:root{--ink:#e4e9ee;--faint:#94a1ad;--line:#303a44;\
--card:#1b2229;--ground:#12171c;--bar:#3fb8b0}}\
*{box-sizing:border-box;margin:0}\
body{max-width:56rem;margin:0 auto;padding:1.5rem 1rem;background:var(--ground);color:var(--ink);\
font:1rem/1.5 system-ui,sans-serif}\
header,.name,.how{display:flex;flex-wrap:wrap;gap:.1rem 1rem;justify-content:space-between;\
align-items:baseline}\
header{margin-bottom:1rem}\
h1{font-size:1.4rem;font-weight:600;flex:1 1 auto}\
.total,.name span,.how{font-variant-numeric:tabular-nums}\
a{color:var(--bar)}\
ul{padding:0;list-style:none}\
li{background:var(--card);border:1px solid var(--line);border-radius:.5rem;\
padding:.7rem .9rem;margin-bottom:.6rem}\
.name{flex-wrap:nowrap}\
.name bdi{font-weight:600;overflow-wrap:anywhere}\
progress{appearance:none;display:block;width:100%;height:.5rem;margin:.4rem 0;border:0;\
border-radius:.25rem;overflow:hidden;background:var(--line)}\
progress::-webkit-progress-bar{background:var(--line)}\
progress::-webkit-progress-value{background:var(--bar)}\
progress::-moz-progress-bar{background:var(--bar)}\
.how,.none{color:var(--faint);font-size:.875rem}\
.how span{overflow-wrap:anywhere}";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_a_fitting_unit() {
        let table = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1_048_524, "1023.9 KiB"),
            (1_048_560, "1.0 MiB"),
            (3 << 30, "3.0 GiB"),
            (u64::MAX, "16.0 EiB"),
        ];
        for (bytes, expected) in table {
            assert_eq!(size(bytes), expected);
        }
    }

    #[test]
    fn durations_have_two_units() {
        let table = [
            (0, "0 s"),
            (59, "59 s"),
            (60, "1 min"),
            (61, "1 min 1 s"),
            (3600, "1 h"),
            (3659, "1 h"),
            (36_059, "10 h"),
            (36_060, "10 h 1 min"),
            (90_000, "1 d 1 h"),
        ];
        for (seconds, expected) in table {
            assert_eq!(duration(seconds), expected);
        }
    }

    #[test]
    fn a_hundred_percent_is_shown_only_at_the_end() {
        assert_eq!((percent(0, 0), percent(7, 7), percent(8, 7)), (100, 100, 100));
        assert_eq!((percent(0, 7), percent(u64::MAX - 1, u64::MAX)), (0, 99));
    }

    #[test]
    fn long_names_lose_their_middle() {
        assert_eq!(middle_cut("short", 5), "short");
        let cut = middle_cut(&format!("/first{}last", "\u{e4}".repeat(500)), 33);
        assert_eq!(cut.chars().count(), 33);
        assert!(cut.starts_with("/first") && cut.ends_with("last") && cut.contains('\u{2026}'));
    }
}
