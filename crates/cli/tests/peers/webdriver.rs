//! A browser that follows commands of the WebDriver protocol (W3C) of chromedriver.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;

use serde_json::{Value, json};

use crate::rig::until;

/// A browser without a window. It ends with this value.
pub(crate) struct Browser {
    driver: Child,
    port: u16,
    session: String,
}

impl Browser {
    /// Starts a browser with its profile in `home`.
    pub(crate) fn new(driver: Command) -> Self {
        Self::with(driver, &[])
    }

    /// The same with further arguments.
    pub(crate) fn with(mut driver: Command, further: &[&str]) -> Self {
        driver.arg("--port=0").stderr(Stdio::null());
        // A driver ends if the port that it has found with IPv6 is in use with IPv4.
        let started = (0..5).find_map(|_| start(&mut driver));
        let (driver, mut said, port) = started.expect("the driver of the browser has ended");
        // Further output of the driver must not block it.
        thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        let mut browser = Self { driver, port, session: String::new() };
        let args = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"];
        let args = [&args[..], further].concat();
        let options = json!({
            "goog:chromeOptions": { "args": args },
            "goog:loggingPrefs": { "browser": "ALL" },
        });
        let begun = browser.ask("POST", "", &json!({ "capabilities": { "alwaysMatch": options } }));
        browser.session = format!("/{}", begun["sessionId"].as_str().unwrap());
        browser
    }

    /// Shows a page.
    pub(crate) fn open(&self, url: &str) {
        self.ask("POST", "/url", &json!({ "url": url }));
    }

    /// The messages of the browser's console since the last call.
    pub(crate) fn console(&self) -> Vec<String> {
        let entries = self.ask("POST", "/se/log", &json!({ "type": "browser" }));
        let entries = entries.as_array().unwrap().iter();
        entries.map(|entry| entry["message"].to_string()).collect()
    }

    /// From now on the window is so wide, and the reader wants it light or dark.
    pub(crate) fn look(&self, width: u32, scheme: &str) {
        let mobile = width < 600;
        let size = json!({
            "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": mobile
        });
        self.devtools("Emulation.setDeviceMetricsOverride", &size);
        self.prefer("prefers-color-scheme", scheme);
    }

    /// From now on the reader prefers something of a medium.
    pub(crate) fn prefer(&self, feature: &str, value: &str) {
        let media = json!({ "features": [{ "name": feature, "value": value }] });
        self.devtools("Emulation.setEmulatedMedia", &media);
    }

    /// Runs a command of the browser's own protocol.
    pub(crate) fn devtools(&self, command: &str, params: &Value) {
        let body = json!({ "cmd": command, "params": params });
        self.ask("POST", "/goog/cdp/execute", &body);
    }

    /// Runs a script in the page, and returns its result.
    pub(crate) fn run(&self, script: &str) -> Value {
        self.ask("POST", "/execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// The same, as text.
    pub(crate) fn text(&self, script: &str) -> String {
        self.run(&format!("return String({script})")).as_str().unwrap().to_owned()
    }

    /// Waits until something in the page is true.
    #[track_caller]
    pub(crate) fn wait(&self, condition: &str) {
        until(condition, || self.run(&format!("return Boolean({condition})")) == true);
    }

    /// Clicks on the first element that a selector means.
    pub(crate) fn click(&self, selector: &str) {
        let element = self.find(selector);
        self.ask("POST", &format!("/element/{element}/click"), &json!({}));
    }

    /// Types into an element; for one that takes files, their paths, a line each.
    pub(crate) fn enter(&self, selector: &str, text: &str) {
        let element = self.find(selector);
        self.ask("POST", &format!("/element/{element}/value"), &json!({ "text": text }));
    }

    /// Drops files and folders onto the page, as a reader drags them there.
    pub(crate) fn drop_paths(&self, paths: &[&Path]) {
        let data = json!({ "items": [], "files": paths, "dragOperationsMask": 1 });
        for kind in ["dragEnter", "dragOver", "drop"] {
            let params = json!({ "type": kind, "x": 300, "y": 300, "data": data });
            let body = json!({ "cmd": "Input.dispatchDragEvent", "params": params });
            self.ask("POST", "/goog/cdp/execute", &body);
        }
    }

    /// Presses keys wherever the focus is. Shift and Ctrl stay down until the key that lifts them all.
    pub(crate) fn type_keys(&self, keys: &str) {
        let mut held = Vec::new();
        let mut actions = Vec::new();
        for key in keys.chars() {
            match key {
                '\u{e008}' | '\u{e009}' => {
                    held.push(key);
                    actions.push(json!({ "type": "keyDown", "value": key }));
                }
                '\u{e000}' => actions
                    .extend(held.drain(..).map(|key| json!({ "type": "keyUp", "value": key }))),
                _ => actions
                    .extend(["keyDown", "keyUp"].map(|kind| json!({ "type": kind, "value": key }))),
            }
        }
        let keyboard = json!({ "type": "key", "id": "keyboard", "actions": actions });
        self.ask("POST", "/actions", &json!({ "actions": [keyboard] }));
    }

    /// Waits until there is such an element.
    fn find(&self, selector: &str) -> String {
        self.wait(&format!("document.querySelector('{selector}')"));
        let found =
            self.ask("POST", "/element", &json!({ "using": "css selector", "value": selector }));
        // The key is the same long number in all drivers.
        found.as_object().unwrap().values().next().unwrap().as_str().unwrap().to_owned()
    }

    #[track_caller]
    fn ask(&self, verb: &str, path: &str, body: &Value) -> Value {
        let (status, reply) = self.exchange(verb, path, body).unwrap();
        assert_eq!(status, 200, "{verb} {path} {body}: {reply}");
        reply["value"].clone()
    }

    fn exchange(&self, verb: &str, path: &str, body: &Value) -> std::io::Result<(u16, Value)> {
        let (session, body) = (&self.session, body.to_string());
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        let head = format!(
            "{verb} /session{session}{path} HTTP/1.1\r\nHost: localhost\r\n\
             Content-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all((head + &body).as_bytes())?;
        // The driver keeps the connection open, even if asked to close it.
        let (mut reply, mut line, mut len) = (BufReader::new(stream), String::new(), 0);
        reply.read_line(&mut line)?;
        let status = line.split(' ').nth(1).unwrap().parse().unwrap();
        while line.trim_end() != "" {
            line.clear();
            reply.read_line(&mut line)?;
            if let Some((_, value)) = line.to_lowercase().split_once("content-length:") {
                len = value.trim().parse().unwrap();
            }
        }
        let mut body = vec![0; len];
        reply.read_exact(&mut body)?;
        Ok((status, serde_json::from_slice(&body).unwrap()))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver ends its browser; one that is gone already has none.
        if !self.session.is_empty() {
            let _ = self.exchange("DELETE", "", &json!({}));
        }
        let _ = Command::new("kill").arg(self.driver.id().to_string()).status();
        let _ = self.driver.wait();
    }
}

/// Starts a driver, and returns its port; `None` if it ends before it has one.
fn start(driver: &mut Command) -> Option<(Child, BufReader<ChildStdout>, u16)> {
    let mut driver = driver.spawn().unwrap();
    let mut said = BufReader::new(driver.stdout.take().unwrap());
    let mut line = String::new();
    while said.read_line(&mut line).unwrap() > 0 {
        if let Some((_, port)) = line.split_once("successfully on port ") {
            let port = port.trim().trim_end_matches('.').parse().unwrap();
            return Some((driver, said, port));
        }
        line.clear();
    }
    driver.wait().unwrap();
    None
}
