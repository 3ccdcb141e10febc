//! Serves a folder read-only until the process ends: `serve FOLDER [ADDRESS]`.
//!
//! ```sh
//! cargo run -p underpass-server --example serve -- /srv/files 127.0.0.1:5000
//! ```

use std::env;
use std::error::Error;
use std::io::{self, Write as _};

use underpass_server::{Address, Control, Server, Settings};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = env::args_os().skip(1);
    let root = args.next().ok_or("usage: serve FOLDER [ADDRESS]")?;
    let address = args.next().unwrap_or_else(|| "127.0.0.1:5000".into());
    let address = address.into_string().map_err(|_| "ADDRESS is not text")?.parse()?;

    let server = Server::bind(Settings::new(root.into()), &[Address::Tcp(address)], Vec::new())?;
    for address in server.addresses() {
        println!("http://{address}/");
    }
    let log = |line: &[u8]| drop(io::stdout().write_all(line));
    let summary = server.run(Control::new(), log, |note| eprintln!("{note:?}"))?;
    println!("{} requests", summary.requests);
    Ok(())
}
