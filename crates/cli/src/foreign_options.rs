//! Advice about options and commands of curl, wget, aria2c, rclone, rsync and other servers.

/// Returns what to do instead of using this option of a command, or this command if the option is
/// `None`, neither of which exists here.
pub(crate) fn advice(command: &str, option: Option<&str>) -> Option<&'static str> {
    let known = match command {
        _ if option.is_none() => COMMANDS,
        "get" => GET,
        "put" => PUT,
        "serve" => SERVE,
        "cp" => CP,
        _ => return None,
    };
    let wanted = option.unwrap_or(command);
    known.iter().find(|(words, _)| words.contains(&wanted)).map(|(_, advice)| *advice)
}

type Advice = (&'static [&'static str], &'static str);

const COMMANDS: &[Advice] = &[
    (&["copy"], "use cp"),
    (&["download", "fetch"], "use get"),
    (&["upload"], "use put"),
    (&["sync", "mirror"], "use get -r --update --delete, put -r --update, or cp -a --delete"),
];

const GET: &[Advice] = &[
    (&["-O", "--remote-name"], "the file gets the name in the URL"),
    (&["--output-document"], "use -o FILE"),
    (&["-P", "--directory-prefix"], "use -d DIR"),
    (&["-C", "-c", "--continue", "--continue-at"], "the same command resumes what was interrupted"),
    (&["-L", "--location"], "redirects are followed"),
    (&["-s", "--silent", "-S", "--show-error"], "use -q to print errors only"),
    (&["--limit-rate", "--max-download-limit", "--bwlimit"], "use --rate"),
    (&["--no-check-certificate"], "use -k"),
    (&["--ca-certificate"], "use --cacert"),
    (&["-x"], "use --proxy URL, or -j for the number of connections"),
    (&["--split", "--max-connection-per-server"], "use -j"),
    (&["-A", "--user-agent", "-U"], "use -H 'User-Agent: ...'"),
    (&["-b", "--cookie"], "use -H 'Cookie: ...'"),
    (&["--retry", "--tries", "--max-tries", "-t"], "use --retries"),
    (&["-n", "--no-clobber"], "no file is replaced without --force"),
    (&["--checksum"], "use --digest or --check"),
];

const PUT: &[Advice] = &[
    (&["-T", "--upload-file"], "name the file and the URL: put FILE URL"),
    (&["--force"], "a file is replaced unless -n is given"),
    (&["--limit-rate", "--bwlimit"], "use --rate"),
    (&["-s", "--silent", "-S", "--show-error"], "use -q to print errors only"),
    (&["--retry"], "use --retries"),
    (&["-X", "--request"], "the method is PUT"),
];

const CP: &[Advice] = &[
    (&["-A", "--acls", "-X", "--xattrs", "--hard-links"], "-a keeps these"),
    (&["-z", "--compress"], "nothing is compressed within a machine"),
    (&["-c", "--checksum"], "use --resume --verify to compare all bytes"),
    (&["--partial"], "use --resume"),
    (&["--ignore-existing"], "use -n"),
    (&["--delete-after", "--delete-before", "--delete-during"], "use --delete"),
    (&["--info", "--stats"], "use --progress, --explain or --json"),
    (&["--debug"], "use --explain"),
    (&["--copy-contents"], "name each FIFO or device as a source, without -r"),
    (&["-m", "--mode"], "use chmod(1) afterwards"),
];

const SERVE: &[Advice] = &[
    (&["--root", "--directory", "--dir"], "name the folder: serve DIR"),
    (&["--host", "--listen", "--addr", "--address"], "use --bind"),
    (&["--cors"], "use --enable-cors"),
    (&["--spa"], "use --render-spa"),
    (&["--cert"], "use --tls-cert"),
    (&["--key"], "use --tls-key"),
    (&["--readonly", "--read-only"], "writing is off without --allow-upload or --allow-delete"),
];
