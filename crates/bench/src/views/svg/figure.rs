//! The path of the bytes as a drawing: user space above, the kernel below it, disk and card at
//! the bottom. Parts without counts are drawn with broken lines.

use maud::{Markup, html};

use super::{Drawing, WIDTH, number, shortened};
use crate::record::NetworkKind;
use crate::record::Unit;
use crate::views::path::{Path, PathEnd, PathFlow};

pub(crate) fn draw(path: &Path) -> Drawing {
    let body = html! {
        (zones())
        (user_buffer(path))
        (box_at(LEFT, KERNEL_BOX, &[kernel_name(path.source)]))
        (box_at(RIGHT, KERNEL_BOX, &[kernel_name(path.sink)]))
        (hardware(path))
        (flows(path))
        @for (line, fact) in path.facts.iter().enumerate() {
            text.quiet x="0" y=(number(FACTS + line as f64 * 18.0)) { (shortened(fact, 56)) }
        }
    };
    Drawing {
        title: path.title.clone(),
        note: "The data path as counted in this run".to_owned(),
        description: path.sentence(),
        height: FACTS + path.facts.len() as f64 * 18.0 - 12.0,
        body,
    }
}

fn zones() -> Markup {
    html! {
        rect.zone x="0" y="0" width=(number(WIDTH)) height=(number(BORDER)) {}
        rect.kernel x="0" y=(number(BORDER)) width=(number(WIDTH)) height=(number(FLOOR - BORDER)) {}
        rect.zone x="0" y=(number(FLOOR)) width=(number(WIDTH)) height=(number(END - FLOOR)) {}
        path.border d=(format!("M0,{0}H{1}M0,{2}H{1}", number(BORDER), number(WIDTH), number(FLOOR))) {}
        text.quiet x="8" y="17" { "user space" }
        text.quiet x=(number(WIDTH / 2.0)) y=(number(BORDER + 17.0)) text-anchor="middle" { "kernel" }
        text.quiet x=(number(WIDTH / 2.0)) y=(number(END - 27.0)) text-anchor="middle" { "hardware" }
    }
}

/// Returns the buffer of the program; a shadow of it if no byte came there.
fn user_buffer(path: &Path) -> Markup {
    let (x, y) = (MIDDLE - USER_WIDE / 2.0, USER_BOX);
    let (class, lines) = match (path.mapped, path.surfaces()) {
        (true, _) => ("box", ["mapped pages", "of the file"]),
        (_, true) => ("box", ["buffer of", "the program"]),
        _ => ("ghost", ["buffer of the program", "not touched"]),
    };
    let text = if path.surfaces() { "strong" } else { "quiet" };
    html! {
        rect class=(class) x=(number(x)) y=(number(y)) width=(number(USER_WIDE)) height=(number(USER_TALL)) rx="4" {}
        @for (line, said) in lines.iter().enumerate() {
            text class=(text) x=(number(MIDDLE)) y=(number(y + 17.0 + line as f64 * 15.0)) text-anchor="middle" { (said) }
        }
    }
}

/// Returns a box with its name in one or two lines, around a place.
fn box_at(x: f64, y: f64, lines: &[&str]) -> Markup {
    let first = y + TALL / 2.0 + 4.0 - (lines.len() as f64 - 1.0) * 7.5;
    html! {
        rect.box x=(number(x - WIDE / 2.0)) y=(number(y)) width=(number(WIDE)) height=(number(TALL)) rx="4" {}
        @for (line, said) in lines.iter().enumerate() {
            text x=(number(x)) y=(number(first + line as f64 * 15.0)) text-anchor="middle" { (said) }
        }
    }
}

/// Draws disks and cards, with the bytes that they gave and took.
fn hardware(path: &Path) -> Markup {
    let arrived = (path.bytes > 0).then_some(path.bytes);
    let (given, given_by) = match path.source {
        PathEnd::File => (path.disk_read, "read"),
        _ => (arrived, "arrived"),
    };
    let (taken, taken_by) = match path.sink {
        PathEnd::File => (path.disk_written, "due"),
        _ => (arrived, "sent"),
    };
    html! {
        (box_at(LEFT, HARDWARE_BOX, &[hardware_name(path.source, path.over)]))
        (vertical(LEFT, HARDWARE_BOX, KERNEL_BOX + TALL, given.unwrap_or(0)))
        text.quiet x=(number(LEFT + 9.0)) y=(number(FLOOR - 6.0)) { (amount(given, given_by)) }
        @if path.sink != PathEnd::Nothing {
            (box_at(RIGHT, HARDWARE_BOX, &[hardware_name(path.sink, path.over)]))
            (vertical(RIGHT, KERNEL_BOX + TALL, HARDWARE_BOX, taken.unwrap_or(0)))
            text.quiet x=(number(RIGHT - 9.0)) y=(number(FLOOR - 6.0)) text-anchor="end" { (amount(taken, taken_by)) }
        }
    }
}

fn amount(bytes: Option<u64>, how: &str) -> String {
    match bytes {
        None => "not counted".to_owned(),
        Some(0) => format!("nothing {how}"),
        Some(bytes) => format!("{} {how}", Unit::Bytes.show(bytes as f64)),
    }
}

/// Returns the bytes of the receipt on their way.
fn flows(path: &Path) -> Markup {
    let edge = MIDDLE - USER_WIDE / 2.0;
    let middle = USER_BOX + USER_TALL / 2.0;
    let row = KERNEL_BOX + TALL / 2.0;
    let top = KERNEL_BOX;
    let across = |flow: &PathFlow, class: &str, y: f64| {
        let (from, to) = (LEFT + WIDE / 2.0, RIGHT - WIDE / 2.0);
        html! {
            g class=(class) {
                path.flow d=(format!("M{},{1}H{2}", number(from), number(y), number(to - 6.0))) {}
                (head(to - 1.0, y, 0))
                (between(flow, row))
            }
        }
    };
    html! {
        @if path.mapped {
            g.c0 {
                path.mapped d=(format!("M{0},{1}V{2}H{3}", number(LEFT), number(top), number(middle), number(edge - 6.0))) {}
                (head(edge - 1.0, middle, 0))
            }
            text.quiet x=(number(LEFT + 8.0)) y=(number(BORDER - 8.0)) { "no copy" }
        }
        @if let Some(up) = &path.up {
            g.c2 {
                path.flow d=(format!("M{0},{1}V{2}q0,-8 8,-8H{3}", number(LEFT), number(top), number(middle + 8.0), number(edge - 6.0))) {}
                (head(edge - 1.0, middle, 0))
                (beside(up, LEFT + 8.0, "start"))
            }
        }
        @if let Some(down) = &path.down {
            g.c2 {
                path.flow d=(format!("M{0},{1}H{2}q8,0 8,8V{3}", number(WIDTH - edge), number(middle), number(RIGHT - 8.0), number(top - 6.0))) {}
                (head(RIGHT, top - 1.0, 90))
                (beside(down, RIGHT - 8.0, "end"))
            }
        }
        @if let Some(inside) = &path.inside { (across(inside, "c3", row)) }
        @if let Some(shared) = &path.shared { (across(shared, "c1", HARDWARE_BOX + 10.0)) }
    }
}

/// Returns what flows up or down, above and below the border.
fn beside(flow: &PathFlow, x: f64, anchor: &str) -> Markup {
    html! {
        text class="said strong" x=(number(x)) y=(number(BORDER - 8.0)) text-anchor=(anchor) { (flow.names.join(", ")) }
        text.said x=(number(x)) y=(number(BORDER + 17.0)) text-anchor=(anchor) { (flow.amount()) }
    }
}

/// Returns what flows inside the kernel.
fn between(flow: &PathFlow, y: f64) -> Markup {
    html! {
        text class="said strong" x=(number(MIDDLE)) y=(number(y - 9.0)) text-anchor="middle" { (shortened(&flow.names.join(", "), 18)) }
        text.said x=(number(MIDDLE)) y=(number(y + 19.0)) text-anchor="middle" { (flow.amount()) }
    }
}

/// Returns an arrow between hardware and kernel, broken if nothing was moved there.
fn vertical(x: f64, from: f64, to: f64, bytes: u64) -> Markup {
    let way = if to > from { 1.0 } else { -1.0 };
    let class = if bytes > 0 { "flow" } else { "lent" };
    html! {
        g.c0 {
            path class=(class) d=(format!("M{},{}V{}", number(x), number(from), number(to - way * 6.0))) {}
            (head(x, to - way, if way > 0.0 { 90 } else { 270 }))
        }
    }
}

/// Returns the head of an arrow whose point is there, turned by this many degrees.
fn head(x: f64, y: f64, degrees: u32) -> Markup {
    html! {
        path.head d="M0,0L-9,-5.5V5.5Z" transform=(format!("translate({} {}) rotate({degrees})", number(x), number(y))) {}
    }
}

const fn kernel_name(end: PathEnd) -> &'static str {
    match end {
        PathEnd::File => "page cache",
        PathEnd::Nothing => "/dev/null",
        PathEnd::Socket => "socket",
    }
}

const fn hardware_name(end: PathEnd, over: NetworkKind) -> &'static str {
    match (end, over) {
        (PathEnd::File, _) => "disk",
        (_, NetworkKind::Loopback) => "card (loopback)",
        (_, NetworkKind::Veth) => "card (veth)",
    }
}

/// The middles of the columns.
const LEFT: f64 = 62.0;
const MIDDLE: f64 = WIDTH / 2.0;
const RIGHT: f64 = WIDTH - LEFT;
/// Boxes of the kernel and of the hardware.
const WIDE: f64 = 104.0;
const TALL: f64 = 34.0;
const KERNEL_BOX: f64 = 130.0;
const HARDWARE_BOX: f64 = 214.0;
/// The box of the program.
const USER_BOX: f64 = 20.0;
const USER_WIDE: f64 = 146.0;
const USER_TALL: f64 = 42.0;
/// Where zones end.
const BORDER: f64 = 88.0;
const FLOOR: f64 = 192.0;
const END: f64 = 258.0;
/// The base of the first line below.
const FACTS: f64 = 278.0;
