//! Sends a file with a header in front: `send_with_header FILE ADDRESS`.

use std::error::Error;
use std::fs::File;
use std::net::TcpStream;

use underpass_engine::{Chain, Sink, Source, Transfer};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(path), Some(address)) = (arguments.next(), arguments.next()) else {
        return Err("usage: send_with_header FILE ADDRESS".into());
    };
    let source = File::open(path)?;
    let sink = TcpStream::connect(address)?;
    let header = format!("{} bytes follow\n", source.metadata()?.len());
    let chain = Chain::new().bytes(header.into_bytes()).source(Source::of(&source)?);
    let report = Transfer::new(chain, Sink::of(&sink)?).run()?;
    for (mechanism, tally) in report.mechanisms() {
        println!("{} bytes by {mechanism} in {} calls", tally.bytes, tally.calls);
    }
    Ok(())
}
