//! The clients: what they are asked to do, with nothing that people have configured for themselves
//! and nothing printed, which of them there are, and what they call themselves.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::child::this_program;
use crate::way::Way;

/// A program with its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Words {
    program: &'static str,
    arguments: Vec<OsString>,
}

impl Words {
    fn new(program: &'static str, options: &[&str]) -> Self {
        Self { program, arguments: options.iter().map(Into::into).collect() }
    }

    fn and(mut self, word: impl Into<OsString>) -> Self {
        self.arguments.push(word.into());
        self
    }

    /// The command, which finds no configuration in `home` and asks no proxy.
    pub(crate) fn command(&self, home: &Path) -> Command {
        let mut command = match self.program {
            OURS => this_program(),
            program => Command::new(program),
        };
        for name in PROXIES {
            command.env_remove(name).env_remove(name.to_uppercase());
        }
        command.args(&self.arguments).env("HOME", home);
        command
    }
}

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.program)?;
        self.arguments.iter().try_for_each(|word| write!(f, " {}", word.to_string_lossy()))
    }
}

/// Downloads `url` into the new file `file`.
pub(crate) fn download(way: Way, url: &str, file: &Path) -> Words {
    match way {
        Way::Aria2 => {
            let name = file.file_name().unwrap_or_default();
            let folder = file.parent().unwrap_or(Path::new("."));
            Words::new("aria2c", ARIA2).and("-d").and(folder).and("-o").and(name).and(url)
        }
        Way::Curl => Words::new("curl", CURL).and("-o").and(file).and(url),
        Way::Wget => Words::new("wget", WGET).and("-O").and(file).and(url),
        _ => Words::new(OURS, &["get", "-q", "-o"]).and(file).and(url),
    }
}

/// Uploads `file` to the new file `url`.
pub(crate) fn upload(way: Way, file: &Path, url: &str) -> Words {
    match way {
        Way::CurlToDufs | Way::CurlToNginx | Way::CurlToUnderpass => {
            Words::new("curl", CURL).and("-T").and(file).and(url)
        }
        _ => Words::new(OURS, &["put", "-q"]).and(file).and(url),
    }
}

/// Downloads the folder `url` into the new folder `folder`.
pub(crate) fn download_tree(way: Way, url: &str, folder: &Path) -> Words {
    match way {
        Way::Wget => Words::new("wget", WGET)
            .and("-r")
            .and("-nH")
            .and("-np")
            // Else the listings would stay among the files.
            .and("-R")
            .and("index.html*")
            .and("-P")
            .and(folder)
            .and(url),
        _ => Words::new(OURS, &["get", "-q", "-r"]).and(url).and("-d").and(folder),
    }
}

/// The programs that a way needs besides this one.
pub(crate) const fn programs(way: Way) -> &'static [&'static str] {
    match way {
        Way::Aria2 => &["aria2c"],
        Way::Curl | Way::CurlToUnderpass => &["curl"],
        Way::CurlToDufs => &["curl", DUFS],
        Way::CurlToNginx => &["curl", NGINX],
        Way::Nginx => &[NGINX],
        Way::Wget => &["wget"],
        _ => &[],
    }
}

/// The ways asked for whose programs are there, each once, and the programs that are not.
pub(crate) fn available(
    asked: impl IntoIterator<Item = Way>,
    has: impl Fn(&str) -> bool,
) -> (Vec<Way>, Vec<&'static str>) {
    let (mut ways, mut missing) = (Vec::new(), Vec::new());
    for way in asked {
        let lacking = programs(way).iter().copied().filter(|program| !has(program));
        let lacking: Vec<_> = lacking.collect();
        if lacking.is_empty() && !ways.contains(&way) {
            ways.push(way);
        }
        missing.extend(lacking);
    }
    missing.sort_unstable();
    missing.dedup();
    (ways, missing)
}

/// Where a program is, if it is in PATH.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut files = std::env::split_paths(&path).map(|folder| folder.join(program));
    files.find(|file| file.is_file())
}

/// What a program calls itself; none if it cannot be asked.
pub(crate) fn version(program: &Path) -> Option<String> {
    let output = Command::new(program).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().next().map(short_version)
}

/// The words of a line up to the number of the version.
fn short_version(line: &str) -> String {
    let is_number = |word: &&str| word.starts_with(|first: char| first.is_ascii_digit());
    let words: Vec<_> = line.split_whitespace().collect();
    let count = words.iter().position(is_number).map_or(words.len(), |at| at + 1);
    words[..count].join(" ")
}

const OURS: &str = "underpass";

/// The peers among the servers.
pub(crate) const DUFS: &str = "dufs";
pub(crate) const NGINX: &str = "nginx";

/// `-q` has to be the first one: no configuration.
const CURL: &[&str] = &["-q", "-fsS"];

/// A request for robots.txt would be one more of its own.
const WGET: &[&str] = &["--no-config", "-e", "robots=off", "-q"];

/// Space for the file is allocated as aria2c does it by default.
const ARIA2: &[&str] = &[
    "--no-conf",
    "-q",
    "--console-log-level=error",
    "--summary-interval=0",
    "--allow-overwrite=true",
    "-x4",
    "-s4",
];

const PROXIES: [&str; 4] = ["http_proxy", "https_proxy", "all_proxy", "no_proxy"];

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "http://127.0.0.1:80/file";

    #[test]
    fn each_client_is_told_source_and_target_and_to_be_quiet() {
        let file = Path::new("folder/file");
        for (way, words) in [
            (Way::Curl, "curl -q -fsS -o folder/file http://127.0.0.1:80/file"),
            (
                Way::Wget,
                "wget --no-config -e robots=off -q -O folder/file http://127.0.0.1:80/file",
            ),
            (
                Way::Aria2,
                "aria2c --no-conf -q --console-log-level=error --summary-interval=0 \
                 --allow-overwrite=true -x4 -s4 -d folder -o file http://127.0.0.1:80/file",
            ),
            (Way::Underpass, "underpass get -q -o folder/file http://127.0.0.1:80/file"),
        ] {
            assert_eq!(download(way, URL, file).to_string(), words);
        }
        for (way, words) in [
            (Way::CurlToNginx, "curl -q -fsS -T folder/file http://127.0.0.1:80/file"),
            (Way::UnderpassSynced, "underpass put -q folder/file http://127.0.0.1:80/file"),
        ] {
            assert_eq!(upload(way, file, URL).to_string(), words);
        }
        for (way, words) in [
            (
                Way::Wget,
                "wget --no-config -e robots=off -q -r -nH -np -R index.html* -P folder/file \
                 http://127.0.0.1:80/file",
            ),
            (Way::Underpass, "underpass get -q -r http://127.0.0.1:80/file -d folder/file"),
        ] {
            assert_eq!(download_tree(way, URL, file).to_string(), words);
        }
    }

    #[test]
    fn a_client_is_kept_from_what_people_have_configured() {
        let command = download(Way::Wget, URL, Path::new("file")).command(Path::new("/home"));
        let variables: Vec<_> = command.get_envs().collect();
        assert!(variables.contains(&("HOME".as_ref(), Some("/home".as_ref()))), "{variables:?}");
        for name in ["http_proxy", "ALL_PROXY"] {
            assert!(variables.contains(&(name.as_ref(), None)), "{variables:?}");
        }
    }

    #[test]
    fn ways_without_their_programs_are_left_out_and_the_programs_named_once() {
        let asked = [Way::Curl, Way::CurlToNginx, Way::CurlToDufs, Way::Curl, Way::Underpass];
        let only_curl = |program: &str| program == "curl";
        let expected = (vec![Way::Curl, Way::Underpass], vec!["dufs", "nginx"]);
        assert_eq!(available(asked, only_curl), expected);
        let (ways, missing) = available(asked, |_| false);
        assert_eq!((ways, missing), (vec![Way::Underpass], vec!["curl", "dufs", "nginx"]));
    }

    #[test]
    fn a_version_is_no_longer_than_its_number() {
        for (line, version) in [
            ("curl 7.88.1 (x86_64-pc-linux-gnu) libcurl/7.88.1", "curl 7.88.1"),
            ("GNU Wget 1.21.3 built on linux-gnu.", "GNU Wget 1.21.3"),
            ("aria2 version 1.36.0", "aria2 version 1.36.0"),
            ("nameless", "nameless"),
        ] {
            assert_eq!(short_version(line), version);
        }
    }
}
