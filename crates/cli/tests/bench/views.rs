//! Views of records by the real program: the same bytes each time, well-formed, and harmless
//! whatever a record says.

use std::fs;
use std::path::{Path, PathBuf};

use crate::rig::{folder, has, names, run, underpass};
use serde_json::{Value, json};
use underpass_testkit::Content;

/// A committed record.
fn committed(name: &str) -> String {
    format!("{}/../../bench/{name}.json", env!("CARGO_MANIFEST_DIR"))
}

/// All committed records, without the counts of the test rig.
fn all() -> Vec<String> {
    let folder = PathBuf::from(format!("{}/../../bench", env!("CARGO_MANIFEST_DIR")));
    let files = names(&folder).into_iter().filter(|name| !name.starts_with("rig-"));
    files.map(|name| committed(name.trim_end_matches(".json"))).collect()
}

fn record(name: &str) -> Value {
    serde_json::from_slice(&fs::read(committed(name)).unwrap()).unwrap()
}

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().unwrap().to_owned()
}

/// A record in a file of its own.
fn written(folder: &Path, name: &str, record: &Value) -> String {
    let path = path(folder, name);
    fs::write(&path, record.to_string()).unwrap();
    path
}

/// Writes every view of records into a folder.
fn views(folder: &Path, records: &[String]) {
    let (html, markdown) = (path(folder, "report.html"), path(folder, "report.md"));
    let charts = path(folder, "charts");
    let args = ["bench", "show", "--html", &html, "--markdown", &markdown, "--svg", &charts];
    let finished = run(args.into_iter().chain(records.iter().map(String::as_str))).succeeded();
    assert!(finished.stdout.is_empty(), "{}", finished.text());
}

/// Every file below a folder with its contents.
fn contents(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = underpass_testkit::tree(folder).into_iter();
    let files = entries.filter_map(|(path, entry)| match entry.content {
        Content::File(bytes) => Some((path.display().to_string(), bytes)),
        _ => None,
    });
    files.collect()
}

/// Whether every element of files is closed: SVG as XML, pages but for those that never are.
fn assert_well_formed(folder: &Path) {
    if !has("python3") {
        return;
    }
    let script = r"
import sys, os, xml.dom.minidom, html.parser
class Check(html.parser.HTMLParser):
    open = []
    ids = set()
    def handle_starttag(self, tag, attrs):
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), (tag, attrs)
        for name, value in attrs:
            assert not name.startswith('on'), (tag, attrs)
            if name == 'id':
                assert value not in self.ids, value
                self.ids.add(value)
        assert tag not in ('script', 'iframe', 'img', 'object', 'embed', 'base'), tag
        if tag not in ('meta', 'link', 'br'):
            self.open.append(tag)
    def handle_endtag(self, tag):
        assert self.open.pop() == tag, (tag, self.open)
for folder, _, files in os.walk(sys.argv[1]):
    for name in files:
        text = open(os.path.join(folder, name), encoding='utf-8').read()
        if name.endswith('.svg'):
            drawing = xml.dom.minidom.parseString(text).documentElement
            assert drawing.getElementsByTagName('title') and drawing.getElementsByTagName('desc')
            assert not drawing.getElementsByTagName('script')
        if name.endswith('.html'):
            check = Check()
            check.feed(text)
            check.close()
            assert check.open == [], check.open
            assert len(check.ids) > 3
";
    let mut python = std::process::Command::new("python3");
    let output = python.args(["-c", script]).arg(folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn every_committed_record_has_all_views_and_each_is_the_same_every_time() {
    let (one, other) = (folder(), folder());
    views(one.path(), &all());
    views(other.path(), &all());
    let (one_files, other_files) = (contents(one.path()), contents(other.path()));
    assert!(one_files.len() > 60, "{}", one_files.len());
    assert!(one_files == other_files, "two views of the same records differ");
    assert_well_formed(one.path());
    let page = fs::read_to_string(path(one.path(), "report.html")).unwrap();
    for words in ["bench net", "bench serve fairness", "Caveats", "viewport"] {
        assert!(page.contains(words), "{words}");
    }
    for wrong in ["NaN", ">inf", "http-equiv", "url(http"] {
        assert!(!page.contains(wrong), "{wrong}");
    }
}

#[test]
fn no_text_of_a_record_becomes_markup_of_a_view() {
    let folder = folder();
    let hostile = "\"><script>alert(1)</script>&amp;<svg/onload=x>' \u{1b}[31m\u{7}\u{202e}|`*";
    let mut record = record("get");
    for name in ["kernel", "machine", "cpu", "source_file_system", "target_file_system"] {
        record["environment"][name] = json!(hostile);
    }
    record["environment"]["programs"] = json!([hostile]);
    record["underpass"] = json!(hostile);
    record["started"] = json!(hostile);
    record["cells"][0]["declined"] = json!(hostile);
    record["missing"] = json!([{ "name": hostile, "why": hostile }]);
    record["arguments"]["transfers"]["commands"][0]["client"] = json!(hostile);
    let name = written(folder.path(), "<b>&\" name.json", &record);
    views(folder.path(), std::slice::from_ref(&name));
    fs::remove_file(&name).unwrap();
    assert_well_formed(folder.path());
    for (name, bytes) in contents(folder.path()) {
        let text = String::from_utf8(bytes).unwrap();
        for wild in ["<script", "<svg/", "\u{1b}", "\u{7}", "\u{202e}"] {
            assert!(!text.contains(wild), "{wild:?} in {name}");
        }
    }
    let name = written(folder.path(), "record.json", &record);
    let shown = run(["bench", "show", &name]).succeeded().text();
    assert!(!shown.contains('\u{1b}') && !shown.contains('\u{202e}'), "{shown}");
}

#[test]
fn invalid_records_never_cause_a_panic() {
    let folder = folder();
    type Spoil = fn(&mut Value);
    let cases: [Spoil; 8] = [
        |record| record["samples"] = json!([]),
        |record| {
            record["samples"] = json!([]);
            record["cells"] = json!([]);
        },
        |record| record["samples"][0]["wall_s"] = json!(1e308),
        |record| record["samples"][0]["wall_s"] = json!(-5.0),
        |record| record["samples"][0]["wall_s"] = json!(0.0),
        |record| record["cells"][0]["size"] = json!(u64::MAX),
        |record| record["cells"][0]["size"] = json!(0),
        |record| record["samples"][0]["measured"]["thread"]["calls"] = json!(u64::MAX),
    ];
    for (index, spoil) in cases.iter().enumerate() {
        for name in ["net", "chain", "serve", "tree"] {
            let mut record = record(name);
            spoil(&mut record);
            let name = written(folder.path(), &format!("{name}-{index}.json"), &record);
            let place = folder.path().join("views");
            fs::create_dir_all(&place).unwrap();
            let finished = run([
                "bench",
                "show",
                &name,
                "--html",
                &path(&place, "a.html"),
                "--svg",
                &path(&place, "svg"),
            ]);
            assert!(matches!(finished.code(), Some(0 | 1)), "{name}: {}", finished.stderr);
            assert!(!finished.stderr.contains("panicked"), "{name}: {}", finished.stderr);
        }
    }
    assert_well_formed(folder.path());
}

#[test]
fn bars_follow_the_width_and_character_set_of_the_terminal() {
    let net = committed("net");
    let shown = |locale: &str, args: &[&str]| {
        let mut command = underpass();
        command.env("LC_ALL", locale).args(["bench", "show", &net]).args(args);
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    assert!(shown("C.UTF-8", &[]).contains('█'));
    assert!(shown("C", &[]).is_ascii());
    assert!(shown("C.UTF-8", &["--ascii"]).is_ascii());
    assert!(!shown("C.UTF-8", &[]).contains('\x1b'), "colours where no terminal is");
    assert_eq!(shown("C", &[]), shown("C.UTF-8", &["--ascii"]));
}

#[test]
fn a_record_does_not_differ_from_itself_and_one_that_got_slower_ends_with_3() {
    let folder = folder();
    for record in all() {
        let same = run(["bench", "compare", &record, &record]).succeeded().text();
        assert!(same.contains("0 worse, 0 better") || same.contains("few"), "{record}: {same}");
    }
    let get = committed("get");
    let mut slower = record("get");
    for sample in slower["samples"].as_array_mut().unwrap() {
        if sample["cell"] == 3 {
            sample["wall_s"] = json!(sample["wall_s"].as_f64().unwrap() * 5.0);
        }
    }
    slower["environment"]["kernel"] = json!("7.0.0");
    slower["cells"][1]["size"] = json!(4096);
    let slower = written(folder.path(), "slower.json", &slower);
    let finished = run(["bench", "compare", &get, &slower]).failed(3, &["1 of ", "got worse"]);
    for words in [
        "WORSE",
        "the kernel was another one",
        "Only in the old one: 10K wget",
        "Only in the new one: 4K wget",
    ] {
        assert!(finished.text().contains(words), "{words}: {}", finished.text());
    }
    let better = run(["bench", "compare", &slower, &get]).succeeded().text();
    assert!(better.contains("better"), "{better}");
    let relative = run(["bench", "compare", "--relative", &get, &slower]);
    assert_eq!(relative.code(), Some(3), "{}", relative.text());
    let lenient = run(["bench", "compare", "--margin", "1000", &get, &slower]);
    assert_eq!(lenient.code(), Some(0), "{}", lenient.text());
}

#[test]
fn unusable_records_fail_with_one_clear_line() {
    let folder = folder();
    let (get, net) = (committed("get"), committed("net"));
    let mut newer = record("get");
    newer["schema"] = json!(99);
    let newer = written(folder.path(), "newer.json", &newer);
    let text = fs::read(&get).unwrap();
    let cut = path(folder.path(), "cut.json");
    fs::write(&cut, &text[..text.len() / 2]).unwrap();
    fs::create_dir(folder.path().join("twin")).unwrap();
    let twin = path(folder.path(), "twin/get.json");
    fs::copy(&get, &twin).unwrap();
    let svg = path(folder.path(), "svg");
    for (args, code, words) in [
        (&["show", &newer][..], 1, &["newer.json", "schema 99", "newer underpass"][..]),
        (&["show", &cut], 1, &["cut.json", "not a record"]),
        (&["compare", &get, &net], 1, &["bench get", "bench net"]),
        (&["compare", &get, &cut], 1, &["cut.json", "not a record"]),
        (&["compare", &get], 2, &["NEW"]),
        (&["compare", "--margin", "many", &get, &get], 2, &["percent"]),
        (&["show"], 2, &["RECORD"]),
        (&["show", "--html", "-", "--markdown", "-", &get], 2, &["standard output"]),
        (&["show", "--html", "/nowhere/a", &get], 1, &["/nowhere/a", "No such file"]),
        (&["show", "--svg", "/dev/null/a", &get], 1, &["/dev/null/a"]),
        (&["show", "--svg", &svg, &get, &twin], 2, &["get-time.svg"]),
    ] {
        let finished = run(["bench"].iter().chain(args)).failed(code, words);
        assert_eq!(finished.stderr.lines().count(), 1, "{}", finished.stderr);
    }
}

#[test]
fn a_record_is_not_replaced_by_its_own_views() {
    let folder = folder();
    let text = record("net").to_string();
    let path = written(folder.path(), "net.json", &record("net"));
    std::os::unix::fs::symlink(&path, folder.path().join("link")).unwrap();
    let link = folder.path().join("link").to_str().unwrap().to_owned();
    for (option, target) in [("--html", &path), ("--markdown", &path), ("--html", &link)] {
        run(["bench", "show", &path, option, target]).failed(2, &["is a record"]);
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
}
