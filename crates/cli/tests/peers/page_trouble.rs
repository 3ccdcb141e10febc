//! The page of a folder under faults: lost responses, errors of proxies, names that cannot be shown
//! unchanged, and small windows.

use std::fs;
use std::time::UNIX_EPOCH;

use crate::page::{act, shown, wait_for_uploads};
use crate::proxies;
use crate::relay::Relay;
use crate::rig::{free_port, names, noise, until};
use crate::site::{Site, assert_same, name};
use crate::webdriver::Browser;

const LARGE: usize = 3 << 20;

const STATE: &str = "document.querySelector('#uploads li')?.dataset.state";

/// A site, and a browser.
fn site(args: &[&str]) -> Option<(Site, Browser)> {
    let site = Site::new(&["chromium", "chromedriver"], args)?;
    let browser = Browser::new(site.peer("chromedriver", &[]));
    Some((site, browser))
}

/// Begins an upload of `big.bin`, and keeps the network away until the server knows it no longer.
fn expire(site: &Site, browser: &Browser, replace: bool) -> Relay {
    fs::write(site.target("big.bin"), noise(LARGE)).unwrap();
    let relay = Relay::new(&site.url(""));
    relay.allow(2 << 20);
    browser.open(&relay.url());
    browser.run(
        "const open = XMLHttpRequest.prototype.open;
        XMLHttpRequest.prototype.open = function (method, url) {
            if (method === 'PATCH') window.isSending = true;
            open.call(this, method, url);
        };",
    );
    browser.enter("#files", site.target("big.bin").to_str().unwrap());
    if replace {
        browser.click("dialog button[value=replace]");
    }
    let is_partial = || names(&site.source("")).iter().any(|name| name.ends_with(".upload"));
    until("a part has arrived", is_partial);
    browser.wait("window.isSending");
    relay.set_down(true);
    until("the part has expired", || !is_partial());
    relay
}

#[test]
fn an_expired_upload_does_not_count_as_done_because_of_an_older_file_of_its_length() {
    let Some((site, browser)) = site(&["-A", "--upload-expiry", "3"]) else { return };
    fs::write(site.source("big.bin"), vec![b'o'; LARGE]).unwrap();
    let relay = expire(&site, &browser, true);
    relay.allow(2 * LARGE);
    relay.set_down(false);
    wait_for_uploads(&browser, 1);
    assert_same(&site.source("big.bin"), &site.target("big.bin"));
}

#[test]
fn an_expired_upload_does_not_count_as_done_because_of_another_file() {
    let Some((site, browser)) = site(&["-A", "--upload-expiry", "3"]) else { return };
    let relay = expire(&site, &browser, false);
    let mut other = noise(LARGE);
    other[LARGE - 1] ^= 1;
    fs::write(site.source("big.bin"), &other).unwrap();
    relay.allow(2 * LARGE);
    relay.set_down(false);
    browser.click("dialog button[value=skip]");
    browser.wait(&format!("{STATE} === 'skipped'"));
    assert_eq!(fs::read(site.source("big.bin")).unwrap(), other);
}

#[test]
fn an_upload_does_not_go_on_with_another_file_of_the_same_length_and_date() {
    let Some((site, browser)) = site(&["-A"]) else { return };
    let file = site.target("big.bin");
    let write = |byte| {
        fs::write(&file, vec![byte; 2 * LARGE]).unwrap();
        fs::File::options().write(true).open(&file).unwrap().set_modified(UNIX_EPOCH).unwrap();
    };
    write(b'o');
    let relay = Relay::new(&site.url(""));
    relay.allow(4 << 20);
    browser.open(&relay.url());
    browser.enter("#files", file.to_str().unwrap());
    browser.wait(&format!("document.querySelector('#uploads progress').value > {}", 3 << 20));
    browser.click("#uploads li button");
    browser.wait(&format!("{STATE} === 'paused'"));
    relay.set_down(true);
    relay.set_down(false);
    relay.allow(4 * LARGE);
    browser.open(&relay.url());
    browser.wait(&format!("{STATE} === 'interrupted'"));
    write(b'n');
    browser.enter("#files", file.to_str().unwrap());
    wait_for_uploads(&browser, 1);
    assert_same(&site.source("big.bin"), &file);
    until("the old part is gone", || names(&site.source("")) == ["big.bin"]);
}

#[test]
fn an_upload_of_which_only_the_last_answer_was_lost_is_not_sent_again() {
    let Some((site, browser)) = site(&["-A"]) else { return };
    fs::write(site.target("big.bin"), noise(LARGE)).unwrap();
    browser.open(&site.url(""));
    browser.run(
        "const open = XMLHttpRequest.prototype.open;
        XMLHttpRequest.prototype.open = function (method, url) {
            if (method === 'PATCH') Object.defineProperty(this, 'status', { value: 0 });
            open.call(this, method, url);
        };",
    );
    browser.enter("#files", site.target("big.bin").to_str().unwrap());
    wait_for_uploads(&browser, 1);
    assert_same(&site.source("big.bin"), &site.target("big.bin"));
    drop(browser);
    let lines = site.end();
    assert_eq!(lines.iter().filter(|line| line["method"] == "PATCH").count(), 1, "{lines:?}");
}

#[test]
fn a_permanently_failing_upload_shows_the_reason() {
    let Some((site, browser)) = site(&["-A"]) else { return };
    let folder = site.target("album");
    fs::create_dir(&folder).unwrap();
    for path in [folder.join("inner"), site.target("gone"), site.source("album")] {
        fs::write(path, "something").unwrap();
    }
    browser.open(&site.url(""));
    let told = "document.querySelector('#uploads [data-state=failed] .state')?.textContent";
    browser.enter("#folder", folder.to_str().unwrap());
    browser.wait(&format!("{told}?.includes('A file is in the place of its parent folder')"));
    browser.run(
        "const { send } = XMLHttpRequest.prototype;
        XMLHttpRequest.prototype.send = function (body) {
            if (window.mayGo) return send.call(this, body);
            window.go = () => { window.mayGo = true; send.call(this, body); };
        };",
    );
    browser.enter("#files", site.target("gone").to_str().unwrap());
    browser.wait("window.go");
    fs::remove_file(site.target("gone")).unwrap();
    browser.run("go()");
    browser.wait(&format!("{told}?.includes('could not be found')"));
}

#[test]
fn an_upload_that_fails_among_many_is_visible() {
    let Some((site, browser)) = site(&["-A"]) else { return };
    let files: Vec<_> = (0..30).map(|number| site.target(format!("{number}.txt"))).collect();
    files.iter().for_each(|file| fs::write(file, "some").unwrap());
    fs::create_dir(site.source("7.txt")).unwrap();
    fs::create_dir(site.source("29.txt")).unwrap();
    browser.open(&site.url(""));
    let paths: Vec<_> = files.iter().map(|file| file.to_str().unwrap()).collect();
    browser.enter("#files", &paths.join("\n"));
    browser.wait("document.querySelector('#total').textContent === '28 of 30 done, 2 failed'");
    let first = browser.text(
        "[...document.querySelectorAll('#uploads li')].slice(0, 3).map((line) => line.dataset.state)",
    );
    assert_eq!(first, "failed,failed,done");
}

#[test]
fn a_row_that_is_gone_meanwhile_goes_once_it_could_not_be_renamed() {
    let Some((site, browser)) = site(&["-A"]) else { return };
    fs::write(site.source("gone.txt"), "some").unwrap();
    browser.open(&site.url(""));
    fs::remove_file(site.source("gone.txt")).unwrap();
    act(&browser, "gone.txt", ".rename");
    browser.enter("dialog input", "x\u{e007}");
    browser.wait("document.querySelector('dialog .fault').textContent === 'Not Found'");
    browser.click("dialog button[type=button]");
    until("the row is gone", || !shown(&browser).contains("gone.txt"));
}

#[test]
fn an_upload_that_is_paused_or_cancelled_while_its_folder_is_made_does_not_begin() {
    let Some((site, browser)) = site(&["-A"]) else { return };
    let folder = site.target("album");
    fs::create_dir(&folder).unwrap();
    for name in ["one", "two"] {
        fs::write(folder.join(name), name).unwrap();
    }
    fs::write(site.target("other"), "other").unwrap();
    browser.open(&site.url(""));
    browser.run(
        "const send = window.fetch;
        const mayMake = new Promise((done) => window.make = done);
        window.fetch = async (url, options) => {
            if (options?.method === 'MKCOL') await mayMake;
            return send(url, options);
        };",
    );
    browser.enter("#folder", folder.to_str().unwrap());
    browser.wait("document.querySelectorAll('#uploads [data-state=running]').length === 2");
    browser.wait("!document.querySelector('#uploads').hidden");
    browser.click("#uploads li:last-child button:last-child");
    browser.click("#uploads li button");
    browser.wait(&format!("{STATE} === 'paused'"));
    browser.run("window.make()");
    until("the folder is made", || site.source("album").is_dir());
    browser.enter("#files", site.target("other").to_str().unwrap());
    browser.wait("document.querySelector('#uploads [data-state=done]')");
    assert_eq!(names(&site.source("album")), [""; 0]);
    browser.click("#uploads li button");
    wait_for_uploads(&browser, 2);
    assert_eq!(names(&site.source("album")).len(), 1);
    drop(browser);
    let lines = site.end();
    assert_eq!(lines.iter().filter(|line| line["method"] == "PUT").count(), 2, "{lines:?}");
}

#[test]
fn a_name_that_is_confirmed_without_a_change_stays() {
    let Some((site, browser)) = site(&["-A"]) else { return };
    let odd: [&[u8]; 3] = [b"line\nbreak.txt", b"\xff\xfe.bin", "\u{202e}gpj.exe".as_bytes()];
    let plain = "it's (not) 100% a*b!.txt";
    for file in odd.into_iter().chain([plain.as_bytes()]) {
        fs::write(site.source(name(file)), "contents").unwrap();
    }
    browser.open(&site.url(""));
    let before = names(&site.source(""));
    let rename = "dialog button[value=rename]";
    for row in shown(&browser).split(',') {
        let row = row.replace('\'', "\\'");
        act(&browser, &row, ".rename");
        let is_plain = browser.text("document.querySelector('dialog input').value");
        browser.click(rename);
        if is_plain.is_empty() {
            // What is not shown as it is has to be typed.
            browser.wait("/name is needed/.test(document.querySelector('.fault').textContent)");
            browser.click("dialog button[type=button]");
        } else {
            assert_eq!(is_plain, plain);
        }
        browser.wait("!document.querySelector('dialog')");
    }
    assert_eq!(names(&site.source("")), before);
    act(&browser, "line␊break.txt", ".rename");
    browser.enter("dialog input", "one line.txt\u{e007}");
    until("it has its new name", || shown(&browser).contains("one line.txt"));
    drop(browser);
    let moves = site.end().into_iter().filter(|line| line["method"] == "MOVE").count();
    assert_eq!(moves, 1);
}

#[test]
fn names_do_not_turn_around_what_is_shown() {
    let Some((site, browser)) = site(&["-A"]) else { return };
    let trick = "\u{202e}gpj.exe";
    fs::create_dir_all(site.source("fdp.\u{2067}\u{61c}x/inner")).unwrap();
    fs::write(site.source(trick), "contents").unwrap();
    browser.open(&site.url(""));
    assert_eq!(shown(&browser), "fdp.\u{fffd}\u{fffd}x,\u{fffd}gpj.exe");
    let link = "page.link(page.rows()[1]).getAttribute('href')";
    assert_eq!(browser.text(link), "%E2%80%AEgpj.exe");
    // What the scripts say of files that are uploaded, and of folders to move to.
    fs::write(site.target(trick), "new").unwrap();
    browser.enter("#files", site.target(trick).to_str().unwrap());
    browser.wait("document.querySelector('dialog p')");
    let text = browser.text("document.querySelector('dialog').textContent");
    assert!(text.contains("\u{fffd}gpj.exe already exists"), "{text}");
    browser.click("dialog button[value=replace]");
    wait_for_uploads(&browser, 1);
    assert_eq!(fs::read(site.source(trick)).unwrap(), b"new");
    let line = "document.querySelector('#uploads li')";
    assert_eq!(
        browser.text(&format!("{line}.querySelector('bdi').textContent")),
        "\u{fffd}gpj.exe"
    );
    assert!(!browser.text(&format!("{line}.outerHTML")).contains('\u{202e}'));
    browser.run("page.rows()[1].querySelector('.pick').click()");
    browser.click("[data-select=Move]");
    browser.wait("document.querySelector('.folders button')");
    browser.run("document.querySelector('.folders button').click()");
    browser.wait("document.querySelectorAll('.folders button').length === 2");
    assert_eq!(
        browser.text("document.querySelector('.where').textContent"),
        "/fdp.\u{fffd}\u{fffd}x/"
    );
    browser.click("dialog button[value=move]");
    until("it was moved", || names(&site.source("fdp.\u{2067}\u{61c}x")).len() == 2);
}

#[test]
fn pages_of_proxies_are_not_shown_as_reasons() {
    let Some((site, browser)) = site(&["-A", "--trusted-proxy", "127.0.0.1"]) else { return };
    if !crate::rig::has("nginx") {
        return;
    }
    fs::write(site.source("old.txt"), "old").unwrap();
    let port = free_port();
    let further = "client_max_body_size 1k; if ($request_method = DELETE) { return 502; }";
    let nginx = proxies::nginx(&site, port, further);
    browser.open(&format!("http://127.0.0.1:{port}/"));
    act(&browser, "old.txt", ".remove");
    browser.click("dialog button[value=delete]");
    browser.wait("document.querySelector('.fault')?.textContent");
    let text = browser.text("document.querySelector('.fault').textContent");
    assert_eq!(text, "old.txt: 502 Bad Gateway");
    browser.click("dialog button[type=button]");
    fs::write(site.target("new.txt"), noise(2000)).unwrap();
    browser.enter("#files", site.target("new.txt").to_str().unwrap());
    browser.wait(&format!("{STATE} === 'failed'"));
    let text = browser.text("document.querySelector('#uploads .state').textContent");
    assert_eq!(text, "413 Content Too Large");
    proxies::stop(nginx);
}

#[test]
fn a_proxy_may_replace_the_beginning_of_paths() {
    let Some((site, browser)) = site(&["-A", "--trusted-proxy", "127.0.0.1"]) else { return };
    if !crate::rig::has("nginx") {
        return;
    }
    fs::create_dir(site.source("dl")).unwrap();
    fs::create_dir(site.source("sub")).unwrap();
    fs::write(site.source("sub/old.txt"), "old").unwrap();
    let port = free_port();
    let nginx =
        proxies::nginx(&site, port, "client_max_body_size 0; rewrite ^/dl/(.*)$ /$1 break;");
    browser.open(&format!("http://127.0.0.1:{port}/dl/sub/"));
    act(&browser, "old.txt", ".rename");
    browser.run("document.querySelector('dialog input').value = ''");
    browser.enter("dialog input", "new.txt\u{e007}");
    until("it was renamed", || names(&site.source("sub")) == ["new.txt"]);
    fs::write(site.target("big.bin"), noise(LARGE)).unwrap();
    browser.enter("#files", site.target("big.bin").to_str().unwrap());
    wait_for_uploads(&browser, 1);
    assert_same(&site.source("sub/big.bin"), &site.target("big.bin"));
    browser.open(&format!("http://127.0.0.1:{port}/dl/"));
    act(&browser, "sub", ".rename");
    browser.run("document.querySelector('dialog input').value = ''");
    browser.enter("dialog input", "b\u{e007}");
    until("the folder was renamed", || names(&site.source("")) == ["b", "dl"]);
    assert!(names(&site.source("dl")).is_empty());
    proxies::stop(nginx);
}

#[test]
fn the_heads_of_narrow_columns_are_not_broken() {
    let Some((site, browser)) = site(&[]) else { return };
    fs::write(site.source("a"), "a").unwrap();
    browser.open(&site.url(""));
    let broken = "return [...document.querySelectorAll('th button')].filter((head) => {
        const text = document.createRange();
        text.selectNodeContents(head);
        return text.getClientRects().length > 1;
    }).length";
    assert_eq!(browser.run(broken), 0);
}

/// The parts of rows that cover each other or are not within the window.
const OVERLAPS: &str = r"
    const faults = [];
    if (document.documentElement.scrollWidth > innerWidth) faults.push('it is too wide');
    for (const row of page.rows()) {
        const name = row.querySelector('bdi');
        const text = document.createRange();
        text.selectNodeContents(name);
        const parts = [name, ...row.querySelectorAll('time, data, .zip button, .act button, .pick')];
        const boxes = parts.flatMap((part, at) =>
            [...(at ? part : text).getClientRects()].map((box) => [part.textContent || part.className, box]));
        for (const [at, [said, box]] of boxes.entries()) {
            if (box.left < 0 || box.right > innerWidth) faults.push(`${said} is cut off`);
            for (const [others, other] of boxes.slice(at + 1)) {
                const wide = Math.min(box.right, other.right) - Math.max(box.left, other.left);
                const high = Math.min(box.bottom, other.bottom) - Math.max(box.top, other.top);
                if (wide > 1 && high > 1) faults.push(`${others} is over ${said}`);
            }
        }
    }
    return faults.slice(0, 20);
";

#[test]
fn nothing_in_a_row_covers_anything_else_on_any_phone() {
    for args in [&[][..], &["-A"], &["--allow-delete"], &["--allow-upload"]] {
        let Some((site, browser)) = site(args) else { return };
        let long = "a folder with a long name of many words, and more than fit on a line";
        for folder in ["short", long, "andwithonewordthatisfarlongerthanthelineofatelephonecouldbe"]
        {
            fs::create_dir(site.source(folder)).unwrap();
            fs::write(site.source(format!("{folder}.txt")), noise(1_234_567)).unwrap();
        }
        for (loaded, turned) in
            [(320, 320), (800, 360), (800, 320), (390, 390), (480, 600), (700, 700)]
        {
            browser.look(loaded, "light");
            browser.open(&site.url(""));
            browser.wait("!document.querySelector('.utc')");
            browser.look(turned, "light");
            let when = format!("{args:?}, {turned} wide, loaded at {loaded}");
            assert_eq!(browser.run(OVERLAPS), serde_json::json!([]), "{when}");
            // The sizes of folders are shown on demand.
            browser.click(".sizes");
            browser.wait("document.querySelectorAll('.sum').length === 3");
            assert_eq!(browser.run(OVERLAPS), serde_json::json!([]), "{when}, with sizes");
        }
    }
}
