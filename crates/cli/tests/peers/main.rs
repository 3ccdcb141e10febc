//! The server and the programs that people fetch files with: each gets every byte, goes on where
//! it broke off, and never puts together what does not belong together.

#![allow(clippy::unwrap_used)]

#[path = "../rig/mod.rs"]
mod rig;

mod archive;
mod changes;
mod chromium;
mod dav;
mod files;
mod folders;
mod mirrors;
mod page;
mod page_reading;
mod page_selection;
mod page_senses;
mod page_trouble;
mod programs;
mod proxies;
mod relay;
mod report;
mod resume;
mod secure;
mod site;
mod stored_scripts;
mod stores;
mod webdriver;
mod zip;
