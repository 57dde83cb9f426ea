//! The dashboard's page and its assets, embedded in the binary. A debug build reads them from the source tree, so that a change shows on
//! the next reload.
//!
//! Nothing here needs a login: the page asks for one. What it shows comes from the API, with the login of the page.

use crate::access::{Entrance, Shows, WantedThing};
use crate::api::Api;
use crate::problem::{Problem, ProblemCode};
use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::StatusCode;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderName, IF_NONE_MATCH};
use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::OnceLock;

/// Nothing is loaded from elsewhere, no script is inline, and no text becomes markup: the page's whole content is text of others.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// The headers of every response.
const HEADERS: [(HeaderName, &str); 7] = [
    (HeaderName::from_static("content-security-policy"), POLICY),
    (HeaderName::from_static("x-frame-options"), "DENY"),
    (HeaderName::from_static("x-content-type-options"), "nosniff"),
    (HeaderName::from_static("referrer-policy"), "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (CACHE_CONTROL, "no-cache"),
];

/// An embedded file.
struct Asset {
    /// Its path in the folder `dashboard`.
    path: &'static str,
    bytes: &'static [u8],
}

macro_rules! assets {
    ($($path:literal)+) => {
        &[$(Asset { path: $path, bytes: include_bytes!(concat!("../dashboard/", $path)) }),+]
    };
}

/// All files that are served; a test compares them with the folder.
const ASSETS: &[Asset] = assets! {
    "index.html"
    "style.css"
    "icon.svg"
    "app.js"
    "api.js"
    "calls.js"
    "form.js"
    "json.js"
    "lists.js"
    "now.js"
    "people.js"
    "sessions.js"
    "tasks.js"
    "text.js"
    "timeline.js"
    "tools.js"
    "ui.js"
    "vendor/preact.mjs"
    "vendor/hooks.mjs"
    "vendor/htm.mjs"
};

/// Adds the routes of the page. Every path below `/ui` is the same page, which shows what the path says.
pub(crate) fn routes(router: Router<Api>, door: &Entrance) -> Router<Api> {
    let index = handler(door, "index.html");
    router.route("/", index.clone()).route("/ui/{*path}", index).route("/assets/{*path}", handler(door, ""))
}

/// Serves one file, or the one that the path names below `/assets/`.
fn handler(door: &Entrance, file: &'static str) -> axum::routing::MethodRouter<Api> {
    let door = door.clone();
    get(move |request: Request| async move {
        if let Entrance::Address(rules) = &door
            && let Err(problem) = rules.check(Shows::of(&request), WantedThing::Page)
        {
            return problem.into_response();
        }
        let path = match file {
            "" => request.uri().path().trim_start_matches("/assets/"),
            file => file,
        };
        match ASSETS.iter().find(|asset| asset.path == path) {
            Some(asset) => served(asset, &request),
            None => Problem::new(ProblemCode::NotFound, "the dashboard has no such file").into_response(),
        }
    })
}

/// A short text that differs if the files do.
pub(crate) fn build() -> &'static str {
    static BUILD: OnceLock<String> = OnceLock::new();
    BUILD.get_or_init(|| {
        let mut hasher = DefaultHasher::new();
        ASSETS.iter().for_each(|asset| asset.current().hash(&mut hasher));
        format!("{:016x}", hasher.finish())
    })
}

fn served(asset: &Asset, request: &Request) -> Response {
    let bytes = asset.current();
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    let tag = format!("\"{:016x}\"", hasher.finish());
    let is_known = request.headers().get(IF_NONE_MATCH).is_some_and(|known| known == tag.as_str());
    let head = [(CONTENT_TYPE, media_type(asset.path).to_string()), (ETAG, tag)];
    match is_known {
        true => (StatusCode::NOT_MODIFIED, HEADERS, head).into_response(),
        false => (HEADERS, head, Body::from(bytes.into_owned())).into_response(),
    }
}

impl Asset {
    /// Its bytes: as they were built in, or in a debug build as they are now.
    fn current(&self) -> Cow<'static, [u8]> {
        if cfg!(debug_assertions) {
            let place = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("dashboard").join(self.path);
            if let Ok(bytes) = std::fs::read(place) {
                return bytes.into();
            }
        }
        self.bytes.into()
    }
}

fn media_type(path: &str) -> &'static str {
    match path.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "text/javascript; charset=utf-8",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    #[test]
    fn nothing_makes_markup_of_text_and_nothing_comes_from_elsewhere() {
        let banned = [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "dangerouslySetInnerHTML",
            "document.write",
            "eval(",
            "new Function",
            "http://",
            "https://",
            "sourceMappingURL",
        ];
        for asset in ASSETS.iter().filter(|asset| asset.path.ends_with("js") || asset.path.ends_with("html"))
        {
            let text = std::str::from_utf8(asset.bytes).unwrap();
            // The library can do it; our own modules never ask it to.
            let is_ours = !asset.path.starts_with("vendor/");
            for banned in banned.iter().filter(|banned| is_ours || banned.contains("Mapping")) {
                assert!(!text.contains(banned), "{} has {banned}", asset.path);
            }
        }
    }

    #[test]
    fn every_file_of_the_folder_is_served() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("dashboard");
        let mut found = BTreeSet::new();
        for below in ["", "vendor/"] {
            for entry in std::fs::read_dir(folder.join(below)).unwrap() {
                let name = format!("{below}{}", entry.unwrap().file_name().to_str().unwrap());
                let is_asset = [".js", ".mjs", ".css", ".html", ".svg"].iter().any(|end| name.ends_with(end));
                found.extend(is_asset.then_some(name));
            }
        }
        let served: BTreeSet<String> = ASSETS.iter().map(|asset| asset.path.to_string()).collect();
        assert_eq!(served, found);
    }
}
