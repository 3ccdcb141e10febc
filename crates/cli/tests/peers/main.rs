//! The server with common download programs: each gets every byte, resumes interrupted downloads,
//! and never mixes two versions.

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
