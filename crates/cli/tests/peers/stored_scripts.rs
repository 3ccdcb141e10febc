//! Scripts in uploaded files, in a browser that knows an administrator's password: they must not act with
//! the rights of the user who views the file.

use std::fs;

use crate::rig::until;
use crate::site::Site;
use crate::webdriver::Browser;

/// Reads what only the administrator may read, and changes what only the administrator may change.
const ATTACK: &str = "
    const done = fetch('/private/s.txt')
        .then((reply) => reply.text())
        .then((secret) => fetch('/in/loot-NAME', { method: 'PUT', body: secret }))
        .then(() => fetch('/private/planted-NAME', { method: 'PUT', body: 'planted' }))
        .then(() => fetch('/private/victim-NAME', { method: 'DELETE' }))
        .then(() => fetch('/in/done-NAME', { method: 'PUT', body: '' }));";

/// Files whose scripts browsers run: name, and what stands around the script.
const FILES: [(&str, &str, &str); 6] = [
    ("a.html", "<!doctype html><p>hello<script>", "</script>"),
    ("a.htm", "<img src=x onerror=\"", "\">"),
    (
        "a.xhtml",
        "<html xmlns='http://www.w3.org/1999/xhtml'><script><![CDATA[",
        "]]></script></html>",
    ),
    ("a.svg", "<svg xmlns='http://www.w3.org/2000/svg'><script><![CDATA[", "]]></script></svg>"),
    ("a.xml", "<x><script xmlns='http://www.w3.org/1999/xhtml'><![CDATA[", "]]></script></x>"),
    (
        "frame.html",
        "<iframe srcdoc='<script src=a.js></script>'></iframe><script src=a.js></script><i a='",
        "'></i>",
    ),
];

/// A server with a user who may write to `/in`, and a browser in which the administrator has logged in.
fn site(further: &[&str]) -> Option<(Site, Browser)> {
    let users = ["-A", "--auth", "admin:secret@/:rw", "--auth", "mallory:guess@/in:rw"];
    let site = Site::new(&["chromium", "chromedriver"], &[&users[..], further].concat())?;
    fs::create_dir(site.source("in")).unwrap();
    fs::create_dir(site.source("private")).unwrap();
    fs::write(site.source("private/s.txt"), "the secret").unwrap();
    for (name, before, after) in FILES {
        fs::write(site.source(format!("private/victim-{name}")), "").unwrap();
        let script = ATTACK.replace("NAME", name);
        fs::write(site.source(format!("in/{name}")), format!("{before}{script}{after}")).unwrap();
    }
    let script = ATTACK.replace("NAME", "frame.html");
    fs::write(site.source("in/a.js"), script).unwrap();
    let browser = Browser::new(site.peer("chromedriver", &[]));
    // From now on the browser sends the password with every request to this server.
    browser.open(&site.url("").replacen("http://", "http://admin:secret@", 1));
    assert!(browser.text("document.body.innerText").contains("private"));
    Some((site, browser))
}

#[test]
fn scripts_in_uploaded_files_do_not_act_as_the_viewer() {
    let Some((site, browser)) = site(&[]) else { return };
    for (name, ..) in FILES {
        browser.console();
        browser.open(&site.url(&format!("in/{name}")));
        let mut said = Vec::new();
        until("the browser has refused the script", || {
            said.extend(browser.console());
            said.iter().any(|line| line.contains("sandboxed"))
        });
    }
    let left = |folder: &str| crate::rig::names(&site.source(folder));
    let mut given: Vec<_> = FILES.iter().map(|(name, ..)| (*name).to_owned()).collect();
    given.push("a.js".to_owned());
    given.sort();
    assert_eq!(left("in"), given);
    assert_eq!(left("private").len(), 1 + FILES.len(), "{:?}", left("private"));
    drop(browser);
    // Nothing was asked for but the files themselves, and nothing was changed.
    for line in site.end() {
        assert_eq!(line["method"], "GET", "{line}");
        assert!(!line["target"].as_str().unwrap().contains("private/"), "{line}");
    }
}

#[test]
fn the_attack_succeeds_where_scripts_are_allowed() {
    let Some((site, browser)) = site(&["--allow-scripts"]) else { return };
    for (name, ..) in FILES {
        browser.open(&site.url(&format!("in/{name}")));
        until(name, || site.source(format!("in/done-{name}")).exists());
        assert_eq!(fs::read(site.source(format!("in/loot-{name}"))).unwrap(), b"the secret");
        assert!(site.source(format!("private/planted-{name}")).exists());
        assert!(!site.source(format!("private/victim-{name}")).exists());
    }
}
