//! Tests of the drawings and texts of records.

use super::records::{SCENARIOS, chain_record, record};
use crate::record::{Counted, NamedCall, Rank, Role};
use crate::views::{Screen, Table, calls, charts, draw, figures, markdown, text};

const PLAIN: Screen = Screen { width: 80, is_unicode: true, has_colors: false };

/// Compares a view with its snapshot; `UNDERPASS_SNAPSHOTS=write` writes a new one.
#[track_caller]
fn assert_kept(name: &str, text: &str) {
    let path = format!("{}/src/tests/snapshots/{name}", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UNDERPASS_SNAPSHOTS").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(path).unwrap(), "{name}");
}

#[test]
fn the_same_record_gives_the_same_views_byte_for_byte() {
    let small_files = chain_record(&[8 << 10, 16 << 10, 32 << 10], &[1.5, 1.25, 0.75]);
    for scenario in SCENARIOS {
        assert_kept(&format!("{scenario}.txt"), &text(&record(scenario), PLAIN));
    }
    assert_kept("chain.txt", &text(&small_files, PLAIN));
    let ascii = Screen { is_unicode: false, ..PLAIN };
    assert_kept("chain_ascii.txt", &text(&small_files, ascii));
    assert_kept("net.md", &markdown(&[("net".to_owned(), record("net"))]));
    for (name, record) in [("time", &record("net")), ("cpu", &small_files)] {
        let charts = charts("r", record);
        let chart = charts.into_iter().find(|(file, _)| *file == format!("r-{name}.svg"));
        assert_kept(&format!("{name}.svg"), &chart.unwrap().1);
    }
}

#[test]
fn a_cell_without_samples_does_not_count_as_declined() {
    let mut record = record("net");
    record.samples.retain(|sample| sample.cell != 1);
    let shown = text(&record, PLAIN);
    let label = record.cells[1].variant.to_string();
    let lines: Vec<_> =
        shown.lines().filter(|line| line.starts_with(&format!("  {label}"))).collect();
    assert!(lines.iter().any(|line| line.contains("not counted")), "{shown}");
    assert!(!lines.iter().any(|line| line.contains("declined")), "{shown}");
}

#[test]
fn a_record_without_nginx_has_a_table_without_ratios() {
    let mut record = record("serve");
    record.environment.nginx = None;
    record.samples.retain(|sample| sample.cell % 2 == 1);
    for sample in &mut record.samples {
        sample.cell /= 2;
    }
    record.cells.retain(|cell| cell.variant != record.baseline);
    let text = figures(&record);
    assert!(text.contains("nginx is not installed"), "{text}");
    assert!(!text.contains("0.50x"), "{text}");
}

#[test]
fn a_record_of_peers_alone_compares_nothing_of_ours() {
    let mut record = record("get");
    let ours = record.cells.len() - 1;
    record.cells.pop();
    record.samples.retain(|sample| sample.cell != ours);
    let text = figures(&record);
    assert!(!text.contains("Ratio of ours"), "{text}");
}

#[test]
fn bars_are_as_wide_as_the_terminal_and_no_wider() {
    for width in [0, 40, 60, 80, 200] {
        let text = text(&record("net"), Screen { width, ..PLAIN });
        let widest =
            text.lines().filter(|line| line.contains('█')).map(|line| line.chars().count());
        let widest = widest.max().unwrap_or(0);
        assert!(widest <= width.max(60), "{width}: {widest}");
        assert!(width < 60 || widest >= width - 1, "{width}: {widest}");
    }
}

#[test]
fn ascii_is_ascii_and_colors_come_only_where_they_are_wanted() {
    let ascii = text(&record("net"), Screen { is_unicode: false, ..PLAIN });
    assert!(ascii.is_ascii(), "{ascii}");
    assert!(!text(&record("net"), PLAIN).contains('\x1b'));
    assert!(text(&record("net"), Screen { has_colors: true, ..PLAIN }).contains("\x1b["));
}

#[test]
fn columns_are_as_wide_as_their_widest_cell() {
    let cell = |text: &str| [text.to_owned(), String::new()];
    let headings = ["a", "b"].map(str::to_owned).to_vec();
    let lines = vec![vec![cell("one"), cell("1")], vec![cell(""), cell("1000")]];
    let table = Table { headings, lines, words: 1, ..Table::default() };
    assert_eq!(draw(&table), "a        b\none      1\n      1000\n");
}

#[test]
fn the_slowest_contenders_at_the_largest_size_are_named() {
    let mut record = record("net");
    record.cells[0].size = 1 << 10;
    assert!(calls(&record).is_none());
    let call =
        |name: &str, calls, seconds| NamedCall { name: name.to_owned(), calls, errors: 1, seconds };
    let of = |cell, role, calls| Counted::new(role, calls).of(cell);
    let sizes: Vec<_> = record.cells.iter().map(|cell| cell.size).collect();
    let largest = (0..sizes.len()).max_by_key(|cell| sizes[*cell]).unwrap_or(0);
    let smallest = (0..sizes.len()).min_by_key(|cell| sizes[*cell]).unwrap_or(0);
    assert_ne!(sizes[largest], sizes[smallest]);
    let many = vec![
        call("close", 2, 0.0),
        call("futex", 9, 9.0),
        call("read", 4, 0.001),
        call("write", 8, 0.003),
        call("brk", 1, 0.0),
        call("x", 1, 0.0),
    ];
    record.counted = vec![
        of(smallest, Role::Sender, vec![call("mmap", 1, 1.0)]),
        of(largest, Role::Sender, many),
        of(largest, Role::Receiver, vec![call("recv", 1, 0.5)]),
    ];
    let table = calls(&record).unwrap_or_default();
    let text = |line: &Vec<[String; 2]>| {
        line.iter().map(|cell| cell[0].clone()).collect::<Vec<_>>().join(" ")
    };
    let lines: Vec<_> = table.lines.iter().map(text).collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines[0].ends_with("sender write 8 1 3.00 375 75.0 %"), "{lines:?}");
    assert!(lines[1].ends_with("read 4 1 1.00 250 25.0 %"), "{lines:?}");
    assert!(lines[2].ends_with("receiver recv 1 1 500 500000 100.0 %"), "{lines:?}");
}

#[test]
fn calls_of_a_server_are_attributed_to_its_responses() {
    let mut record = record("serve");
    let largest = (0..record.cells.len()).max_by_key(|cell| record.cells[*cell].size);
    let cell = largest.unwrap_or(0);
    let sendfile = NamedCall { name: "sendfile".to_owned(), calls: 10, errors: 0, seconds: 0.01 };
    let bytes = record.cells[cell].size * 4;
    record.counted = vec![Counted::while_serving(vec![sendfile], bytes).of(cell)];
    let table = calls(&record).unwrap_or_default();
    assert_eq!(table.headings[1..4], ["call", "calls", "each response"]);
    assert_eq!(table.lines[0][1..4].concat(), ["sendfile", "", "10", "", "2.50", ""]);
    // The chart shows the same, including calls that only wait.
    let metric = record.metrics(Rank::Chart).into_iter().find(|metric| metric.name == "calls");
    let sample = record.samples_of(cell).next();
    let value = metric.zip(sample).and_then(|(metric, sample)| metric.value(&record, sample));
    assert_eq!(value, Some(2.5));
    let heading = metric.map(|metric| metric.heading(&record));
    assert_eq!(heading.as_deref(), Some("System calls of the server for each response"));
}
