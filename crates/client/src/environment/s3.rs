//! Settings of object stores from the environment: regions, URLs and sources of keys, as the tools
//! of Amazon name them.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use url::Url;

use super::{EnvironmentError, first_of, path_variable, variable};
use crate::input;
use crate::s3::{KeySource, Keys, ProfileFiles, StoreOptions, suffix};

/// Returns the options of object stores from the environment and the shared files. Keys are only
/// looked for if `is_signed`.
///
/// # Errors
///
/// [`EnvironmentError`] if a variable or a file has no usable value.
pub fn store(is_signed: bool) -> Result<StoreOptions, EnvironmentError> {
    // Without a home folder, only files that are named explicitly are read.
    let home = path_variable("HOME").map(|home| home.join(".aws"));
    let of_home = |file: &str| home.as_ref().map(|home| home.join(file)).filter(|it| may_have(it));
    let path = |name: &str, file: &str| path_variable(name).or_else(|| of_home(file));
    let named = variable("AWS_PROFILE")?;
    let files = ProfileFiles {
        credentials: path("AWS_SHARED_CREDENTIALS_FILE", "credentials"),
        config: path("AWS_CONFIG_FILE", "config"),
        is_named: named.is_some(),
        profile: named.unwrap_or_else(|| "default".to_owned()),
    };
    let settings = files.read().map_err(EnvironmentError::Keys)?;
    let setting = |name: &str| settings.get(name).filter(|value| !value.is_empty()).cloned();
    let region = first_of(&["AWS_REGION", "AWS_DEFAULT_REGION"])?.map(|(_, region)| region);
    let region = region.or_else(|| setting("region"));
    let endpoint = first_of(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"])?.map(|(_, url)| url);
    let endpoint = endpoint.or_else(|| setting("s3.endpoint_url"));
    let endpoint = endpoint.or_else(|| setting("endpoint_url"));
    let endpoint = endpoint.map(|text| url(&text, "the URL of the store")).transpose()?;
    let style = setting("s3.addressing_style").and_then(|style| style.parse().ok());
    let sources = if is_signed { sources(files, region.as_deref())? } else { Vec::new() };
    Ok(StoreOptions { endpoint, region, style, sources })
}

/// Returns whether a file may be there for this process. The home folder may be that of another
/// user, as after `sudo` or in a container, or no folder.
fn may_have(file: &Path) -> bool {
    let found = fs::metadata(file).map_err(|error| error.kind());
    !matches!(found, Err(ErrorKind::PermissionDenied | ErrorKind::NotADirectory))
}

/// Returns the sources of keys in the order in which they are tried.
fn sources(files: ProfileFiles, region: Option<&str>) -> Result<Vec<KeySource>, EnvironmentError> {
    let mut sources = Vec::new();
    match (variable("AWS_ACCESS_KEY_ID")?, variable("AWS_SECRET_ACCESS_KEY")?) {
        (Some(id), Some(secret)) => {
            let token = variable("AWS_SESSION_TOKEN")?;
            sources.push(KeySource::Keys(Keys { id, secret, token, expires: None }));
        }
        (None, None) => {}
        _ => return Err(EnvironmentError::IncompleteKeys),
    }
    sources.push(KeySource::Profile(files));
    if let (Some(file), Some(role)) =
        (path_variable("AWS_WEB_IDENTITY_TOKEN_FILE"), variable("AWS_ROLE_ARN")?)
    {
        let host = region.map_or("sts.amazonaws.com".to_owned(), |region| {
            format!("sts.{region}.amazonaws.com{}", suffix(region))
        });
        let service = variable("AWS_ENDPOINT_URL_STS")?.unwrap_or(format!("https://{host}/"));
        sources.push(KeySource::WebIdentity {
            token_file: file,
            role,
            session: variable("AWS_ROLE_SESSION_NAME")?.unwrap_or("underpass".to_owned()),
            service: url(&service, "the URL of the service for roles")?,
        });
    }
    let relative = variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")?;
    let full = match relative.map(|path| format!("http://169.254.170.2{path}")) {
        None => variable("AWS_CONTAINER_CREDENTIALS_FULL_URI")?,
        full => full,
    };
    if let Some(full) = full {
        sources.push(KeySource::Container {
            url: url(&full, "the URL of the container's keys")?,
            token: variable("AWS_CONTAINER_AUTHORIZATION_TOKEN")?,
            token_file: path_variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"),
        });
    }
    let is_off = variable("AWS_EC2_METADATA_DISABLED")?;
    if !is_off.is_some_and(|it| it.eq_ignore_ascii_case("true")) {
        let named = variable("AWS_EC2_METADATA_SERVICE_ENDPOINT")?;
        let text = named.unwrap_or("http://169.254.169.254/".to_owned());
        sources.push(KeySource::Metadata { url: url(&text, "the URL of the metadata service")? });
    }
    Ok(sources)
}

/// Parses a URL of the environment.
fn url(text: &str, name: &'static str) -> Result<Url, EnvironmentError> {
    let parsed = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    parsed.ok_or_else(|| EnvironmentError::Url { name, value: input::redacted(text) })
}
