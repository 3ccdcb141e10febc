//! The page of a folder in a browser over HTTPS, which trusts one key and no other.

use std::fs;

use crate::rig::{noise, until};
use crate::site::{Site, assert_same};
use crate::webdriver::Browser;

#[test]
fn chromium_shows_the_page_and_uploads_over_tls() {
    let programs = ["chromium", "chromedriver", "openssl"];
    let Some(site) = Site::new(&programs, &["-A", "--tls", "self"]) else { return };
    fs::write(site.source("old.txt"), "old").unwrap();
    let script = "openssl s_client -connect \"$0\" </dev/null 2>/dev/null | openssl x509 -pubkey -noout | \
        openssl pkey -pubin -outform DER | openssl dgst -sha256 -binary | base64";
    let url = site.url("");
    let at = url.trim_start_matches("https://").trim_end_matches('/');
    let key = site.fetch("sh", &["-c", script, at]).succeeded().text();
    let belief = format!("--ignore-certificate-errors-spki-list={}", key.trim());
    let browser = Browser::with(site.peer("chromedriver", &[]), &[&belief]);
    browser.open(&url);
    browser.wait("document.querySelector('tbody').textContent.includes('old.txt')");
    assert_eq!(browser.text("location.protocol"), "https:");
    assert_eq!(browser.text("window.isSecureContext"), "true");
    let large = site.target("large.iso");
    fs::write(&large, noise(5 << 20)).unwrap();
    browser.enter("#files", large.to_str().unwrap());
    until("it is there", || site.source("large.iso").exists());
    assert_same(&site.source("large.iso"), &large);
    browser.wait("document.querySelector('#total').textContent === '1 of 1 done'");
}
