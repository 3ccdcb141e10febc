//! What is copied: a shell script that sets the tree up, the words of `cp`, and why the two programs
//! may differ.

/// One case.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) setup: &'static str,
    pub(crate) words: &'static str,
    /// Copied by a user without privileges.
    pub(crate) is_user: bool,
    pub(crate) needs_root: bool,
    /// The content of standard input.
    pub(crate) input: &'static str,
    /// A variable of the environment.
    pub(crate) variable: Option<(&'static str, &'static str)>,
    /// Why the outcome is another one on purpose.
    pub(crate) differs: Option<&'static str>,
}

pub(crate) const fn case(name: &'static str, setup: &'static str, words: &'static str) -> Case {
    Case {
        name,
        setup,
        words,
        is_user: false,
        needs_root: false,
        input: "",
        variable: None,
        differs: None,
    }
}

impl Case {
    pub(crate) const fn by_user(self) -> Self {
        Self { is_user: true, ..self }
    }

    pub(crate) const fn answered(self, input: &'static str) -> Self {
        Self { input, ..self }
    }

    pub(crate) const fn with(self, name: &'static str, value: &'static str) -> Self {
        Self { variable: Some((name, value)), ..self }
    }

    pub(crate) const fn by_root(self) -> Self {
        Self { needs_root: true, ..self }
    }

    pub(crate) const fn differs(self, reason: &'static str) -> Self {
        Self { differs: Some(reason), ..self }
    }
}

const TREE: &str = "mkdir -p a/b/c a/empty; echo one >a/f; echo two >a/b/g; ln -s f a/link; \
                    ln -s nowhere a/dangling; ln a/f a/b/hard; touch -d @1000000 a/f; \
                    chmod 750 a/b; chmod 640 a/b/g";

pub(crate) const CASES: &[Case] = &[
    // One file onto itself, by whatever name.
    case("onto itself", "echo x >f", "f f"),
    case("onto itself by a link", "echo x >f; ln -s f g", "f g"),
    case("from a link to what it leads to", "echo x >f; ln -s f g", "g f"),
    case("a link itself to what it leads to", "echo x >f; ln -s f g", "-P g f"),
    case("an archive of a link to what it leads to", "echo x >f; ln -s f g", "-a g f"),
    case("onto another name of it", "echo x >f; ln f g", "f g"),
    case("onto itself in its folder", "mkdir d; echo x >d/f", "d/f d"),
    case("forced onto itself", "echo x >f", "-f f f"),
    case("a link onto itself", "ln -s nowhere l", "-P l l"),
    case("a FIFO onto itself", "mkfifo p", "p p"),
    case("a FIFO onto itself in its folder", "mkfifo p", "p ."),
    case("a FIFO onto itself with -b", "mkfifo p; echo x >f", "-ib p f ."),
    case("a FIFO over a file, asked", "mkfifo p; mkdir t; echo x >t/p", "-i p t").answered("n\n"),
    case("a newer FIFO onto itself by a link", "mkfifo p; ln -s p l", "-u l p"),
    // Links.
    case("a link is followed", "echo x >f; ln -s f l", "l n"),
    case("a link is kept by -P", "echo x >f; ln -s f l", "-P l n"),
    case("a link is kept by -d", "echo x >f; ln -s f l", "-P -r l n"),
    case("a named link to a folder with -r", "mkdir d; echo x >d/f; ln -s d l", "-r l n"),
    case(
        "a named link to a folder with -rH",
        "mkdir d; echo x >d/f; ln -s f d/k; ln -s d l",
        "-rH l n",
    ),
    case("links within with -rL", "mkdir d; echo x >d/f; ln -s f d/k", "-rL d n"),
    case("links within with -rP", "mkdir d; echo x >d/f; ln -s f d/k", "-rP d n"),
    case("the last of -L and -P", "echo x >f; ln -s f l", "-L -P l n"),
    case("the last of -P and -L", "echo x >f; ln -s f l", "-P -L l n"),
    case("a dangling link is followed", "ln -s nowhere l", "l n"),
    case("a dangling link within", "mkdir d; ln -s nowhere d/l; echo x >d/f", "-rL d n"),
    case("a link to itself", "ln -s l l", "l n"),
    case("a link that leads up", "mkdir d; ln -s .. d/up; echo x >d/f", "-r d n"),
    case("a dangling link as target", "echo x >f; ln -s nowhere l", "f l"),
    case("a link as target", "echo x >f; echo old >g; ln -s g l", "f l"),
    case("a link to a folder as target", "echo x >f; mkdir d; ln -s d l", "f l"),
    case("a link to a folder as target with -T", "echo x >f; mkdir d; ln -s d l", "-T f l"),
    case("a FIFO over a link", "mkfifo p; echo x >g; ln -s g t", "-r p t"),
    case("a link over a FIFO", "mkfifo p; echo x >f; ln -s f l", "-Pf l p"),
    case("a FIFO over a dangling link", "mkfifo p; ln -s nowhere t", "-r p t"),
    case("a link to a folder, to a file with a slash", "mkdir d; ln -s d l; echo x >f", "-P l f/"),
    case("a link to a folder, to a link with a slash", "ln -s . l; ln -s nowhere t", "-rP l t/"),
    case("a link to a folder, to a name with a slash", "ln -s . l", "-rP l n/"),
    case("a link over a link", "ln -s a l; ln -s b m", "-P l m"),
    case("a link over a file", "ln -s a l; echo x >m", "-P l m"),
    case(
        "a file over a link in a tree",
        "mkdir a z; echo x >a/f; echo old >g; ln -s ../g z/f",
        "-rT a z",
    )
    .differs("within a tree a link in the way is replaced, not written through"),
    case(
        "an archive over a link in a tree",
        "mkdir a z; echo x >a/f; echo old >g; ln -s ../g z/f",
        "-aT a z",
    )
    .differs("within a tree a link in the way is replaced, not written through"),
    // Names of targets.
    case("a tree to a new name", TREE, "-r a n"),
    case("a tree into a folder", "mkdir -p a/b t; echo x >a/b/f", "-r a t"),
    case("a tree with a slash", "mkdir -p a/b t; echo x >a/b/f", "-r a/ t"),
    case("what is in a tree", "mkdir -p a/b t; echo x >a/b/f", "-r a/. t"),
    case("a tree onto a tree", "mkdir -p a/b t/b; echo x >a/b/f; echo y >t/b/g", "-rT a t"),
    case("a tree to a link with a slash", "mkdir a d; echo x >a/f; ln -s d l", "-rT a l/"),
    case("a tree to a link with a dot", "mkdir a d; echo x >a/f; ln -s d l", "-rT a l/./"),
    case("a file to a name with a slash", "echo x >f", "f n/"),
    case("a file with a slash", "echo x >f", "f/ n"),
    case("a tree to a name with a slash", "mkdir a", "-r a n/"),
    case("a folder without -r", "mkdir a", "a n"),
    case("several to a file", "echo x >f; echo y >g; echo z >h", "f g h"),
    case("several into a folder", "echo x >f; echo y >g; mkdir t", "f g t"),
    case("several with -t", "echo x >f; echo y >g; mkdir t", "-t t f g"),
    case("one is missing", "echo x >f; mkdir t", "f missing t"),
    case("an empty name", "echo x >f; mkdir t", "f '' t"),
    case("an empty name alone", "mkdir t", "'' t"),
    case("an empty target", "echo x >f", "f ''"),
    case("a folder over a file", "mkdir a; echo x >f", "-rT a f"),
    case("a file over a folder", "mkdir a; echo x >f", "-T f a"),
    case("a folder over a file within", "mkdir -p a/x t; echo f >t/x; echo g >a/g", "-rT a t"),
    case("a file over a folder within", "mkdir -p a t/x; echo f >a/x; echo g >a/g", "-rT a t"),
    case("into itself", "mkdir a; echo x >a/f", "-r a a/n").differs(
        "coreutils leaves the folder that it had begun; we refuse before anything is made",
    ),
    case("into itself by name", "mkdir a", "-r a a").differs(
        "coreutils leaves the folder that it had begun; we refuse before anything is made",
    ),
    case("twice the same file", "echo x >f; mkdir t", "f f t"),
    case("two files of one name", "mkdir a b t; echo x >a/f; echo y >b/f", "a/f b/f t"),
    // Attributes that are kept.
    case("an archive", TREE, "-a a n"),
    case("an archive of a file", "echo x >f; touch -d @1000000 f; chmod 640 f", "-a f n"),
    case("times and modes by -p", "echo x >f; touch -d @1000000 f; chmod 4755 f", "-p f n"),
    case("attributes by -a", "echo x >f", "-a f n"),
    case("owners", "echo x >f; chown 1234:77 f; chmod 6755 f", "-p f n").by_root(),
    case("owners of a tree", "mkdir a; echo x >a/f; chown 1234:77 a a/f; chmod 2750 a", "-a a n")
        .by_root(),
    case("set-user-id without -p", "echo x >f; chmod 4755 f", "f n"),
    case("set-user-id of a FIFO", "mkfifo p; chown 1234:77 p; chmod 6755 p", "-a p n").by_root(),
    case("a FIFO, inherited", "mkdir t; mkfifo p; chmod 711 p", "-a p t"),
    case("a folder over a private one", "mkdir a t; chmod 700 t", "-rT --preserve=xattr a t"),
    case("an archive over a folder, inherited", "mkdir a t; echo x >a/f; chmod 755 a", "-aT a t"),
    case("an archive over a folder with an ACL", "mkdir a f; chmod 750 a", "-aT a f"),
    case("what a file gets that had an ACL", "echo x >g; chmod 640 g; echo y >f", "-p g f"),
    case(
        "--attributes-only to a file with an ACL",
        "echo x >g; chmod 640 g; echo y >f",
        "--attributes-only -p g f",
    ),
    case("hard links stay", "mkdir a; echo x >a/f; ln a/f a/g; ln a/f a/h", "-a a n"),
    case("hard links are lost by -r", "mkdir a; echo x >a/f; ln a/f a/g", "-r a n"),
    case("hard links of what was named", "echo x >f; ln f g; mkdir t", "-a f g t"),
    case(
        "hard links of what was named and found",
        "mkdir s d t; echo x >s/a; ln s/a d/q",
        "-dr d s s/a t",
    ),
    case("a link that has two names", "mkdir a; ln -s x a/l; ln a/l a/m", "-a a n"),
    case("a FIFO and a device", "mkdir a; mkfifo -m 640 a/p; mknod -m 600 a/n c 1 3", "-a a n")
        .by_root(),
    case("a FIFO with -r", "mkdir a; mkfifo -m 644 a/p", "-r a n"),
    case("procfs is read", "true", "/proc/version n"),
    case("holes", "truncate -s 4M f; echo end >>f", "f n"),
    case(
        "holes everywhere",
        "dd if=/dev/zero of=f bs=1M count=2 status=none",
        "--sparse=always f n",
    ),
    case("no holes", "truncate -s 1M f", "--sparse=never f n"),
    case("an empty file", ": >f", "f n"),
    case(
        "odd names",
        "mkdir a; echo x >'a/ '; echo y >'a/-r'; echo z >\"a/$(printf '\\377')\"",
        "-r a n",
    ),
    case("an ACL by -a", "echo x >f; chmod 640 f", "-a f n"),
    case("an ACL by -p", "echo x >f; chmod 640 f", "-p f n"),
    case("an ACL of a file that was there", "echo x >f; chmod 640 f; echo y >n", "-p f n"),
    // Existing files that are replaced.
    case(
        "an older file by -u",
        "echo new >f; echo old >g; touch -d @2000 f; touch -d @1000 g",
        "-u f g",
    ),
    case(
        "a newer file by -u",
        "echo new >f; echo old >g; touch -d @1000 f; touch -d @2000 g",
        "-u f g",
    ),
    case("nothing by -n", "echo new >f; echo old >g", "-n f g"),
    case("a tree by -n", "mkdir a t; echo new >a/f; echo g >a/g; echo old >t/f", "-rnT a t"),
    case("a file by a shorter one", "echo x >f; seq 1000 >g", "f g"),
    case("a file with another mode", "echo x >f; echo y >g; chmod 600 g", "f g")
        .differs("a file is replaced in one moment, so that it has the mode of its original"),
    case("a file with another name", "echo x >f; echo y >g; ln g h", "f g")
        .differs("a file is replaced in one moment; its other name keeps the old bytes"),
    case("a FIFO over a file", "mkdir a t; mkfifo -m 644 a/x; echo y >t/x", "-rT a t"),
    // Without privileges.
    case("a file that is not readable", "mkdir a; echo x >a/f; echo y >a/g; chmod 0 a/f", "-r a n")
        .by_user(),
    case("a file that is not writable", "echo x >f; echo y >g; chmod 444 g", "f g").by_user(),
    case("a device over a file that is not writable", "echo y >g; chmod 444 g", "/dev/null g")
        .by_user(),
    case(
        "a link and a FIFO over files that are not writable",
        "mkdir a t; ln -s x a/l; mkfifo a/p; echo y >t/l; echo z >t/p; chmod 444 t/l t/p",
        "-rT a t",
    )
    .by_user(),
    case(
        "a FIFO over a file that is not writable, with -L",
        "mkdir a t; mkfifo a/p; echo z >t/p; chmod 444 t/p",
        "-rLT a t",
    )
    .by_user(),
    case(
        "forced over what is not writable",
        "echo x >f; echo y >g; chmod 644 f; chmod 444 g",
        "-f f g",
    )
    .by_user(),
    case(
        "a read-only tree",
        "mkdir -p a/b; echo x >a/b/f; chmod 444 a/b/f; chmod 555 a/b a",
        "-a a n",
    )
    .by_user(),
    case(
        "a read-only tree without -p",
        "mkdir -p a/b; echo x >a/b/f; chmod 444 a/b/f; chmod 555 a/b a",
        "-r a n",
    )
    .by_user(),
    case("attributes of a read-only file", "echo x >f; chmod 444 f", "-a f n").by_user(),
    case("into a folder that is not writable", "mkdir t; echo x >f; chmod 555 t", "f t").by_user(),
    case(
        "over a file in a folder that is not writable",
        "mkdir t; echo x >f; echo y >t/f; chmod 555 t",
        "f t",
    )
    .by_user(),
    case("set-user-id by -p", "echo x >f; chmod 4755 f", "-p f n").by_user(),
    // Deep and long.
    case(
        "a deep tree",
        "p=a; for i in $(seq 100); do p=$p/d; done; mkdir -p $p; echo x >$p/f",
        "-r a n",
    ),
    case("a name of 255 bytes", "mkdir a; n=$(printf %255s | tr ' ' x); echo y >a/$n", "-r a n"),
];
