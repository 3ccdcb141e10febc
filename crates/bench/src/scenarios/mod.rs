//! The scenarios, one file each, with its options, its sampling, and the columns of its tables. A
//! new one is added here to [`ALL`], and to the subcommands of the program.

mod chain;
mod copy;
mod cp;
mod fairness;
mod hostile;
mod idle;
mod requests;
mod scale;
mod serve;
mod tcp;
mod transfer;

pub use chain::ChainArgs;
pub use copy::{CopyArgs, SmallCopyArgs};
pub use cp::CpArgs;
pub use hostile::HostileArgs;
pub use scale::ScaleArgs;
pub use serve::{OriginArgs, ServeArgs};
pub use tcp::{ChunksArgs, LimitArgs, NetArgs, TableArgs};
pub use transfer::{GetArgs, PutArgs, TreeArgs};
use underpass_engine::Mechanism;

use crate::error::{BenchError, Result, UsageError, WithPath};
use crate::record::{Contender, Description, Receipt, Step, Variant, unique};
use crate::run::Finished;

pub(crate) fn find(name: &str) -> Option<&'static Description> {
    ALL.iter().find(|about| about.name == name)
}

const ALL: &[Description] = &[
    chain::CHAIN,
    copy::ARTICLE_COPY,
    copy::COPY,
    cp::CP,
    fairness::FAIRNESS,
    hostile::HOSTILE,
    idle::IDLE,
    requests::HANDSHAKES,
    requests::REQUESTS,
    scale::SCALE,
    serve::COLD,
    serve::ORIGIN,
    tcp::CHUNKS,
    tcp::LIMIT,
    tcp::NET,
    tcp::TABLE,
    transfer::GET,
    transfer::PUT,
    transfer::TREE,
];

/// The traditional way to send and copy files: read a page, write a page.
const TRADITIONAL: Variant = Variant::mechanism(Mechanism::ReadWrite, 4 << 10);

const NGINX: Variant = Variant::plain(Contender::Nginx);

/// Returns the installed contenders, each once, and the missing programs; fails if none is left.
fn installed(
    requested: &[Contender],
    has: impl Fn(&str) -> bool,
) -> Result<(Vec<Contender>, Vec<&'static str>)> {
    let lacks = |contender: &Contender| {
        contender.programs().iter().copied().filter(|name| !has(name)).collect::<Vec<_>>()
    };
    let (there, others): (Vec<_>, Vec<_>) = unique(requested.iter().copied())
        .into_iter()
        .partition(|contender| lacks(contender).is_empty());
    let mut missing = unique(others.iter().flat_map(lacks));
    missing.sort_unstable();
    match missing.first() {
        Some(program) if there.is_empty() => Err(UsageError::NotInstalled(program).into()),
        _ => Ok((there, missing)),
    }
}

fn first(variants: &[Variant]) -> Result<Variant> {
    variants.first().copied().ok_or_else(|| UsageError::NoContender.into())
}

/// Returns a contender at all its possible steps: no buffer is as large as the file.
fn variants_at(contender: Contender, steps: &[Step]) -> Vec<Variant> {
    use Contender::{CReadWrite, JavaStream, PythonSendall};
    if !contender.has_steps() {
        return vec![Variant::plain(contender)];
    }
    let has_buffer = matches!(contender, CReadWrite | JavaStream | PythonSendall);
    let can = steps.iter().filter(|step| !has_buffer || matches!(step, Step::Bytes(_)));
    can.map(|step| Variant::new(contender, *step)).collect()
}

/// Returns the step of a contender in the article that it is from.
const fn usual_step(contender: Contender) -> Step {
    match contender {
        Contender::CReadWrite | Contender::JavaStream | Contender::PythonSendall => {
            Step::Bytes(4 << 10)
        }
        Contender::PythonSendfile => Step::Bytes(65_535),
        Contender::Iperf3 | Contender::MemoryCopy | Contender::Nc => Step::Default,
        _ => Step::Whole,
    }
}

/// Returns the receipt of a process that has succeeded, if it moved `size` bytes, and all of them
/// by the mechanism of the contender if that names one.
fn checked_receipt(
    finished: &Finished,
    size: u64,
    contender: Option<Contender>,
) -> Result<Receipt> {
    let receipt: Receipt = serde_json::from_str(&finished.stdout)
        .map_err(std::io::Error::from)
        .with_path("reading", "the receipt of a process")?;
    let moved: Vec<_> = receipt.mechanisms.iter().map(|by| (by.bytes, by.name.as_str())).collect();
    let is_right = match contender {
        Some(Contender::Only(mechanism)) => moved == [(size, mechanism.name())],
        _ => receipt.bytes == size,
    };
    if is_right {
        return Ok(receipt);
    }
    let ran: Vec<_> =
        moved.iter().map(|(bytes, name)| format!("{bytes} bytes by {name}")).collect();
    let what = contender.map_or("the other side", Contender::name);
    Err(BenchError::other(what, &ran.join(", ")))
}

/// Returns the kernel's answer by which it declined the mechanism of a contender, according to
/// the receipt of a process that has failed.
fn declined(finished: &Finished, contender: Contender) -> Option<String> {
    let Contender::Only(mechanism) = contender else { return None };
    let receipt: Receipt = serde_json::from_str(&finished.stdout).ok()?;
    let mut declined = receipt.declined.into_iter().filter(|_| !finished.status.success());
    declined.find(|decline| decline.mechanism == mechanism.name()).map(|decline| decline.errno)
}
