//! The command lines of the clients, without the user's configuration and without output.

use std::path::Path;
use std::process::Command;

use crate::record::Contender;
use crate::run::CommandWords;

/// Makes a client find no configuration in `home`, and use no proxy.
pub(super) fn isolated(mut command: Command, home: &Path) -> Command {
    for name in PROXIES {
        command.env_remove(name).env_remove(name.to_uppercase());
    }
    command.env("HOME", home);
    command
}

/// Downloads `url` into the new file `file`.
pub(super) fn download(contender: Contender, url: &str, file: &Path) -> CommandWords {
    match contender {
        Contender::Aria2 => {
            let name = file.file_name().unwrap_or_default();
            let folder = file.parent().unwrap_or(Path::new("."));
            CommandWords::new(ARIA2).and("-d").and(folder).and("-o").and(name).and(url)
        }
        Contender::BareClient => CommandWords::new("peers/c/client.c get").and(url).and(file),
        Contender::Curl => CommandWords::new(CURL).and("-o").and(file).and(url),
        Contender::Wget => CommandWords::new(WGET).and("-O").and(file).and(url),
        _ => CommandWords::new("underpass get -q -o").and(file).and(url),
    }
}

/// Uploads `file` to the new file `url`.
pub(super) fn upload(contender: Contender, file: &Path, url: &str) -> CommandWords {
    match contender {
        Contender::BareClient => CommandWords::new("peers/c/client.c put").and(url).and(file),
        Contender::CurlToDufs | Contender::CurlToNginx | Contender::CurlToUnderpass => {
            CommandWords::new(CURL).and("-T").and(file).and(url)
        }
        _ => CommandWords::new("underpass put -q").and(file).and(url),
    }
}

/// Downloads the folder `url` into the new folder `folder`.
pub(super) fn download_tree(contender: Contender, url: &str, folder: &Path) -> CommandWords {
    match contender {
        Contender::Wget => {
            // Listings are rejected, as they would stay among the files.
            let line = format!("{WGET} -r -nH -np -R index.html* -P");
            CommandWords::new(&line).and(folder).and(url)
        }
        _ => CommandWords::new("underpass get -q -r").and(url).and("-d").and(folder),
    }
}

/// `-q` has to be the first option: no configuration.
const CURL: &str = "curl -q -fsS";

/// Without an extra request for robots.txt.
const WGET: &str = "wget --no-config -e robots=off -q";

/// Space for the file is allocated as aria2c does it by default.
const ARIA2: &str = "aria2c --no-conf -q --console-log-level=error --summary-interval=0 \
    --allow-overwrite=true -x4 -s4";

const PROXIES: [&str; 4] = ["http_proxy", "https_proxy", "all_proxy", "no_proxy"];

#[cfg(test)]
mod tests {
    use super::*;

    const URL: &str = "http://127.0.0.1:80/file";

    #[test]
    fn each_client_gets_source_target_and_a_quiet_option() {
        let file = Path::new("folder/file");
        for (contender, words) in [
            (Contender::Curl, "curl -q -fsS -o folder/file http://127.0.0.1:80/file"),
            (
                Contender::Wget,
                "wget --no-config -e robots=off -q -O folder/file http://127.0.0.1:80/file",
            ),
            (
                Contender::Aria2,
                "aria2c --no-conf -q --console-log-level=error --summary-interval=0 \
                 --allow-overwrite=true -x4 -s4 -d folder -o file http://127.0.0.1:80/file",
            ),
            (Contender::Underpass, "underpass get -q -o folder/file http://127.0.0.1:80/file"),
            (Contender::BareClient, "peers/c/client.c get http://127.0.0.1:80/file folder/file"),
        ] {
            assert_eq!(download(contender, URL, file).to_string(), words);
        }
        for (contender, words) in [
            (Contender::CurlToNginx, "curl -q -fsS -T folder/file http://127.0.0.1:80/file"),
            (Contender::BareClient, "peers/c/client.c put http://127.0.0.1:80/file folder/file"),
            (Contender::UnderpassSynced, "underpass put -q folder/file http://127.0.0.1:80/file"),
        ] {
            assert_eq!(upload(contender, file, URL).to_string(), words);
        }
        for (contender, words) in [
            (
                Contender::Wget,
                "wget --no-config -e robots=off -q -r -nH -np -R index.html* -P folder/file \
                 http://127.0.0.1:80/file",
            ),
            (Contender::Underpass, "underpass get -q -r http://127.0.0.1:80/file -d folder/file"),
        ] {
            assert_eq!(download_tree(contender, URL, file).to_string(), words);
        }
    }
}
