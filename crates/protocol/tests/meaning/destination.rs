//! The destination of MOVE and COPY.

use underpass_protocol::request::destination::{BadDestination, Depth, Destination, Overwrite};
use underpass_protocol::request::target::{TargetError, TargetFault};

use crate::rig::{with_fields, with_request};

#[test]
fn a_destination_is_a_path_or_an_address_of_this_server() {
    use BadDestination::{Elsewhere, Malformed, Missing, Outside, Path, Query};
    type Row = (&'static str, Result<(&'static [u8], bool), BadDestination>);
    let table: [Row; 19] = [
        ("/files/a", Ok((b"a", false))),
        ("/files/a%20b/c/", Ok((b"a b/c", true))),
        ("/files/a?query", Err(Query)),
        ("http://example.org/files/a", Ok((b"a", false))),
        ("HTTP://EXAMPLE.org:80/files/a", Ok((b"a", false))),
        ("https://example.org/files/a", Ok((b"a", false))),
        ("https://example.org:443/files/", Ok((b"", true))),
        ("http://example.org:81/files/a", Ok((b"a", false))), // a proxy has left out the port
        ("https://example.org:8443/files/a", Ok((b"a", false))),
        ("http://example.org.evil.net/files/a", Err(Elsewhere)),
        ("http://user:password@example.org/files/a", Ok((b"a", false))), // as lftp sends it
        ("http://example.org@evil.net/files/a", Err(Elsewhere)),
        ("http://evil.net@user@example.org/files/a", Err(Elsewhere)),
        ("//example.org/files/a", Err(Outside)), // a path
        ("/a", Err(Outside)),
        ("a", Err(Malformed)),
        ("/files/a%2Fb", Err(Path(TargetError::SlashInName))),
        ("/files/../../a", Err(Path(TargetError::Malformed(TargetFault::AboveRoot)))),
        ("", Err(Malformed)),
    ];
    for (value, expected) in table {
        let field = format!("Destination: {value}");
        let read = with_fields(&[&field], |request| Destination::read(request, b"/files"));
        let read = read.map(|to| (to.path, to.is_folder));
        assert_eq!(read, expected.map(|(path, is_folder)| (path.to_vec(), is_folder)), "{value}");
    }
    let none = with_fields(&[], |request| Destination::read(request, b""));
    assert_eq!(none, Err(Missing));
}

#[test]
fn another_port_is_another_server_if_the_request_names_one() {
    for (name, is_here) in
        [("example.org:8080", true), ("example.org:81", false), ("example.org", false)]
    {
        let line = "COPY http://example.org:8080/b HTTP/1.1";
        let field = format!("Destination: http://{name}/a");
        let read = with_request(line, &[&field], |request| Destination::read(request, b""));
        let expected = if is_here { Ok(b"a".to_vec()) } else { Err(BadDestination::Elsewhere) };
        assert_eq!(read.map(|to| to.path), expected, "{name}");
    }
}

#[test]
fn a_relative_destination_is_beside_the_source() {
    for (target, value, expected) in [
        ("/files/a/b", "./c%20d", Ok("a/c d")),
        ("/files/a/b", "../c/", Ok("c")),
        ("/files/a/", "../c/", Ok("c")),
        ("/files/a/?x=/y/z", "./c", Ok("a/c")),
        ("http://example.org/files/a/b", "./c", Ok("a/c")),
        ("http://example.org", "./files/c", Ok("c")),
        ("/files/a", "../c", Err(502)),
        ("/files/a", "../../c", Err(400)),
        ("/files/a", "./b?c", Err(400)),
        ("/files/a", "b", Err(400)),
    ] {
        let (line, field) = (format!("MOVE {target} HTTP/1.1"), format!("Destination: {value}"));
        let read = with_request(&line, &[&field], |request| Destination::read(request, b"/files"));
        let read = read.map(|to| String::from_utf8(to.path).unwrap());
        assert_eq!(read.as_deref().map_err(|bad| bad.status()), expected, "{target} {value}");
    }
}

#[test]
fn overwrite_and_depth_have_the_defaults_of_the_standard() {
    let overwrite = |fields: &[&str]| {
        with_fields(&[&["Destination: /a"], fields].concat(), |request| {
            Destination::read(request, b"").map(|to| to.overwrite)
        })
    };
    assert_eq!(overwrite(&[]), Ok(Overwrite::Absent));
    assert_eq!(overwrite(&["Overwrite: T"]), Ok(Overwrite::Allowed));
    assert_eq!(overwrite(&["Overwrite: F"]), Ok(Overwrite::Forbidden));
    assert_eq!(overwrite(&["Overwrite: no"]), Err(BadDestination::Overwrite));
    let depth = |fields: &[&str]| with_fields(fields, Depth::read);
    assert_eq!(depth(&[]), Some(Depth::Infinity));
    assert_eq!(depth(&["Depth: Infinity"]), Some(Depth::Infinity));
    assert_eq!(depth(&["Depth: 0"]), Some(Depth::Zero));
    assert_eq!(depth(&["Depth: 1"]), None);
}
