//! Digests by the real, confined server: the file is read only once.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use underpass_engine::Version;
use underpass_protocol::digest::{Algorithm, Digest};
use underpass_server::digest::stored;

use crate::rig::{Running, folder, has, noise_file, piped, serve_by, skip, traced, until};

const LEN: usize = 5 << 20;

/// A served file, a folder for traces, and the file's digest.
struct Stage {
    served: TempDir,
    other: TempDir,
    file: PathBuf,
    digest: Digest,
}

impl Stage {
    /// `None`, with a message, if there is no strace or no curl.
    fn new() -> Option<Self> {
        (has("strace") && has("curl")).then(|| {
            let (served, other) = (folder(), folder());
            let file = noise_file(served.path(), "file", LEN);
            let digest = Sha256::digest(fs::read(&file).unwrap());
            let digest = Digest::new(Algorithm::Sha256, digest.as_slice()).unwrap();
            Self { served, other, file, digest }
        })
    }

    /// A server under strace with these options.
    fn serve(&self, strace: &[&str]) -> Running {
        let command = traced(&self.trace(), &[&["-y"], strace].concat());
        serve_by(command, &self.served, &["--workers", "1"])
    }

    fn trace(&self) -> PathBuf {
        self.other.path().join("trace")
    }

    /// The lines of the trace that are about the file.
    fn calls(&self) -> Vec<String> {
        let trace = fs::read_to_string(self.trace()).unwrap();
        let path = format!("<{}>", self.file.display());
        trace.lines().filter(|line| line.contains(&path)).map(str::to_owned).collect()
    }
}

/// What curl prints of an answer to HEAD by which a digest is wanted.
fn head(server: &Running) -> String {
    let mut curl = piped("curl");
    curl.args(["-sSI", "-H", "Want-Repr-Digest: sha-256=1"]).arg(format!("{}file", server.address));
    Running::start(curl).finish().succeeded().text()
}

/// The line of a field.
fn line<'a>(head: &'a str, name: &str) -> &'a str {
    head.lines().find(|line| line.starts_with(name)).unwrap_or_default()
}

fn end(server: Running) -> String {
    server.end().stderr
}

fn load_digest(path: &Path) -> Option<stored::StoredDigest> {
    let file = File::open(path).unwrap();
    stored::load_digest(&file, &Version::of(&file).unwrap())
}

/// Whether digests can be kept where the tests run; prints a message if not.
fn can_keep(folder: &Path, digest: &Digest) -> bool {
    let path = noise_file(folder, "probe", 1);
    let file = File::open(path).unwrap();
    let kept = stored::store(&file, &Version::of(&file).unwrap(), std::slice::from_ref(digest));
    if let Err(error) = &kept {
        skip(&format!("digests cannot be kept with files here: {error}"));
    }
    kept.is_ok()
}

#[test]
fn after_a_restart_the_digest_is_known_without_reading_the_file() {
    let Some(stage) = Stage::new() else { return };
    if !can_keep(stage.other.path(), &stage.digest) {
        return;
    }
    // The call that sets the attribute is not traced here: that could delay it for too long.
    let server = stage.serve(&["--seccomp-bpf", "-e", "trace=pread64"]);
    let first = head(&server);
    assert!(line(&first, "Repr-Digest").starts_with("Repr-Digest: sha-256=:"), "{first}");
    until("it is kept", || {
        load_digest(&stage.file).is_some_and(|kept| kept.digests() == [stage.digest.clone()])
    });
    let said = end(server);
    let read: u64 = stage
        .calls()
        .iter()
        .filter(|call| call.contains("pread64("))
        .map(|call| call.rsplit(" = ").next().unwrap().parse::<u64>().unwrap())
        .sum();
    assert_eq!(read, LEN as u64, "it is read once");
    // Landlock does not stand in the way, where there is one.
    assert!(said.contains("confined"), "{said}");

    let trace = "trace=pread64,read,readv,mmap,sendfile,splice,fgetxattr,fsetxattr";
    let server = stage.serve(&["-e", trace]);
    let again = head(&server);
    for name in ["Repr-Digest", "ETag", "Last-Modified"] {
        assert_eq!(line(&again, name), line(&first, name));
    }
    end(server);
    let calls = stage.calls();
    assert!(calls.len() == 1 && calls[0].contains("fgetxattr("), "{calls:?}");
}

#[test]
fn digests_are_remembered_silently_where_attributes_cannot_be_set() {
    let Some(stage) = Stage::new() else { return };
    for errno in ["EACCES", "EPERM", "EROFS", "EOPNOTSUPP", "ENOSPC", "EDQUOT"] {
        let inject = format!("inject=fsetxattr:error={errno}");
        let server = stage.serve(&["-e", "trace=pread64,fsetxattr", "-e", &inject]);
        let heads = [head(&server), head(&server), head(&server)];
        assert!(!line(&heads[0], "Repr-Digest").is_empty(), "{errno}: {}", heads[0]);
        assert!(heads.iter().all(|head| line(head, "ETag") == line(&heads[0], "ETag")));
        let said = end(server);
        assert!(!said.contains("xattr") && !said.contains("attribute"), "{said}");
        let calls = stage.calls();
        let read = calls.iter().filter(|call| call.contains("pread64(")).count();
        assert_eq!(read, LEN.div_ceil(256 << 10), "{errno}: it is read once");
        assert_eq!(load_digest(&stage.file), None);
    }
}

#[test]
fn an_attribute_that_is_set_too_late_is_set_again() {
    let Some(stage) = Stage::new() else { return };
    if !can_keep(stage.other.path(), &stage.digest) {
        return;
    }
    // As if the disk had kept the first call waiting for longer than a tick of the clock.
    let inject = "inject=fsetxattr:delay_enter=200000:when=1";
    let server = stage.serve(&["-e", "trace=fsetxattr", "-e", inject]);
    let first = head(&server);
    until("it is kept", || load_digest(&stage.file).is_some());
    let again = head(&server);
    assert_eq!(line(&again, "ETag"), line(&first, "ETag"));
    end(server);
    // Beside other work the second may be late, too, and the third.
    assert!((2..=4).contains(&stage.calls().len()), "{:?}", stage.calls());
}
