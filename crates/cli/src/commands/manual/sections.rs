//! The sections of the manual pages besides the options: examples, exit status and files.

/// Terms with their meanings.
type ManualEntries = &'static [(&'static str, &'static str)];

/// Returns the sections of a page that clap cannot generate: examples with their purposes, exit
/// statuses, files.
pub(super) fn sections(page: &str) -> (ManualEntries, ManualEntries, ManualEntries) {
    match page {
        "underpass" => (PROGRAM, TRANSFER, PROGRAM_FILES),
        "underpass-serve" => (SERVE, SERVER, SERVE_FILES),
        "underpass-share" => (SHARE, SHARED, SHARE_FILES),
        "underpass-get" => (GET, TRANSFER, GET_FILES),
        "underpass-put" => (PUT, TRANSFER, PUT_FILES),
        "underpass-send" => (SEND, TRANSFER, SEND_FILES),
        "underpass-recv" => (RECV, TRANSFER, RECV_FILES),
        "underpass-cp" => (CP, COPY, CP_FILES),
        "underpass-fill" => (FILL, FILLED, FILL_FILES),
        "underpass-doctor" => (DOCTOR, FINDINGS, DOCTOR_FILES),
        "underpass-explain" => (EXPLAIN, TRACED, EXPLAIN_FILES),
        "underpass-bench" => (BENCH, BENCHES, BENCH_FILES),
        "underpass-bench-compare" => (&[], COMPARED, &[]),
        _ => (&[], BENCHED, &[]),
    }
}

const PROGRAM: ManualEntries = &[
    ("Serve this folder to this machine:", "underpass serve"),
    (
        "Fetch a file, or continue an interrupted download:",
        "underpass get http://host:5000/disk.img",
    ),
    ("Copy a file by the fastest way that the kernel offers:", "underpass cp disk.img /backup/"),
    ("Print completions for bash:", "underpass --completions bash"),
];

const SHARE: ManualEntries = &[
    ("Share a file for one download:", "underpass share film.mkv"),
    ("Share it for an hour:", "underpass share --for 1h film.mkv"),
    ("Receive files from a phone:", "underpass share --upload --times 20 --for 10m Pictures"),
];

const SHARED: ManualEntries = &[
    ("0", "The share was downloaded completely, or files were received, as often as requested."),
    ("1", "It timed out or was interrupted before that, or serving failed."),
    ("2", "The command line was wrong."),
];

const SERVE: ManualEntries = &[
    ("Serve a folder to this machine:", "underpass serve /srv/files"),
    (
        "Serve it to the network, with a password:",
        "underpass serve --bind 0.0.0.0 --auth me:secret@/ /srv/files",
    ),
    (
        "Let everyone read and one user write:",
        "underpass serve -A -a @/ -a me:secret@/:rw /srv/files",
    ),
    (
        "Use HTTPS with a certificate made at the start:",
        "underpass serve --bind 0.0.0.0 --tls self /srv/files",
    ),
    (
        "Take the options from a file, as the unit for systemd does:",
        "underpass serve --config /etc/underpass/underpass.toml",
    ),
];

const GET: ManualEntries = &[
    ("Fetch a file, or continue an interrupted download:", "underpass get http://host/disk.img"),
    (
        "Fetch over four connections and check the digest:",
        "underpass get -j 4 -o disk.img https://host/disk.img --digest \
         sha-256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    ),
    (
        "Fetch a folder into the folder named here:",
        "underpass get -r http://host:5000/folder/ -d here",
    ),
    (
        "Fetch the files on a list and check their digests:",
        "underpass get -i list --check https://host/SHA256SUMS -d here",
    ),
    (
        "Mirror a folder, and remove what is gone on the server:",
        "underpass get -r --update --delete http://host/folder/ -d here",
    ),
];

const PUT: ManualEntries = &[
    ("Upload a file into a folder:", "underpass put disk.img http://host:5000/inbox/"),
    ("Upload a folder:", "underpass put -r photos https://host/inbox/"),
    ("Upload only what has changed in it:", "underpass put -r --update photos https://host/inbox/"),
    ("Upload standard input:", "tar -c folder | underpass put - http://host:5000/inbox/folder.tar"),
];

const SEND: ManualEntries = &[
    ("Send a file to a receiver that waits:", "underpass send disk.img host:9000"),
    ("Send standard input:", "underpass send - host:9000"),
    ("Show how the bytes moved:", "underpass send --explain disk.img host:9000"),
];

const RECV: ManualEntries = &[
    ("Wait for a sender and write a file:", "underpass recv --listen :9000 disk.img"),
    ("Write to standard output:", "underpass recv --listen :9000"),
];

const CP: ManualEntries = &[
    ("Copy a file into a folder:", "underpass cp disk.img /mnt/"),
    ("Copy a tree with all its metadata:", "underpass cp -a src /backup/"),
    ("Continue an interrupted copy:", "underpass cp -a --resume src /backup/"),
    (
        "Copy to a removable disk and read everything back:",
        "underpass cp -a --verify=direct --sync photos /media/disk/",
    ),
    (
        "Replace files and keep the old ones, with numbers:",
        "underpass cp --backup=numbered a.conf /etc/",
    ),
    ("Make a folder a mirror of another one:", "underpass cp -aT --delete src /backup/src"),
    ("Make a tree of hard links:", "underpass cp -al photos photos-selected"),
];

const FILL: ManualEntries = &[
    (
        "Prefetch the popular files of another node at night:",
        "underpass fill --node http://cache2:5000 --manifest popular --rate 150M --between 02:00-06:00",
    ),
    (
        "Fetch one file:",
        "echo /disk.img | underpass fill --node http://localhost:5000 --manifest - -q",
    ),
];

const FILLED: ManualEntries = &[
    ("0", "The node has everything on the list."),
    ("1", "Something could not be fetched; a line for each says why."),
    ("2", "The command line or the list was wrong, and nothing was done."),
];

const DOCTOR: ManualEntries = &[
    ("Report what this machine allows:", "underpass doctor"),
    ("Examine a copy from one place to another:", "underpass doctor --from disk.img --to /backup"),
];

const EXPLAIN: ManualEntries =
    &[("Report how another program moves bytes:", "underpass explain -- cp disk.img /backup/")];

const BENCH: ManualEntries = &[
    ("Compare the mechanisms from a file to a socket:", "underpass bench net"),
    ("Show a record:", "underpass bench show bench/net.json"),
];

const TRANSFER: ManualEntries = &[
    ("0", "Everything was transferred."),
    ("1", "The transfer failed; a one-line message says why."),
    ("2", "The command line was wrong, and nothing was done."),
];

const COPY: ManualEntries = &[
    ("0", "Everything was copied."),
    ("1", "Something was not copied; there is a one-line message for each."),
    ("2", "The command line was wrong, and nothing was done."),
];

const SERVER: ManualEntries = &[
    ("0", "The server was stopped by SIGTERM, SIGINT or SIGQUIT, even if transfers were cut off."),
    ("1", "The server could not start, or failed."),
    ("2", "An option is wrong, on the command line, in the environment or in the configuration."),
];

const FINDINGS: ManualEntries = &[
    ("0", "No finding is marked closed."),
    ("1", "The ends could not be examined."),
    ("2", "The command line was wrong, and nothing was done."),
    (
        "3",
        "A finding is marked closed: something is unavailable that transfers need. It says what to do.",
    ),
];

const TRACED: ManualEntries = &[
    ("N", "The status of the program that was run, or 128 plus the number of its signal."),
    ("1", "The program cannot be traced."),
    ("2", "The command line was wrong, and nothing was run."),
    ("126", "The program cannot be executed."),
    ("127", "The program does not exist."),
];

/// Exit statuses of the bench, of which only `compare` has the last.
const BENCHES: ManualEntries = &[
    ("0", "Everything was measured."),
    ("1", "A measurement failed, or a record cannot be read."),
    ("2", "The command line was wrong, and nothing was done."),
    ("3", "compare: something got worse by more than the noise."),
];

const BENCHED: ManualEntries = BENCHES.split_at(3).0;

const COMPARED: ManualEntries = &[
    ("0", "Nothing got worse."),
    ("1", "A record cannot be read."),
    ("2", "The command line was wrong, and nothing was done."),
    ("3", "Something got worse."),
];

const SERVE_FILES: ManualEntries = &[
    ("/etc/underpass/underpass.toml", "The options of underpass.service, by their long names."),
    ("/etc/underpass/NAME.toml", "The options of underpass@NAME.service."),
    ("/var/log/underpass/", "The access log of the unit (log-file)."),
    ("/run/underpass/", "The Unix socket of the unit (bind)."),
    ("/var/lib/underpass/", "The folder that the packages serve until the configuration changes."),
    ("/var/lib/underpass-keys/", "The account and certificates of --acme, for the unit."),
    (
        "$XDG_STATE_HOME/underpass/acme/",
        "The same for other users; ~/.local/state/underpass/acme/ by default.",
    ),
];

const GET_FILES: ManualEntries = &[
    ("FILE.part", "An incomplete download."),
    ("FILE.part.journal", "The version and ranges that FILE.part contains, used to resume."),
    ("~/.netrc", "Users and passwords by host; NETRC and --netrc-file name another file."),
];

const PUT_FILES: ManualEntries = &[
    (
        "$XDG_STATE_HOME/underpass/uploads/",
        "Journals of unfinished uploads; ~/.local/state/underpass/uploads/ by default.",
    ),
    ("~/.netrc", "Users and passwords by host; NETRC and --netrc-file name another file."),
];

const RECV_FILES: ManualEntries =
    &[(".NAME.NUMBER.part", "A file that is being received, on file systems without O_TMPFILE.")];

const CP_FILES: ManualEntries = &[
    (".NAME.NUMBER.part", "A new file or folder until it is complete."),
    (".unfinished.NUMBER.part", "Marks a tree whose copy is not complete, for --resume."),
];

const PROGRAM_FILES: ManualEntries = &[
    ("/etc/underpass/", "The configuration of the units for systemd; see underpass-serve(1)."),
    ("~/.netrc", "Users and passwords by host, for requests."),
    (
        "$XDG_STATE_HOME/underpass/",
        "State kept between runs; ~/.local/state/underpass/ by default.",
    ),
];

const SHARE_FILES: ManualEntries = &[(
    "/dev/urandom",
    "The source of the secret part of the URL. Nothing is kept; uploads are written as by underpass-serve(1).",
)];

const SEND_FILES: ManualEntries = &[(
    "/etc/ssl/certs/",
    "The authorities that --tls trusts; SSL_CERT_FILE, --cacert and --pin name others.",
)];

const FILL_FILES: ManualEntries =
    &[("~/.netrc", "Users and passwords by host; NETRC and --netrc-file name another file.")];

const DOCTOR_FILES: ManualEntries = &[
    (
        ".underpass-doctor.NUMBER.part",
        "A file in the folder of --to or --cache that has this name for a moment.",
    ),
    ("/proc, /sys", "Read to examine the kernel."),
];

const EXPLAIN_FILES: ManualEntries = &[(
    "/proc/sys/kernel/yama/ptrace_scope",
    "Which users may trace programs: only root if it is 2, none if it is 3.",
)];

const BENCH_FILES: ManualEntries =
    &[("bench/*.json", "The records of the project, which show and compare read.")];
