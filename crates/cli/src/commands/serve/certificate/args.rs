//! The options of TLS.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// TLS.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "TLS")]
pub(in crate::commands::serve) struct TlsArgs {
    /// Serve HTTPS with this certificate, followed in the file by those of its issuers; SIGHUP
    /// reloads it
    #[arg(long, value_name = "PEM")]
    pub(in crate::commands::serve) tls_cert: Option<PathBuf>,

    /// Use this private key for --tls-cert
    #[arg(long, value_name = "PEM")]
    pub(in crate::commands::serve) tls_key: Option<PathBuf>,

    /// Serve HTTPS with a self-signed certificate created at the start; its fingerprint and pin are
    /// printed
    #[arg(long, value_name = "CERTIFICATE")]
    pub(in crate::commands::serve) tls: Option<TlsSource>,

    /// Serve HTTPS with a certificate for this name, which is ordered from an authority by ACME and
    /// renewed in time; can be repeated. The authority must be able to reach port 443 or 80 of the
    /// name; using this option means agreeing to its terms
    #[arg(long, value_name = "NAME", value_parser = underpass_acme::name)]
    pub(in crate::commands::serve) acme: Vec<String>,

    /// Give the authority this email address, for messages about certificates
    #[arg(long, value_name = "ADDRESS")]
    pub(in crate::commands::serve) acme_email: Option<String>,

    /// Use the authority with this directory [default: Let's Encrypt]
    #[arg(long, value_name = "URL")]
    pub(in crate::commands::serve) acme_directory: Option<String>,

    /// Keep the account and certificates of --acme in this folder [default: acme in
    /// $STATE_DIRECTORY, or ~/.local/state/underpass/acme]
    #[arg(long, value_name = "DIR")]
    pub(in crate::commands::serve) acme_state: Option<PathBuf>,

    /// Trust the certificate authorities in this PEM file instead of the system's for the server of
    /// --acme-directory
    #[arg(long, value_name = "FILE")]
    pub(in crate::commands::serve) acme_ca: Option<PathBuf>,

    /// Redirect plain HTTP requests on this port to HTTPS; 0 for any free port
    #[arg(long, value_name = "PORT")]
    pub(in crate::commands::serve) redirect_http: Option<u16>,

    /// Let a network card that encrypts read the page cache itself: fast, but a write to a file
    /// that is being sent breaks its connections
    #[arg(long)]
    pub(in crate::commands::serve) tls_zero_copy: bool,
}

/// The source of a certificate that is in no file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::commands::serve) enum TlsSource {
    // Without a help text, which would put blank lines between all options.
    #[value(name = "self")]
    SelfSigned,
}
