//! The page of a folder in a browser, with and without the right to change it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::relay::Relay;
use crate::rig::{names, noise, until};
use crate::site::{Site, assert_same, name, tree};
use crate::webdriver::Browser;

const LARGE: usize = 8 << 20;

/// A site, and a browser that shows it.
fn site(args: &[&str]) -> Option<(Site, Browser)> {
    let site = Site::new(&["chromium", "chromedriver"], args)?;
    fs::create_dir(site.source("music")).unwrap();
    fs::write(site.source("a #1 100%.txt"), "awkward").unwrap();
    fs::write(site.source("old.txt"), "old").unwrap();
    let browser = Browser::new(site.peer("chromedriver", &[]));
    browser.open(&site.url(""));
    Some((site, browser))
}

/// The paths of files as an element takes them.
fn paths(paths: &[&Path]) -> String {
    let paths: Vec<_> = paths.iter().map(|path| path.to_str().unwrap()).collect();
    paths.join("\n")
}

/// Waits until everything was uploaded, so many files.
pub(crate) fn wait_for_uploads(browser: &Browser, count: usize) {
    let total = format!("{count} of {count} done");
    browser.wait(&format!("document.querySelector('#total').textContent === '{total}'"));
}

/// Clicks on a button of the row of this name.
pub(crate) fn act(browser: &Browser, row: &str, button: &str) {
    let script = format!(
        "const row = [...document.querySelectorAll('tbody tr')]
            .find((row) => row.querySelector('bdi')?.textContent === '{row}');
        row.querySelector('{button}').id = 'chosen';"
    );
    browser.run(&script);
    browser.click("#chosen");
    browser.run("document.querySelector('#chosen').id = ''");
}

/// The names in the table.
pub(crate) fn shown(browser: &Browser) -> String {
    browser.text("[...document.querySelectorAll('tbody bdi')].map((name) => name.textContent)")
}

#[test]
fn a_folder_and_files_are_uploaded_and_the_page_tells_how_far() {
    let Some((site, browser)) = site(&["-A"]) else { return };
    let folder = site.target("album");
    fs::create_dir_all(folder.join("deep #1/er")).unwrap();
    for (file, len) in [("a b.mp3", 300_000), ("50%.mp3", 0), ("deep #1/er/x?.png", 1 << 20)] {
        fs::write(folder.join(file), noise(len)).unwrap();
    }
    for number in 0..20 {
        fs::write(folder.join(format!("track {number}")), noise(1000 + number)).unwrap();
    }
    let large = site.target("large.iso");
    fs::write(&large, noise(LARGE)).unwrap();
    browser.enter("#folder", &paths(&[&folder]));
    wait_for_uploads(&browser, 23);
    assert_eq!(tree(&site.source("album")), tree(&folder));
    until("the folder is in the table", || shown(&browser).contains("album"));

    // Slowly enough to be seen.
    let relay = Relay::new(&site.url(""));
    relay.allow(4 << 20);
    browser.open(&relay.url());
    browser.run(
        "window.seen = [];
        setInterval(() => seen.push(document.querySelector('#uploads').innerText), 20);",
    );
    browser.enter("#files", &paths(&[&large]));
    browser.wait("seen.some((text) => /MiB of 8.0 MiB .* MiB\\/s .* left/.test(text))");
    relay.allow(LARGE);
    wait_for_uploads(&browser, 1);
    assert_same(&site.source("large.iso"), &large);
    assert_eq!(names(site.source("").as_path()).len(), 5, "nothing else is left there");
}

#[test]
fn an_upload_goes_on_after_the_network_the_page_and_patience_were_lost() {
    let Some((site, browser)) = site(&["-A"]) else { return };
    let large = site.target("large.iso");
    fs::write(&large, noise(LARGE)).unwrap();
    let relay = Relay::new(&site.url(""));
    relay.allow(2 << 20);
    browser.open(&relay.url());
    let state = "document.querySelector('#uploads li')?.dataset.state";
    let has_sent = |least: usize| {
        browser.wait(&format!("document.querySelector('#uploads progress').value > {least}"));
    };
    browser.enter("#files", &paths(&[&large]));
    has_sent(1 << 20);

    relay.set_down(true);
    browser.wait("/retrying/.test(document.querySelector('#uploads .state').textContent)");
    relay.set_down(false);
    relay.allow(2 << 20);
    has_sent(3 << 20);

    let toggle = "#uploads li button";
    browser.click(toggle);
    browser.wait(&format!("{state} === 'paused'"));
    // What was on its way when it was paused is sent once more.
    relay.allow(3 << 20);
    browser.click(toggle);
    browser.wait(&format!("{state} === 'running'"));
    has_sent(4 << 20);

    // Another visit: the page knows of it, and goes on once it is given the file again.
    browser.click(toggle);
    browser.wait(&format!("{state} === 'paused'"));
    // What the browser had sent already, which may be all of it, is lost.
    relay.set_down(true);
    relay.set_down(false);
    relay.allow(LARGE);
    browser.open(&relay.url());
    browser.wait(&format!("{state} === 'interrupted'"));
    browser.enter("#files", &paths(&[&large]));
    wait_for_uploads(&browser, 1);
    assert_same(&site.source("large.iso"), &large);
    drop(browser);
    let patches: Vec<_> = site.end().into_iter().filter(|line| line["method"] == "PATCH").collect();
    let received: u64 = patches.iter().filter_map(|line| line["received"].as_u64()).sum();
    assert!(patches.len() > 2, "it was one request: {patches:?}");
    assert_eq!(received, LARGE as u64, "not each byte was sent once: {patches:?}");
}

#[test]
fn a_file_of_the_same_name_is_replaced_only_after_confirmation() {
    let Some((site, browser)) = site(&["-A"]) else { return };
    let new = site.target("old.txt");
    fs::write(&new, "new").unwrap();
    let state = "document.querySelector('#uploads li')?.dataset.state";
    for (button, outcome, contents) in [("skip", "skipped", "old"), ("replace", "done", "new")] {
        browser.enter("#files", &paths(&[&new]));
        browser.click(&format!("dialog button[value={button}]"));
        browser.wait(&format!("{state} === '{outcome}'"));
        assert_eq!(fs::read(site.source("old.txt")).unwrap(), contents.as_bytes());
    }
}

#[test]
fn rows_are_renamed_and_deleted_and_folders_made() {
    let Some((site, browser)) = site(&["-A", "--path-prefix", "/files"]) else { return };
    act(&browser, "a #1 100%.txt", ".rename");
    browser.run("document.querySelector('dialog input').value = ''");
    browser.enter("dialog input", "b?&<i>.txt\u{e007}");
    until("it has its new name", || shown(&browser).contains("b?&<i>.txt"));
    assert_eq!(fs::read(site.source("b?&<i>.txt")).unwrap(), b"awkward");

    // Another name is not taken away.
    act(&browser, "old.txt", ".rename");
    browser.run("document.querySelector('dialog input').value = 'music'");
    browser.click("dialog button[value=rename]");
    let fault = "document.querySelector('dialog .fault').textContent";
    browser.wait(&format!("{fault} === 'This name is already taken'"));
    browser.run("window.fetch = () => Promise.reject(new TypeError('Failed to fetch'))");
    browser.click("dialog button[value=rename]");
    browser.wait(&format!("{fault} === 'The connection was lost'"));
    browser.open(&site.url(""));

    browser.click("[data-do=make]");
    browser.enter("dialog input", "new #folder");
    browser.click("dialog button[value=make]");
    until("the new folder is shown", || shown(&browser).contains("new #folder"));

    for row in ["music", "b?&<i>.txt"] {
        act(&browser, row, ".remove");
        browser.click("dialog button[value=delete]");
        until("the row is gone", || !shown(&browser).contains(row));
    }
    assert_eq!(names(&site.source("")), ["new #folder", "old.txt"]);
}

#[test]
fn a_link_to_a_folder_is_renamed_and_deleted_as_a_link() {
    let Some((site, browser)) = site(&["-A"]) else { return };
    symlink("music", site.source("way")).unwrap();
    fs::write(site.source("music/song"), "song").unwrap();
    browser.open(&site.url(""));
    act(&browser, "way", ".rename");
    browser.enter("dialog input", "s\u{e007}");
    until("it has its new name", || shown(&browser).contains("s,"));
    act(&browser, "s", ".remove");
    let said = ["h2", "p"]
        .map(|part| browser.text(&format!("document.querySelector('dialog {part}').textContent")));
    assert_eq!(said, ["Delete this link?", "s"]);
    browser.click("dialog button[value=delete]");
    until("the row is gone", || !shown(&browser).contains("s,"));
    assert_eq!(names(&site.source("music")), ["song"]);
}

#[test]
fn files_are_dropped_onto_the_page() {
    let Some((site, browser)) = site(&["-A"]) else { return };
    // As the browser has it from a drag, but for folders, which scripts cannot make.
    browser.run(
        "const data = new DataTransfer();
        data.items.add(new File(['dropped'], 'dropped #1.txt'));
        const drag = (kind) => document.querySelector('main').dispatchEvent(
            new DragEvent(kind, { dataTransfer: data, bubbles: true, cancelable: true }));
        drag('dragover');
        window.marked = document.querySelector('main').classList.contains('target');
        drag('drop');",
    );
    assert_eq!(browser.run("return marked"), true);
    wait_for_uploads(&browser, 1);
    assert_eq!(fs::read(site.source(name(b"dropped #1.txt"))).unwrap(), b"dropped");
}

#[test]
fn a_dropped_folder_is_uploaded_but_for_what_is_refused() {
    let Some((site, browser)) = site(&["-A"]) else { return };
    let folder = site.target("album");
    for path in [".git/config", ".env", "a", "inner/b", "inner/empty/.hidden", "z"] {
        fs::create_dir_all(folder.join(path).parent().unwrap()).unwrap();
        fs::write(folder.join(path), path).unwrap();
    }
    // Each folder is made only once the files found before are there.
    browser.run(
        "const ask = window.fetch;
        window.fetch = (url, options) => new Promise((done) => {
            const go = () => options?.method === 'MKCOL'
                && document.querySelector('#uploads [data-state=running]')
                ? setTimeout(go, 10) : done(ask(url, options));
            go();
        });",
    );
    browser.drop_paths(&[&folder]);
    browser.wait("document.querySelector('#total').textContent === '3 of 5 done, 2 failed'");
    let failed = "[...document.querySelectorAll('#uploads [data-state=failed] bdi')]
        .map((name) => name.textContent).sort()";
    assert_eq!(browser.text(failed), "album/.env,album/inner/empty/.hidden");
    let said = "document.querySelector('dialog[open]').innerText";
    assert!(browser.text(said).contains("album/.git: Such names are hidden here"));
    let found: Vec<_> = tree(&site.source("album")).into_iter().map(|(path, _)| path).collect();
    assert_eq!(found, ["a", "inner", "inner/b", "inner/empty", "z"]);
}

#[test]
fn readers_see_no_controls_for_changes() {
    let Some((site, browser)) = site(&[]) else { return };
    assert!(shown(&browser).contains("old.txt"));
    let found = browser.text(
        "document.querySelectorAll('.change, .act, #uploads, [type=file], [data-do]').length
            + document.querySelectorAll('[data-select=Move], [data-select=Delete]').length",
    );
    assert_eq!((found.as_str(), browser.text("document.scripts.length").as_str()), ("0", "1"));
    // Nor does the server do it for any client.
    let status = "await fetch('old.txt', { method: 'DELETE' }).then((reply) => reply.status)";
    assert_eq!(browser.run(&format!("return {status}")), 405);
    assert!(site.source("old.txt").exists());
}
