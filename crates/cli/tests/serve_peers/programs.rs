//! Programs that find their files by the links of a folder's page.

use std::fs;
use std::path::PathBuf;

use crate::rig::{Finished, has};
use crate::site::Site;

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
