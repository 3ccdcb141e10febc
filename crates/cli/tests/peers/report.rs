//! The report of the bench in a browser: light and dark, on a screen and on a phone.

use std::fs;
use std::path::Path;

use crate::rig::{folder, has, run};
use crate::webdriver::Browser;

/// What is wrong with the page as it is shown, a line each.
const FAULTS: &str = r"
    const faults = [];
    const root = document.documentElement;
    if (root.scrollWidth > root.clientWidth) {
        faults.push(`the page is ${root.scrollWidth} wide, the window ${root.clientWidth}`);
    }
    const drawings = document.querySelectorAll('svg.chart');
    if (drawings.length < 10) faults.push(`there are ${drawings.length} drawings`);
    for (const drawing of drawings) {
        const name = drawing.querySelector('title').textContent;
        const bounds = drawing.getBoundingClientRect();
        const texts = [...drawing.querySelectorAll('text')].map((text) => ({
            said: text.textContent, at: text.getBoundingClientRect(),
        }));
        for (const [index, { said, at }] of texts.entries()) {
            if (at.height < 11) faults.push(`${name}: ${said} is only ${at.height} high`);
            if (at.left < bounds.left - 1 || at.right > bounds.right + 1 ||
                at.bottom > bounds.bottom + 1 || at.top < bounds.top - 1) {
                faults.push(`${name}: ${said} is cut off`);
            }
            for (const other of texts.slice(index + 1)) {
                const wide = Math.min(at.right, other.at.right) - Math.max(at.left, other.at.left);
                const high = Math.min(at.bottom, other.at.bottom) - Math.max(at.top, other.at.top);
                if (wide > 1 && high > 4) faults.push(`${name}: ${said} is over ${other.said}`);
            }
        }
    }
    return faults.slice(0, 20);
";

#[test]
fn a_report_is_shown_without_a_fault_light_and_dark_on_screens_and_phones() {
    if !(has("chromium") && has("chromedriver")) {
        return;
    }
    let folder = folder();
    let records = records(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench")));
    let report = folder.path().join("report.html");
    let mut args = vec!["bench", "show", "--html", report.to_str().unwrap()];
    args.extend(records.iter().map(String::as_str));
    run(args).succeeded();
    let text = fs::read_to_string(&report).unwrap();
    assert!(!text.contains("<script") && !text.contains("src=") && !text.contains("@import"));
    let mut driver = std::process::Command::new("chromedriver");
    driver
        .env("HOME", folder.path())
        .env("TMPDIR", folder.path())
        .stdin(std::process::Stdio::null());
    driver.stdout(std::process::Stdio::piped());
    let browser = Browser::new(driver);
    let mut grounds = Vec::new();
    for (width, scheme) in [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")] {
        browser.look(width, scheme);
        browser.open(&format!("file://{}", report.display()));
        let faults = browser.run(FAULTS);
        assert_eq!(faults, serde_json::json!([]), "{width} {scheme}");
        assert_eq!(browser.console(), Vec::<String>::new(), "{width} {scheme}");
        grounds.push(browser.text("getComputedStyle(document.body).backgroundColor"));
    }
    assert_eq!((&grounds[0], &grounds[1]), (&grounds[2], &grounds[3]));
    assert_ne!(grounds[0], grounds[1], "dark looks as light does");
}

/// The committed records; what the rig counts is none.
fn records(folder: &Path) -> Vec<String> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let paths = paths.map(|path| path.to_str().unwrap().to_owned());
    let mut paths: Vec<_> = paths.filter(|path| !path.contains("/rig-")).collect();
    paths.sort();
    paths
}
