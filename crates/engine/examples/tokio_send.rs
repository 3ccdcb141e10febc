//! Sends a file from an async task: `tokio_send FILE ADDRESS`.

use std::error::Error;
use std::fs::File;
use std::io::ErrorKind::WouldBlock;
use std::time::Duration;

use tokio::io::Interest;
use tokio::net::TcpStream;
use underpass_engine::{Integrity, Options, Report, Sink, Source, Status, Transfer, Wait};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(path), Some(address)) = (arguments.next(), arguments.next()) else {
        return Err("usage: tokio_send FILE ADDRESS".into());
    };
    let report = send(&File::open(path)?, &TcpStream::connect(address).await?).await?;
    println!("{} bytes, {} of them in user space", report.bytes(), report.user_space_bytes());
    Ok(())
}

async fn send(file: &File, socket: &TcpStream) -> Result<Report, Box<dyn Error>> {
    // Yield to other tasks after each MiB.
    let options = Options::default().turn(1 << 20).integrity(Integrity::Detect);
    let mut transfer = Transfer::new(Source::of(file)?, Sink::of(socket)?).options(options);
    loop {
        // WouldBlock makes tokio poll the kernel again before it treats the socket as writable.
        let outcome = socket.try_io(Interest::WRITABLE, || match transfer.advance() {
            Ok(Status::Waiting(Wait::Sink)) => Err(WouldBlock.into()),
            outcome => Ok(outcome),
        });
        match outcome {
            Err(_) => socket.writable().await?,
            Ok(Err(error)) => return Err(error.into()),
            Ok(Ok(Status::Done)) => return Ok(transfer.report().clone()),
            Ok(Ok(Status::Yielded)) => tokio::task::yield_now().await,
            // A file is always ready, and no event reports that the peer has everything.
            Ok(Ok(Status::Waiting(_))) => tokio::time::sleep(Duration::from_millis(1)).await,
        }
    }
}
