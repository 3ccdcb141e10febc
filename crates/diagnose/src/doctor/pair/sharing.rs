//! Whether a socket references the pages of a file, or has a copy of them.
//!
//! sendfile(2) gives a socket the file's own pages. A write to the file then changes what the
//! peer has not read yet. Some files and some kernels copy instead. Only a trial can tell.

use std::io;
use std::os::unix::fs::FileExt;

use underpass_engine::hint::Plain;
use underpass_engine::{Mechanism, Options, Policy, Sink, Source, Transfer};

use crate::doctor::ends::sample::TrialFile;
use crate::doctor::ends::scratch::{NAME, Scratch};
use crate::doctor::finding::Finding;

/// The number of bytes sent, and of those that had changed when they were read; or why the trial
/// failed.
pub(crate) type PageSharing = Result<(usize, usize), String>;

/// Sends a file over loopback, writes to it, and reads what arrives.
pub(crate) fn gather(sample: &TrialFile) -> PageSharing {
    let folder = sample.folder().ok_or("there is no folder to create a file in")?;
    let file = Scratch::file(&folder.join(NAME)).map_err(|error| {
        format!("no file can be created in {}: {}", folder.display(), Plain(&error))
    })?;
    send_and_change(&file).map_err(|error| Plain(&error).to_string())
}

fn send_and_change(scratch: &Scratch) -> io::Result<(usize, usize)> {
    let file = scratch.dest_file().ok_or(io::ErrorKind::InvalidInput)?;
    file.write_all_at(&[BEFORE; LEN], 0)?;
    let ends = Scratch::tcp()?;
    let Scratch::Tcp(near, _) = &ends else { return Err(io::ErrorKind::InvalidInput.into()) };
    // As many bytes as the connection takes at once.
    let options = Options::default().policy(Policy::Require(Mechanism::Sendfile)).step(PIECE);
    let source = Source::range(file, 0, LEN as u64);
    let mut transfer = Transfer::new(source, Sink::socket(near)).options(options);
    transfer.advance().map_err(|error| io::Error::other(error.to_string()))?;
    let sent = usize::try_from(transfer.report().bytes()).unwrap_or(0);
    file.write_all_at(&[AFTER; LEN], 0)?;
    let arrived = ends.read_back(Vec::new(), sent)?;
    Ok((arrived.len(), arrived.iter().filter(|&&byte| byte == AFTER).count()))
}

/// Returns the finding for this result.
pub(crate) fn finding(sharing: &PageSharing) -> Finding {
    let name = "by_reference";
    match sharing {
        Ok((sent, 0)) => Finding::limited(name)
            .finding(format!("none of {sent} bytes changed with their file after they were sent"))
            .consequence(
                "the kernel copies what is sent: one more copy, but files may be written to",
            )
            .remedy("nothing needs to be done; other file systems and kernels avoid the copy"),
        Ok((sent, changed)) => Finding::best(name)
            .finding(format!(
                "{changed} of {sent} bytes changed with their file after they were sent"
            ))
            .consequence(
                "the peer gets the file's own pages: replace files that are served by renaming, or \
                 use --integrity",
            ),
        Err(why) => Finding::unneeded(name).finding(format!("not tried: {why}")).consequence(
            "assume that the peer gets the file's own pages, and replace files by renaming",
        ),
    }
}

/// The number of bytes sent, which any socket accepts at once.
const LEN: usize = 64 << 10;

/// The bytes of one call.
const PIECE: usize = 16 << 10;

const BEFORE: u8 = b'A';
const AFTER: u8 = b'B';

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::FindingState;

    #[test]
    fn blocks_that_stay_shared_are_distinguished_from_copied_ones() {
        let untried = Err("no file can be made in /proc".to_owned());
        for (sharing, state) in [
            (Ok((65_536, 65_536)), FindingState::Best),
            (Ok((65_536, 4_096)), FindingState::Best),
            (Ok((65_536, 0)), FindingState::Limited),
            (untried, FindingState::Unneeded),
        ] {
            let finding = finding(&sharing);
            assert_eq!(finding.state, state, "{finding:?}");
            assert_eq!(finding.remedy.is_some(), state == FindingState::Limited, "{finding:?}");
        }
    }
}
