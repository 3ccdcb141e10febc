//! Programs for which a folder is a store: a registry of images, a hub of models.

use std::fs;

use sha2::{Digest, Sha256};

use crate::programs::{python, run};
use crate::site::Site;

/// Writes a file of a site, and the folders that it is in.
fn put(site: &Site, path: &str, contents: &[u8]) {
    let path = site.source(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, contents).unwrap();
}

/// The digest of contents as registries write it.
fn digest(contents: &[u8]) -> String {
    let digest = Sha256::digest(contents);
    format!("sha256:{}", digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

#[test]
fn skopeo_reads_images_from_plain_files() {
    // The digest of the manifest, which depends on nothing but this text.
    let layer = vec![0; 1024];
    let config = format!(
        r#"{{"architecture":"amd64","os":"linux","rootfs":{{"type":"layers","diff_ids":["{}"]}}}}"#,
        digest(&layer)
    );
    let manifest = format!(
        r#"{{"schemaVersion":2,"mediaType":"{MANIFEST}","config":{{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"{}","size":{}}},"layers":[{{"mediaType":"application/vnd.oci.image.layer.v1.tar","digest":"{}","size":{}}}]}}"#,
        digest(config.as_bytes()),
        config.len(),
        digest(&layer),
        layer.len()
    );
    let named = digest(manifest.as_bytes());
    let kind = format!("/v2/**/manifests/* Content-Type: {MANIFEST}");
    let tag = format!("/v2/tools/hello/manifests/1.0 Docker-Content-Digest: {named}");
    let args = ["--header", &kind, "--header", &tag];
    let Some(site) = Site::new(&["skopeo", "curl"], &args) else { return };
    for contents in [layer.as_slice(), config.as_bytes()] {
        put(&site, &format!("v2/tools/hello/blobs/{}", digest(contents)), contents);
    }
    for name in ["1.0", &named] {
        put(&site, &format!("v2/tools/hello/manifests/{name}"), manifest.as_bytes());
    }
    put(&site, "v2/tools/hello/tags/list", br#"{"name":"tools/hello","tags":["1.0"]}"#);
    assert_eq!(site.get_head("v2/tools/hello/manifests/1.0", "content-type"), MANIFEST);
    assert_eq!(site.get_head("v2/tools/hello/manifests/1.0", "docker-content-digest"), named);

    let image = format!("{}tools/hello", site.url("").replace("http://", "docker://"));
    let skopeo = |args: &[&str]| {
        site.fetch("skopeo", &[&["--insecure-policy"], args].concat()).succeeded().text()
    };
    let tagged = format!("{image}:1.0");
    let about = skopeo(&["inspect", "--tls-verify=false", &tagged]);
    assert!(about.contains(&format!("\"Digest\": \"{named}\"")), "{about}");
    let tags = skopeo(&["list-tags", "--tls-verify=false", &image]);
    assert!(tags.contains("\"1.0\""), "{tags}");
    for (from, to) in [(tagged, "by-tag"), (format!("{image}@{named}"), "by-digest")] {
        skopeo(&["copy", "--src-tls-verify=false", &from, &format!("dir:{to}")]);
        let copied = |name: &str| fs::read(site.target(to).join(name)).unwrap();
        assert_eq!(copied("manifest.json"), manifest.as_bytes());
        assert_eq!(copied(digest(&layer).trim_start_matches("sha256:")), layer);
    }
}

#[test]
fn hf_hub_download_reads_models_from_plain_files() {
    const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
    let commit = format!("/org/model/resolve/** X-Repo-Commit: {COMMIT}");
    let args = ["--header", &commit];
    let (Some(python), Some(site)) = (python(), Site::new(&["curl"], &args)) else { return };
    let weights = crate::rig::noise(3_000_000);
    let about = br#"{"model_type":"none"}"#;
    put(&site, "org/model/resolve/main/config.json", about);
    put(&site, "org/model/resolve/main/deep/model.safetensors", &weights);
    std::os::unix::fs::symlink("main", site.source(format!("org/model/resolve/{COMMIT}"))).unwrap();
    let api = "api/models/org/model";
    let summary = format!(r#"{{"id":"org/model","sha":"{COMMIT}","siblings":[]}}"#);
    put(&site, &format!("{api}/revision/main"), summary.as_bytes());
    let tree = format!(
        r#"[{{"type":"file","path":"config.json","size":{},"oid":"1"}},{{"type":"file","path":"deep/model.safetensors","size":{},"oid":"2"}}]"#,
        about.len(),
        weights.len()
    );
    put(&site, &format!("{api}/tree/{COMMIT}"), tree.as_bytes());
    assert_eq!(site.get_head("org/model/resolve/main/config.json", "x-repo-commit"), COMMIT);

    let script = "
import os
os.environ['HF_ENDPOINT'] = BASE.rstrip('/')
import huggingface_hub as hub
one = hub.hf_hub_download('org/model', 'deep/model.safetensors')
print(open(one, 'rb').read() == open(TRUE, 'rb').read(), COMMIT in one)
all = hub.snapshot_download('org/model', cache_dir='all')
print(sorted(os.listdir(all)), os.path.basename(all) == COMMIT)
";
    let truth = site.source("org/model/resolve/main/deep/model.safetensors");
    let script = format!("TRUE = {truth:?}\nCOMMIT = {COMMIT:?}\n{script}");
    let found = run(&site, &python, &script).succeeded().text();
    assert_eq!(found, "True True\n['config.json', 'deep'] True\n");
    let log = site.end();
    let heads = log.iter().filter(|line| line["method"] == "HEAD").count();
    assert!(heads >= 1, "{log:?}");
}
