//! A browser: shows the folder, runs a page that fetches, downloads a file.

use std::fs;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::rig::{Running, noise, until};
use crate::site::{Site, assert_same};

const LEN: usize = 24 << 20;

/// A site with a file whose name needs care.
fn site() -> Option<(Site, &'static str)> {
    let site = Site::new(&["chromium"], &[])?;
    fs::write(site.source("a #1 100%.bin"), noise(LEN)).unwrap();
    Some((site, "a%20%231%20100%25.bin"))
}

/// The arguments of a headless browser, with this folder as its profile.
fn arguments<'a>(profile: &'a str, rest: &[&'a str]) -> Vec<&'a str> {
    let usual = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"];
    [&usual[..], &[profile], rest].concat()
}

/// What a page is once its scripts have run.
fn dom(site: &Site, url: &str) -> String {
    let profile = format!("--user-data-dir={}", site.target("profile").display());
    let rest = ["--virtual-time-budget=60000", "--dump-dom", url];
    site.fetch("chromium", &arguments(&profile, &rest)).succeeded().text()
}

#[test]
fn chromium_shows_a_folder_and_its_scripts_get_every_byte() {
    let Some((site, file)) = site() else { return };
    let page = dom(&site, &site.url(""));
    assert!(page.contains("a #1 100%.bin") && page.contains(file), "{page}");
    let script = format!(
        "<body><script type=module>
        const bytes = await (await fetch('{file}')).arrayBuffer();
        const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', bytes));
        document.body.append([...digest].map(byte => byte.toString(16).padStart(2, '0')).join(''));
        </script>"
    );
    fs::write(site.source("page.html"), script).unwrap();
    let digest: String =
        Sha256::digest(noise(LEN)).iter().map(|byte| format!("{byte:02x}")).collect();
    let page = dom(&site, &site.url("page.html"));
    assert!(page.contains(&digest), "{page}");
}

#[test]
fn chromium_downloads_a_file_under_its_name() {
    let Some((site, file)) = site() else { return };
    let (profile, downloads) = (site.target("profile"), site.target("downloads"));
    fs::create_dir_all(profile.join("Default")).unwrap();
    let folder = serde_json::json!({ "download": { "default_directory": downloads } });
    fs::write(profile.join("Default/Preferences"), folder.to_string()).unwrap();
    let profile = format!("--user-data-dir={}", profile.display());
    let url = site.url(&format!("{file}?download"));
    let browser = Running::start(site.peer("chromium", &arguments(&profile, &[&url])));
    let target = downloads.join("a #1 100%.bin");
    until("the download is complete", || is_complete(&target));
    // Its other processes end with it.
    browser.signal("TERM");
    browser.finish();
    assert_same(&target, &site.source("a #1 100%.bin"));
}

/// Whether a download has its final name, which it gets last.
fn is_complete(target: &Path) -> bool {
    target.metadata().is_ok_and(|facts| facts.len() == LEN as u64)
}
