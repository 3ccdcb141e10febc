//! Selecting rows of a folder's page with the pointer and by keys, and actions on them.

use std::fs;

use sha2::{Digest as _, Sha256};

use crate::page::{act, shown};
use crate::rig::{names, until};
use crate::site::Site;
use crate::webdriver::Browser;

const FILES: [&str; 5] = ["a b+c.txt", "b.txt", "c.txt", "d.txt", "e.txt"];

fn site(args: &[&str]) -> Option<(Site, Browser)> {
    let site = Site::new(&["chromium", "chromedriver"], args)?;
    for folder in ["archive/2026 #1", "music"] {
        fs::create_dir_all(site.source(folder)).unwrap();
    }
    for file in FILES {
        fs::write(site.source(file), file).unwrap();
    }
    fs::write(site.source("music/song.txt"), "0123456789").unwrap();
    let browser = Browser::new(site.peer("chromedriver", &[]));
    browser.open(&site.url(""));
    Some((site, browser))
}

/// Clicks on the box of a row, with Shift if wanted.
fn pick(browser: &Browser, row: &str, shift: bool) {
    browser.run(&format!(
        "const row = page.rows().find((row) => page.shown(row) === '{row}');
        row.querySelector('.pick').dispatchEvent(
            new MouseEvent('click', {{ bubbles: true, cancelable: true, shiftKey: {shift} }}));"
    ));
}

/// The names of the selected rows.
fn selected(browser: &Browser) -> String {
    browser.text("page.rows().filter((row) => row.querySelector('.pick').checked).map(page.shown)")
}

#[test]
fn rows_are_selected_by_pointer_and_by_keys_and_downloaded_as_one_archive() {
    let Some((site, browser)) = site(&[]) else { return };
    assert_eq!(browser.text("document.querySelector('#selection').hidden"), "true");
    pick(&browser, "b.txt", false);
    pick(&browser, "d.txt", true);
    assert_eq!(selected(&browser), "b.txt,c.txt,d.txt");
    pick(&browser, "c.txt", false);
    assert_eq!(selected(&browser), "b.txt,d.txt");
    let text = browser.text("document.querySelector('#selection span').textContent");
    assert_eq!(text, "2 selected, 10 B");
    // What is not shown is not selected with all.
    browser.enter("input[type=search]", "c.txt");
    browser.click("th .pick");
    assert_eq!(selected(&browser), "a b+c.txt,b.txt,c.txt,d.txt");
    browser.enter("input[type=search]", "\u{e00c}");
    assert_eq!(selected(&browser).split(',').count(), 4, "Escape in the box clears the box");
    browser.run("document.querySelector('tbody a').focus()");
    browser.type_keys("\u{e00c}");
    assert_eq!(selected(&browser), "");

    browser.type_keys(" ");
    browser.type_keys("\u{e008}\u{e015}\u{e015}\u{e000}");
    assert_eq!(selected(&browser), "archive,music,a b+c.txt");
    browser.type_keys("\u{e009}a\u{e000}");
    assert_eq!(selected(&browser).split(',').count(), 7);
    browser.type_keys("\u{e00c}");
    assert_eq!(selected(&browser), "");

    pick(&browser, "a b+c.txt", false);
    pick(&browser, "music", false);
    browser.click("[data-select=\"Download zip\"]");
    site.rest();
    pick(&browser, "music", false);
    browser.click("[data-select=\"Download tar\"]");
    site.rest();
    drop(browser);
    let requests: Vec<_> = site.end().into_iter().filter(is_archive).collect();
    let targets: Vec<_> = requests.iter().map(|line| line["target"].as_str().unwrap()).collect();
    assert_eq!(
        targets,
        ["/?archive=zip&entry=music&entry=a%20b%2Bc.txt", "/?archive=tar&entry=a%20b%2Bc.txt"]
    );
    assert!(requests.iter().all(|line| line["status"] == 200), "{requests:?}");
}

#[test]
fn a_selection_that_is_too_long_for_a_target_is_the_whole_folder_or_sent_by_a_form() {
    let Some((site, browser)) = site(&[]) else { return };
    for number in 0..1_990 {
        let name = format!("a file & its {} {number:06}+%", "long name ".repeat(18));
        fs::write(site.source(name), "").unwrap();
    }
    browser.open(&site.url(""));
    browser.click("th .pick");
    pick(&browser, "b.txt", false);
    browser.click("[data-select=\"Download tar\"]");
    site.rest();
    pick(&browser, "b.txt", false);
    browser.click("[data-select=\"Download tar\"]");
    site.rest();
    drop(browser);
    let requests: Vec<_> = site.end().into_iter().filter(is_archive).collect();
    let targets: Vec<_> = requests.iter().map(|line| line["target"].as_str().unwrap()).collect();
    assert_eq!(targets, ["/?archive=tar&entry=", "/?archive=tar"]);
    assert_eq!((&requests[0]["method"], &requests[0]["status"]), (&"POST".into(), &200.into()));
    // What is left out is one empty row, and all of its archive.
    let [some, all] = [0, 1].map(|one| requests[one]["sent"].as_u64().unwrap());
    assert!(some > 1_000_000 && some < all, "{some} {all}");
}

/// Whether a line of the log is about an archive.
fn is_archive(line: &serde_json::Value) -> bool {
    line["target"].as_str().unwrap().contains("archive=")
}

#[test]
fn selected_rows_are_moved_to_another_folder_and_deleted() {
    let Some((site, browser)) = site(&["-A", "--path-prefix", "/files"]) else { return };
    fs::write(site.source("archive/2026 #1/b.txt"), "there already").unwrap();
    for row in ["b.txt", "c.txt", "music"] {
        pick(&browser, row, false);
    }
    browser.click("[data-select=Move]");
    for folder in ["archive", "2026 #1"] {
        let found = format!(
            "[...document.querySelectorAll('.folders button')]
                .find((button) => button.textContent === '{folder}')"
        );
        browser.wait(&found);
        browser.run(&format!("{found}.click()"));
    }
    browser.wait("document.querySelector('.where').textContent === '/archive/2026 #1/'");
    browser.click("dialog button[value=move]");
    // Existing entries are not replaced, and everything else is moved.
    let fault = "document.querySelector('.fault').textContent";
    browser.wait(&format!("/^b.txt: .*already taken/.test({fault})"));
    // Repeating the move applies to the remaining rows.
    browser.run(&format!("{fault} = ''"));
    browser.click("dialog button[value=move]");
    browser.wait(fault);
    assert!(!browser.text(fault).contains("more"), "{}", browser.text(fault));
    browser.run("document.querySelector('dialog .choices button[type=button]').click()");
    assert_eq!(names(&site.source("archive/2026 #1")), ["b.txt", "c.txt", "music"]);
    assert_eq!(fs::read(site.source("archive/2026 #1/b.txt")).unwrap(), b"there already");
    assert_eq!(names(&site.source("")), ["a b+c.txt", "archive", "b.txt", "d.txt", "e.txt"]);

    browser.wait("page.rows().length === 5");
    assert_eq!(selected(&browser), "b.txt", "what was not moved stays selected");
    pick(&browser, "archive", false);
    browser.run("document.querySelector('tbody a').focus()");
    browser.type_keys("\u{e017}");
    browser.click("dialog button[value=delete]");
    until("they are gone", || names(&site.source("")) == ["a b+c.txt", "d.txt", "e.txt"]);
    browser.wait("document.querySelector('#selection').hidden");
}

#[test]
fn cancel_and_escape_end_a_deletion_after_the_entry_that_it_is_at() {
    let Some((site, browser)) = site(&["-A"]) else { return };
    browser.run(
        "const send = window.fetch;
        window.begun = 0;
        window.fetch = async (url, options) => {
            if (options?.method === 'DELETE') {
                window.begun += 1;
                await new Promise((done) => window.goOn = done);
            }
            return send(url, options);
        };",
    );
    let cancel = "document.querySelector('dialog .choices button[type=button]').click()";
    let escape = |browser: &Browser| browser.type_keys("\u{e00c}");
    let click = |browser: &Browser| drop(browser.run(cancel));
    for (round, stop) in [&click as &dyn Fn(&Browser), &escape].into_iter().enumerate() {
        browser.run("document.querySelector('tbody a').focus()");
        browser.type_keys("\u{e009}a\u{e000}");
        browser.type_keys("\u{e017}");
        // Clicked on twice, it begins once.
        browser.run(
            "const button = document.querySelector('dialog button[value=delete]');
            button.click();
            button.click();",
        );
        browser.wait(&format!("window.begun > {round}"));
        stop(&browser);
        browser.wait("!document.querySelector('dialog')");
        browser.run("window.goOn()");
        browser.wait(&format!("page.rows().length === {}", 6 - round));
    }
    assert_eq!(names(&site.source("")), FILES);
    assert_eq!(selected(&browser), FILES.join(","));
    drop(browser);
    let lines = site.end();
    assert_eq!(lines.iter().filter(|line| line["method"] == "DELETE").count(), 2, "{lines:?}");
}

#[test]
fn a_name_that_comes_again_is_not_selected_and_a_row_that_is_renamed_stays_so() {
    let Some((site, browser)) = site(&["-A"]) else { return };
    browser.look(800, "light"); // high enough for all rows above the bar
    browser.open(&site.url(""));
    pick(&browser, "b.txt", false);
    fs::remove_file(site.source("b.txt")).unwrap();
    browser.run("return page.refresh()");
    fs::write(site.source("b.txt"), "another").unwrap();
    browser.run("return page.refresh()");
    assert_eq!(selected(&browser), "");

    let rename = |row: &str, name: &str| {
        act(&browser, row, ".rename");
        browser.run("document.querySelector('dialog input').value = ''");
        browser.enter("dialog input", &format!("{name}\u{e007}"));
        until("it has its new name", || shown(&browser).split(',').any(|shown| shown == name));
    };
    pick(&browser, "c.txt", false);
    pick(&browser, "music", false);
    rename("c.txt", "c (1)*! %41.txt");
    rename("music", "new music");
    rename("b.txt", "c.txt");
    assert_eq!(selected(&browser), "new music,c (1)*! %41.txt");
    browser.open(&site.url("?q=song&below=1"));
    pick(&browser, "song.txt", false);
    rename("song.txt", "a song.txt");
    assert_eq!(selected(&browser), "a song.txt");
    assert!(site.source("new music/a song.txt").exists());
}

#[test]
fn a_deletion_names_its_entries_and_leaves_those_out_that_the_search_box_hides() {
    let Some((_site, browser)) = site(&["-A"]) else { return };
    let delete = || {
        browser.click("[data-select=Delete]");
        browser.text("document.querySelector('dialog p').textContent")
    };
    browser.click("th .pick");
    assert_eq!(
        delete(),
        "archive, music, a b+c.txt, b.txt, c.txt and 2 more, with everything inside"
    );
    browser.click("dialog button[type=button]");
    browser.enter("input[type=search]", "c.txt");
    let text = "document.querySelector('#selection span').textContent";
    assert_eq!(browser.text(text), "2 selected, 14 B");
    pick(&browser, "c.txt", false);
    assert_eq!(delete(), "a b+c.txt");
    browser.click("dialog button[value=delete]");
    browser.wait("page.rows().length === 6");
    assert_eq!(browser.text("document.querySelector('#selection').hidden"), "true");
    browser.enter("input[type=search]", "\u{e00c}");
    assert_eq!(selected(&browser), "archive,music,b.txt,d.txt,e.txt");
    assert_eq!(browser.text(text), "5 selected, 15 B");

    // From a row that is hidden, Shift does not select.
    browser.click("#selection .buttons button:last-child");
    pick(&browser, "b.txt", false);
    browser.enter("input[type=search]", "e");
    pick(&browser, "e.txt", true);
    assert_eq!(browser.text(text), "1 selected, 5 B");
}

#[test]
fn pages_and_readme_are_updated_with_the_rows() {
    let Some((site, browser)) = site(&[]) else { return };
    for number in 0..1_993 {
        fs::write(site.source(format!("{number:032}.txt")), "").unwrap();
    }
    browser.open(&site.url(""));
    let around = "['.pages a', '.view button', '.readme h1', 'footer p']
        .map((part) => document.querySelectorAll(part).length)";
    assert_eq!(browser.text(around), "0,0,0,0");
    fs::write(site.source("README.md"), "# Title").unwrap();
    fs::write(site.source("a.png"), "").unwrap();
    std::os::unix::fs::symlink("nowhere", site.source("a link")).unwrap();
    browser.run("return page.refresh()");
    assert_eq!(browser.text(around), "1,1,1,1");
    assert_eq!(browser.text("document.styleSheets.length"), "2");
    // All that is shown is not all that is there.
    browser.click("th .pick");
    browser.click("[data-select=\"Download tar\"]");
    site.rest();
    for name in ["README.md", "a.png", "a link"] {
        fs::remove_file(site.source(name)).unwrap();
    }
    browser.run("return page.refresh()");
    assert_eq!(browser.text(around), "0,0,0,0");
    drop(browser);
    let requests: Vec<_> = site.end().into_iter().filter(is_archive).collect();
    assert_eq!(requests.len(), 1, "{requests:?}");
    assert_eq!((&requests[0]["method"], &requests[0]["status"]), (&"POST".into(), &200.into()));
}

#[test]
fn digests_links_and_sizes_are_listed_on_demand() {
    let Some((site, browser)) = site(&[]) else { return };
    pick(&browser, "b.txt", false);
    pick(&browser, "music", false);
    browser.click("[data-select=\"SHA-256\"]");
    let line_of = |contents: &str, name: &str| {
        let digest = Sha256::digest(contents);
        let line =
            digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + "  " + name;
        format!("document.querySelector('dialog pre')?.textContent.trim() === '{line}'")
    };
    browser.wait(&line_of("b.txt", "b.txt"));
    browser.run("document.querySelector('dialog[open]').close()");
    // Without access to the clipboard the page says so.
    browser.click("[data-select=\"Copy links\"]");
    browser.wait("/copied|clipboard|allow/i.test(document.querySelector('#selection').innerText)");

    browser.click(".sizes");
    browser.wait("document.querySelectorAll('.sum').length === 2");
    let sums = "[...document.querySelectorAll('.sum')].map((sum) => sum.textContent)";
    assert_eq!(browser.text(sums), "0 B,10 B");
    // Those of a search are in several folders.
    browser.open(&site.url("?q=song&below=1"));
    pick(&browser, "song.txt", false);
    browser.click("[data-select=\"SHA-256\"]");
    browser.wait(&line_of("0123456789", "music/song.txt"));
    drop(browser);
    let lines = site.end();
    let sizes = lines.iter().filter(|line| line["target"].as_str().unwrap().ends_with("?size"));
    assert_eq!(sizes.count(), 2);
}

#[test]
fn a_path_with_two_slashes_is_of_this_server() {
    let Some((site, browser)) = site(&[]) else { return };
    for path in ["/", "/music/", "//archive//"] {
        browser.open(&site.url(path));
        assert_eq!(browser.text("page.folder.href"), site.url(path));
        assert_eq!(browser.text("page.address('a').href"), site.url(&format!("{path}a")));
    }
}
