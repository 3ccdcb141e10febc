//! The file name in `Content-Disposition`.

use underpass_protocol::response::disposition::file_name;

#[test]
fn the_name_is_found_in_every_form() {
    for (value, name) in [
        ("attachment", None),
        ("", None),
        ("attachment; filename=a.txt", Some("a.txt")),
        ("inline;filename=\"a b;c.txt\"; size=3", Some("a b;c.txt")),
        ("attachment; FileName = \"a\"", Some("a")),
        (r#"attachment; filename="a\"b\\c""#, Some(r#"a"b\c"#)),
        (r#"attachment; filename="C:\dir\a""#, Some(r"C:\dir\a")),
        ("attachment; filename=\"open", Some("open")),
        ("attachment; x; filename=a; filename=b", Some("a")),
        ("attachment; filename*=UTF-8''%c3%a4%20b.txt; filename=x", Some("ä b.txt")),
        ("attachment; filename=x; filename*=utf-8'en'y", Some("y")),
        ("attachment; filename*=iso-8859-1''%e4", Some("ä")),
        // Malformed or unknown: the plain one counts.
        ("attachment; filename*=UTF-8''%zz; filename=x", Some("x")),
        ("attachment; filename*=koi8-r''a; filename=x", Some("x")),
        ("attachment; filename*=bare; filename=x", Some("x")),
        ("attachment; filename=", Some("")),
        (";;;=;", None),
    ] {
        assert_eq!(file_name(value.as_bytes()).as_deref(), name.map(str::as_bytes), "{value}");
    }
}
