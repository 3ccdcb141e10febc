//! The manual pages: the facts that clap has about a command, and the sections that it cannot
//! generate.

pub(crate) mod completions;
mod sections;

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use clap::Command;
use clap_mangen::Man;
use roff::{Roff, bold, roman};
use underpass_engine::hint::Action;

use crate::failure::{Result, WithPath};
use sections::sections;

/// Writes the pages of a command and of all commands below it, one after another.
pub(crate) fn print(command: &Command, text: &mut dyn Write) -> io::Result<()> {
    each(command, &mut |page| page.render(text))
}

/// Writes the same pages into files of a folder, which is created: `underpass-get.1` and others.
pub(crate) fn write(command: &Command, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_path(Action::Creating, folder)?;
    each(command, &mut |page| {
        let path = folder.join(format!("{}.1", page.name()));
        let mut text = Vec::new();
        page.render(&mut text).expect("a vector takes everything");
        Ok(fs::write(&path, text).with_path(Action::Writing, &path)?)
    })
}

/// Calls a function with the page of a command, and with those of the commands below it.
fn each<E>(
    command: &Command,
    use_page: &mut dyn FnMut(&ManualPage<'_>) -> std::result::Result<(), E>,
) -> std::result::Result<(), E> {
    use_page(&ManualPage(command))?;
    let is_shown = |each: &&Command| !each.is_hide_set() && each.get_name() != "help";
    command.get_subcommands().filter(is_shown).try_for_each(|below| each(below, use_page))
}

/// The manual page of one command.
struct ManualPage<'c>(&'c Command);

impl ManualPage<'_> {
    /// Returns the name of the page: `underpass-get`.
    fn name(&self) -> &str {
        self.0.get_display_name().unwrap_or_else(|| self.0.get_name())
    }

    fn render(&self, text: &mut dyn Write) -> io::Result<()> {
        let version = format!("underpass {}", env!("CARGO_PKG_VERSION"));
        // The command `help` has no page.
        let hide_help =
            |each: Command| if each.get_name() == "help" { each.hide(true) } else { each };
        let command = self.0.clone().mut_subcommands(hide_help);
        let page = Man::new(command).source(version).manual("underpass");
        page.render_title(text)?;
        page.render_name_section(text)?;
        self.synopsis().to_writer(text)?;
        page.render_description_section(text)?;
        page.render_options_section(text)?;
        if self.0.has_subcommands() {
            page.render_subcommands_section(text)?;
        }
        self.notes().to_writer(text)?;
        self.sections().to_writer(text)
    }

    /// Returns the usage, as `--help` prints it.
    fn synopsis(&self) -> Roff {
        let usage = self.0.clone().render_usage().to_string();
        let name = self.0.get_bin_name().unwrap_or_else(|| self.0.get_name());
        let mut page = Roff::new();
        page.control("SH", ["SYNOPSIS"]);
        for line in usage.trim_start_matches("Usage:").lines().map(str::trim) {
            let words = line.strip_prefix(name).unwrap_or(line);
            page.text([bold(&line[..line.len() - words.len()]), roman(words)]);
            page.control("br", []);
        }
        page
    }

    /// Returns the text of the help after the options.
    fn notes(&self) -> Roff {
        let mut page = Roff::new();
        if let Some(notes) = self.0.get_after_help() {
            page.control("SH", ["NOTES"]).text([roman(notes.to_string())]);
        }
        page
    }

    /// Returns the sections that clap cannot generate: examples, exit status, files, related pages.
    fn sections(&self) -> Roff {
        let (examples, exit_status, files) = sections(self.name());
        let mut page = Roff::new();
        if !examples.is_empty() {
            page.control("SH", ["EXAMPLES"]);
        }
        for (meaning, typed) in examples {
            page.control("PP", []).text([roman(*meaning)]);
            page.control("PP", []).control("RS", ["4"]).control("nf", []);
            page.text([bold(*typed)]).control("fi", []).control("RE", []);
        }
        page.control("SH", ["EXIT STATUS"]);
        entries(&mut page, exit_status);
        if !files.is_empty() {
            page.control("SH", ["FILES"]);
            entries(&mut page, files);
        }
        let others = ["underpass", "underpass-serve", "underpass-get", "underpass-put"];
        let others = others.into_iter().filter(|other| *other != self.name());
        let others: Vec<_> = others.map(|other| format!("{other}(1)")).collect();
        page.control("SH", ["SEE ALSO"]).text([roman(others.join(", "))]);
        page
    }
}

/// Adds a list of terms, each with its meaning.
fn entries(page: &mut Roff, entries: &[(&str, &str)]) {
    for (term, meaning) in entries {
        page.control("TP", []).text([bold(*term)]).text([roman(*meaning)]);
    }
}
