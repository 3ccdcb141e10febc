//! Renders a comparison as a table.

use super::interval::CONFIDENCE;
use super::{Comparison, Difference};
use crate::record::{Record, Unit, unique};
use crate::views::{Table, draw};

pub(super) fn render(comparison: &Comparison) -> String {
    let ([old, new], relative) = (&comparison.records, comparison.relative);
    let mut parts = vec![heading(old, new, relative, comparison.percent)];
    let titles = unique(comparison.lines.iter().map(|line| line.metric.heading(new)));
    parts.extend(titles.iter().map(|title| metric(comparison, new, title, relative)));
    parts.push(summary(comparison));
    parts.extend(alone(comparison));
    if !comparison.caveats.is_empty() {
        let advice =
            if relative { "" } else { "\n--relative compares the ratios to the baseline instead" };
        let caveats = comparison.caveats.join("\n- ");
        parts.push(format!("Caveats:\n- {caveats}{advice}\n"));
    }
    parts.join("\n")
}

fn heading(old: &Record, new: &Record, relative: bool, margin: f64) -> String {
    let what = if relative { "ratios to the baseline of the same round" } else { "values" };
    format!(
        "underpass bench compare, two records of bench {}: {what}\n\
         old: underpass {}, {}, rounds: {}\nnew: underpass {}, {}, rounds: {}\n\
         x is the ratio of the new to the old one, the median of all pairs of samples, with its \
         {:.0} %\nconfidence interval. A difference counts if the whole interval is more than \
         {margin} % away from 1.00.\n",
        new.about.command,
        old.underpass,
        old.started,
        old.arguments.runs,
        new.underpass,
        new.started,
        new.arguments.runs,
        CONFIDENCE * 100.0,
    )
}

fn metric(comparison: &Comparison, new: &Record, title: &str, relative: bool) -> String {
    let headings = ["", "old", "new", "x", "at least-most", ""].map(str::to_owned).to_vec();
    let mut table = Table { headings, words: 1, ..Table::default() };
    let lines = comparison.lines.iter().filter(|line| line.metric.heading(new) == title);
    let mut advice = "";
    for line in lines {
        advice = line.metric.advice();
        let unit = if relative { Unit::Times } else { line.metric.unit };
        let [old, new] = line.medians.map(|median| unit.show(median));
        let (middle, bounds) = (Unit::Times.show(line.interval.middle), line.interval.bounds);
        let bounds =
            bounds.map_or_else(|| "-".to_owned(), |(min, max)| format!("{min:.2}-{max:.2}"));
        let (label, verdict) = (line.label.clone(), verdict(line.verdict).to_owned());
        table.push([label, old, new, middle, bounds, verdict]);
    }
    format!("{title}, {advice}\n{}", draw(&table))
}

const fn verdict(verdict: Difference) -> &'static str {
    match verdict {
        Difference::Better => "better",
        Difference::Few => "too few rounds",
        Difference::Same => "~",
        Difference::Worse => "WORSE",
    }
}

/// Returns the number of each verdict, and how many differences are expected by chance alone.
fn summary(comparison: &Comparison) -> String {
    let count = |verdict| comparison.with_verdict(verdict);
    let all = comparison.lines.len() - count(Difference::Few);
    let few = match count(Difference::Few) {
        0 => String::new(),
        few => format!(", {few} with too few rounds to tell (4 on both sides are enough)"),
    };
    let chance = all as f64 * (1.0 - CONFIDENCE) / 2.0;
    let chance = if chance >= 0.5 {
        format!(
            "Of {all} comparisons, up to {chance:.0} may differ by chance in either direction.\n"
        )
    } else {
        String::new()
    };
    format!(
        "{} worse, {} better, {} without a difference beyond noise{few}.\n{chance}",
        count(Difference::Worse),
        count(Difference::Better),
        count(Difference::Same),
    )
}

fn alone(comparison: &Comparison) -> Option<String> {
    let names = ["old", "new"].iter().zip(&comparison.alone);
    let lines: Vec<_> = names
        .filter(|(_, cells)| !cells.is_empty())
        .map(|(name, cells)| format!("Only in the {name} one: {}\n", cells.join(", ")))
        .collect();
    (!lines.is_empty()).then(|| lines.concat())
}
