//! The scale bench measures every point with every server, and the server's memory.

use crate::rig::{bench, folder, has};
use serde_json::Value;

/// Connections and size of each cell.
fn points(record: &Value) -> Vec<(u64, u64)> {
    let number = |cell: &Value, name: &str| cell[name].as_u64().unwrap();
    let cells = record["cells"].as_array().unwrap().iter();
    cells.map(|cell| (number(cell, "connections"), number(cell, "size"))).collect()
}

#[track_caller]
fn check(record: &Value, server: &str) {
    // A point in both lists is measured once; a sparse file is complete and correct, too.
    let expected = [(1, 65_536), (20, 65_536), (2, 1024), (2, 65_536), (2, 2 << 20)];
    assert_eq!(points(record), expected);
    assert_eq!(record["arguments"]["serve"]["sparse_from"], 1 << 20);
    assert!(record["environment"]["congestion"].is_string());
    let cells = record["cells"].as_array().unwrap();
    assert_eq!(cells[0]["sha256"], cells[3]["sha256"]);
    assert!(cells.iter().all(|cell| cell["way"] == server && cell["sha256"].is_string()));
    let samples = record["samples"].as_array().unwrap();
    assert_eq!(samples.len(), 2 * expected.len());
    for sample in samples {
        let found = &sample["served"]["scale"];
        let cell = &cells[sample["cell"].as_u64().unwrap() as usize];
        assert_eq!(found["load"]["connections"], cell["connections"]);
        assert!(found["load"]["bytes"].as_u64().unwrap() > 0, "{found}");
        for moment in ["start", "busy"] {
            assert!(found[moment]["resident_bytes"].as_u64().unwrap() > 1 << 20, "{found}");
        }
        assert!(sample["measured"]["process"]["cpu_s"].as_f64().unwrap() > 0.0, "{sample}");
    }
    // All points have their turn before any has its second one.
    let rounds: Vec<_> = samples.iter().map(|sample| sample["round"].as_u64().unwrap()).collect();
    assert!(rounds.is_sorted(), "{rounds:?}");
}

#[test]
fn scale_measures_its_points_in_turn() {
    for server in ["underpass", "nginx"] {
        if server == "nginx" && !has("nginx") {
            continue;
        }
        let folder = folder();
        let args = ["scale", "--server", server, "--connections", "1,20", "--size", "64K"];
        let more = ["--sizes", "1K,64K,2M", "--at", "2", "--seconds", "0.2", "--runs", "2"];
        let more = [&more[..], &["--sparse-from", "1M"]].concat();
        let (finished, record) = bench(folder.path(), &[&args[..], &more].concat());
        check(&record, server);
        for words in ["CPU for each GiB", "from 1M on are sparse"] {
            assert!(finished.text().contains(words), "{words}");
        }
    }
}
