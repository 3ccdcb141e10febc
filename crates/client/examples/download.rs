//! Downloads a file into the current folder, or continues to: `download URL NAME`.
//!
//! ```sh
//! cargo run -p underpass-client --example download -- http://127.0.0.1:5000/disk.img disk.img
//! ```

use std::env;
use std::error::Error;
use std::fs::File;
use std::os::fd::OwnedFd;

use underpass_client::download::{
    DownloadEvent, DownloadOptions, Downloader, Gauge, IfExists, Target,
};
use underpass_client::{HttpClient, Url};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args_os().skip(1);
    let (Some(url), Some(name)) = (args.next(), args.next()) else {
        return Err("usage: download URL NAME".into());
    };
    let url: Url = url.to_str().ok_or("the URL is not text")?.parse()?;
    let folder: OwnedFd = File::open(".")?.into();
    let target = Target::Named { folder: &folder, name: &name, if_exists: IfExists::Replace };

    let downloader = Downloader::new(HttpClient::default(), DownloadOptions::default());
    let done =
        downloader.fetch(&url, &target, &Gauge::default(), &|event: &DownloadEvent<'_>| {
            eprintln!("{event:?}");
        })?;
    println!("{} bytes, {} of them in user space", done.size, done.report.user_space_bytes());
    Ok(())
}
