//! The sources of keys; new ones are fetched when the old ones are refused.

use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::rig::{Running, folder, noise};
use crate::s3::store::bare;
use crate::scripted_origin::{Object, Origin, Request, Sending};

/// A store that accepts the key `new` alone.
fn store() -> Origin {
    let object = Object::new(noise(1000), "one");
    Origin::new(move |request: &Request, sending: &mut Sending| {
        let authorization = request.field("authorization").unwrap_or_default();
        if authorization.contains("Credential=new/") {
            return object.send(request, sending);
        }
        let body = "<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>";
        sending.answer("HTTP/1.1 403 No\nContent-Type: application/xml", body.as_bytes());
    })
}

/// A service with keys; the first answer has old ones if `refreshes`.
fn service(refreshes: bool) -> Origin {
    let count = Arc::new(AtomicU32::new(0));
    Origin::new(move |request: &Request, sending: &mut Sending| {
        let path = request.path.as_str();
        let keys = || {
            let is_old = refreshes && count.fetch_add(1, Ordering::Relaxed) == 0;
            let id = if is_old { "old" } else { "new" };
            format!(
                r#"{{"AccessKeyId":"{id}","SecretAccessKey":"s","Token":"t","Expiration":"2040-01-01T00:00:00Z"}}"#
            )
        };
        let body = match (request.method.as_str(), path) {
            ("PUT", "/latest/api/token") => "token".to_owned(),
            ("GET", "/latest/meta-data/iam/security-credentials/") => "role".to_owned(),
            ("GET", "/latest/meta-data/iam/security-credentials/role") => {
                assert_eq!(request.field("x-aws-ec2-metadata-token"), Some("token"));
                keys()
            }
            ("GET", "/container") => {
                assert_eq!(request.field("authorization"), Some("a-token"));
                keys()
            }
            ("POST", "/") => {
                let text = String::from_utf8(request.body.clone()).unwrap();
                assert!(text.contains("WebIdentityToken=web%2Dtoken"), "{text}");
                assert!(text.contains("RoleArn=arn%3Aaws"), "{text}");
                "<A><Credentials><AccessKeyId>new</AccessKeyId><SecretAccessKey>s</SecretAccessKey>\
                 <SessionToken>t</SessionToken><Expiration>2040-01-01T00:00:00Z</Expiration></Credentials></A>"
                    .to_owned()
            }
            _ => return sending.answer("HTTP/1.1 404 No", b""),
        };
        sending.answer("HTTP/1.1 200 OK", body.as_bytes());
    })
}

fn get(at: &std::path::Path, store: &Origin) -> Command {
    let mut command = bare(at, &["get", "s3://bucket/x", "-o", "x"]);
    command.env("AWS_ENDPOINT_URL_S3", store.url());
    command
}

#[test]
fn keys_are_those_of_the_environment_or_of_a_profile() {
    let (store, here) = (store(), folder());
    let mut command = get(here.path(), &store);
    command.env("AWS_ACCESS_KEY_ID", "new").env("AWS_SECRET_ACCESS_KEY", "s");
    command.env("AWS_SESSION_TOKEN", "session");
    Running::start(command).finish().succeeded();
    assert_eq!(store.requests().last().unwrap().field("x-amz-security-token"), Some("session"));
    fs::create_dir(here.path().join(".aws")).unwrap();
    let text = "[work]\naws_access_key_id = new\naws_secret_access_key = s\n";
    fs::write(here.path().join(".aws/credentials"), text).unwrap();
    let text = format!("[profile work]\nregion = eu-north-1\nendpoint_url = {}\n", store.url());
    fs::write(here.path().join(".aws/config"), text).unwrap();
    let mut command = get(here.path(), &store);
    command.env("AWS_PROFILE", "work").env_remove("AWS_ENDPOINT_URL_S3");
    Running::start(command).finish().succeeded();
    let requests = store.requests();
    assert!(requests.last().unwrap().field("authorization").unwrap().contains("/eu-north-1/s3/"));
    let mut command = get(here.path(), &store);
    command.env("AWS_PROFILE", "none");
    Running::start(command).finish().failed(2, &["there is no profile 'none'"]);
    let mut command = get(here.path(), &store);
    command.env("AWS_ACCESS_KEY_ID", "new");
    Running::start(command).finish().failed(2, &["only one of AWS_ACCESS_KEY_ID"]);
    let finished = Running::start(get(here.path(), &store)).finish();
    assert!(finished.stderr.contains("no keys for the store were found"));
    finished.failed(1, &["(AccessDenied)", "was not signed"]);
}

#[test]
fn keys_come_from_services_and_are_fetched_anew_when_they_are_refused() {
    let here = folder();
    fs::write(here.path().join("token"), "web-token\n").unwrap();
    for source in ["metadata", "container", "role"] {
        for refreshes in [false, true] {
            if refreshes && source == "role" {
                continue;
            }
            let (store, service) = (store(), service(refreshes));
            let mut command = get(here.path(), &store);
            match source {
                "metadata" => command
                    .env_remove("AWS_EC2_METADATA_DISABLED")
                    .env("AWS_EC2_METADATA_SERVICE_ENDPOINT", service.url()),
                "container" => command
                    .env("AWS_CONTAINER_CREDENTIALS_FULL_URI", service.url() + "container")
                    .env("AWS_CONTAINER_AUTHORIZATION_TOKEN", "a-token"),
                _ => command
                    .env("AWS_WEB_IDENTITY_TOKEN_FILE", here.path().join("token"))
                    .env("AWS_ROLE_ARN", "arn:aws:iam::1:role/r")
                    .env("AWS_ENDPOINT_URL_STS", service.url()),
            };
            Running::start(command).finish().succeeded();
            let expected = if refreshes { 2 } else { 1 };
            assert_eq!(store.requests().len(), expected, "{source}");
            assert_eq!(store.requests().last().unwrap().field("x-amz-security-token"), Some("t"));
        }
    }
}

#[test]
fn keys_are_looked_up_once_and_not_for_each_object() {
    let here = folder();
    let list: String = (0..8).map(|number| format!("s3://bucket/x{number}\n")).collect();
    fs::write(here.path().join("list"), list).unwrap();
    let (opened, service) = (store(), service(false));
    let run = |change: &dyn Fn(&mut Command)| {
        let mut command = bare(here.path(), &["get", "-i", "list"]);
        command.env("AWS_ENDPOINT_URL_S3", opened.url());
        change(&mut command);
        Running::start(command).finish()
    };
    // Nor is it reported for each that there are none.
    let finished = run(&|_| {}).failed(1, &["was not signed"]);
    assert_eq!(finished.stderr.matches("no keys for the store").count(), 1, "{}", finished.stderr);
    let address = service.url() + "container";
    run(&|command| {
        command.env("AWS_CONTAINER_CREDENTIALS_FULL_URI", &address);
        command.env("AWS_CONTAINER_AUTHORIZATION_TOKEN", "a-token");
    })
    .succeeded();
    assert_eq!(service.requests().len(), 1);
    assert!(fs::exists(here.path().join("x7")).unwrap());
}

#[test]
fn keys_are_fetched_over_plain_http_from_nearby_alone() {
    let (store, here) = (store(), folder());
    let mut command = get(here.path(), &store);
    command.env("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://192.0.2.1/container");
    Running::start(command).finish().failed(1, &["neither https nor an address of this machine"]);
}

#[test]
fn files_of_the_current_folder_are_not_those_of_a_home() {
    let (store, here) = (store(), folder());
    fs::create_dir(here.path().join(".aws")).unwrap();
    let text = "[default]\naws_access_key_id = new\naws_secret_access_key = s\n";
    fs::write(here.path().join(".aws/credentials"), text).unwrap();
    let mut command = get(here.path(), &store);
    command.env_remove("HOME");
    Running::start(command).finish().failed(1, &["was not signed"]);
}

#[test]
fn a_home_that_does_not_exist_or_is_another_users_is_no_error() {
    let (store, here) = (store(), folder());
    let with_home = |home: &str| {
        let mut command = get(here.path(), &store);
        command.env("AWS_ACCESS_KEY_ID", "new").env("AWS_SECRET_ACCESS_KEY", "s");
        command.env("HOME", home);
        command
    };
    for home in ["/dev/null", "/nonexistent"] {
        Running::start(with_home(home)).finish().succeeded();
    }
    // A file that was named has to be one.
    let mut command = with_home("/nonexistent");
    command.env("AWS_CONFIG_FILE", "/dev/null/config");
    Running::start(command).finish().failed(2, &["reading /dev/null/config: Not a directory"]);
}

#[test]
fn keys_in_an_address_are_not_printed() {
    let here = folder();
    let address = "s3://id:of-someone@bucket/";
    for args in [&["get", address][..], &["serve", "--origin", address, "--cache", "cache"]] {
        let finished = Running::start(bare(here.path(), args)).finish();
        let finished = finished.failed(2, &["s3://BUCKET/KEY"]);
        assert!(!finished.stderr.contains("of-someone"), "{}", finished.stderr);
    }
}

#[test]
fn keys_are_renewed_before_a_request_is_refused_and_are_never_printed() {
    // They expire in two minutes, so newer ones are fetched for the first request.
    let soon = jiff::Timestamp::now() + jiff::SignedDuration::from_mins(2);
    let count = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&count);
    let service = Origin::new(move |_: &Request, sending: &mut Sending| {
        let (id, expires) = match counted.fetch_add(1, Ordering::Relaxed) {
            0 => ("old", soon.to_string()),
            _ => ("new", "2040-01-01T00:00:00Z".to_owned()),
        };
        let keys = format!(
            r#"{{"AccessKeyId":"{id}","SecretAccessKey":"a-secret","Token":"a-session","Expiration":"{expires}"}}"#
        );
        sending.answer("HTTP/1.1 200 OK", keys.as_bytes());
    });
    let (store, here) = (store(), folder());
    let from_service = |mut command: Command| {
        command.env("AWS_CONTAINER_CREDENTIALS_FULL_URI", service.url());
        command.env("AWS_CONTAINER_AUTHORIZATION_TOKEN", "a-token");
        command
    };
    let finished = Running::start(from_service(get(here.path(), &store))).finish();
    let said = format!("{}{}", finished.text(), finished.stderr);
    finished.succeeded();
    assert_eq!((store.requests().len(), count.load(Ordering::Relaxed)), (1, 2));
    count.store(0, Ordering::Relaxed);
    let mut command = bare(here.path(), &["serve", "--origin", "s3://bucket"]);
    command.env("AWS_ENDPOINT_URL_S3", store.url());
    let node = crate::s3::serve::node(from_service(command), folder());
    node.get("/x").assert_is(200, &noise(1000));
    // The first request checks that the bucket exists.
    assert_eq!((store.requests().len(), count.load(Ordering::Relaxed)), (3, 2));
    let said = format!("{said}{}", node.server.end().stderr);
    for secret in ["a-secret", "a-session", "a-token"] {
        assert!(!said.contains(secret), "{said}");
    }
}

#[test]
fn a_service_that_has_no_newer_keys_is_named() {
    let count = AtomicU32::new(0);
    let service = Origin::new(move |_: &Request, sending: &mut Sending| {
        match count.fetch_add(1, Ordering::Relaxed) {
            0 => sending.answer(
                "HTTP/1.1 200 OK",
                br#"{"AccessKeyId":"old","SecretAccessKey":"a-secret","Token":"a-session"}"#,
            ),
            _ => sending.answer("HTTP/1.1 503 No", b""),
        }
    });
    let (store, here) = (store(), folder());
    let mut command = get(here.path(), &store);
    command.env("AWS_CONTAINER_CREDENTIALS_FULL_URI", service.url());
    let words = [
        "(AccessDenied)",
        "newer keys: requesting the keys of the container from http://127.0.0.1:",
    ];
    Running::start(command).finish().failed(1, &words);
}

#[test]
fn keys_in_a_file_behind_a_link_are_read_again() {
    let (store, here, secrets) = (store(), folder(), folder());
    let file = secrets.path().join("keys");
    let write = |id: &str| {
        let text = format!("[default]\naws_access_key_id = {id}\naws_secret_access_key = s\n");
        fs::write(&file, text).unwrap();
    };
    write("old");
    fs::create_dir(here.path().join(".aws")).unwrap();
    std::os::unix::fs::symlink(&file, here.path().join(".aws/credentials")).unwrap();
    let mut command = bare(here.path(), &["serve", "--origin", "s3://bucket"]);
    command.env("AWS_ENDPOINT_URL_S3", store.url());
    let node = crate::s3::serve::node(command, folder());
    write("new");
    // The refusal at the start was the last time that they were looked for.
    crate::rig::until("newer keys", || node.get("/x").status == 200);
}
