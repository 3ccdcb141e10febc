//! Refuses options that do not fit the URLs.

use underpass_client::Url;
use underpass_client::input::list::ListedFile;
use underpass_copy::ends::is_dash;
use underpass_receipt::shown;

use super::args::GetArgs;
use super::destination::is_stream;
use super::usage::{GetError, UrlUsage};
use crate::failure::Result;

/// Refuses options that do not fit these files.
pub(super) fn check(args: &GetArgs, items: &[ListedFile]) -> Result<()> {
    if args.output.is_some() && items.len() > 1 {
        return Err(GetError::OneOutput.into());
    }
    // A URL with credentials in it is invalid, and gets another message.
    let is_bucket = |item: &&ListedFile| {
        let url = &item.url;
        url.scheme() == "s3" && url.path() == "/" && url.username().is_empty()
    };
    let is_nameless = |item: &&ListedFile| item.url.host_str().unwrap_or_default().is_empty();
    if let Some(item) = items.iter().filter(is_bucket).find(is_nameless) {
        return Err(UrlUsage::BucketMissing(shown(&item.url)).into());
    }
    if let Some(item) = items.iter().find(is_bucket).filter(|_| !args.recursive) {
        return Err(UrlUsage::Bucket(shown(&item.url)).into());
    }
    if !args.mirror.is_empty() && items.len() > 1 {
        return Err(GetError::OneMirrored.into());
    }
    let is_checked = args.verify
        || args.check.is_some()
        || !args.digest.is_empty()
        || args.digest_print.is_some();
    if is_checked && let Some(path) = args.output.as_deref().filter(|path| is_stream(path)) {
        let name =
            if is_dash(path) { "standard output".to_owned() } else { path.display().to_string() };
        return Err(GetError::DigestOfStream(name).into());
    }
    let is_name =
        |url: &&Url| ALGORITHMS.iter().any(|name| url.as_str() == format!("http://{name}/"));
    if let Some(url) = args.urls.iter().find(is_name).filter(|_| args.digest_print.is_some()) {
        let name = url.host_str().unwrap_or_default();
        return Err(GetError::AlgorithmAsUrl(name.to_owned()).into());
    }
    if !args.digest.is_empty() && items.len() > 1 {
        return Err(GetError::OneDigest.into());
    }
    Ok(())
}

/// Words after `--digest-print` that name an algorithm and not a server.
const ALGORITHMS: [&str; 12] = [
    "blake3", "crc32c", "md5", "sha1", "sha-1", "sha224", "sha256", "sha-256", "sha384", "sha-384",
    "sha512", "sha-512",
];
