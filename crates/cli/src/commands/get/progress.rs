//! The progress of a download.

use underpass_client::download::Gauge;
use underpass_client::tree::TreeGauge;

use crate::output::{ProgressPosition, counted};

/// Returns the progress of a file.
pub(super) fn file(gauge: &Gauge) -> ProgressPosition {
    let note = match (gauge.is_checking(), gauge.connections()) {
        (true, _) => "computing the digest".to_owned(),
        (false, count) => counted(count.into(), "connection", "connections"),
    };
    // In this order, because the count before a round of requests is stored before the present one.
    let (bytes, before) = (gauge.done(), gauge.before());
    ProgressPosition {
        bytes,
        before,
        total: gauge.total(),
        note: Some(note),
        ..ProgressPosition::default()
    }
}

/// Returns the progress of several files, of which `done` are complete.
pub(super) fn files(gauges: &[Gauge], done: u64) -> ProgressPosition {
    let bytes = gauges.iter().map(Gauge::done).sum();
    let before = gauges.iter().map(Gauge::before).sum();
    ProgressPosition { bytes, before, files: Some(done), ..ProgressPosition::default() }
}

/// Returns the progress of a folder.
pub(super) fn tree(gauge: &TreeGauge) -> ProgressPosition {
    let (bytes, before, total) = (gauge.done(), gauge.before(), gauge.total());
    ProgressPosition {
        bytes,
        before,
        total,
        files: Some(gauge.files()),
        ..ProgressPosition::default()
    }
}
