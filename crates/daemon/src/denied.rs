//! What another user than a daemon's owner may not do, in OpenZFS's words.
//!
//! True here: whoever may only look is told so before anything is asked; the public socket has no route that changes
//! anything, so nothing hangs on this text.

use hyper::Method;
use serde_json::Value;

use platter_api::messages::ErrorBody;

/// Whether `path` may be asked for at the public socket.
pub fn is_public(path: &str) -> bool {
    let path = path.split('?').next().unwrap_or_default();
    let of_pool = path.strip_prefix("/v1/pools/").map(|rest| rest.split_once('/').map_or("", |(_, what)| what));
    matches!(path, "/v1/daemon" | "/v1/pools" | "/v1/datasets" | "/v1/mounts") || matches!(of_pool, Some("" | "txgs"))
}

/// The refusal of a request that another user than `owner` makes; none when it may be made.
pub fn before_asking(method: &Method, path: &str, body: &[u8], owner: u32) -> Option<ErrorBody> {
    if method == Method::GET && is_public(path) {
        return None;
    }
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let message = format!("{}: permission denied", attempt(path, &body));
    let who = if owner == 0 { "root".to_owned() } else { format!("user {owner}") };
    Some(
        ErrorBody::new(message)
            .hint(format!("this daemon is {who}'s; one of your own starts with PLATTER_HOME set to a folder of yours")),
    )
}

/// What was to be done, as OpenZFS begins its messages.
fn attempt(path: &str, body: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let name = text(&body["name"]);
    let path = path.split('?').next().unwrap_or_default();
    if let Some((pool, what)) = path.strip_prefix("/v1/pools/").and_then(|rest| rest.split_once('/')) {
        return match what {
            "properties" => format!("cannot set property for '{pool}'"),
            "history" => format!("cannot get history for '{pool}'"),
            "scrub" => format!("cannot scrub '{pool}'"),
            "clear" => format!("cannot clear errors for {pool}"),
            "sync" => format!("cannot sync '{pool}'"),
            "change" => format!("cannot change '{pool}'"),
            other => format!("cannot {other} '{pool}'"),
        };
    }
    match path {
        "/v1/pools" => format!("cannot create '{}'", text(&body["request"]["name"])),
        "/v1/import" => format!("cannot import '{}'", text(&body["request"]["pool"])),
        "/v1/import/search" => "cannot discover pools".to_owned(),
        "/v1/labelclear" => format!("cannot clear the label of '{}'", text(&body["device"])),
        "/v1/events" | "/v1/events/clear" => "cannot use the event log".to_owned(),
        "/v1/datasets" => format!("cannot create '{name}'"),
        "/v1/datasets/destroy" => format!("cannot destroy '{name}'"),
        "/v1/datasets/rename" => format!("cannot rename '{}'", text(&body["from"])),
        "/v1/datasets/properties" | "/v1/datasets/idquota" => format!("cannot set property for '{name}'"),
        "/v1/datasets/userspace" => "cannot get used/quota".to_owned(),
        "/v1/mounts" => format!("cannot mount '{}'", body["dataset"].as_str().unwrap_or("all")),
        "/v1/unmount" => format!("cannot unmount '{}'", body["target"].as_str().unwrap_or("all")),
        "/v1/daemon/stop" => "cannot stop the daemon".to_owned(),
        _ => "cannot do that".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn looking_is_allowed_and_changing_is_refused_in_openzfs_words() {
        for path in ["/v1/pools", "/v1/pools/tank?errors=true&extended=false", "/v1/datasets?under=tank", "/v1/mounts"]
        {
            assert_eq!(before_asking(&Method::GET, path, b"", 0), None, "{path}");
        }
        let refused = |method: Method, path: &str, body: Value| {
            before_asking(&method, path, body.to_string().as_bytes(), 0).expect("refused").message
        };
        for (path, body, said) in [
            ("/v1/pools", json!({"request": {"name": "tank"}}), "cannot create 'tank': permission denied"),
            ("/v1/datasets", json!({"name": "tank/x"}), "cannot create 'tank/x': permission denied"),
            ("/v1/pools/tank/export", json!({}), "cannot export 'tank': permission denied"),
            ("/v1/pools/tank/scrub", json!({}), "cannot scrub 'tank': permission denied"),
            ("/v1/datasets/properties", json!({"name": "tank"}), "cannot set property for 'tank': permission denied"),
        ] {
            assert_eq!(refused(Method::POST, path, body), said);
        }
        for path in
            ["/v1/pools/tank/history", "/v1/events?after=0", "/v1/datasets/userspace?name=t", "/v1/daemon/log-level"]
        {
            assert!(refused(Method::GET, path, Value::Null).ends_with(": permission denied"), "{path}");
        }
    }
}
