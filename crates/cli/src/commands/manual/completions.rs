//! `--completions SHELL`, `--print-manpage`, `--write-manpages DIR`: generated files for shells and
//! man.

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Arg, Args, Command, ValueHint};
use clap_complete::Shell;

use crate::failure::Result;
use crate::output;

/// Options that print something instead of running a command.
#[derive(Debug, Args)]
#[command(next_help_heading = "About this program")]
pub(crate) struct GenerateArgs {
    /// Print the completions of all commands for this shell
    #[arg(long, value_name = "SHELL", value_enum)]
    completions: Option<Shell>,

    /// Print the manual pages of all commands: man -l -
    #[arg(long, conflicts_with = "completions")]
    print_manpage: bool,

    /// Write the manual page of each command into this folder
    #[arg(long, value_name = "DIR", conflicts_with_all = ["completions", "print_manpage"])]
    write_manpages: Option<PathBuf>,
}

impl GenerateArgs {
    /// Prints or writes the requested texts about this program; returns whether any was requested.
    pub(crate) fn generate(&self, mut program: Command) -> Result<bool> {
        let mut text = Vec::new();
        if let Some(shell) = self.completions {
            program.build();
            program = without_files(program);
            clap_complete::generate(shell, &mut program, "underpass", &mut text);
            text = with_equals_signs(shell, &program, text);
        } else if self.print_manpage {
            program.build();
            super::print(&program, &mut text).expect("a vector takes everything");
        } else if let Some(folder) = &self.write_manpages {
            program.build();
            super::write(&program, folder)?;
        } else {
            return Ok(false);
        }
        output::bytes(&text);
        Ok(true)
    }
}

/// Generates the requested texts; without a request, a command is missing.
pub(crate) fn run(args: &GenerateArgs, mut program: Command) -> Result<()> {
    if args.generate(program.clone())? {
        return Ok(());
    }
    let names: Vec<_> = program.get_subcommands().map(Command::get_name).collect();
    let message = format!("a subcommand is missing: one of {}", names.join(", "));
    Err(program.error(ErrorKind::MissingSubcommand, message).into())
}

/// Makes shells offer files only for values that are paths: without a hint, they do for all.
fn without_files(command: Command) -> Command {
    let command = command.mut_args(|arg| {
        let takes_anything = arg.get_action().takes_values()
            && arg.get_value_hint() == ValueHint::Unknown
            && arg.get_possible_values().is_empty();
        if takes_anything { arg.value_hint(ValueHint::Other) } else { arg }
    });
    command.mut_subcommands(without_files)
}

/// Offers values behind an equals sign: in bash, to which it is a word, for every option; and for
/// options that take a value in no other way, in no other place.
fn with_equals_signs(shell: Shell, program: &Command, text: Vec<u8>) -> Vec<u8> {
    let Ok(mut script) = String::from_utf8(text) else { unreachable!("names are ASCII") };
    let strict = program.get_subcommands().flat_map(|command| {
        let strict = command.get_arguments().filter(|arg| arg.is_require_equals_set());
        strict.flat_map(spellings).map(|option| (command.get_name(), option))
    });
    let strict: BTreeSet<_> = strict.collect();
    match shell {
        Shell::Bash => {
            let patterns = strict.iter().map(|(command, option)| format!("\"{command} {option}\""));
            let patterns: Vec<_> = patterns.collect();
            let rule = BASH_EQUALS.replace("OPTIONS", &patterns.join("|"));
            script = script.replacen(BASH_PREVIOUS, &format!("{BASH_PREVIOUS}{rule}"), 1);
        }
        Shell::Zsh => {
            for (_, option) in &strict {
                script = script.replace(&format!("{option}=["), &format!("{option}=-["));
            }
        }
        Shell::Fish => {
            let is_strict = |line: &str| {
                let mut words =
                    line.split(" -l ").skip(1).filter_map(|rest| rest.split(' ').next());
                words.any(|word| {
                    strict.iter().any(|(_, option)| option.strip_prefix("--") == Some(word))
                })
            };
            let lines = script.lines().map(|line| {
                if is_strict(line) {
                    line.replacen(" -r", "", 1) + "\n"
                } else {
                    line.to_owned() + "\n"
                }
            });
            script = lines.collect();
        }
        _ => {}
    }
    script.into_bytes()
}

/// Returns all spellings of an option.
fn spellings(arg: &Arg) -> Vec<String> {
    let long = arg.get_long_and_visible_aliases().unwrap_or_default();
    let short = arg.get_short().map(|letter| format!("-{letter}"));
    long.into_iter().map(|name| format!("--{name}")).chain(short).collect()
}

/// The line of the script for bash that takes the word before the one to complete.
const BASH_PREVIOUS: &str = "    prev=\"$3\"\n";

/// The value after it. Without an equals sign, an option with an optional value has none.
const BASH_EQUALS: &str = r#"    if [[ "${prev}" == "=" ]]; then
        prev="${COMP_WORDS[COMP_CWORD-2]}"
    elif [[ "${COMP_WORDS[COMP_CWORD]}" != "=" ]]; then
        case "${COMP_WORDS[1]} ${prev}" in
            OPTIONS) prev="" ;;
        esac
    fi
"#;
