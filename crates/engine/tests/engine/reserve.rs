//! Space that is reserved before bytes are copied.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;

use underpass_engine::{Error, Mechanism, Options, Policy, Sink, Source, Status, Transfer};

#[test]
fn a_disk_too_small_is_found_out_before_the_first_byte_is_copied() {
    let folder = tempfile::tempdir().unwrap();
    let source = File::create_new(folder.path().join("source")).unwrap();
    // More than there is space for, as a hole, so that creating it is cheap.
    source.set_len(1 << 43).unwrap();
    let source = File::open(folder.path().join("source")).unwrap();
    let sink = File::create_new(folder.path().join("sink")).unwrap();
    let options = Options::default().policy(Policy::Require(Mechanism::Sendfile)).reserve();
    let transfer = Transfer::new(Source::of(&source).unwrap(), Sink::of(&sink).unwrap());
    let error = transfer.options(options).run().unwrap_err();
    assert!(matches!(error, Error::Io { mechanism: None, .. }), "{error}");
    assert_eq!((error.bytes(), error.report().calls()), (0, 0));
    assert_eq!(sink.metadata().unwrap().len(), 0);
}

#[test]
fn reserved_space_is_not_seen_in_the_size() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("source"), folder.path().join("sink"));
    fs::write(&from, vec![7; 1 << 20]).unwrap();
    let (source, sink) = (File::open(from).unwrap(), File::create_new(&to).unwrap());
    let options = Options::default().policy(Policy::Require(Mechanism::ReadWrite)).reserve();
    let mut transfer = Transfer::new(Source::of(&source).unwrap(), Sink::of(&sink).unwrap())
        .options(options.step(4096).turn(4096));
    transfer.advance().unwrap();
    let half_way = sink.metadata().unwrap();
    assert_eq!(half_way.len(), 4096);
    assert!(half_way.blocks() >= (1 << 20) / 512, "{} blocks", half_way.blocks());
    while transfer.advance().unwrap() != Status::Done {}
    assert!(fs::read(to).unwrap() == vec![7; 1 << 20]);
}
