//! `bench net`, `article-table`, `article-chunks` and `limit`: a file from one process over TCP to
//! another, which drops it or writes it to a new file. Ours are ordinary `underpass send` and
//! `underpass recv`; the others are programs of the articles, which send to the same receiver. Its
//! clock counts then: it runs from the connection to its end.

mod transfer;

use clap::{Args, ValueEnum};
use underpass_engine::Mechanism;

use self::transfer::TcpTransfer;
use super::{TRADITIONAL, first, usual_step, variants_at};
use crate::error::Result;
use crate::options::{Measure, StepArgs, SystemArgs, bytes, mechanisms};
use crate::programs::SocketPrograms;
use crate::record::{
    Arguments, CALLS, CPU, Contender, Description, FAULTS, Metric, NetworkKind, PEER_CPU,
    Receivers, Record, Role, SPEED, SWITCHES, SinkKind, Step, TIME, USER_SPACE, Variant, at_steps,
    chosen, unique,
};
use crate::run::{Link, RunPlan, SampleEnds, Start, file_system};

/// The arguments of `bench net`.
#[derive(Debug, Args)]
pub struct NetArgs {
    /// Measure files of these sizes
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = bytes)]
    #[arg(default_value = "7M,21M,63M,98M,200M,350M,700M,1G")]
    sizes: Vec<u64>,

    /// Write the received bytes to a file, or drop them
    #[arg(long, value_enum, default_value = "drop")]
    sink: SinkKind,

    /// Vary the mechanism of this side; the other side chooses its own
    #[arg(long, value_enum, default_value = "sender")]
    side: SideArg,

    /// Connect sender and receiver over this link
    #[arg(long, value_enum, default_value = "loopback")]
    over: NetworkKind,

    /// Set the congestion control of the connections; auto keeps the system's own, unless it paces
    #[arg(long, value_name = "NAME", default_value = "auto")]
    congestion: String,

    /// Do not count system calls in a separate pass
    #[arg(long)]
    no_count: bool,

    #[command(flatten)]
    steps: StepArgs,
}

/// The sides of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SideArg {
    /// It reads from the file
    Sender,
    /// It reads from the connection
    Receiver,
}

/// The arguments of `bench article-table`.
#[derive(Debug, Args)]
#[command(mut_arg("sizes", |arg| arg.default_value("7M,21M,63M,98M,200M,350M,700M,1G")))]
#[command(mut_arg("step", |arg| arg.default_value("default")
    .help("Ask for this many bytes in one system call of ours")))]
#[command(mut_arg("mechanism", |arg| arg.default_value("auto")
    .help("Measure these mechanisms of ours, without fallbacks; auto for the best one")))]
#[command(mut_arg("peer", |arg| arg
    .default_value("java_stream,java_transfer_to,c_read_write,c_sendfile")))]
pub struct TableArgs {
    #[command(flatten)]
    article: ArticleArgs,
}

/// The arguments of `bench article-chunks`.
#[derive(Debug, Args)]
#[command(mut_arg("step", |arg| arg.default_value("4096,65535,1M,whole")
    .help("Ask for this many bytes in one system call; whole for the whole file")))]
#[command(mut_arg("mechanism", |arg| arg.default_value("auto,sendfile")))]
#[command(mut_arg("peer", |arg| arg
    .default_value("python_sendall,python_sendfile,c_read_write,c_mmap,c_mmap_lease,c_sendfile")))]
pub struct ChunksArgs {
    #[command(flatten)]
    article: ArticleArgs,
}

/// The arguments of `bench limit`.
#[derive(Debug, Args)]
#[command(mut_arg("step", |arg| arg.default_value("64K,256K,1M,whole")
    .help("Ask for this many bytes in one system call of the bare loop and of our mechanisms")))]
#[command(mut_arg("mechanism", |arg| arg.default_value("auto")))]
#[command(mut_arg("peer", |arg| arg.default_value("c_sendfile,iperf3,nc,memory_copy")
    .help("Measure these programs besides ours and the bare loop")))]
pub struct LimitArgs {
    #[command(flatten)]
    article: ArticleArgs,
}

/// The options shared by the scenarios of the articles with connections; each has its own defaults.
#[derive(Debug, Args)]
struct ArticleArgs {
    /// Measure files of these sizes
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = bytes)]
    #[arg(default_value = "2G")]
    sizes: Vec<u64>,

    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    step: Vec<Step>,

    /// Measure these mechanisms of ours, without fallbacks; auto for the best one, which takes no
    /// step
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = mechanisms())]
    mechanism: Vec<Option<Contender>>,

    /// Measure these programs besides ours
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = peer)]
    peer: Vec<Contender>,

    /// Connect sender and receiver over this link
    #[arg(long, value_enum, default_value = "loopback")]
    over: NetworkKind,

    /// Have the programs of --peer send to these receivers
    #[arg(long, value_enum, default_value = "ours")]
    receivers: Receivers,

    /// Drop the source from the page cache before each sample
    #[arg(long)]
    cold: bool,

    #[command(flatten)]
    system: SystemArgs,
}

fn peer(text: &str) -> std::result::Result<Contender, String> {
    let found = text.parse().ok().filter(|it: &Contender| it.is_socket_program());
    let known = || Contender::socket_programs().map(Contender::name).collect::<Vec<_>>().join(", ");
    found.ok_or_else(|| format!("peers are {}", known()))
}

impl Measure for NetArgs {
    fn measure(&self, start: Start<'_>) -> Result<Record> {
        let (side, all, baseline) = match self.side {
            SideArg::Receiver => {
                let baseline = Variant::mechanism(Mechanism::ReadWrite, 64 << 10);
                (Role::Receiver, FROM_SOCKET, baseline)
            }
            SideArg::Sender => (Role::Sender, TO_SOCKET, TRADITIONAL),
        };
        let (to, cold) = (self.steps.to.as_deref(), self.steps.cold);
        let (ends, mut plan) = SampleEnds::open(start, to, &self.sizes, cold, self.no_count)?;
        let is_written = self.sink == SinkKind::File;
        plan.environment.target_file_system = is_written.then(|| file_system(ends.target.path()));
        // Namespaces have a congestion control of their own; on loopback each connection sets it.
        let link = match self.over {
            NetworkKind::Loopback => Link::plain(&self.congestion),
            NetworkKind::Veth => Link::open(self.over, &self.congestion)?,
        };
        let contenders = chosen(&self.steps.mechanism, all);
        let variants =
            unique([baseline].into_iter().chain(at_steps(&contenders, &self.steps.step)));
        plan.arguments = Arguments {
            mechanisms: contenders,
            steps: self.steps.step.clone(),
            side,
            sink: Some(self.sink),
            over: self.over,
            ..plan.arguments
        };
        measure(&NET, ends, link, None, plan, &variants)
    }
}

impl Measure for TableArgs {
    fn measure(&self, start: Start<'_>) -> Result<Record> {
        let contenders = self.article.peer.iter();
        let others = contenders.map(|it| Variant::new(*it, usual_step(*it)));
        self.article.measure(&TABLE, others.collect(), start)
    }
}

impl Measure for ChunksArgs {
    fn measure(&self, start: Start<'_>) -> Result<Record> {
        let ArticleArgs { peer, step, .. } = &self.article;
        let others = peer.iter().flat_map(|it| variants_at(*it, step));
        self.article.measure(&CHUNKS, others.collect(), start)
    }
}

impl Measure for LimitArgs {
    fn measure(&self, start: Start<'_>) -> Result<Record> {
        // The bare loop is measured at our own step first.
        let own = Variant::new(Contender::BareSendfile, Step::Bytes(OWN_STEP));
        let bare = variants_at(Contender::BareSendfile, &self.article.step);
        let others = self.article.peer.iter().map(|it| match it {
            Contender::CSendfile => Variant::new(*it, Step::Bytes(OWN_STEP)),
            _ => Variant::new(*it, usual_step(*it)),
        });
        let variants = [own].into_iter().chain(bare).chain(others);
        self.article.measure(&LIMIT, variants.collect(), start)
    }
}

impl ArticleArgs {
    /// Measures the available contenders, the first of which is the baseline.
    fn measure(
        &self,
        about: &'static Description,
        others: Vec<Variant>,
        start: Start<'_>,
    ) -> Result<Record> {
        let ours = at_steps(&chosen(&self.mechanism, TO_SOCKET), &self.step);
        let mut variants = unique(others.into_iter().chain(ours));
        let SystemArgs { congestion, no_count } = &self.system;
        // The system is surveyed before any of its settings is changed.
        let (ends, mut plan) = SampleEnds::open(start, None, &self.sizes, self.cold, *no_count)?;
        let link = Link::open(self.over, congestion)?;
        let programs = SocketPrograms::open(&ends.source, &mut variants, &mut plan)?;
        plan.environment.congestion = Some(link.congestion.clone());
        plan.arguments = Arguments {
            mechanisms: unique(variants.iter().map(|variant| variant.contender)),
            steps: self.step.clone(),
            sink: Some(SinkKind::Drop),
            over: self.over,
            receivers: self.receivers,
            ..plan.arguments
        };
        measure(about, ends, link, Some(programs), plan, &variants)
    }
}

/// Measures variants, the first of which is the baseline.
fn measure(
    about: &'static Description,
    ends: SampleEnds<'_>,
    link: Link,
    programs: Option<SocketPrograms>,
    mut plan: RunPlan<'_>,
    variants: &[Variant],
) -> Result<Record> {
    let baseline = first(variants)?;
    plan.for_sizes(variants);
    let Arguments { side, receivers, sink, .. } = plan.arguments;
    let sink = sink.unwrap_or(SinkKind::Drop);
    let seen_congestion = None;
    let mut transfer = TcpTransfer { ends, programs, link, side, sink, receivers, seen_congestion };
    plan.measure(about, &mut transfer, baseline)
}

fn subject(record: &Record) -> String {
    let source = &record.environment.source_file_system;
    let link = match record.arguments.over {
        NetworkKind::Loopback => "loopback",
        NetworkKind::Veth => "a veth pair",
    };
    let target = match record.arguments.sink {
        Some(SinkKind::File) => {
            let target = record.environment.target_file_system.as_deref().unwrap_or_default();
            format!(" to file on {target}")
        }
        _ => ", dropped there".to_owned(),
    };
    format!("file on {source} to TCP on {link}{target}")
}

const METRICS: &[&Metric] =
    &[&TIME, &CPU, &PEER_CPU, &CALLS, &SWITCHES, &FAULTS, &USER_SPACE, &SPEED];

pub(super) const NET: Description = Description {
    name: "net",
    command: "net",
    by_thread: true,
    cores: Some("sender and receiver"),
    subject,
    caption: |_| "Time of sender or receiver, whichever took longer".to_owned(),
    metrics: METRICS,
    ..Description::NONE
};

pub(super) const TABLE: Description = Description {
    name: "article_table",
    command: "article-table",
    by_thread: false,
    caption: |_| "Time by the clock of the receiver".to_owned(),
    ..NET
};

pub(super) const CHUNKS: Description =
    Description { name: "article_chunks", command: "article-chunks", ..TABLE };

pub(super) const LIMIT: Description = Description { name: "limit", command: "limit", ..TABLE };

const TO_SOCKET: &[Contender] = &[
    Contender::Auto,
    Contender::Only(Mechanism::Sendfile),
    Contender::Only(Mechanism::Splice),
    Contender::Only(Mechanism::Mmap),
    Contender::Only(Mechanism::ReadWrite),
];

const FROM_SOCKET: &[Contender] =
    &[Contender::Auto, Contender::Only(Mechanism::Splice), Contender::Only(Mechanism::ReadWrite)];

/// The default step of sendfile in `underpass`.
const OWN_STEP: u64 = 1 << 20;
