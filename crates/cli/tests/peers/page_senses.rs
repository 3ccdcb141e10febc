//! The page of a folder for those who use it with keys alone, by touch, or in colours of their own.

use std::fs;

use serde_json::json;

use crate::rig::until;
use crate::site::Site;
use crate::webdriver::Browser;

/// A folder with three files, and a browser that shows it.
fn site(args: &[&str]) -> Option<(Site, Browser)> {
    let site = Site::new(&["chromium", "chromedriver"], args)?;
    for name in ["a.txt", "b.txt", "c.txt"] {
        fs::write(site.source(name), name).unwrap();
    }
    let browser = Browser::new(site.peer("chromedriver", &[]));
    browser.open(&site.url(""));
    Some((site, browser))
}

/// The focused element, as a screen reader names it.
const FOCUSED: &str =
    "document.activeElement.getAttribute('aria-label') ?? document.activeElement.textContent";

#[test]
fn the_focus_stays_in_its_row_when_the_rows_are_shown_anew() {
    let Some((site, browser)) = site(&["-A"]) else { return };
    for (selector, label) in [
        ("a[href=\"b.txt\"]", "b.txt"),
        ("[aria-label=\"Select b.txt\"]", "Select b.txt"),
        ("[aria-label=\"Delete b.txt\"]", "Delete b.txt"),
        ("[aria-label=\"Select all\"]", "Select all"),
    ] {
        browser.run(&format!("document.querySelector('{selector}').focus()"));
        // Another client adds a row, and an upload ends.
        fs::write(site.source(format!("a {}", label.len())), "").unwrap();
        browser.run("window.rows = 0; document.addEventListener('rows', () => window.rows += 1)");
        browser.run("page.refresh()");
        browser.wait("window.rows");
        browser.wait(&format!("({FOCUSED}) === '{label}'"));
    }

    browser.run("document.querySelector('[aria-label=\"Rename b.txt\"]').focus()");
    browser.type_keys("\u{e007}");
    browser.wait("document.querySelector('dialog')");
    browser.type_keys("z 100%\u{e007}");
    until("it has its new name", || site.source("z 100%.txt").exists());
    browser.wait(&format!("({FOCUSED}) === 'Rename z 100%.txt'"));
}

#[test]
fn icons_are_seen_in_colours_of_the_readers_own() {
    let Some((site, browser)) = site(&["-A"]) else { return };
    browser.prefer("forced-colors", "active");
    browser.open(&site.url(""));
    let invisible = "['td a', '.archive button', '.rename', '.remove'].filter((icon) => {
        const element = document.querySelector(icon);
        const [own, ground] = [getComputedStyle(element, '::before'), getComputedStyle(document.body)];
        return own.backgroundColor === ground.backgroundColor;
    })";
    assert_eq!(browser.text(invisible), "");
}

/// The boxes around which less than 24 pixels (WCAG 2.2) are free of other controls.
const SMALL: &str = "[...document.querySelectorAll('.pick')].filter((pick) => {
    const { left, right, top, bottom } = pick.getBoundingClientRect();
    const [x, y] = [(left + right) / 2, (top + bottom) / 2];
    const others = [[-11, 0], [11, 0], [0, -11], [0, 11]].map(([over, down]) =>
        document.elementFromPoint(x + over, y + down)?.closest('a, button'));
    return others.some(Boolean);
}).map((pick) => pick.getAttribute('aria-label'))";

#[test]
fn a_click_close_beside_a_box_means_the_box_and_not_the_file() {
    let Some((site, browser)) = site(&["-A"]) else { return };
    for width in [1000, 360] {
        browser.devtools("Emulation.setTouchEmulationEnabled", &json!({ "enabled": width < 600 }));
        browser.look(width, "light");
        browser.open(&site.url(""));
        assert_eq!(browser.text(SMALL), "", "{width}");
        for expected in ["b.txt", ""] {
            browser.run(
                "const { left, top } = document.querySelectorAll('tbody .pick')[1].getBoundingClientRect();
                document.elementFromPoint(left - 6, top - 4)
                    .dispatchEvent(new MouseEvent('click', { bubbles: true, clientX: left - 6 }));",
            );
            let chosen = browser.text("[...document.querySelectorAll('.chosen')].map(page.shown)");
            assert_eq!(chosen, expected, "{width}");
        }
    }
}

/// The controls of rows that lie over the heads of the columns.
const OVER_HEADS: &str =
    "[...document.querySelectorAll('tbody :is(.pick, button)')].filter((it) => {
    const { left, right, top, bottom } = it.getBoundingClientRect();
    const [x, y] = [(left + right) / 2, (top + bottom) / 2];
    const { height } = document.querySelector('thead th').getBoundingClientRect();
    return y > 1 && y < height - 1 && document.elementFromPoint(x, y) === it;
}).map((it) => it.getAttribute('aria-label'))";

#[test]
fn rows_scroll_beneath_the_heads_of_the_columns() {
    let Some((site, browser)) = site(&["-A"]) else { return };
    for number in 0..60 {
        fs::create_dir(site.source(format!("folder {number}"))).unwrap();
    }
    for width in [1000, 360] {
        browser.look(width, "light");
        browser.open(&site.url(""));
        for offset in 0..8 {
            browser.run(&format!("scrollTo(0, 900 + 10 * {offset})"));
            assert_eq!(browser.text(OVER_HEADS), "", "{width}, {offset}");
        }
    }
}
