//! Every option about modes, with every kind of original, into every kind of folder.

use super::cases::Case;

/// Options, and whether a single file is copied and not a tree.
const OPTIONS: [(&str, bool); 6] =
    [("", true), ("-p", true), ("-a", true), ("-r", false), ("-rp", false), ("-a", false)];

/// Modes of the folder and the file that are copied, in which the umask changes nothing.
const ORIGINALS: [(&str, &str); 4] =
    [("755", "644"), ("2755", "2755"), ("1755", "4711"), ("3750", "1644")];

/// Modes of the folder that they are copied to, and whether it has a default ACL and another group.
const TARGETS: [(&str, bool, bool); 4] =
    [("755", false, false), ("2775", false, true), ("755", true, false), ("3777", true, false)];

/// The cases. A name with `inherited` in it has a default ACL set on the folder `t`, one with `ACL`
/// an ACL on the file `f`.
pub(crate) fn cases() -> impl Iterator<Item = Case> {
    let product = OPTIONS.into_iter().flat_map(|options| {
        ORIGINALS.into_iter().flat_map(move |original| {
            TARGETS.into_iter().flat_map(move |target| {
                let users = [(false, false), (true, false), (false, true), (true, true)];
                // No file of a tree has an ACL.
                let count = if options.1 { 4 } else { 2 };
                users.into_iter().take(count).map(move |more| (options, original, target, more))
            })
        })
    });
    product.map(|((options, is_file), (folder, file), target, (is_user, has_acl))| {
        let (into, inherits, has_group) = target;
        let source = if is_file { "f" } else { "a" };
        let name = format!(
            "{options} of {folder} and {file}{}, to {into}{}{}{}",
            if has_acl { " with an ACL" } else { "" },
            if inherits { ", inherited" } else { "" },
            if has_group { ", of another group" } else { "" },
            if is_user { ", by a user" } else { "" },
        );
        let keeps_group_id =
            !is_file && options != "-r" && folder == "755" && into.len() == 4 && into != "1777";
        let group = if has_group && !is_user { "chgrp 77 t; " } else { "" };
        let setup = format!(
            "mkdir t; {group}chmod {into} t; mkdir -p a/d; echo x >f; echo y >a/f; echo z >a/d/g; \
             chmod {file} f a/f a/d/g; chmod {folder} a a/d"
        );
        Case {
            name: name.leak(),
            setup: setup.leak(),
            words: format!("{options} {source} t").leak(),
            is_user,
            needs_root: false,
            input: "",
            variable: None,
            differs: keeps_group_id.then_some(
                "-p gives a folder the mode of its original, and takes away what it has inherited",
            ),
        }
    })
}
