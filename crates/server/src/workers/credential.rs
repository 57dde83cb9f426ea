//! The caller of a request that one worker passes on to another, sealed with the secret of their store.
//!
//! The seal covers the recipient, the method and the target, so it is of no use for another request or another worker, and none at all
//! once that worker has a new id. What it stands for was checked by the sender.

use crate::access::{Caller, TokenScope};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hyper::{Method, Uri};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use windlass_core::handle::{Secret, worker_seal};

/// The header with the sealed caller.
pub(crate) const HEADER: &str = "x-windlass-forwarded";

#[derive(Deserialize, Serialize)]
struct Credential {
    /// The worker that it is for.
    to: String,
    /// The caller; none where no token is needed.
    caller: Option<ForwardedCaller>,
}

#[derive(Deserialize, Serialize)]
struct ForwardedCaller {
    principal: Arc<str>,
    scopes: Arc<[TokenScope]>,
    approves: Arc<[String]>,
    token: Option<Arc<str>>,
    page: bool,
    #[serde(default)]
    checked: u64,
}

/// A caller that another worker has passed on.
pub(crate) enum Presented {
    /// It is for this worker.
    Caller(Option<Caller>),
    /// It is for a worker that this one is no longer.
    OtherWorker,
    /// It is forged, or of another store.
    Forged,
}

/// The value of the header for a request to this worker.
pub(crate) fn sealed(
    secret: &Secret,
    to: &str,
    caller: Option<&Caller>,
    method: &Method,
    target: &str,
) -> String {
    let caller = caller.map(|caller| ForwardedCaller {
        principal: caller.principal.clone(),
        scopes: caller.scopes.clone(),
        approves: caller.approves.clone(),
        token: caller.token.clone(),
        page: caller.page,
        checked: caller.checked,
    });
    let credential = Credential { to: to.to_string(), caller };
    let text = URL_SAFE_NO_PAD.encode(serde_json::to_vec(&credential).unwrap_or_default());
    format!("{}.{text}", seal(secret, method, target, &text))
}

/// Reads the header of a request to the worker of this id.
pub(crate) fn opened(
    secret: &Secret,
    own: Option<&str>,
    header: &str,
    method: &Method,
    uri: &Uri,
) -> Presented {
    let target = uri.path_and_query().map_or("/", |target| target.as_str());
    let read = || {
        let (shown, text) = header.split_once('.')?;
        // Compared as hashes under another key, so that the time it takes tells nothing.
        let same = blind(secret, shown) == blind(secret, &seal(secret, method, target, text));
        let bytes = same.then(|| URL_SAFE_NO_PAD.decode(text).ok())??;
        serde_json::from_slice::<Credential>(&bytes).ok()
    };
    let Some(Credential { to, caller }) = read() else { return Presented::Forged };
    if own != Some(&*to) {
        return Presented::OtherWorker;
    }
    Presented::Caller(caller.map(|caller| Caller {
        principal: caller.principal,
        scopes: caller.scopes,
        approves: caller.approves,
        token: caller.token,
        page: caller.page,
        checked: caller.checked,
    }))
}

fn seal(secret: &Secret, method: &Method, target: &str, text: &str) -> String {
    worker_seal(secret, &format!(" request {method} {target}\n{text}"))
}

fn blind(secret: &Secret, seal: &str) -> String {
    worker_seal(secret, &format!(" compare {seal}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller() -> Caller {
        let (principal, scopes) = ("ada".into(), [TokenScope::Read, TokenScope::Calls].into());
        Caller {
            principal,
            scopes,
            approves: Arc::default(),
            token: Some("hash".into()),
            page: false,
            checked: 7,
        }
    }

    #[test]
    fn a_caller_is_good_for_one_request_to_one_worker_of_the_store() {
        let (secret, other) = (Secret([7; 32]), Secret([8; 32]));
        let header = sealed(&secret, "w1", Some(&caller()), &Method::POST, "/v1/a?b=1");
        let open = |secret: &Secret, own: &str, header: &str, method: Method, uri: &str| {
            opened(secret, Some(own), header, &method, &uri.parse().unwrap())
        };
        let Presented::Caller(Some(found)) = open(&secret, "w1", &header, Method::POST, "/v1/a?b=1") else {
            panic!("it is for this worker");
        };
        assert_eq!((&*found.principal, &*found.scopes), ("ada", &*caller().scopes));
        assert!(matches!(open(&secret, "w2", &header, Method::POST, "/v1/a?b=1"), Presented::OtherWorker));
        for forged in [
            open(&other, "w1", &header, Method::POST, "/v1/a?b=1"),
            open(&secret, "w1", &header, Method::PUT, "/v1/a?b=1"),
            open(&secret, "w1", &header, Method::POST, "/v1/a?b=2"),
            open(&secret, "w1", &header.replacen('.', ".A", 1), Method::POST, "/v1/a?b=1"),
            open(&secret, "w1", "", Method::POST, "/v1/a?b=1"),
        ] {
            assert!(matches!(forged, Presented::Forged));
        }
    }

    #[test]
    fn a_route_without_a_token_is_passed_on_without_a_caller() {
        let secret = Secret([7; 32]);
        let header = sealed(&secret, "w", None, &Method::POST, "/v1/completions/k");
        let found = opened(&secret, Some("w"), &header, &Method::POST, &"/v1/completions/k".parse().unwrap());
        assert!(matches!(found, Presented::Caller(None)));
    }
}
