//! Programs that find their files by the links of a folder's page.

use std::fs;
use std::path::PathBuf;

use sha2::{Digest, Sha256};

use crate::rig::{Finished, folder, has, noise};
use crate::site::{Site, assert_same};

/// A Python with the packages that `scripts/test-peers` installs, if there is one.
pub(crate) fn python() -> Option<String> {
    // The test's own path is `target/PROFILE/deps/NAME`.
    let own = std::env::current_exe().unwrap();
    let target = own.ancestors().nth(3).map(PathBuf::from).unwrap();
    let python = target.join("python/bin/python3").to_str().unwrap().to_owned();
    has(&python).then_some(python)
}

/// Runs a script of Python, to which `BASE` is the address of the site.
pub(crate) fn run(site: &Site, python: &str, script: &str) -> Finished {
    let script = format!("BASE = {:?}\n{script}", site.url(""));
    let mut command = site.peer(python, &["-c", &script]);
    for name in ["HF_HOME", "XDG_CACHE_HOME"] {
        command.env(name, site.target("cache"));
    }
    // They would ask for newer versions of themselves, and count their users.
    command.env("HF_HUB_DISABLE_TELEMETRY", "1").env("HF_UPDATE_DOWNLOAD_COUNTS", "0");
    command.env("NO_PROXY", "*");
    crate::rig::Running::start(command).finish()
}

/// Tables within folders within folders, and names that have to be encoded.
fn tables(args: &[&str]) -> Option<(Site, String)> {
    let python = python()?;
    let site = Site::new(&[], args)?;
    fs::create_dir_all(site.source("years/2025/spring time")).unwrap();
    fs::create_dir(site.source("empty")).unwrap();
    for (name, rows) in [
        ("part-1.csv", 1),
        ("part-2.csv", 2),
        ("years/part-3.csv", 3),
        ("years/2025/part-4.csv", 4),
        ("years/2025/spring time/a:b #5.csv", 5),
    ] {
        let rows: String = (0..rows).map(|row| format!("{row},x\n")).collect();
        fs::write(site.source(name), format!("number,text\n{rows}")).unwrap();
    }
    fs::write(site.source("notes.txt"), "notes").unwrap();
    Some((site, python))
}

#[test]
fn fsspec_lists_finds_and_matches_on_both_kinds_of_page() {
    let Some((site, python)) = tables(&[]) else { return };
    let script = "
import fsspec
for fields in [{}, {'Accept': 'text/html'}]:
    fs = fsspec.filesystem('http', client_kwargs={'headers': fields}, skip_instance_cache=True)
    short = lambda names: sorted(name.removeprefix(BASE) for name in names)
    print(short(fs.ls(BASE, detail=False)))
    print(short(fs.ls(BASE + 'years/2025/', detail=False)))
    print(short(fs.glob(BASE + '*.csv')))
    print(short(fs.glob(BASE + '**/part-*.csv')))
    print(short(fs.find(BASE)))
    print(len(fs.cat(fs.find(BASE))), fs.info(BASE + 'notes.txt')['size'])
";
    let found = run(&site, &python, script).succeeded().text();
    let deep = "years/2025/spring%20time/";
    let expected = [
        "['empty/', 'notes.txt', 'part-1.csv', 'part-2.csv', 'years/']".to_owned(),
        format!("['years/2025/part-4.csv', '{deep}']"),
        "['part-1.csv', 'part-2.csv']".to_owned(),
        "['part-1.csv', 'part-2.csv', 'years/2025/part-4.csv', 'years/part-3.csv']".to_owned(),
        format!(
            "['notes.txt', 'part-1.csv', 'part-2.csv', 'years/2025/part-4.csv', \
             '{deep}a%3Ab%20%235.csv', 'years/part-3.csv']"
        ),
        "6 5".to_owned(),
    ];
    let lines: Vec<_> = found.lines().collect();
    assert_eq!(lines, [&expected[..], &expected[..]].concat(), "{found}");
}

#[test]
fn pandas_dask_and_datasets_read_tables_by_name_and_by_pattern() {
    let Some((site, python)) = tables(&[]) else { return };
    let script = "
import pandas, dask.dataframe, datasets
print(len(pandas.read_csv(BASE + 'years/part-3.csv')))
print(len(dask.dataframe.read_csv(BASE + 'part-*.csv')))
print(len(dask.dataframe.read_csv(BASE + 'years/**/*.csv')))
loaded = datasets.load_dataset('csv', data_files=BASE + 'part-*.csv', split='train')
print(loaded.num_rows, loaded.column_names)
";
    let found = run(&site, &python, script).succeeded().text();
    assert_eq!(found, "3\n3\n12\n3 ['number', 'text']\n");
}

#[test]
fn lftp_shows_sizes_and_times() {
    let Some(site) = Site::new(&["lftp"], &[]) else { return };
    fs::create_dir(site.source("folder")).unwrap();
    let long = "long".repeat(20);
    for (name, len) in [("small", 7), ("large", 5_000_000_000), (long.as_str(), 12)] {
        let file = fs::File::create(site.source(name)).unwrap();
        file.set_len(len).unwrap();
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000);
        file.set_modified(time).unwrap();
    }
    let listed = site.fetch("lftp", &["-c", &format!("open {}; ls", site.url(""))]);
    let listed = listed.succeeded().text();
    let fields = |name: &str| {
        let line = listed.lines().find(|line| line.trim_end_matches('/').ends_with(name));
        line.unwrap_or_else(|| panic!("{name}: {listed}")).split_whitespace().collect::<Vec<_>>()
    };
    for (name, len) in [("small", "7"), ("large", "5000000000"), (long.as_str(), "12")] {
        let fields = fields(name);
        assert!(fields.contains(&len) && fields.contains(&"2023-11-14"), "{fields:?}");
    }
    assert!(fields("folder")[0].starts_with('d'), "{listed}");
}

#[test]
fn apt_reads_a_repository_of_packages() {
    let Some(site) = Site::new(&["apt-get", "dpkg-deb"], &[]) else { return };
    let package = folder();
    fs::create_dir_all(package.path().join("DEBIAN")).unwrap();
    let control = "Package: hello\nVersion: 1.0\nArchitecture: all\nDescription: a test\n\
                   Maintainer: Nobody <nobody@example.org>\n";
    fs::write(package.path().join("DEBIAN/control"), control).unwrap();
    fs::write(package.path().join("data"), noise(1 << 20)).unwrap();
    let (folder, file) = (package.path().to_str().unwrap(), site.source("hello_1.0.deb"));
    site.fetch("dpkg-deb", &["--build", folder, file.to_str().unwrap()]).succeeded();
    let bytes = fs::read(&file).unwrap();
    let digest: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    let index = format!("Filename: ./hello_1.0.deb\nSize: {}\nSHA256: {digest}\n", bytes.len());
    fs::write(site.source("Packages"), format!("{control}{index}")).unwrap();

    for needed in ["etc", "lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(site.target(needed)).unwrap();
    }
    fs::write(site.target("status"), "").unwrap();
    fs::write(site.target("etc/sources.list"), format!("deb [trusted=yes] {} ./\n", site.url("")))
        .unwrap();
    let set = |name: &str, path: &str| format!("{name}={}", site.target(path).display());
    let settings = [
        set("Dir", ""),
        set("Dir::Etc", "etc"),
        set("Dir::State", ""),
        set("Dir::State::lists", "lists"),
        set("Dir::State::status", "status"),
        set("Dir::Cache", "cache"),
        "APT::Sandbox::User=root".to_owned(),
        "Acquire::Languages=none".to_owned(),
        "Acquire::http::Proxy=DIRECT".to_owned(),
    ];
    let apt = |words: &[&str]| {
        let options = settings.iter().flat_map(|setting| ["-o", setting]);
        site.fetch("apt-get", &options.chain(words.iter().copied()).collect::<Vec<_>>()).succeeded()
    };
    apt(&["update"]);
    apt(&["download", "hello"]);
    assert_same(&site.target("hello_1.0_all.deb"), &file);
}
