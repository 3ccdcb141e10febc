//! A folder's page for readers: previews, galleries, searches, pages, and logging in.

use std::fs;

use crate::rig::until;
use crate::site::Site;
use crate::webdriver::Browser;

/// A picture of one pixel.
const GIF: &[u8] =
    b"GIF89a\x01\0\x01\0\x80\0\0\0\0\0\xff\xff\xff,\0\0\0\0\x01\0\x01\0\0\x02\x02D\x01\0;";

/// A picture with a script, which tells whether it ran.
const SVG: &str = "<svg xmlns='http://www.w3.org/2000/svg' width='40' height='30'><script>
    fetch('/script-ran')</script><rect width='40' height='30' onload=\"fetch('/handler-ran')\"/></svg>";

/// A page of a PDF file without anything on it.
const PDF: &str = "%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n\
    2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n\
    3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 144]>>endobj\n\
    trailer<</Root 1 0 R/Size 4>>\n";

/// A second of silence.
fn wav() -> Vec<u8> {
    let len = 8_000_u32;
    let mut wav = b"RIFF".to_vec();
    wav.extend((36 + len).to_le_bytes());
    wav.extend(b"WAVEfmt \x10\0\0\0\x01\0\x01\0@\x1f\0\0@\x1f\0\0\x01\0\x08\0data");
    wav.extend(len.to_le_bytes());
    wav.resize(wav.len() + len as usize, 128);
    wav
}

fn site(args: &[&str]) -> Option<(Site, Browser)> {
    let site = Site::new(&["chromium", "chromedriver"], args)?;
    fs::create_dir_all(site.source("deep #1/er")).unwrap();
    fs::write(site.source("deep #1/er/Report.txt"), "deep").unwrap();
    fs::write(site.source("1 <b>.txt"), "<script>fetch('/text-ran')</script>").unwrap();
    fs::write(site.source("2.gif"), GIF).unwrap();
    fs::write(site.source("3.svg"), SVG).unwrap();
    fs::write(site.source("4.wav"), wav()).unwrap();
    fs::write(site.source("5.pdf"), PDF).unwrap();
    fs::write(site.source("6.bin"), "no preview").unwrap();
    fs::write(site.source("7 large.log"), "0123456789abcdef".repeat(20_000)).unwrap();
    let browser = Browser::new(site.peer("chromedriver", &[]));
    browser.open(&site.url(""));
    Some((site, browser))
}

#[test]
fn files_are_previewed_and_arrows_lead_from_one_to_the_next() {
    // Where files may be changed, those with scripts are sent to be shown in a sandbox.
    let Some((site, browser)) = site(&["-A"]) else { return };
    browser.console();
    let title = |name: &str| {
        browser.wait(&format!("document.querySelector('.preview h2')?.textContent === '{name}'"));
    };
    browser.run("page.link(page.rows()[1]).click()");
    title("1 <b>.txt");
    browser.wait("/^<script>/.test(document.querySelector('.preview pre')?.textContent)");
    browser.type_keys("\u{e014}");
    title("2.gif");
    browser.wait("document.querySelector('.preview img')?.naturalWidth === 1");
    browser.type_keys("\u{e014}");
    title("3.svg");
    browser.wait("document.querySelector('.preview img')?.naturalWidth === 40");
    browser.type_keys("\u{e014}");
    title("4.wav");
    browser.wait("document.querySelector('.preview audio')?.duration === 1");
    browser.type_keys("\u{e014}");
    title("5.pdf");
    browser.wait("document.querySelector('.preview iframe')?.src.endsWith('/5.pdf')");
    // Files that cannot be shown are skipped.
    browser.type_keys("\u{e014}");
    title("7 large.log");
    browser.wait("document.querySelector('.preview pre')?.textContent.length === 262144");
    browser.wait("/first 256 KiB/.test(document.querySelector('.preview').innerText)");
    browser.type_keys("\u{e012}\u{e012}\u{e00c}");
    browser.wait("!document.querySelector('.preview')");
    // The focus is where the reader was.
    assert_eq!(browser.text("document.activeElement.textContent"), "4.wav");
    let refused: Vec<_> =
        browser.console().into_iter().filter(|line| line.contains("Content Security")).collect();
    assert!(refused.is_empty(), "{refused:?}");
    drop(browser);
    let lines = site.end();
    let requests: Vec<_> = lines.iter().map(|line| line["target"].as_str().unwrap()).collect();
    assert!(!requests.iter().any(|target| target.contains("-ran")), "{requests:?}");
    assert!(!lines.iter().any(|line| line["status"] == 404), "{lines:?}");
    let partial = lines.iter().find(|line| line["target"] == "/7%20large.log").unwrap();
    assert_eq!((&partial["status"], &partial["sent"]), (&206.into(), &262_144.into()), "{partial}");
}

#[test]
fn text_of_windows_is_previewed_as_the_file_itself_is_shown() {
    let Some((site, browser)) = site(&[]) else { return };
    let text = "Gr\u{fc}\u{df}e \u{1f44b}";
    let units = [vec![0xfeff], text.encode_utf16().collect()].concat();
    for (name, bytes) in [
        ("little", units.iter().flat_map(|unit: &u16| unit.to_le_bytes()).collect()),
        ("big", units.iter().flat_map(|unit| unit.to_be_bytes()).collect()),
        ("marked", [b"\xef\xbb\xbf", text.as_bytes()].concat()),
        ("short", b"x".to_vec()),
    ] {
        fs::write(site.source(format!("{name}.txt")), bytes).unwrap();
        browser.open(&site.url("?q=.txt"));
        browser.run(&format!("document.querySelector('a[href=\"{name}.txt\"]').click()"));
        browser.wait("document.querySelector('.preview pre')");
        let expected = if name == "short" { "x" } else { text };
        assert_eq!(browser.text("document.querySelector('.preview pre').textContent"), expected);
    }
}

#[test]
fn a_folder_of_pictures_is_a_gallery() {
    let Some((_site, browser)) = site(&[]) else { return };
    browser.click(".view button");
    browser.wait("document.querySelector('main.gallery')");
    browser.wait("[...document.querySelectorAll('main img')].every((image) => image.naturalWidth)");
    assert_eq!(browser.text("document.querySelectorAll('main img').length"), "2");
    browser.run("document.querySelector('main img').closest('a').click()");
    browser.wait("document.querySelector('.preview')");
    browser.type_keys("\u{e00c}");
    browser.click(".view button");
    browser.wait("!document.querySelector('main.gallery') && !document.querySelector('main img')");
}

#[test]
fn a_search_finds_what_is_in_the_folders_below() {
    let Some((site, browser)) = site(&[]) else { return };
    browser.enter("input[type=search]", "report");
    browser.wait("/Press Enter/.test(document.querySelector('#none').innerText)");
    browser.type_keys("\u{e007}");
    browser.wait("document.querySelector('tbody a')?.textContent === 'deep #1/er/Report.txt'");
    let summary = browser.text("document.querySelector('.summary').innerText");
    assert!(summary.contains("1 file, 4 B with “report” in this folder and below."), "{summary}");
    browser.run("document.querySelector('tbody a').click()");
    browser.wait("document.querySelector('.preview pre')?.textContent === 'deep'");
    drop(browser);
    let lines = site.end();
    assert!(lines.iter().any(|line| line["target"] == "/?q=report&below=1"), "{lines:?}");
}

#[test]
fn a_reader_logs_in_and_out() {
    let args = ["--auth", "alice:secret@/", "--auth", "@/public"];
    let Some((site, browser)) = site(&args) else { return };
    fs::create_dir(site.source("public")).unwrap();
    browser.open(&site.url(""));
    assert_eq!(browser.text("document.querySelector('.login button').textContent"), "Log in");
    assert_eq!(browser.text("page.rows().map(page.shown)"), "public");
    let with_password = site.url("").replacen("http://", "http://alice:secret@", 1);
    browser.open(&format!("{with_password}?login=1"));
    until("all is shown", || browser.text("page.rows().length") == "9");
    browser.open(&site.url(""));
    assert_eq!(browser.text("page.rows().length"), "9", "the browser keeps the password");
    browser.click(".login button");
    // Without a window it shows a page of its own instead of asking for another password.
    browser.wait("!document.querySelector('.login')");
    browser.open(&site.url(""));
    assert_eq!(browser.text("page.rows().map(page.shown)"), "public");
    drop(browser);
    let lines = site.end();
    let statuses: Vec<_> = lines.iter().filter(|line| line["target"] == "/?logout=1").collect();
    assert!(!statuses.is_empty() && statuses.iter().all(|line| line["status"] == 401));
}
