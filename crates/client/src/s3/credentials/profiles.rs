//! Profiles in the files that Amazon's tools share: `~/.aws/credentials` and `~/.aws/config`.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::Keys;
use crate::error::{KeysError, ProfileError};

/// The two files, and the selected profile.
#[derive(Clone, Debug)]
pub struct ProfileFiles {
    /// The path of `credentials`; `None` if there is none.
    pub credentials: Option<PathBuf>,
    /// The path of `config`; `None` if there is none.
    pub config: Option<PathBuf>,
    /// The name of the profile.
    pub profile: String,
    /// Whether the user named the profile, which must exist then.
    pub is_named: bool,
}

/// The settings of a profile.
pub type Profiles = HashMap<String, String>;

impl ProfileFiles {
    /// Returns the settings of the profile; those of `credentials` take precedence.
    ///
    /// # Errors
    ///
    /// [`KeysError::Read`], or [`ProfileError::NotFound`] if the user named the profile.
    pub fn read(&self) -> Result<Profiles, KeysError> {
        let mut settings = HashMap::new();
        let mut is_there = false;
        for (path, prefix) in [(&self.config, "profile "), (&self.credentials, "")] {
            let found = section(&text(path.as_deref())?, &self.profile, prefix);
            is_there |= found.is_some();
            settings.extend(found.unwrap_or_default());
        }
        if is_there || !self.is_named {
            Ok(settings)
        } else {
            Err(ProfileError::NotFound {
                profile: self.profile.clone(),
                credentials: self.credentials.clone().unwrap_or_else(|| "credentials".into()),
                config: self.config.clone().unwrap_or_else(|| "config".into()),
            }
            .into())
        }
    }

    /// Returns the keys of the profile, if it has some.
    pub(super) fn keys(&self) -> Result<Option<Keys>, KeysError> {
        let settings = self.read()?;
        let setting = |name: &str| settings.get(name).filter(|value| !value.is_empty()).cloned();
        let both = (setting("aws_access_key_id"), setting("aws_secret_access_key"));
        let other = OTHER_WAYS.into_iter().find(|name| settings.contains_key(*name));
        match (both, other) {
            ((Some(id), Some(secret)), _) => {
                Ok(Some(Keys { id, secret, token: setting("aws_session_token"), expires: None }))
            }
            ((None, None), Some(setting)) => {
                Err(ProfileError::Unsupported { profile: self.profile.clone(), setting }.into())
            }
            ((None, None), None) => Ok(None),
            _ => Err(ProfileError::Incomplete(self.profile.clone()).into()),
        }
    }
}

/// Settings of unsupported methods of obtaining keys.
const OTHER_WAYS: [&str; 5] =
    ["sso_session", "sso_start_url", "credential_process", "role_arn", "login_session"];

/// Reads a file, which may be missing.
fn text(path: Option<&Path>) -> Result<String, KeysError> {
    let Some(path) = path else { return Ok(String::new()) };
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
        Err(source) => Err(KeysError::Read { file: path.to_owned(), source }),
    }
}

/// Returns the settings of a section. Nested settings (`s3 =`, and lines with more indentation after
/// it) are named after both levels: `s3.addressing_style`.
fn section(text: &str, profile: &str, prefix: &str) -> Option<Profiles> {
    let mut found: Option<Profiles> = None;
    let mut is_meant = false;
    // The latest setting without a value, and its indentation.
    let mut outer: Option<(String, usize)> = None;
    for line in text.lines() {
        let content = line.trim();
        if content.is_empty() || content.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = content.strip_prefix('[').and_then(|rest| rest.split(']').next()) {
            let name = name.trim();
            outer = None;
            is_meant = name.strip_prefix(prefix).is_some_and(|name| name.trim() == profile)
                || (name == profile && profile == "default");
            if is_meant {
                found.get_or_insert_default();
            }
            continue;
        }
        let (Some((name, value)), true) = (content.split_once('='), is_meant) else { continue };
        let (name, value) = (name.trim().to_ascii_lowercase(), value.trim().to_owned());
        let indent = line.len() - line.trim_start().len();
        let is_inner = outer.as_ref().is_some_and(|(_, outer)| indent > *outer);
        if !is_inner {
            outer = value.is_empty().then(|| (name.clone(), indent));
        }
        let full = match &outer {
            Some((outer, _)) if is_inner => format!("{outer}.{name}"),
            _ => name,
        };
        found.get_or_insert_default().insert(full, value);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = "# mine\n[default]\nregion = eu-west-1\ns3 =\n  addressing_style = path\n\
        output = json\n[profile work]\nregion=us-west-2\nendpoint_url = http://h:1/?a=b\n\
        [profile sso]\nsso_session = x\n";

    #[test]
    fn profiles_are_found_in_both_files() {
        let folder = tempfile::tempdir().unwrap();
        let (credentials, config) =
            (folder.path().join("credentials"), folder.path().join("config"));
        std::fs::write(&config, CONFIG).unwrap();
        std::fs::write(
            &credentials,
            "[default]\naws_access_key_id = a=\naws_secret_access_key=b\n[half]\naws_access_key_id=a\n",
        )
        .unwrap();
        let files = |profile: &str, is_named| ProfileFiles {
            credentials: Some(credentials.clone()),
            config: Some(config.clone()),
            profile: profile.to_owned(),
            is_named,
        };
        let default = files("default", false).read().unwrap();
        assert_eq!(default["region"], "eu-west-1");
        assert_eq!(default["s3.addressing_style"], "path");
        assert_eq!(default["output"], "json");
        let keys = files("default", false).keys().unwrap().unwrap();
        assert_eq!((keys.id.as_str(), keys.secret.as_str()), ("a=", "b"));
        let work = files("work", true);
        assert_eq!(work.read().unwrap()["endpoint_url"], "http://h:1/?a=b");
        assert_eq!(work.keys().unwrap(), None);
        assert!(files("sso", true).keys().unwrap_err().to_string().contains("sso_session"));
        assert!(files("half", true).keys().unwrap_err().to_string().contains("only one"));
        assert!(files("none", true).keys().unwrap_err().to_string().contains("no profile 'none'"));
        assert_eq!(files("none", false).keys().unwrap(), None);
    }

    #[test]
    fn a_setting_is_nested_only_below_one_with_less_indentation() {
        for text in [
            "[work]\n  region =\n  output = x\n",
            "[work]\n  s3 =\n    a = b\n  output = x\n",
            "[work]\ns3 =\n  a = b\n[other]\n[work]\n  output = x\n",
        ] {
            let found = section(text, "work", "").unwrap();
            assert_eq!(found.get("output").map(String::as_str), Some("x"), "{text}: {found:?}");
            assert_eq!(found.contains_key("s3.a"), text.contains("a = b"), "{text}: {found:?}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named_with_the_reason_in_words() {
        let folder = tempfile::tempdir().unwrap();
        let files = ProfileFiles {
            credentials: Some(folder.path().to_owned()),
            config: None,
            profile: "default".to_owned(),
            is_named: false,
        };
        let expected = format!("reading {}: Is a directory", folder.path().display());
        assert_eq!(files.read().unwrap_err().to_string(), expected);
    }
}
