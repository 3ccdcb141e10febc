//! The errors of options of `serve` that do not fit together.

use std::path::PathBuf;

use underpass_engine::Mechanism;

use crate::failure::UsageError;

/// The reason why the options of certificates from an authority are invalid.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AcmeUsage {
    #[error("--acme gets a certificate: leave out --tls, --tls-cert and --tls-key")]
    AndOther,
    #[error("the keys of --acme would be served: {} is in {}; give another folder with --acme-state", .folder.display(), .root.display())]
    KeysServed { folder: PathBuf, root: PathBuf },
    #[error("--acme takes effect only after a restart of the server")]
    Later,
    #[error("--acme needs a folder for its certificates: give one with --acme-state")]
    NoStateFolder,
    #[error(
        "no public authority certifies this name: use --tls self, or your own authority with --acme-directory"
    )]
    PrivateName,
    #[error("{0} needs --acme NAME, or acme = true in a [[site]]")]
    WithoutAcme(&'static str),
    #[error("acme = true orders certificates for the names of the site: give it names")]
    WithoutNames,
}

impl UsageError for AcmeUsage {}

/// The reason why the options of TLS are invalid.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsUsage {
    #[error("restart the server to enable HTTPS")]
    Later,
    #[error("--redirect-http needs an address with a port: give one with --bind")]
    RedirectWithoutPort,
    #[error(
        "the certificate was removed from the configuration: restart the server to disable HTTPS"
    )]
    RemovedLater,
    #[error("--tls self makes a certificate: leave out --tls-cert and --tls-key")]
    SelfSignedAndFiles,
    #[error(
        "this site has no tls-cert, but others have a certificate: all addresses speak HTTPS, so give it tls-cert or acme = true, or tls-cert before the first [[site]]"
    )]
    SiteWithoutCertificate,
    #[error(
        "--tls-key needs --tls-cert with a certificate; both may name one file. Without any, there is --tls self"
    )]
    WithoutCertificate,
    #[error(
        "--tls-cert needs --tls-key with its key; both may name one file. Without any, there is --tls self"
    )]
    WithoutKey,
    #[error("{option} needs HTTPS: give --acme NAME, --tls-cert and --tls-key, or --tls self")]
    WithoutTls { option: &'static str },
}

impl UsageError for TlsUsage {}

/// The reason why the options of an origin are invalid.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OriginUsage {
    #[error("other options of the cache in {} take effect only after a restart of the server", .0.display())]
    CacheLater(PathBuf),
    #[error("{} is the cache of another site and cannot be a root", .0.display())]
    CacheServed(PathBuf),
    #[error("{option} needs {other}")]
    Needs { option: &'static str, other: &'static str },
    #[error("{0} cannot be combined with --origin: the files are the origin's")]
    WithOrigin(&'static str),
}

impl UsageError for OriginUsage {}

/// The reason why a config file is invalid.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigUsage {
    #[error("the file no longer sets anything: it may be truncated")]
    Empty,
    #[error("the config file can be named only by --config and UNDERPASS_CONFIG")]
    OfAnother,
    #[error("--{0} can be given on the command line only")]
    OnlyTyped(String),
    #[error("this site needs a root, an origin, or a redirect of /*")]
    SiteWithoutFiles,
    #[error("this site needs names = [\"files.example.org\"], or default = true")]
    SiteWithoutNames,
    #[error("there is no option --{name} ({})", hint(near.as_deref()))]
    Unknown { name: String, near: Option<String> },
    #[error(
        "neither root nor origin is set, and the file may be truncated (root = \".\" serves the current folder)"
    )]
    WithoutFiles,
}

impl UsageError for ConfigUsage {}

/// The reason why other options of the server are invalid.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OptionsError {
    #[error(
        "--max-connections {requested}: {descriptors} open files are allowed, enough for {allowed} connection{} (raise it with ulimit -Hn or LimitNOFILE=)",
        if *allowed == 1 { "" } else { "s" }
    )]
    Descriptors { requested: u32, descriptors: u64, allowed: u64 },
    #[error(
        "--mechanism {0} works only between files: choose sendfile, splice, mmap or read_write, or use --prefer"
    )]
    MechanismOfFiles(Mechanism),
    #[error(
        "--mechanism {0} needs kernel TLS, which is unavailable (see underpass doctor): choose read_write, or use --prefer"
    )]
    MechanismWithoutKernelTls(Mechanism),
    #[error("the running sandbox does not allow {0}: restart the server")]
    Sandboxed(String),
    #[error("--proxy-protocol: name the proxies that send the header with --trusted-proxy")]
    UnnamedProxies,
    #[error("--upload needs a folder, and {} is not one", .0.display())]
    UploadToFile(PathBuf),
}

impl UsageError for OptionsError {}

/// Returns a hint at the right name of an option: a nearly equal one, or where all are listed.
fn hint(near: Option<&str>) -> String {
    match near {
        Some(name) => format!("did you mean {name}?"),
        None => "keys are the long names that serve --help lists".to_owned(),
    }
}
