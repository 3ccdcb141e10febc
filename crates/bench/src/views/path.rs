//! The paths of the bytes as values: between which places they moved in one sample, and the
//! counts there. They come from the receipts in a record; facts without a receipt are not drawn.

use crate::record::{
    CallDirection, Contender, Counted, NamedCall, NetworkKind, Record, Role, Sample, SinkKind,
    ThreadCost, Unit, counted, served_amount, served_in, sum,
};

/// The data path of one sample.
#[derive(Clone, Debug, Default)]
pub(crate) struct Path {
    /// Its name in the names of files and in anchors.
    pub(crate) name: String,
    /// Whose path it is, at which size.
    pub(crate) title: String,
    pub(crate) source: PathEnd,
    pub(crate) sink: PathEnd,
    /// Copied from the kernel into a buffer of the program.
    pub(crate) up: Option<PathFlow>,
    /// Copied from the program's memory into the kernel.
    pub(crate) down: Option<PathFlow>,
    /// Mapped into the program's memory, without a copy.
    pub(crate) mapped: bool,
    /// Moved inside the kernel.
    pub(crate) inside: Option<PathFlow>,
    /// Shared between two files, not moved at all.
    pub(crate) shared: Option<PathFlow>,
    /// Bytes that the process had fetched from a disk.
    pub(crate) disk_read: Option<u64>,
    /// Bytes that it will have written to one.
    pub(crate) disk_written: Option<u64>,
    pub(crate) bytes: u64,
    /// The network between the connections' ends.
    pub(crate) over: NetworkKind,
    /// Other counts, a line each.
    pub(crate) facts: Vec<String>,
}

/// An end of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PathEnd {
    /// A file: a page cache and a disk.
    #[default]
    File,
    /// /dev/null.
    Nothing,
    /// A connection: a buffer and a card.
    Socket,
}

/// Bytes on their way from one place to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PathFlow {
    /// The system calls that moved the bytes.
    pub(crate) names: Vec<String>,
    /// The number of bytes; none if only calls were counted.
    pub(crate) bytes: Option<u64>,
    /// The number of calls; none if only bytes were counted.
    pub(crate) calls: Option<u64>,
}

impl PathFlow {
    /// Returns what was moved, as people read it.
    pub(crate) fn amount(&self) -> String {
        match (self.bytes, self.calls) {
            (Some(bytes), _) => Unit::Bytes.show(bytes as f64),
            (None, Some(calls)) => plural(calls, "call"),
            (None, None) => "not counted".to_owned(),
        }
    }

    fn add(flow: &mut Option<Self>, name: &str, bytes: Option<u64>, calls: Option<u64>) {
        let flow = flow.get_or_insert_default();
        if !flow.names.iter().any(|known| known == name) {
            flow.names.push(name.to_owned());
        }
        for (sum, more) in [(&mut flow.bytes, bytes), (&mut flow.calls, calls)] {
            if let Some(more) = more {
                *sum = Some(sum.unwrap_or(0).saturating_add(more));
            }
        }
    }
}

/// Returns the paths of a record at its largest size: of the baseline, and of every other at the
/// step that took the least time. Those of which nothing was counted are left out.
pub(crate) fn paths(record: &Record) -> Vec<Path> {
    shown(record).into_iter().filter_map(|cell| path(record, cell)).collect()
}

/// Returns the contenders of which nothing was counted, so that no path can be drawn.
pub(crate) fn uncounted(record: &Record) -> Vec<String> {
    let uncounted = shown(record).into_iter().filter(|cell| path(record, *cell).is_none());
    uncounted
        .filter(|cell| record.cells[*cell].declined.is_none())
        .map(|cell| record.cells[cell].variant.label())
        .collect()
}

/// Returns the cells whose paths are shown.
fn shown(record: &Record) -> Vec<usize> {
    let Some(size) = record.sizes().into_iter().max() else { return Vec::new() };
    let best = record.contenders().into_iter().filter_map(|contender| record.best(size, contender));
    record.cell(size, record.baseline).into_iter().chain(best).collect()
}

/// Returns the path of a cell, if enough was counted of it.
pub(crate) fn path(record: &Record, cell: usize) -> Option<Path> {
    let sample = middle(record, cell)?;
    let thread = sample.measured.thread.as_ref().filter(|thread| !thread.mechanisms.is_empty());
    let calls = counted(record, cell, sample.measured.role);
    let (source, sink) = ends(record, sample.measured.role);
    let label = record.cells[cell].variant.label();
    let process = sample.measured.process;
    let mut path = Path {
        name: format!("path-{}", label.replace(' ', "-").to_lowercase()),
        title: format!("{label}, {}", record.about.size_label(record.cells[cell].size)),
        source,
        sink,
        disk_read: process.map(|process| process.storage_read_bytes),
        disk_written: process.map(|process| process.storage_written_bytes),
        over: record.arguments.over,
        ..Path::default()
    };
    match (thread, calls) {
        (Some(thread), _) => {
            for moved in &thread.mechanisms {
                path.bytes = path.bytes.saturating_add(moved.bytes);
                path.add(&moved.name, moved.bytes);
            }
            path.facts = facts(record, sample, thread);
        }
        (None, Some(counted)) => {
            path.count(counted, record.cells[cell].size, record.cells[cell].variant.contender)?;
            path.facts.insert(0, fact(record, counted));
        }
        (None, None) => return None,
    }
    Some(path)
}

impl Path {
    fn add(&mut self, mechanism: &str, bytes: u64) {
        match mechanism {
            "read_write" => {
                let (read, write) = match (self.source, self.sink) {
                    (PathEnd::Socket, _) => ("recv", "write"),
                    (_, PathEnd::Socket) => ("read", "send"),
                    _ => ("read", "write"),
                };
                PathFlow::add(&mut self.up, read, Some(bytes), None);
                PathFlow::add(&mut self.down, write, Some(bytes), None);
            }
            "mmap" => {
                self.mapped = true;
                PathFlow::add(&mut self.down, "write", Some(bytes), None);
            }
            "reflink" => PathFlow::add(&mut self.shared, "reflink", Some(bytes), None),
            inside => PathFlow::add(&mut self.inside, inside, Some(bytes), None),
        }
    }

    /// Adds the counted calls of another program, whose bytes no receipt reports; none if no call
    /// moved any. Where some calls move inside the kernel, those that read and write are the
    /// program's own business: what it needs to start, headers, logs.
    fn count(&mut self, counted: &Counted, size: u64, contender: Contender) -> Option<()> {
        let ends = (self.source, self.sink);
        let moving = |motion| {
            let is_so = move |call: &&NamedCall| CallDirection::of(&call.name) == Some(motion);
            counted.calls.iter().filter(is_so).filter(move |call| is_of_file(call, motion, ends))
        };
        let has_inside = moving(CallDirection::Inside).any(|call| call.calls > call.errors);
        self.mapped = matches!(contender, Contender::CMmap | Contender::CMmapLease);
        let surfacing = [(CallDirection::In, &mut self.up), (CallDirection::Out, &mut self.down)];
        for (motion, flow) in surfacing.into_iter().filter(|_| !has_inside) {
            let max = moving(motion).map(|call| call.calls).max().unwrap_or(0);
            let is_few = |call: &&NamedCall| call.calls <= max / FEW;
            let is_read_of_mapper = motion == CallDirection::In && self.mapped;
            for call in moving(motion).filter(|call| !is_few(call) && !is_read_of_mapper) {
                PathFlow::add(flow, &call.name, None, Some(call.calls));
            }
        }
        for call in moving(CallDirection::Inside).filter(|call| call.calls > call.errors) {
            PathFlow::add(&mut self.inside, &call.name, None, Some(call.calls));
        }
        if self.up.is_none() && self.down.is_none() && self.inside.is_none() {
            return None;
        }
        self.bytes = counted.served_bytes.unwrap_or(size);
        let is_own = |call: &NamedCall| {
            matches!(CallDirection::of(&call.name), Some(CallDirection::In | CallDirection::Out))
        };
        let own = sum(counted, is_own);
        if has_inside && own > 0 {
            let own = Unit::Count.show(own as f64);
            self.facts.push(format!("{own} of them read and write for the program itself"));
        }
        self.facts.push("no receipt has bytes by call".to_owned());
        Some(())
    }

    /// Returns whether bytes were in user space.
    pub(crate) const fn surfaces(&self) -> bool {
        self.up.is_some() || self.down.is_some() || self.mapped
    }

    /// Returns a description of the drawing, for readers that cannot see it.
    pub(crate) fn sentence(&self) -> String {
        let mut said = Vec::new();
        let flows = [
            (&self.up, "from the kernel into a buffer of the program"),
            (&self.down, "from the program's memory into the kernel"),
            (&self.inside, "inside the kernel"),
            (&self.shared, "shared between the files, not moved"),
        ];
        for (flow, place) in flows {
            if let Some(flow) = flow {
                said.push(format!("{} {place} by {}", flow.amount(), flow.names.join(" and ")));
            }
        }
        format!("{}. {}.", said.join("; "), self.facts.join("; "))
    }
}

/// Returns whether a call may have moved bytes of the file on this way: what was received from a
/// client is its request where the file is sent, and what was sent to a server is a request where
/// it is received.
fn is_of_file(call: &NamedCall, motion: CallDirection, (source, sink): (PathEnd, PathEnd)) -> bool {
    match motion {
        CallDirection::In => source == PathEnd::Socket || !call.name.starts_with("recv"),
        CallDirection::Out => sink == PathEnd::Socket || !call.name.starts_with("send"),
        CallDirection::Inside => true,
    }
}

/// Returns how many calls were counted, and of a server for each response or GiB.
fn fact(record: &Record, counted: &Counted) -> String {
    let all = sum(counted, |_| true);
    match served_amount(record, counted) {
        None => format!("{} in the counted pass", plural(all, "system call")),
        Some(amount) => {
            let each = Unit::Count.show(all as f64 / amount);
            let of = served_in(record).label();
            format!("{} counted, {each} for each {of}", plural(all, "call"))
        }
    }
}

/// Returns the sample of middle time, whose counts belong together.
fn middle(record: &Record, cell: usize) -> Option<&Sample> {
    let mut samples: Vec<_> = record.samples_of(cell).collect();
    samples.sort_by(|one, other| one.wall_s.total_cmp(&other.wall_s));
    samples.get(samples.len().saturating_sub(1) / 2).copied()
}

/// Returns the ends between which a role moves bytes.
fn ends(record: &Record, role: Role) -> (PathEnd, PathEnd) {
    match role {
        Role::Copier => (PathEnd::File, PathEnd::File),
        Role::Sender | Role::Server => (PathEnd::File, PathEnd::Socket),
        Role::Receiver if record.arguments.sink == Some(SinkKind::File) => {
            (PathEnd::Socket, PathEnd::File)
        }
        Role::Receiver => (PathEnd::Socket, PathEnd::Nothing),
        Role::Client if record.scenario == "put" => (PathEnd::File, PathEnd::Socket),
        Role::Client => (PathEnd::Socket, PathEnd::File),
    }
}

fn plural(count: u64, one: &str) -> String {
    let ending = match (count, one.ends_with('h')) {
        (1, _) => "",
        (_, true) => "es",
        _ => "s",
    };
    format!("{} {one}{ending}", Unit::Count.show(count as f64))
}

/// Returns what was counted besides.
fn facts(record: &Record, sample: &Sample, thread: &ThreadCost) -> Vec<String> {
    let switches = thread.voluntary_switches.saturating_add(thread.involuntary_switches);
    let several = record.arguments.responses.unwrap_or(1);
    let responses = if several > 1 {
        format!(", {} responses of {}", Unit::Count.show(f64::from(several)), record.about.command)
    } else {
        String::new()
    };
    vec![
        format!("{}, {}", plural(thread.calls, "system call"), plural(switches, "context switch")),
        format!("{} through user space", Unit::Bytes.show(thread.user_space_bytes as f64)),
        format!(
            "{} processor time, round {}{responses}",
            Unit::Seconds.show(thread.cpu_s()),
            sample.round
        ),
    ]
}

/// The factor by which a call must be rarer than another one to be ignored.
const FEW: u64 = 20;
