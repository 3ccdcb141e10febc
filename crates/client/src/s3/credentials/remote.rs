//! Keys from a metadata service, of a container or a virtual machine, or for a web identity.

use std::path::Path;
use std::time::SystemTime;

use jiff::Timestamp;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use url::{Host, Url};

use super::{KeySource, Keys};
use crate::error::{ClientError, KeyServiceError, KeysError};
use crate::http::{HttpClient, Request, xml};

/// Requests keys from a service; `None` if it does not exist.
pub(super) fn keys(
    client: &HttpClient<'static>,
    source: &KeySource,
) -> Result<Option<Keys>, ClientError> {
    match source {
        KeySource::WebIdentity { token_file, role, session, service } => {
            web_identity(client, token_file, role, session, service).map(Some)
        }
        KeySource::Container { url, token, token_file } => {
            container(client, url, token.as_deref(), token_file.as_deref()).map(Some)
        }
        KeySource::Metadata { url } => Ok(metadata(client, url)),
        KeySource::Keys(_) | KeySource::Profile(_) => Ok(None),
    }
}

/// Keys in the format of the metadata services of containers and virtual machines.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Document {
    access_key_id: String,
    secret_access_key: String,
    token: Option<String>,
    expiration: Option<String>,
}

impl Document {
    fn parse(body: &[u8]) -> Option<Keys> {
        let document: Self = serde_json::from_slice(body).ok()?;
        Some(Keys {
            id: document.access_key_id,
            secret: document.secret_access_key,
            token: document.token,
            expires: document.expiration.as_deref().and_then(parse_time),
        })
    }
}

fn parse_time(text: &str) -> Option<SystemTime> {
    Some(text.parse::<Timestamp>().ok()?.into())
}

fn web_identity(
    client: &HttpClient<'static>,
    token_file: &Path,
    role: &str,
    session: &str,
    service: &Url,
) -> Result<Keys, ClientError> {
    let token = secret(token_file)?;
    let mut body = "Action=AssumeRoleWithWebIdentity&Version=2011-06-15".to_owned();
    let named = [("RoleArn", role), ("RoleSessionName", session), ("WebIdentityToken", &token)];
    for (name, value) in named {
        body += &format!("&{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC));
    }
    let kind = [("Content-Type", "application/x-www-form-urlencoded")];
    let body = request(client, "POST", service, &kind, body.as_bytes())
        .map_err(|error| failed("the role of AWS_ROLE_ARN", service, error))?;
    let (mut keys, mut token) = (Keys::default(), None);
    xml::read(&body, |name, text| match name {
        b"accesskeyid" => text.clone_into(&mut keys.id),
        b"secretaccesskey" => text.clone_into(&mut keys.secret),
        b"sessiontoken" => token = (!text.is_empty()).then(|| text.to_owned()),
        b"expiration" => keys.expires = parse_time(text),
        _ => {}
    });
    keys.token = token;
    if keys.id.is_empty() || keys.secret.is_empty() { Err(no_keys(service)) } else { Ok(keys) }
}

fn container(
    client: &HttpClient<'static>,
    url: &Url,
    token: Option<&str>,
    token_file: Option<&Path>,
) -> Result<Keys, ClientError> {
    if url.scheme() != "https" && !is_near(url) {
        return Err(KeysError::from(KeyServiceError::Insecure).into());
    }
    let token = match token_file {
        Some(file) => Some(secret(file)?),
        None => token.map(str::to_owned),
    };
    let fields: Vec<_> = token.iter().map(|token| ("Authorization", token.as_str())).collect();
    let body = request(client, "GET", url, &fields, &[])
        .map_err(|error| failed("the keys of the container", url, error))?;
    Document::parse(&body).ok_or_else(|| no_keys(url))
}

/// Returns whether plain HTTP to an address does not leave the machine.
fn is_near(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => {
            address.is_loopback()
                || [[169, 254, 170, 2], [169, 254, 170, 23]].contains(&address.octets())
        }
        Some(Host::Ipv6(address)) => {
            address.is_loopback() || address.segments() == [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23]
        }
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

/// Queries the metadata service of a virtual machine, which may not exist.
fn metadata(client: &HttpClient<'static>, base: &Url) -> Option<Keys> {
    let ttl = [("X-aws-ec2-metadata-token-ttl-seconds", "21600")];
    let token = request(client, "PUT", &base.join("/latest/api/token").ok()?, &ttl, &[]).ok()?;
    let token = String::from_utf8(token).ok()?;
    let fields = [("X-aws-ec2-metadata-token", token.trim())];
    let roles = base.join("/latest/meta-data/iam/security-credentials/").ok()?;
    let names = String::from_utf8(request(client, "GET", &roles, &fields, &[]).ok()?).ok()?;
    let name = names.lines().next()?.trim();
    Document::parse(&request(client, "GET", &roles.join(name).ok()?, &fields, &[]).ok()?)
}

/// Sends one request, and returns the body of the response.
fn request(
    client: &HttpClient<'static>,
    method: &str,
    url: &Url,
    fields: &[(&str, &str)],
    body: &[u8],
) -> Result<Vec<u8>, ClientError> {
    let (mut connection, response) = client.send(None, &Request { method, fields }, url, body)?;
    if !response.is_success() {
        return Err(connection.refusal(&response));
    }
    connection.read_body(&response, MAX_BODY)
}

/// Reads a token, which is one line.
fn secret(file: &Path) -> Result<String, ClientError> {
    let text = std::fs::read_to_string(file)
        .map_err(|source| KeysError::Read { file: file.to_owned(), source })?;
    let token = text.trim();
    if token.is_empty() || token.contains(|c: char| c.is_control()) {
        Err(KeysError::NoToken(file.to_owned()).into())
    } else {
        Ok(token.to_owned())
    }
}

fn failed(what: &'static str, url: &Url, error: ClientError) -> ClientError {
    let (service, source) = (redacted(url), Box::new(error));
    KeysError::from(KeyServiceError::Request { what, service, source }).into()
}

fn no_keys(url: &Url) -> ClientError {
    KeysError::from(KeyServiceError::NoKeys { service: redacted(url) }).into()
}

/// Returns a URL without the parts that may be secret.
fn redacted(url: &Url) -> String {
    let host = &url[url::Position::BeforeHost..url::Position::AfterPort];
    format!("{}://{host}", url.scheme())
}

/// The maximum size of a response in bytes.
const MAX_BODY: usize = 64 << 10;
