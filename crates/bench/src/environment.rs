//! Where a run takes place, as far as it bears on the figures: nothing that names the machine.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::system::uname;

use super::child::Cores;
use super::record::Environment;
use crate::procfs::field;

/// What can be told before the first sample.
pub(crate) fn survey(cores: Cores, source: &Path, target: Option<&Path>) -> Environment {
    let kernel = uname();
    let text = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
    Environment {
        kernel: text(kernel.release()),
        machine: text(kernel.machine()),
        cpu: field(&read("/proc/cpuinfo"), "model name").unwrap_or("unknown").to_owned(),
        cores: cores.count,
        first_core: cores.first,
        second_core: cores.second,
        memory_bytes: memory_bytes(&read("/proc/meminfo")),
        source_file_system: file_system(source),
        target_file_system: target.map(file_system),
        congestion: None,
        congestion_default: read("/proc/sys/net/ipv4/tcp_congestion_control").trim().to_owned(),
        load_average: load_average(&read("/proc/loadavg")),
        optimized: !cfg!(debug_assertions),
        cp: None,
        nginx: None,
        programs: Vec::new(),
    }
}

/// The first line of `cp --version`; none if there is no cp.
pub(crate) fn cp_version() -> Option<String> {
    let output = Command::new("cp").arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().next().map(str::to_owned)
}

/// Now, by RFC 3339, in UTC.
pub(crate) fn now() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    rfc3339(since.as_secs())
}

/// Processor seconds that anybody has spent since the machine started, leaving out interrupts,
/// which are the network's own work.
pub(crate) fn busy_seconds() -> f64 {
    busy_ticks(&read("/proc/stat")) as f64 / TICKS_PER_SECOND
}

fn busy_ticks(stat: &str) -> u64 {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu ")).unwrap_or_default();
    let fields: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
    // user, nice, system, (idle, iowait, irq, softirq,) steal
    [0, 1, 2, 7].iter().filter_map(|index| fields.get(*index)).sum()
}

fn memory_bytes(meminfo: &str) -> u64 {
    let total = field(meminfo, "MemTotal").unwrap_or_default();
    total.trim_end_matches(" kB").parse::<u64>().unwrap_or(0) << 10
}

fn load_average(text: &str) -> [f64; 3] {
    let mut loads = text.split(' ').map(|word| word.parse().unwrap_or(0.0));
    std::array::from_fn(|_| loads.next().unwrap_or(0.0))
}

/// The type of the file system on which a folder lies.
fn file_system(folder: &Path) -> String {
    let folder = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    type_of_mount(&read("/proc/self/mountinfo"), &folder).unwrap_or("unknown").to_owned()
}

/// The type of the mount with the longest path above `folder`; of two at one place the later one.
fn type_of_mount<'a>(mountinfo: &'a str, folder: &Path) -> Option<&'a str> {
    let mounts = mountinfo.lines().filter_map(|line| {
        let (mount, device) = line.split_once(" - ")?;
        let place = mount.split(' ').nth(4)?.replace("\\040", " ");
        let kind = device.split(' ').next()?;
        folder.starts_with(&place).then_some((place.len(), kind))
    });
    mounts.max_by_key(|(len, _)| *len).map(|(_, kind)| kind)
}

/// A time since 1970 as a date, by the civil calendar.
fn rfc3339(seconds: u64) -> String {
    let (day, second) = (seconds / 86_400, seconds % 86_400);
    // Years that begin in March end with the leap day; 400 of them have 146,097 days.
    let since = day + 719_468;
    let (era, of_era) = (since / 146_097, since % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let date = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{date:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// What cannot be read is not known; the fields say so.
fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// USER_HZ, which is 100 on every architecture that Rust's Linux runs on.
const TICKS_PER_SECOND: f64 = 100.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_dates_of_the_civil_calendar() {
        for (seconds, date) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_799, "2000-02-29T23:59:59Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(seconds), date);
        }
    }

    #[test]
    fn the_file_system_is_that_of_the_nearest_mount() {
        let mountinfo = "1 0 8:1 / / rw - ext4 /dev/sda rw\n\
            2 1 0:5 / /data rw shared:1 - xfs /dev/sdb rw\n\
            3 1 0:6 / /data/with\\040space rw - btrfs /dev/sdc rw\n\
            4 1 0:7 / /data rw - tmpfs tmpfs rw\n";
        for (folder, kind) in
            [("/home", "ext4"), ("/data/x", "tmpfs"), ("/data/with space/x", "btrfs")]
        {
            assert_eq!(type_of_mount(mountinfo, Path::new(folder)), Some(kind), "{folder}");
        }
        assert_eq!(type_of_mount("", Path::new("/")), None);
    }

    #[test]
    fn the_busy_time_leaves_out_idle_and_interrupts() {
        assert_eq!(busy_ticks("cpu  1 2 4 1000 1000 1000 1000 8 0 0\ncpu0 9 9 9"), 15);
        assert_eq!(busy_ticks(""), 0);
    }

    #[test]
    fn a_survey_knows_this_machine() {
        let folder = std::env::temp_dir();
        let found = survey(Cores::available(), &folder, Some(&folder));
        assert!(found.memory_bytes > 1 << 20 && found.cores > 0, "{found:?}");
        assert_eq!(found.target_file_system, Some(found.source_file_system));
    }
}
