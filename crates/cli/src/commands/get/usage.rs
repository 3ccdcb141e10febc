//! The errors of the arguments of `get`.

use std::path::PathBuf;

use underpass_client::tree::EntryRefusal;

use crate::failure::UsageError;

/// The reason why the options of `get` are invalid.
#[derive(Debug, thiserror::Error)]
pub(super) enum GetError {
    #[error(
        "{0} is taken for a URL: an algorithm is given as --digest-print=ALG, sha-256 or sha-512"
    )]
    AlgorithmAsUrl(String),
    #[error("no digest can be computed of what is written to {0}: use -o FILE")]
    DigestOfStream(String),
    #[error("{} is not a file name", .0.display())]
    NotAName(PathBuf),
    #[error("--digest checks one file: give one URL")]
    OneDigest,
    #[error("--mirror needs exactly one URL")]
    OneMirrored,
    #[error("-o FILE is one file for one URL: use -d DIR for several")]
    OneOutput,
    #[error("--json prints on standard output, where the bytes go: name a FILE")]
    OutputTwice,
    #[error("--update compares with a file, which {} is not", .0.display())]
    UpdateOfStream(PathBuf),
}

impl UsageError for GetError {}

/// The reason why a URL of `get` does not name what is fetched.
#[derive(Debug, thiserror::Error)]
pub(super) enum UrlUsage {
    #[error("{0} is a bucket: name a key, or fetch all of them with -r")]
    Bucket(String),
    #[error("{0} names no bucket: write s3://BUCKET/KEY")]
    BucketMissing(String),
    #[error("{0} does not end in a possible file name: use -o FILE")]
    Nameless(String),
    #[error("{url} cannot be a folder here: {refusal}")]
    NotAFolder { url: String, refusal: EntryRefusal },
}

impl UsageError for UrlUsage {}

/// The reason why the options do not suit the folders that `get -r` fetches.
#[derive(Debug, thiserror::Error)]
pub(super) enum TreeUsage {
    #[error(
        "{0} is the root of a server, so --delete would remove files from the current folder: name the mirror with -d DIR"
    )]
    DeleteHere(String),
    #[error("with --delete, two of the URLs cannot share the folder {}: use a command of its own, with -d DIR, for each", .0.display())]
    DeleteShared(PathBuf),
    #[error("out= and checksum= are for single files, but -r fetches {0} as a folder")]
    ItemOfFolder(String),
    #[error("with --force or --update, two of the URLs cannot replace each other's files in {}: use a command of its own, with -d DIR, for each", .0.display())]
    ReplacesShared(PathBuf),
}

impl UsageError for TreeUsage {}
