//! Options of coreutils' `cp` about kept attributes, replaced files and output.

use super::cases::{Case, case};

const PAIR: &str = "echo new >f; echo old >g; touch -d @2000 f; touch -d @1000 g";

/// A file of another user.
const OF_OTHER: &str = "echo x >g; chmod 640 g; chown 1234:1235 g";
const NEWER: &str = "echo new >f; echo old >g; touch -d @1000 f; touch -d @2000 g";
const KEPT: &str = "echo x >f; touch -d @1000000 f; chmod 640 f";
const LINKED: &str = "mkdir a; echo x >a/f; ln a/f a/g; ln -s f a/l";
const TREE: &str = "mkdir -p a/b t; echo x >a/f; echo y >a/b/g; ln -s f a/l";

pub(crate) const CASES: &[Case] = &[
    // Output.
    case("-v of a file", "echo x >f", "-v f n"),
    case("-v of a file into a folder", "echo x >f; mkdir t", "-v f t"),
    case("-v of several", "echo x >f; echo y >g; mkdir t", "-v f g t"),
    case("-v of a tree", TREE, "-rv a n"),
    case("-v of a tree into a tree", "mkdir -p a/b t/a; echo x >a/b/f", "-rv a t"),
    case("-v of hard links", LINKED, "-av a n"),
    case("-v of what is left", PAIR, "-nv f g"),
    case("-v of what is older", NEWER, "-uv f g"),
    case(
        "-v of odd names",
        "mkdir t; touch \"a b\" \"it's\" 'a$b' \"q'\\$\"; mkdir s; mv a* i* q* s",
        "-rv s t",
    ),
    case("-v of a name with a line feed", "mkdir s t; touch \"s/$(printf 'a\\nb')\"", "-rv s t"),
    case("-v of a FIFO", "mkdir a; mkfifo -m 644 a/p", "-rv a n"),
    // Kept attributes.
    case("--preserve=mode", KEPT, "--preserve=mode f n"),
    case("--preserve=timestamps", KEPT, "--preserve=timestamps f n"),
    case(
        "--preserve=timestamps of a folder that exists",
        "mkdir -p a t/a; touch -d @1000000 a; touch -d @2000000 t/a",
        "-r --preserve=timestamps a t",
    ),
    // Two sources of one name.
    case("a name that a left out folder has", "mkdir -p a/g b t; echo x >b/g", "a/g b/g t"),
    case("-n of one name", "mkdir a b t; echo 1 >a/f; echo 2 >b/f", "-n a/f b/f t"),
    case(
        "-u of one name",
        "mkdir a b t; echo 1 >a/f; echo 2 >b/f; touch -d @1000 a/f b/f",
        "-u a/f b/f t",
    ),
    case("-n of what may not be read", "echo x >f; echo y >g; chmod 0 f", "-n f g").by_user(),
    case("-ln of one name", "mkdir a b t; echo 1 >a/f; echo 2 >b/f", "-ln a/f b/f t"),
    case("one name", "mkdir a b t; echo 1 >a/f; echo 2 >b/f", "a/f b/f t"),
    case("one name with a backup", "mkdir a b t; echo 1 >a/f; echo 2 >b/f", "-b a/f b/f t"),
    case("one name, of which one is there", "mkdir a t; echo 1 >a/f; echo 2 >t/f", "t/f a/f t"),
    case("-i of one name", "mkdir a b t; echo 1 >a/f; echo 2 >b/f", "-i a/f b/f t").answered("n\n"),
    case("--preserve=mode,timestamps", KEPT, "--preserve=mode,timestamps f n"),
    case("--preserve=mode of set-user-id", "echo x >f; chmod 4755 f", "--preserve=mode f n"),
    case("--preserve=all", LINKED, "-r --preserve=all a n"),
    case("--preserve=links", LINKED, "-r --preserve=links a n"),
    case("--preserve=ownership", "echo x >f; chown 1234:77 f", "--preserve=ownership f n")
        .by_root(),
    case("--preserve=xattr, attributes", "echo x >f", "--preserve=xattr f n"),
    case("--preserve=mode, attributes", "echo x >f", "--preserve=mode f n"),
    case("--preserve=mode, ACL", "echo x >f; chmod 640 f", "--preserve=mode f n"),
    case("--preserve=xattr, ACL", "echo x >f; chmod 644 f", "--preserve=xattr f n"),
    case("--no-preserve=mode", KEPT, "--no-preserve=mode f n"),
    case("--no-preserve=mode of a program", "echo x >f; chmod 755 f", "--no-preserve=mode f n"),
    case(
        "--no-preserve=mode of a tree",
        "mkdir -p a/b; echo x >a/b/f; chmod 700 a; chmod 600 a/b/f",
        "-r --no-preserve=mode a n",
    ),
    case("-a --no-preserve=mode", KEPT, "-a --no-preserve=mode f n"),
    case("-a --no-preserve=links", LINKED, "-a --no-preserve=links a n"),
    case(
        "-a --no-preserve=ownership",
        "echo x >f; chown 1234:77 f",
        "-a --no-preserve=ownership f n",
    )
    .by_root(),
    case("-a --no-preserve=xattr, attributes", "echo x >f", "-a --no-preserve=xattr f n"),
    case("-a --no-preserve=mode, ACL", "echo x >f; chmod 640 f", "-a --no-preserve=mode f n"),
    case(
        "the last of --preserve and --no-preserve",
        KEPT,
        "--no-preserve=mode --preserve=mode f n",
    ),
    case("the last of -a and --no-preserve", KEPT, "--no-preserve=mode -a f n"),
    case("an unknown property", "echo x >f", "--preserve=colour f n"),
    case("-d of a link", "echo x >f; ln -s f l", "-d l n"),
    case("-d of hard links", "echo x >f; ln f g; mkdir t", "-d f g t"),
    case("-rd of a tree", LINKED, "-rd a n"),
    case("-L after -d", "echo x >f; ln -s f l", "-d -L l n"),
    case("-d after -L", "echo x >f; ln -s f l", "-L -d l n"),
    case("-L after -d, of hard links", "echo x >f; ln f g; mkdir t", "-d -L f g t"),
    case("-H after -d, of hard links", "mkdir a; echo x >a/f; ln a/f a/g", "-r -d -H a n"),
    case("-a after -L", LINKED, "-L -a a n"),
    case("-L after -a", LINKED, "-a -L a n"),
    // Without bytes.
    case(
        "--attributes-only of a new file",
        KEPT,
        "--attributes-only --preserve=mode,timestamps f n",
    ),
    case(
        "--attributes-only of a file that is there",
        "echo long >f; chmod 600 f; touch -d @1000 f; echo y >g",
        "--attributes-only --preserve=mode,timestamps f g",
    ),
    case(
        "--attributes-only leaves a file where a link would be",
        "mkdir a t; ln -s x a/f; echo data >t/f",
        "-aT --attributes-only a t",
    ),
    case(
        "--attributes-only leaves a file where a FIFO would be",
        "mkdir a t; mkfifo -m 644 a/f; echo data >t/f",
        "-aT --attributes-only a t",
    ),
    case(
        "--attributes-only of an attribute, attributes",
        "echo x >f; echo y >g",
        "--attributes-only --preserve=xattr f g",
    ),
    case("--attributes-only of a tree", LINKED, "-a --attributes-only a n"),
    case(
        "--attributes-only of a tree over another one",
        "mkdir a t; echo x >a/f; chmod 600 a/f; echo long >t/f",
        "-aT --attributes-only a t",
    ),
    // Contexts, and abbreviations.
    case("-Z without SELinux", KEPT, "-Z f n"),
    case("--context without SELinux", KEPT, "--context f n"),
    case(
        "--context=any_u:any_r:any_t:s0 without SELinux",
        KEPT,
        "--context=any_u:any_r:any_t:s0 f n",
    ),
    case("-aZ without SELinux", KEPT, "-aZ f n"),
    case("-Z --context=x without SELinux", KEPT, "-Z --context=x f n"),
    case("--conte without SELinux", KEPT, "--conte f n"),
    case("--preserve=context without SELinux", KEPT, "--preserve=context f n")
        .differs("the attribute is copied where there is one, whatever the kernel knows of it"),
    case("VERSION_CONTROL as an abbreviation", PAIR, "-b f g").with("VERSION_CONTROL", "nu"),
    case("VERSION_CONTROL that is ambiguous", PAIR, "-b f g").with("VERSION_CONTROL", "n"),
    case("abbreviated options", LINKED, "--rec --no-deref --pres=a --verb a n"),
    case("an option that is ambiguous", KEPT, "--no f n"),
    // Replaced files.
    case("--update=older", PAIR, "--update f g"),
    case("--update=older of a newer file", NEWER, "--update f g"),
    case("-u after -n", PAIR, "-n -u f g"),
    case("-n after -u", PAIR, "-u -n f g"),
    case("-i after -n, no", PAIR, "-n -i f g").answered("n\n"),
    case("-i after -n, yes", PAIR, "-n -i f g").answered("y\n"),
    case("-n after -i", PAIR, "-i -n f g").answered("y\n"),
    case("-i and -u of a newer file", NEWER, "-i -u f g").answered("y\n"),
    case("-i and the end of standard input", PAIR, "-i f g"),
    case("-i of a new file", "echo x >f", "-i f n"),
    case("-i of two", "echo x >f; echo y >g; mkdir t; echo a >t/f; echo b >t/g", "-i f g t")
        .answered("Yes\nno\n"),
    // Slashes.
    case(
        "--strip-trailing-slashes of a link",
        "mkdir d; ln -s d l",
        "-P --strip-trailing-slashes l/ n",
    )
    .differs("coreutils does it only into a folder; its manual says each source"),
    case(
        "--strip-trailing-slashes of a link into a folder",
        "mkdir d t; ln -s d l",
        "-P --strip-trailing-slashes l/ t",
    ),
    case("a link with a slash", "mkdir d; ln -s d l", "-rP l/ n"),
    case("--strip-trailing-slashes of a file", "echo x >f", "--strip-trailing-slashes f// n")
        .differs("coreutils does it only into a folder; its manual says each source"),
    // Backups.
    case("-b", PAIR, "-b f g"),
    case("-bv", PAIR, "-bv f g"),
    case("-b over an earlier backup", "echo x >f; echo y >g; echo z >g~", "-b f g"),
    case("-b over a backup that is the same file", "echo x >f; echo y >g; ln g g~", "-b f g")
        .differs(
            "rename(2) of one name of a file to another does nothing, at which coreutils fails",
        ),
    case("-b of a new file", "echo x >f", "-bv f n"),
    case("-b with numbered ones", "echo x >f; echo y >g; echo z >g.~3~; echo a >g.~1~", "-bv f g"),
    case("-b into a folder", "echo x >f; mkdir t; echo y >t/f", "-bv f t"),
    case(
        "-b of a tree",
        "mkdir a t; echo x >a/f; echo y >t/f; ln -s f a/l; ln -s g t/l; mkdir a/d t/d; echo z >t/d/k; echo w >a/d/k",
        "-rbvT a t",
    ),
    case(
        "-b of hard links",
        "mkdir a t; echo x >a/f; ln a/f a/g; echo y >t/f; echo z >t/g",
        "-abT a t",
    ),
    case("-b over a link", "echo x >f; echo y >g; ln -s g l", "-b f l"),
    case("-b over a link to the source", "echo x >f; ln -s f l", "-b f l"),
    case("-b over another name of the source", "echo x >f; ln f g", "-b f g"),
    case("-b of a link over what it leads to", "echo x >f; ln -s f l", "-b l f"),
    case("-bP of a link over what it leads to", "echo x >f; ln -s f l", "-bP l f"),
    case("-b onto itself", "echo x >f", "-b f f"),
    case("-fb onto itself", "echo x >f", "-fb f f"),
    case(
        "-f --backup=numbered onto itself",
        "echo x >f; echo y >f.~1~",
        "-fv --backup=numbered f f",
    ),
    case("-fb onto itself by another path", "echo x >f", "-fb f ./f"),
    case("-b of its own backup", "echo x >f; echo y >f~", "-b f~ f"),
    case("--backup=numbered of its own backup", "echo x >f; echo y >f~", "--backup=numbered f~ f"),
    case("-b over a folder", "echo x >f; mkdir g", "-bT f g"),
    case("-b over a FIFO", "echo x >f; mkfifo g", "-b f g"),
    case("-b and a folder in the way of the backup", "echo x >f; echo y >g; mkdir g~", "-b f g"),
    case("--backup=none", PAIR, "--backup=none f g"),
    case("--backup=off", PAIR, "-b --backup=off f g"),
    case("--backup=numbered", PAIR, "--backup=numbered f g"),
    case("--backup=t", PAIR, "--backup=t f g"),
    case("--backup=existing", PAIR, "--backup=existing f g"),
    case("--backup=nil with numbered ones", "echo x >f; echo y >g; : >g.~1~", "--backup=nil f g"),
    case(
        "--backup=simple with numbered ones",
        "echo x >f; echo y >g; : >g.~1~",
        "--backup=simple f g",
    ),
    case("--backup=never", PAIR, "--backup=never f g"),
    case("--backup=always is none", PAIR, "--backup=always f g"),
    case("-S alone", PAIR, "-S .old f g"),
    case("--suffix", PAIR, "-b --suffix=.old f g"),
    case("-S with a slash", PAIR, "-S a/b f g"),
    case("-S that is empty", PAIR, "--suffix= f g"),
    case("VERSION_CONTROL", PAIR, "-b f g").with("VERSION_CONTROL", "numbered"),
    case("VERSION_CONTROL without -b", PAIR, "f g").with("VERSION_CONTROL", "numbered"),
    case("VERSION_CONTROL and --backup=simple", PAIR, "--backup=simple f g")
        .with("VERSION_CONTROL", "t"),
    case("VERSION_CONTROL that says none", PAIR, "--backup f g").with("VERSION_CONTROL", "off"),
    case("VERSION_CONTROL that is unknown", PAIR, "-b f g").with("VERSION_CONTROL", "some"),
    case("SIMPLE_BACKUP_SUFFIX", PAIR, "-b f g").with("SIMPLE_BACKUP_SUFFIX", ".bak"),
    case("SIMPLE_BACKUP_SUFFIX and -S", PAIR, "-b -S .old f g")
        .with("SIMPLE_BACKUP_SUFFIX", ".bak"),
    case("SIMPLE_BACKUP_SUFFIX with a slash", PAIR, "-b f g").with("SIMPLE_BACKUP_SUFFIX", "a/b"),
    case("-b and -n", PAIR, "-b -n f g"),
    case("-b and -u of a newer file", NEWER, "-bu f g"),
    case("-b and -i, no", PAIR, "-bi f g").answered("n\n"),
    case("-b and -i, yes", PAIR, "-bi f g").answered("y\n"),
    case("-b of two files of one name", "mkdir a b t; echo x >a/f; echo y >b/f", "-b a/f b/f t"),
    case(
        "--backup=numbered of two files of one name",
        "mkdir a b t; echo x >a/f; echo y >b/f",
        "--backup=numbered a/f b/f t",
    ),
    case("-b --attributes-only", "echo x >f; echo y >g", "-b --attributes-only f g"),
    case("-b of a file that is not writable", "echo x >f; echo y >g; chmod 444 g", "-b f g")
        .by_user(),
    case(
        "-b in a folder that is not writable",
        "echo x >f; mkdir t; echo y >t/f; chmod 555 t",
        "-b f t",
    )
    .by_user(),
    // Links instead of copies.
    case("-l", "echo x >f", "-lv f n"),
    case("-l of a tree", LINKED, "-rl a n"),
    case("-al of a tree", LINKED, "-alv a n"),
    case("-rlP of a tree", LINKED, "-rlP a n"),
    case("-l over a file", PAIR, "-l f g"),
    case("-lf over a file", PAIR, "-lf f g"),
    case("-li over a file", PAIR, "-li f g").answered("y\n"),
    case("-l -b over a file", PAIR, "-lbv f g"),
    case("-l --remove-destination over a file", PAIR, "-l --remove-destination f g"),
    case("-l over the same file", "echo x >f; ln f g", "-l f g"),
    case("-l onto itself", "echo x >f", "-l f f"),
    case("-n onto itself", "echo x >f", "-n f f"),
    case("-n over a link to it", "echo x >f; ln -s f l", "-n f l"),
    case("-n of a FIFO onto itself", "mkfifo p", "-n p p"),
    case("-n of a device over a link to it", "ln -s /dev/null l", "-n /dev/null l"),
    case("-n of a link over its file", "echo x >f; ln -s f l", "-nP l f"),
    case("-rn into itself by a link", "mkdir a; echo x >a/f; ln -s a b", "-rnT a b"),
    case("-u onto itself", "echo x >f", "-u f f"),
    case("-l of a link", "echo x >f; ln -s f l", "-l l n"),
    case("-lP of a link", "echo x >f; ln -s f l", "-lP l n"),
    case("-l over a link to the source", "echo x >f; ln -s f l", "-l f l"),
    case("-lf over a link to the source", "echo x >f; ln -s f l", "-lf f l"),
    case("-l of a folder", "mkdir a", "-l a n"),
    case("-lu over a newer file", NEWER, "-lu f g"),
    case("-lu over an older file", PAIR, "-lu f g"),
    case("-ln over a file", PAIR, "-ln f g"),
    case("-s", "echo x >f", "-sv f n"),
    case("-s into a folder", "echo x >f; mkdir t", "-s f t"),
    case("-s of a tree", "mkdir a; echo x >a/f", "-rs a n"),
    case("-s of a tree into the current folder", "mkdir a; echo x >a/f", "-rs a/. ."),
    case("-s of a tree as the current folder", "mkdir a; echo x >a/f", "-rsT a ."),
    case("-s of levels as the current folder", "mkdir -p a/b; echo x >a/b/f", "-rsT a ."),
    case("-s over a file", PAIR, "-s f g"),
    case("-sf over a file", PAIR, "-sf f g"),
    case("-si over a file", PAIR, "-si f g").answered("y\n"),
    case("-sb over a file", PAIR, "-sb f g"),
    case("-s onto itself", "echo x >f", "-s f f"),
    case("-s of a link", "echo x >f; ln -s f l", "-s l n"),
    case("-s of an absolute path", "mkdir t", "-s /etc/passwd t"),
    case("-s of an absolute tree", "true", "-rs /etc/ssl n"),
    case("-l and -s", "echo x >f", "-l -s f n"),
    // Removed first.
    case(
        "--remove-destination over a link",
        "echo x >f; echo y >g; ln -s g l",
        "--remove-destination f l",
    ),
    case(
        "--remove-destination over a link to the source",
        "echo x >f; ln -s f l",
        "--remove-destination f l",
    ),
    case("--remove-destination over another name", "echo x >f; ln f g", "--remove-destination f g"),
    case("--remove-destination onto itself", "echo x >f", "--remove-destination f f"),
    case(
        "--remove-destination of a link over what it leads to",
        "echo x >f; ln -s f l",
        "--remove-destination l f",
    ),
    case("--remove-destination over a FIFO", "echo x >f; mkfifo g", "--remove-destination f g"),
    case("--remove-destination of a device", OF_OTHER, "--remove-destination /dev/null g")
        .by_root(),
    case("-b of a device", OF_OTHER, "-b /dev/null g").by_root(),
    case("the owner of a device", OF_OTHER, "--preserve=ownership /dev/null g").by_root(),
    case("the owner of a device without its mode", OF_OTHER, "-p --no-preserve=mode /dev/null g")
        .by_root(),
    case("--remove-destination over a folder", "echo x >f; mkdir g", "-T --remove-destination f g"),
    case("--remove-destination -v", PAIR, "-v --remove-destination f g"),
    case(
        "--remove-destination of a tree",
        "mkdir a t; echo x >a/f; echo y >g; ln -s ../g t/f",
        "-rT --remove-destination a t",
    ),
    case(
        "--remove-destination of what is not writable",
        "echo x >f; echo y >g; chmod 444 g",
        "--remove-destination f g",
    )
    .by_user(),
    case("--remove-destination -i, no", PAIR, "-i --remove-destination f g").answered("n\n"),
    // Whole paths.
    case("--parents of a file", "mkdir -p a/b t; echo x >a/b/f; chmod 750 a", "--parents a/b/f t"),
    case("--parents of a plain file", "echo x >f; mkdir t", "--parents f t"),
    case("--parents with -t", "mkdir -p a/b t; echo x >a/b/f", "--parents -t t a/b/f"),
    case(
        "--parents of several",
        "mkdir -p a/b a/c t; echo x >a/b/f; echo y >a/b/g; echo z >a/c/f; echo w >k",
        "--parents a/b/f k a/c/f a/b/g t",
    ),
    case(
        "--parents of a tree",
        "mkdir -p a/b/c t; echo x >a/b/c/f; echo y >a/other",
        "-r --parents a/b t",
    ),
    case(
        "--parents of a tree and what is in it",
        "mkdir -p a/b/c t; echo x >a/b/c/f; echo y >a/g",
        "-r --parents a/b/c/f a/b a t",
    ),
    case(
        "--parents of a hard link that two sources have",
        "mkdir -p x/s x/d t; echo x >x/s/a; ln x/s/a x/d/q; ln -s s x/l",
        "-dr --parents x/l/a x/s x/d t",
    ),
    case(
        "--parents of a folder without -r",
        "mkdir -p a/b t; echo x >a/b/f",
        "--parents a/b a/b/f t",
    ),
    case("-T to a link with a slash", "mkdir a t; echo x >a/f; ln -s t l", "-aT a l/"),
    case("-T to a link without one", "mkdir a t; echo x >a/f; ln -s t l", "-aT a l"),
    case("-T of a file to a link with a slash", "echo x >f; mkdir t; ln -s t l", "-T f l/"),
    case("-aT of a file to a link with a slash", "echo x >f; mkdir t; ln -s t l", "-aT f l/"),
    case("-T of a missing file to a link with a slash", "mkdir t; ln -s t l", "-T f l/"),
    case("--parents of all without -r", "mkdir -p a t; echo x >f", "--parents . f t"),
    case("--parents with a slash", "mkdir -p a/b t; echo x >a/b/f", "-r --parents a/b/ t"),
    case(
        "--parents with a link and a slash",
        "mkdir a t; echo x >a/f; ln -s a l",
        "-r --parents l/ t",
    ),
    case("--parents with dots", "mkdir -p a/b t; echo x >a/b/f", "-r --parents ./a/./b t"),
    case("--parents of an absolute path", "mkdir t", "--parents /etc/hostname t"),
    case(
        "--parents through a link",
        "mkdir -p a/b t; echo x >a/b/f; ln -s a l",
        "--parents l/b/f t",
    ),
    case(
        "--parents into what is there",
        "mkdir -p a/b t/a/b; echo x >a/b/f; echo y >t/a/b/f; echo z >t/a/g; chmod 700 t/a",
        "--parents a/b/f t",
    ),
    case(
        "--parents over a file that is no folder",
        "mkdir -p a/b t; echo x >a/b/f; echo y >t/a",
        "--parents a/b/f t",
    ),
    case(
        "--parents -a",
        "mkdir -p a/b t; echo x >a/b/f; chmod 711 a; chmod 700 a/b; touch -d @1000 a a/b",
        "-a --parents a/b/f t",
    ),
    case(
        "--parents -p into what is there",
        "mkdir -p a/b t/a; echo x >a/b/f; chmod 711 a; chmod 700 t/a",
        "-p --parents a/b/f t",
    ),
    case("--parents -x", "mkdir -p a/b t; echo x >a/b/f", "-rx --parents a/b t"),
    case("--parents -l", "mkdir -p a/b t; echo x >a/b/f", "-l --parents a/b/f t"),
    case("--parents -b", "mkdir -p a t/a; echo x >a/f; echo y >t/a/f", "-b --parents a/f t"),
    case("--parents of what is missing", "mkdir -p a t; echo x >a/f", "--parents a/g a/f t"),
    case("--parents to a new name", "mkdir a; echo x >a/f", "--parents a/f n"),
    case("--parents to a file", "mkdir a; echo x >a/f; echo y >g", "--parents a/f g"),
    case("--parents -T", "mkdir a t; echo x >a/f", "-T --parents a/f t"),
    case("--parents onto itself", "mkdir a; echo x >a/f", "--parents a/f ."),
    case(
        "--parents of two files of one name",
        "mkdir -p a b t; echo x >a/f; echo y >b/f",
        "--parents a/f b/f t",
    ),
    case("--parents that lead up", "mkdir -p a/b t; echo x >a/f", "--parents a/b/../f t")
        .differs("a path with .. could lead out of the target, and is refused"),
    case("--parents -v", "mkdir -p a/b t; echo x >a/b/f", "-v --parents a/b/f t")
        .differs("coreutils prints the folders above without quotes"),
];

/// Values that are abbreviated, some of them ambiguous or none at all.
pub(crate) fn abbreviations() -> impl Iterator<Item = Case> {
    let options: [(_, &[_], _, _); 6] = [
        ("--reflink", &["au", "a", "n", ""], KEPT, "f n"),
        ("--sparse", &["al", "a", "ne", ""], KEPT, "f n"),
        ("--preserve", &["mo", "a", "ti,ow", "l,m", "x", "u", "", "mode,", "Mode"], KEPT, "f n"),
        ("--no-preserve", &["mo", "a"], KEPT, "f n"),
        ("-a --no-preserve", &["t"], KEPT, "f n"),
        (
            "--backup",
            &["t", "s", "n", "ne", "nu", "ni", "no", "o", "e", "", "N", "nones"],
            PAIR,
            "f g",
        ),
    ];
    options.into_iter().flat_map(|(option, values, setup, names)| {
        values.iter().map(move |value| {
            let name = format!("{option}={value} as an abbreviation");
            case(name.leak(), setup, format!("{option}={value} {names}").leak())
        })
    })
}
