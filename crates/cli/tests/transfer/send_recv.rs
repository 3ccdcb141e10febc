//! `send` and `recv` as people use them: two processes, real sockets, real files.

use std::fs;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::rig::{
    Running, bytes_by, folder, has, names, noise, noise_file, receiver, run, sender, traced,
    underpass, until,
};
use underpass_testkit::{is_root, skip};

const LEN: usize = 5 * (1 << 20) + 4321;

#[test]
fn a_transfer_that_never_begins_has_a_receipt_with_the_error() {
    let folder = folder();
    noise_file(folder.path(), "source", 10);
    fs::write(folder.path().join("list"), "/a").unwrap();
    let port = underpass_testkit::free_port();
    let (nobody, url) = (format!("127.0.0.1:{port}"), format!("http://127.0.0.1:{port}/"));
    for (words, error) in [
        (["send", "source", &nobody].as_slice(), "Connection refused"),
        (&["send", "missing", &nobody], "No such file"),
        (&["send", ".", &nobody], "Is a directory"),
        (&["send", "source", &nobody, "--tls", "--cacert", "missing"], "missing"),
        (&["recv", &nobody, "target"], "Connection refused"),
        (&["recv", "--listen", "127.0.0.1:0", "missing/target"], "No such file"),
        (&["put", "missing", &url], "No such file"),
        (&["fill", "--node", &url, "--manifest", "list"], "Connection refused"),
    ] {
        let mut command = underpass();
        command.args(words).arg("--json").current_dir(folder.path());
        let finished = Running::start(command).finish().failed(1, &[error]);
        assert!(!finished.stderr.contains("trying again"), "{words:?}: {}", finished.stderr);
        let receipt = finished.receipt();
        assert!(receipt["error"].as_str().unwrap().contains(error), "{words:?} {receipt}");
        assert_eq!(receipt["bytes"], 0, "{words:?}");
    }
    assert_eq!(names(folder.path()), ["list", "source"]);
}

#[test]
fn a_receiver_that_resets_the_connection_after_the_last_byte_has_failed() {
    let folder = folder();
    let source = noise_file(folder.path(), "source", 1000);
    for (resets, code) in [(true, 1), (false, 0)] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let sending = sender(&[], &source, &listener.local_addr().unwrap().to_string());
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_to_end(&mut Vec::new()).unwrap();
        if resets {
            underpass_engine::socket::arm_reset(&stream).unwrap();
            drop(stream);
            assert_eq!(sending.finish().code(), Some(code));
        } else {
            // It has every byte, and keeps the connection.
            assert_eq!(sending.finish().code(), Some(code));
            drop(stream);
        }
    }
}

#[test]
fn a_file_arrives_whole_and_both_receipts_say_that_no_byte_surfaced() {
    let folder = folder();
    let source = noise_file(folder.path(), "source", LEN);
    let target = folder.path().join("target");
    let receiver = receiver(&["--json"], &target);
    let sent = sender(&["--json"], &source, &receiver.address).finish().succeeded().receipt();
    let received = receiver.finish().succeeded().receipt();
    assert_eq!(fs::read(&target).unwrap(), noise(LEN));
    assert_eq!((&sent["integrity"], &received["integrity"]), (&"detect".into(), &"fast".into()));
    for (receipt, mechanism) in [(&sent, "sendfile"), (&received, "splice")] {
        assert_eq!(receipt["bytes"], LEN);
        assert_eq!(bytes_by(receipt, mechanism), LEN as u64);
        assert_eq!(receipt["user_space_bytes"], 0);
        assert_eq!(receipt["declined"].as_array().unwrap().len(), 0);
        assert!(receipt["elapsed_s"].as_f64().unwrap() > 0.0);
        assert!(receipt["calls"].as_u64().unwrap() > 0);
        assert!(receipt["cpu_s"]["system"].is_number());
        assert!(receipt["context_switches"]["involuntary"].is_number());
        assert!(receipt["page_faults"]["major"].is_number());
        assert!(!receipt["congestion"].as_str().unwrap().starts_with("bbr"));
    }
    assert_eq!(names(folder.path()), ["source", "target"]);
}

#[test]
fn every_mechanism_delivers_the_same_file() {
    let folder = folder();
    let source = noise_file(folder.path(), "source", LEN);
    for (sends, receives) in [
        ("sendfile", "splice"),
        ("splice", "read_write"),
        ("mmap", "splice"),
        ("read_write", "read_write"),
    ] {
        let target = folder.path().join(sends);
        let receiver = receiver(&["--json", "--mechanism", receives], &target);
        let args = ["--json", "--mechanism", sends, "--step", "64K"];
        let sent = sender(&args, &source, &receiver.address).finish().succeeded().receipt();
        let received = receiver.finish().succeeded().receipt();
        assert_eq!(bytes_by(&sent, sends), LEN as u64, "{sends}");
        assert_eq!(bytes_by(&received, receives), LEN as u64, "{receives}");
        assert_eq!(fs::read(&target).unwrap(), noise(LEN), "{sends}");
    }
}

#[test]
fn no_zero_copy_is_read_write_and_counts_each_byte_twice() {
    let folder = folder();
    let source = noise_file(folder.path(), "source", LEN);
    let receiver = receiver(&["--no-zero-copy", "--json"], Path::new("/dev/null"));
    let args = ["--no-zero-copy", "--json"];
    let sent = sender(&args, &source, &receiver.address).finish().succeeded().receipt();
    let received = receiver.finish().succeeded().receipt();
    for receipt in [sent, received] {
        assert_eq!(bytes_by(&receipt, "read_write"), LEN as u64);
        assert_eq!(receipt["user_space_bytes"], 2 * LEN);
    }
}

#[test]
fn either_side_may_listen_on_any_kind_of_address() {
    let folder = folder();
    let source = noise_file(folder.path(), "source", LEN);
    let unix = format!("unix:{}", folder.path().join("socket").display());
    for address in ["127.0.0.1:0", "[::1]:0", "localhost:0", unix.as_str()] {
        let target = folder.path().join("target");
        let mut command = underpass();
        command.arg("send").arg(&source).args(["--listen", address]);
        let sender = Running::listening(command);
        let received = run(["recv", "--force", &sender.address, target.to_str().unwrap()]);
        received.succeeded();
        sender.finish().succeeded();
        assert_eq!(fs::read(&target).unwrap(), noise(LEN), "{address}");
    }
    assert_eq!(names(folder.path()), ["source", "target"]);
}

#[test]
fn pipes_go_by_splice_at_both_ends() {
    let mut command = underpass();
    command.args(["recv", "--listen", "127.0.0.1:0", "--explain"]);
    let receiver = Running::listening(command);
    let mut command = underpass();
    command.args(["send", "-", &receiver.address, "--json"]).stdin(Stdio::piped());
    let mut sender = Running::start(command);
    sender.child.stdin.take().unwrap().write_all(&noise(LEN)).unwrap();
    let sent = sender.finish().succeeded().receipt();
    let received = receiver.finish().succeeded();
    assert_eq!(bytes_by(&sent, "splice"), LEN as u64);
    assert!(received.stdout == noise(LEN));
    assert!(received.stderr.contains("bytes by splice in"), "{}", received.stderr);
}

#[test]
fn redirected_files_are_read_and_written_from_their_cursors() {
    let folder = folder();
    let source = noise_file(folder.path(), "source", 10_000);
    let exe = env!("CARGO_BIN_EXE_underpass");
    let script = r#"
        exec 3<"$2"
        head -c 0 <&3
        dd bs=1000 count=1 of=/dev/null status=none <&3
        ( "$1" recv --listen "unix:$3" -q; echo after ) >"$4" 2>/dev/null &
        while ! [ -S "$3" ]; do sleep 0.01; done
        "$1" send -q - "unix:$3" <&3
        wc -c <&3
        wait
    "#;
    let (socket, target) = (folder.path().join("socket"), folder.path().join("target"));
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "sh", exe]).arg(&source).arg(&socket).arg(&target);
    let output = shell.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "0");
    let written = fs::read(&target).unwrap();
    assert_eq!(written[..9000], noise(10_000)[1000..]);
    assert_eq!(&written[9000..], b"after\n");
}

#[test]
fn a_range_is_sent_with_both_ends_included() {
    let folder = folder();
    let source = noise_file(folder.path(), "source", 10_000);
    for (range, from, to) in [
        ("0-0", 0, 1),
        ("100-4199", 100, 4200),
        ("9000-", 9000, 10_000),
        ("-77", 9923, 10_000),
        ("9990-99999", 9990, 10_000),
    ] {
        let target = folder.path().join("target");
        let receiver = receiver(&["--force"], &target);
        sender(&["--range", range], &source, &receiver.address).finish().succeeded();
        receiver.finish().succeeded();
        assert_eq!(fs::read(&target).unwrap(), noise(10_000)[from..to], "{range}");
    }
}

#[test]
fn a_range_of_a_redirected_file_counts_from_its_cursor() {
    let folder = folder();
    let source = noise_file(folder.path(), "source", 10_000);
    for (range, from, to) in [
        ("0-0", 1000, 1001),
        ("100-4199", 1100, 5200),
        ("-77", 9923, 10_000),
        ("8990-", 9990, 10_000),
    ] {
        let target = folder.path().join("target");
        let mut input = fs::File::open(&source).unwrap();
        input.seek(SeekFrom::Start(1000)).unwrap();
        let receiver = receiver(&["--force"], &target);
        let mut command = underpass();
        command.args(["send", "--range", range, "-", &receiver.address]);
        command.stdin(input.try_clone().unwrap());
        Running::start(command).finish().succeeded();
        receiver.finish().succeeded();
        assert_eq!(fs::read(&target).unwrap(), noise(10_000)[from..to], "{range}");
        assert_eq!(input.stream_position().unwrap(), to as u64, "{range}");
    }
}

#[test]
fn send_and_recv_work_with_netcat() {
    if !has("nc") {
        return;
    }
    let folder = folder();
    let source = noise_file(folder.path(), "source", LEN);
    let target = folder.path().join("target");
    let receiver = receiver(&[], &target);
    let (host, port) = receiver.address.rsplit_once(':').unwrap();
    let input = fs::File::open(&source).unwrap();
    let mut nc = Command::new("nc").args(["-N", host, port]).stdin(input).spawn().unwrap();
    receiver.finish().succeeded();
    assert!(nc.wait().unwrap().success());
    assert_eq!(fs::read(&target).unwrap(), noise(LEN));

    let mut command = underpass();
    command.arg("send").arg(&source).args(["--listen", "127.0.0.1:0"]);
    let sender = Running::listening(command);
    let (host, port) = sender.address.rsplit_once(':').unwrap();
    let nc = Command::new("nc").args(["-d", host, port]).output().unwrap();
    assert!(nc.stdout == noise(LEN));
    sender.finish().succeeded();
}

#[test]
fn an_existing_file_is_kept_unless_force_is_given() {
    let folder = folder();
    let source = noise_file(folder.path(), "source", LEN);
    let target = folder.path().join("target");
    fs::write(&target, "precious").unwrap();
    let args = ["recv", "--listen", "127.0.0.1:0", target.to_str().unwrap()];
    run(args).failed(1, &["target", "exists", "--force"]);
    assert_eq!(fs::read(&target).unwrap(), b"precious");

    let receiver = receiver(&["--force"], &target);
    assert_eq!(fs::read(&target).unwrap(), b"precious");
    sender(&[], &source, &receiver.address).finish().succeeded();
    receiver.finish().succeeded();
    assert_eq!(fs::read(&target).unwrap(), noise(LEN));
}

#[test]
fn a_connection_without_a_byte_replaces_no_file_that_has_some() {
    let folder = folder();
    let target = folder.path().join("target");
    let scan = |args: &[&str]| {
        let receiver = receiver(args, &target);
        drop(TcpStream::connect(&receiver.address).unwrap());
        receiver.finish()
    };
    fs::write(&target, "precious").unwrap();
    scan(&["--force"]).failed(1, &["nothing was received", "target is left unchanged", "--size 0"]);
    assert_eq!(fs::read(&target).unwrap(), b"precious");
    assert_eq!(names(folder.path()), ["target"]);
    scan(&["--force", "--size", "0"]).succeeded();
    assert_eq!(fs::read(&target).unwrap(), b"");
    // There is nothing to lose.
    scan(&["--force"]).succeeded();
    fs::remove_file(&target).unwrap();
    scan(&[]).succeeded();
}

#[test]
fn a_mechanism_that_cannot_be_has_a_hint_for_its_own_option() {
    let folder = folder();
    let target = folder.path().join("target");
    let receiver = receiver(&["--mechanism", "reflink"], &target);
    let mut peer = TcpStream::connect(&receiver.address).unwrap();
    // The receiver may have left already.
    let _ = peer.write_all(b"x");
    let finished = receiver.finish().failed(1, &["leave out --mechanism"]);
    assert!(!finished.stderr.contains("--reflink"), "{}", finished.stderr);
}

#[test]
fn a_peer_that_drips_is_given_up_after_the_timeout() {
    let folder = folder();
    let target = folder.path().join("target");
    let receiver = receiver(&["--timeout", "1"], &target);
    let mut peer = TcpStream::connect(&receiver.address).unwrap();
    let drip = std::thread::spawn(move || {
        while peer.write_all(b"x").is_ok() {
            std::thread::sleep(Duration::from_millis(250));
        }
    });
    receiver
        .finish()
        .failed(1, &["too little progress in 1s", "set a longer limit with --timeout"]);
    assert!(!target.exists());
    drip.join().unwrap();
}

#[test]
fn the_mode_of_a_foreign_file_in_a_shared_folder_is_not_kept() {
    let folder = folder();
    let source = noise_file(folder.path(), "source", 10_000);
    let target = noise_file(folder.path(), "target", 10);
    fs::set_permissions(&target, fs::Permissions::from_mode(0o666)).unwrap();
    // As in /tmp: every user may create files, and none may replace those of others.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    if chown(&target, Some(1234), Some(1234)).is_err() {
        return;
    }
    let receiver = receiver(&["--force"], &target);
    sender(&[], &source, &receiver.address).finish().succeeded();
    receiver.finish().succeeded();
    let found = fs::metadata(&target).unwrap();
    assert_eq!((found.mode() & 0o022, found.gid() == 1234), (0, false));
}

#[test]
fn a_file_that_is_replaced_keeps_its_owner_and_permissions() {
    let folder = folder();
    let source = noise_file(folder.path(), "source", 10_000);
    let target = noise_file(folder.path(), "target", 10);
    fs::set_permissions(&target, fs::Permissions::from_mode(0o640)).unwrap();
    let is_root = chown(&target, Some(1234), Some(1235)).is_ok();
    let receiver = receiver(&["--force"], &target);
    sender(&[], &source, &receiver.address).finish().succeeded();
    receiver.finish().succeeded();
    let found = fs::metadata(&target).unwrap();
    assert_eq!((found.len(), found.mode() & 0o777), (10_000, 0o640));
    assert!(!is_root || (found.uid(), found.gid()) == (1234, 1235), "{found:?}");
}

#[test]
fn append_adds_and_a_failed_append_is_cut_back() {
    let folder = folder();
    let source = noise_file(folder.path(), "source", 10_000);
    let target = folder.path().join("target");
    for len in [10_000, 20_000] {
        let receiver = receiver(&["--append", "--json"], &target);
        sender(&[], &source, &receiver.address).finish().succeeded();
        assert_eq!(bytes_by(&receiver.finish().succeeded().receipt(), "splice"), 10_000);
        assert_eq!(fs::read(&target).unwrap().len(), len);
    }
    let receiver = receiver(&["--append"], &target);
    let peer = TcpStream::connect(&receiver.address).unwrap();
    (&peer).write_all(&noise(5000)).unwrap();
    until("the appended bytes", || fs::metadata(&target).unwrap().len() == 25_000);
    underpass_engine::socket::arm_reset(&peer).unwrap();
    drop(peer);
    receiver.finish().failed(1, &["target", "5,000 bytes", "reset"]);
    assert_eq!(fs::read(&target).unwrap(), [noise(10_000), noise(10_000)].concat());
}

#[test]
fn nothing_is_appended_along_a_link_of_another_user_in_a_shared_folder() {
    if !is_root() {
        return skip("only root can make links of another user");
    }
    let folder = folder();
    let (file, link) = (folder.path().join("file"), folder.path().join("link"));
    fs::write(&file, "").unwrap();
    symlink(&file, &link).unwrap();
    lchown(&link, Some(1234), None).unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    let refused = run(["recv", "--append", "--listen", "127.0.0.1:0", link.to_str().unwrap()]);
    refused.failed(1, &["following the link", "Permission denied"]);
}

#[test]
fn an_append_for_which_there_is_no_room_fails_before_its_first_byte() {
    let folder = folder();
    let target = folder.path().join("target");
    fs::write(&target, "first\n").unwrap();
    let receiver = receiver(&["--append", "--size", "8000T", "--json"], &target);
    let mut peer = TcpStream::connect(&receiver.address).unwrap();
    let _ = peer.write_all(b"second\n");
    drop(peer);
    let finished = receiver.finish().failed(1, &["target", "after 0 bytes", "No space"]);
    assert_eq!(finished.receipt()["bytes"], 0);
    let found = fs::metadata(&target).unwrap();
    assert_eq!((found.len(), found.blocks() * 512 <= found.blksize()), (6, true));
}

#[test]
fn an_append_over_the_limit_of_a_file_is_cut_back() {
    let folder = folder();
    let source = noise_file(folder.path(), "source", 100_000);
    let target = folder.path().join("target");
    fs::write(&target, "first\n").unwrap();
    let mut command = crate::rig::limited("-f 16");
    command.args(["recv", "--append", "--listen", "127.0.0.1:0"]).arg(&target);
    let receiver = Running::listening(command);
    let sender = sender(&[], &source, &receiver.address);
    receiver.finish().failed(1, &["target", "File too large"]);
    assert_eq!(fs::read(&target).unwrap(), b"first\n");
    // It may have sent everything before.
    sender.finish();
}

#[test]
fn an_end_that_cannot_be_found_is_not_the_beginning() {
    if !has("strace") {
        return;
    }
    let folder = folder();
    let target = folder.path().join("target");
    fs::write(&target, "first\n").unwrap();
    let named = target.to_str().unwrap();
    let inject = ["-P", named, "-e", "trace=fstat", "-e", "inject=fstat:error=EIO:when=1"];
    let mut command = traced(&folder.path().join("trace"), &inject);
    command.args(["recv", "--append", "--listen", "127.0.0.1:0"]).arg(&target);
    Running::start(command).finish().failed(1, &["target", "Input/output"]);
    assert_eq!(fs::read(&target).unwrap(), b"first\n");
}

#[test]
fn bytes_appended_by_others_before_the_transfer_stay() {
    let folder = folder();
    let source = noise_file(folder.path(), "source", 10);
    let target = folder.path().join("target");
    fs::write(&target, "first\n").unwrap();
    let receiver = receiver(&["--append"], &target);
    fs::write(&target, "first\nof another program\n").unwrap();
    sender(&[], &source, &receiver.address).finish().succeeded();
    receiver.finish().succeeded();
    let expected = [&b"first\nof another program\n"[..], &noise(10)].concat();
    assert_eq!(fs::read(&target).unwrap(), expected);
}

#[test]
fn bytes_appended_before_the_transfer_are_sent() {
    for (range, expected) in [(&[][..], "first\nsecond\n"), (&["--range", "-7"], "second\n")] {
        let folder = folder();
        let (source, target) = (folder.path().join("source"), folder.path().join("target"));
        fs::write(&source, "first\n").unwrap();
        let mut command = underpass();
        command.args(["send", "--listen", "127.0.0.1:0"]).args(range).arg(&source);
        let sender = Running::listening(command);
        fs::write(&source, "first\nsecond\n").unwrap();
        run(["recv", &sender.address, target.to_str().unwrap()]).succeeded();
        sender.finish().succeeded();
        assert_eq!(fs::read_to_string(target).unwrap(), expected);
    }
}

#[test]
fn bytes_appended_by_others_during_the_transfer_stay_and_fail_it() {
    let folder = folder();
    for is_reset in [false, true] {
        let target = folder.path().join(format!("target {is_reset}"));
        fs::write(&target, "first\n").unwrap();
        let receiver = receiver(&["--append", "--json"], &target);
        let mut peer = TcpStream::connect(&receiver.address).unwrap();
        peer.write_all(b"aaaa\n").unwrap();
        until("the appended bytes", || fs::metadata(&target).unwrap().len() == 11);
        let mut other = fs::File::options().append(true).open(&target).unwrap();
        other.write_all(b"of another program\n").unwrap();
        if is_reset {
            underpass_engine::socket::arm_reset(&peer).unwrap();
        }
        drop(peer);
        let reason = if is_reset { "reset" } else { "another program" };
        let finished = receiver.finish().failed(1, &["target", reason]);
        assert!(finished.stderr.contains("another program"), "{}", finished.stderr);
        assert_eq!(finished.receipt()["bytes"], 5);
        assert!(finished.receipt()["error"].as_str().unwrap().contains(reason));
        let text = fs::read_to_string(&target).unwrap();
        assert_eq!(text, "first\naaaa\nof another program\n", "{is_reset}");
    }
}

#[test]
fn a_file_that_appears_meanwhile_is_replaced_with_force_only() {
    let folder = folder();
    let source = noise_file(folder.path(), "source", 10_000);
    for (options, code) in [(&["--json", "--force"][..], 0), (&["--json"], 1)] {
        let target = folder.path().join(format!("target {code}"));
        let receiver = receiver(options, &target);
        fs::write(&target, "mine").unwrap();
        let sender = sender(&[], &source, &receiver.address);
        let finished = receiver.finish();
        assert_eq!(finished.code(), Some(code), "{}", finished.stderr);
        assert_eq!(finished.receipt()["error"].is_null(), code == 0);
        let bytes = fs::read(&target).unwrap();
        assert!(if code == 0 { bytes == noise(10_000) } else { bytes == b"mine" }, "{code}");
        sender.finish();
    }
}

#[test]
fn a_range_of_a_fifo_is_refused_before_a_writer_is_there() {
    let folder = folder();
    let fifo = folder.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let words = ["send", "--range", "0-9", fifo.to_str().unwrap(), "127.0.0.1:1"];
    run(words).failed(2, &["--range", "fifo"]);
}

#[test]
fn only_one_receiver_at_a_time_appends_to_a_file() {
    let folder = folder();
    let source = noise_file(folder.path(), "source", 10);
    let target = folder.path().join("target");
    fs::write(&target, "first\n").unwrap();
    let first = receiver(&["--append"], &target);
    let second = ["recv", "--append", "--listen", "127.0.0.1:0", target.to_str().unwrap()];
    run(second).failed(1, &["target", "another process has locked it"]);
    sender(&[], &source, &first.address).finish().succeeded();
    first.finish().succeeded();
    assert_eq!(fs::read(&target).unwrap(), [&b"first\n"[..], &noise(10)].concat());
}

#[test]
fn a_killed_sender_leaves_neither_file_nor_litter() {
    let folder = folder();
    let target = folder.path().join("target");
    let receiver = receiver(&[], &target);
    let mut command = underpass();
    command.args(["send", "-", &receiver.address]).stdin(Stdio::piped());
    let mut sender = Running::start(command);
    // Standard input stays open: the sender is in the middle when it is killed.
    sender.child.stdin.as_mut().unwrap().write_all(&noise(100_000)).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    sender.signal("KILL");
    receiver.finish().failed(1, &["target", "reset", "bytes"]);
    assert!(names(folder.path()).is_empty());
}

#[test]
fn connecting_ends_with_the_timeout() {
    let folder = folder();
    let socket = folder.path().join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let _accepted_by_nobody = UnixStream::connect(&socket).unwrap();
    let mut command = underpass();
    command.args(["send", "--timeout=500ms", env!("CARGO_MANIFEST_PATH")]);
    command.arg(format!("unix:{}", socket.display()));
    Running::start(command).finish().failed(1, &["connecting to unix:", "timed out"]);
}

#[test]
fn a_sender_that_breaks_off_fails_over_a_unix_socket_too() {
    for (signal, who_listens, size) in [
        ("KILL", "recv", None),
        ("INT", "recv", None),
        ("TERM", "send", None),
        ("KILL", "recv", Some("--size=100000")),
    ] {
        let folder = folder();
        let (target, socket) = (folder.path().join("target"), folder.path().join("socket"));
        let address = format!("unix:{}", socket.display());
        let command = |words: &[&str]| {
            let mut command = underpass();
            command.args(words).stdin(Stdio::piped());
            if words[0] == "recv" {
                command.args(size);
            }
            command
        };
        let target = target.to_str().unwrap();
        let (mut sender, receiver) = if who_listens == "recv" {
            let receiver = Running::listening(command(&["recv", "--listen", &address, target]));
            (Running::start(command(&["send", "-", &address])), receiver)
        } else {
            let sender = Running::listening(command(&["send", "--listen", &address, "-"]));
            (sender, Running::start(command(&["recv", &address, target])))
        };
        sender.child.stdin.as_mut().unwrap().write_all(&noise(100_000)).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        sender.signal(signal);
        receiver.finish().failed(1, &["target", "reset", "100,000 bytes"]);
        drop(sender);
        assert!(!Path::new(target).exists());
    }
}

#[test]
fn a_receiver_that_cannot_complete_its_file_fails_the_sender_over_a_unix_socket_too() {
    for (size, is_removed, code) in
        [("10000", false, 0), ("10001", false, 1), ("9999", false, 1), ("10000", true, 1)]
    {
        let folder = folder();
        let source = noise_file(folder.path(), "source", 10_000);
        fs::create_dir(folder.path().join("into")).unwrap();
        let address = format!("unix:{}", folder.path().join("socket").display());
        let mut command = underpass();
        command.args(["recv", "--listen", &address, "--size", size]);
        command.arg(folder.path().join("into/target"));
        let receiver = Running::listening(command);
        if is_removed {
            fs::remove_dir(folder.path().join("into")).unwrap();
        }
        let sent = sender(&[], &source, &address).finish();
        assert_eq!(receiver.finish().code(), Some(code), "{size} {is_removed}");
        assert_eq!(sent.code(), Some(code), "{size} {is_removed}: {}", sent.stderr);
    }
}

#[test]
fn receipts_of_failed_transfers_name_the_ends_and_the_congestion_control() {
    let folder = folder();
    let source = noise_file(folder.path(), "source", LEN);
    let receiver = receiver(&["--json", "--size", &(LEN + 1).to_string()], Path::new("/dev/null"));
    sender(&[], &source, &receiver.address).finish();
    let received = receiver.finish().failed(1, &["ended after"]).receipt();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let sender = sender(&["--json"], &source, &listener.local_addr().unwrap().to_string());
    let (peer, _) = listener.accept().unwrap();
    (&peer).read_exact(&mut [0]).unwrap();
    underpass_engine::socket::arm_reset(&peer).unwrap();
    drop(peer);
    let sent = sender.finish().failed(1, &["after", "bytes"]).receipt();
    for (receipt, from, to) in [(received, "socket", "device"), (sent, "file", "socket")] {
        assert_eq!((&receipt["from"], &receipt["to"]), (&from.into(), &to.into()), "{receipt}");
        assert!(receipt["congestion"].is_string() && receipt["error"].is_string(), "{receipt}");
    }
}

#[test]
fn a_killed_receiver_is_a_failure_for_the_sender() {
    let folder = folder();
    let receiver = receiver(&[], &folder.path().join("target"));
    let mut command = underpass();
    command.args(["send", "-", &receiver.address]).stdin(Stdio::piped());
    let mut sender = Running::start(command);
    sender.child.stdin.as_mut().unwrap().write_all(&noise(100_000)).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    receiver.signal("KILL");
    // The sender waits for input that does not come, and still learns that its peer is gone.
    let stdin = sender.child.stdin.take();
    until("the end of the sender", || sender.child.try_wait().unwrap().is_some());
    drop(stdin);
    sender.finish().failed(1, &["standard input", "reset"]);
    drop(receiver);
    assert!(names(folder.path()).is_empty());
}

#[test]
fn signals_end_both_sides_in_order() {
    for signal in ["INT", "TERM"] {
        let folder = folder();
        let target = folder.path().join("target");
        let receiver = receiver(&[], &target);
        let peer = TcpStream::connect(&receiver.address).unwrap();
        (&peer).write_all(&noise(5000)).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        receiver.signal(signal);
        receiver.finish().failed(1, &["interrupted"]);
        assert!(names(folder.path()).is_empty());
        let error = (&peer).read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
    let folder = folder();
    let socket = folder.path().join("socket");
    let mut command = underpass();
    command.args(["recv", "--listen", &format!("unix:{}", socket.display())]);
    let receiver = Running::listening(command);
    assert!(socket.exists());
    receiver.signal("INT");
    receiver.finish().failed(1, &["listening on"]);
    assert!(names(folder.path()).is_empty());
}

#[test]
fn recv_size_refuses_shorter_and_longer_streams() {
    let folder = folder();
    let source = noise_file(folder.path(), "source", 10_000);
    for (size, code, words) in [
        ("10000", 0, [].as_slice()),
        ("10001", 1, &["ended after 10,000 of 10,001 bytes"]),
        ("9999", 1, &["more than the 9999 bytes"]),
    ] {
        let target = folder.path().join("target");
        let receiver = receiver(&["--json", "--size", size], &target);
        let _ = sender(&["--quiet"], &source, &receiver.address).finish();
        let finished = receiver.finish();
        let receipt = finished.receipt();
        assert_eq!(receipt["bytes"], size.parse::<u64>().unwrap().min(10_000));
        assert_eq!(receipt["error"].is_string(), code != 0, "{receipt}");
        match code {
            0 => assert_eq!(finished.succeeded().code(), Some(0)),
            code => drop(finished.failed(code, words)),
        }
        assert_eq!(target.exists(), code == 0);
        let _ = fs::remove_file(target);
    }
}

#[test]
fn a_reset_after_the_last_byte_of_size_is_a_failure() {
    let folder = folder();
    let target = folder.path().join("target");
    let receiver = receiver(&["--json", "--size", "10000"], &target);
    let mut peer = TcpStream::connect(&receiver.address).unwrap();
    peer.write_all(&noise(10_000)).unwrap();
    underpass_engine::socket::arm_reset(&peer).unwrap();
    drop(peer);
    let finished = receiver.finish().failed(1, &["reset"]);
    assert!(finished.receipt()["error"].is_string());
    assert!(names(folder.path()).is_empty());
}

#[test]
fn devices_and_fifos_are_written_to_as_they_are() {
    let folder = folder();
    let source = noise_file(folder.path(), "source", LEN);
    let fifo = folder.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let reader = {
        let fifo = fifo.clone();
        std::thread::spawn(move || fs::read(fifo).unwrap())
    };
    let into_fifo = receiver(&["--json"], &fifo);
    sender(&[], &source, &into_fifo.address).finish().succeeded();
    let receipt = into_fifo.finish().succeeded().receipt();
    assert_eq!(bytes_by(&receipt, "splice"), LEN as u64);
    assert!(reader.join().unwrap() == noise(LEN));

    let into_null = receiver(&["--json"], Path::new("/dev/null"));
    sender(&[], &source, &into_null.address).finish().succeeded();
    assert_eq!(into_null.finish().succeeded().receipt()["user_space_bytes"], 0);
    assert!(fs::metadata("/dev/null").unwrap().permissions().mode() & 0o666 == 0o666);
}

#[test]
fn a_file_of_procfs_is_sent_whole_although_it_has_no_size() {
    let folder = folder();
    let target = folder.path().join("target");
    let receiver = receiver(&[], &target);
    let status = Path::new("/proc/version");
    sender(&[], status, &receiver.address).finish().succeeded();
    receiver.finish().succeeded();
    assert_eq!(fs::read(&target).unwrap(), fs::read(status).unwrap());
}

#[test]
fn an_empty_file_arrives_as_an_empty_file() {
    let folder = folder();
    let source = noise_file(folder.path(), "source", 0);
    let target = folder.path().join("target");
    let receiver = receiver(&["--json"], &target);
    sender(&[], &source, &receiver.address).finish().succeeded();
    assert_eq!(receiver.finish().succeeded().receipt()["bytes"], 0);
    assert_eq!(fs::read(&target).unwrap(), b"");
}

#[test]
fn a_refused_lease_is_reported_and_detect_is_used() {
    let folder = folder();
    let source = noise_file(folder.path(), "source", LEN);
    let _writer = fs::File::options().append(true).open(&source).unwrap();
    let receiver = receiver(&[], Path::new("/dev/null"));
    let args = ["--integrity", "lease", "--json"];
    let finished = sender(&args, &source, &receiver.address).finish().succeeded();
    let receipt = finished.receipt();
    assert_eq!(receipt["integrity"], "detect");
    assert_eq!(receipt["declined"][0]["mechanism"], "lease");
    assert_eq!(receipt["declined"][0]["errno"], "EAGAIN");
    assert!(finished.stderr.contains("open for writing"), "{}", finished.stderr);
    receiver.finish().succeeded();
}

#[test]
fn a_receiver_does_not_claim_a_guard() {
    let folder = folder();
    let source = noise_file(folder.path(), "source", 1000);
    let receiver = receiver(&["--integrity", "snapshot", "--json"], Path::new("/dev/null"));
    sender(&[], &source, &receiver.address).finish().succeeded();
    let finished = receiver.finish().succeeded();
    assert_eq!(finished.receipt()["integrity"], "fast");
    assert!(finished.stderr.contains("give it to the sender"), "{}", finished.stderr);
}

#[test]
fn a_file_that_changes_is_reset_and_leaves_nothing() {
    let folder = folder();
    let source = noise_file(folder.path(), "source", 64 << 20);
    for args in [&[][..], &["--integrity", "detect"]] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let sender = sender(args, &source, &address);
        let (mut peer, _) = listener.accept().unwrap();
        peer.read_exact(&mut [0; 1000]).unwrap();
        let mut writer = fs::File::options().write(true).open(&source).unwrap();
        writer.write_all(b"changed").unwrap();
        let error = std::io::copy(&mut peer, &mut std::io::sink()).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        sender.finish().failed(1, &["source", "changed"]);
    }
}

#[test]
fn progress_is_printed_in_lines_without_a_terminal() {
    let folder = folder();
    let receiver = receiver(&["--progress"], &folder.path().join("target"));
    let mut peer = TcpStream::connect(&receiver.address).unwrap();
    for _ in 0..6 {
        peer.write_all(&noise(1000)).unwrap();
        std::thread::sleep(Duration::from_millis(300));
    }
    drop(peer);
    let finished = receiver.finish().succeeded();
    assert!(
        finished.stderr.lines().any(|line| line.contains(" at ") && line.ends_with("/s")),
        "{}",
        finished.stderr
    );
}

#[test]
fn a_silent_peer_is_given_up_after_the_timeout() {
    let folder = folder();
    // The same time is allowed for connecting, however busy the machine is.
    let receiver = receiver(&["--timeout", "3"], &folder.path().join("target"));
    let peer = TcpStream::connect(&receiver.address).unwrap();
    receiver.finish().failed(1, &["too little progress in 3s"]);
    drop(peer);
    assert!(names(folder.path()).is_empty());
}

/// Reads `bytes` of the standard output of a process, and closes it as `tar -t` does that has seen
/// the end of the archive.
fn read_and_leave(process: &mut std::process::Child, bytes: usize) -> Vec<u8> {
    let mut output = process.stdout.take().unwrap();
    let mut read = vec![0; bytes];
    output.read_exact(&mut read).unwrap();
    read
}

/// The end of a process whose standard output was closed.
fn ended(process: std::process::Child) -> (Option<i32>, String) {
    let output = process.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_reader_of_standard_output_that_leaves_with_everything_is_no_failure() {
    for more in [&b""[..], b"and more"] {
        let mut command = underpass();
        command.args(["recv", "--listen", "127.0.0.1:0"]);
        let mut receiver = command.spawn().unwrap();
        let mut line = String::new();
        let mut errors = BufReader::new(receiver.stderr.take().unwrap());
        errors.read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").unwrap().to_owned();
        let mut peer = TcpStream::connect(address).unwrap();
        peer.write_all(&noise(10_240)).unwrap();
        assert!(read_and_leave(&mut receiver, 10_240) == noise(10_240));
        // It waits for the sender now, and notices that its reader is gone.
        std::thread::sleep(Duration::from_millis(200));
        // After a failure the connection is reset.
        let _ = peer.write_all(more);
        drop(peer);
        let mut said = String::new();
        errors.read_to_string(&mut said).unwrap();
        let code = receiver.wait().unwrap().code();
        if more.is_empty() {
            assert_eq!(code, Some(0), "{said}");
            assert!(said.contains("10.00 KiB"), "{said}");
        } else {
            assert_eq!(code, Some(1), "{said}");
            assert!(said.contains("10,240 bytes") && said.contains("Broken pipe"), "{said}");
        }
    }
}

#[test]
fn a_reader_of_a_whole_file_may_leave_at_once() {
    let folder = folder();
    let file = folder.path().join("file");
    fs::write(&file, noise(10_240)).unwrap();
    // It leaves while its acknowledgement is awaited, or before; one that leaves early is a failure.
    for round in 0..20 {
        let mut command = underpass();
        match round % 2 {
            0 => command.args(["cp", "-"]).stdin(fs::File::open(&file).unwrap()),
            _ => command.arg("cp").arg(&file),
        };
        let mut copy = command.arg("-").spawn().unwrap();
        let is_whole = round % 4 < 2;
        read_and_leave(&mut copy, if is_whole { 10_240 } else { 10_000 });
        let (code, said) = ended(copy);
        assert_eq!(code, Some(i32::from(!is_whole)), "{round}: {said}");
    }
}

#[test]
fn a_reader_may_leave_between_two_looks_at_the_pipe() {
    if !has("strace") {
        return;
    }
    let folder = folder();
    let file = noise_file(folder.path(), "file", 10_240);
    let delay = "inject=poll,ppoll:delay_enter=100000";
    let strace = ["-e", "trace=poll,ppoll", "-e", delay];
    let mut command = traced(&folder.path().join("trace"), &strace);
    let mut copy = command.arg("cp").arg(&file).arg("-").spawn().unwrap();
    // The bytes are counted by now, and the next look is at whether the reader is there.
    std::thread::sleep(Duration::from_millis(250));
    assert!(read_and_leave(&mut copy, 10_240) == noise(10_240));
    let (code, said) = ended(copy);
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn a_pipeline_whose_last_command_has_everything_succeeds() {
    for (more, expected) in [(&b""[..], 0), (b"and more", 1)] {
        let mut command = underpass();
        command.args(["cp", "-", "-"]).stdin(Stdio::piped());
        let mut copy = command.spawn().unwrap();
        let mut input = copy.stdin.take().unwrap();
        input.write_all(&noise(10_240)).unwrap();
        read_and_leave(&mut copy, 10_240);
        std::thread::sleep(Duration::from_millis(200));
        // After a failure the pipe is closed.
        let _ = input.write_all(more);
        drop(input);
        let (code, said) = ended(copy);
        assert_eq!(code, Some(expected), "{said}");
    }
}
