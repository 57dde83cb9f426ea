//! Schedules over HTTP: made, shown, changed, removed, and refused.

use crate::tcp::Served;
use serde_json::{Value, json};

const ALL: &str = "/v1/sessions/s/schedules";

async fn patch(served: &Served, id: &str, body: Value) -> crate::tcp::Answer {
    served.ask("PATCH", &format!("{ALL}/{id}"), body).await
}

#[tokio::test]
async fn a_schedule_is_made_shown_changed_and_removed() {
    let served = Served::new().await;
    let wanted = json!({"id": "nightly", "cron": "30 2 * * *", "zone": "Europe/Berlin", "tool": "build", "title": "Nightly build"});
    let made = served.post(ALL, wanted.clone()).await.expect(201);
    assert_eq!((&made["enabled"], &made["count"], &made["generation"]), (&json!(true), &json!(0), &json!(1)));
    assert_eq!((&made["catch_up"], &made["overlap"]), (&json!("one"), &json!("skip")));
    assert!(made["next"].is_string() && made["owner"].is_string(), "{made}");
    assert_eq!(served.post(ALL, wanted.clone()).await.expect(200), made, "the same again is fine");
    let mut other = wanted;
    other["cron"] = json!("0 3 * * *");
    assert_eq!(served.post(ALL, other).await.told(), (409, "conflict".into()));
    assert_eq!(served.get(ALL).await.expect(200)["items"], json!([made]));
    let tasks = served.get("/v1/sessions/s/tasks").await.expect(200);
    let monitor = &tasks["items"][0];
    assert_eq!((&monitor["task"], &monitor["kind"]), (&json!("nightly"), &json!("monitor")));
    assert_eq!((&monitor["state"], &monitor["title"]), (&json!("watching"), &json!("Nightly build")));
    let found = served.get("/v1/sessions/s/tasks/nightly").await.expect(200);
    assert_eq!(found, *monitor, "it is found by its id, and has no call");
    let off = patch(&served, "nightly", json!({"enabled": false, "generation": 1})).await.expect(200);
    assert_eq!((&off["enabled"], &off["generation"], off.get("next")), (&json!(false), &json!(2), None));
    let stale = patch(&served, "nightly", json!({"enabled": true, "generation": 1})).await;
    assert_eq!(stale.told(), (409, "conflict".into()));
    assert_eq!(patch(&served, "weekly", json!({})).await.told(), (404, "not_found".into()));
    for _again in 0..2 {
        served.ask("DELETE", &format!("{ALL}/nightly"), Value::Null).await.expect(200);
    }
    assert_eq!(served.get(ALL).await.expect(200)["items"], json!([]));
}

#[tokio::test]
async fn the_next_times_are_shown_and_what_is_wrong_is_told() {
    let served = Served::new().await;
    served.post(ALL, json!({"cron": "0 0 * * *", "tool": "build"})).await.expect(201);
    let preview = format!("{ALL}/preview");
    let times = json!({"cron": "0 9 * * *", "zone": "Asia/Kolkata", "limit": 3});
    let fires = served.post(&preview, times).await.expect(200);
    let items = fires["items"].as_array().expect("a list");
    assert_eq!(items.len(), 3);
    for fire in items {
        let (at, local) = (fire["at"].as_str().expect("a time"), fire["local"].as_str().expect("a time"));
        assert!(at.ends_with("T03:30:00.000Z") && local.ends_with("T09:00:00+05:30"), "{fire}");
    }
    // Also of a session that its first schedule opens; and looking opens none.
    let first = json!({"cron": "0 9 * * *"});
    served.post("/v1/sessions/new/schedules/preview", first).await.expect(200);
    assert_eq!(served.get("/v1/sessions/new").await.status, 404);
    for (wrong, says) in [
        (json!({"cron": "0 25 * * *"}), "no value from 0 to 23"),
        (json!({"cron": "0 0 * * *", "zone": "Mars"}), "no time zone"),
        (json!({}), "needs a cron"),
        (json!({"at": "2001-01-01T00:00:00Z"}), "is over"),
    ] {
        let refused = served.post(&preview, wrong).await;
        assert_eq!(refused.told(), (422, "invalid_schedule".into()));
        assert!(refused.body.contains(says), "{says}");
    }
    let direct = served.post(ALL, json!({"cron": "0 0 * * *", "tool": "say"})).await;
    assert_eq!(direct.told(), (422, "not_background".into()));
    let missing = served.post(ALL, json!({"cron": "0 0 * * *", "tool": "bild"})).await;
    assert_eq!(missing.told(), (422, "no_such_tool".into()));
    for _more in 0..4 {
        served.post(ALL, json!({"cron": "0 0 * * *", "tool": "build"})).await.expect(201);
    }
    let sixth = served.post(ALL, json!({"cron": "0 0 * * *", "tool": "build"})).await;
    assert_eq!(sixth.told(), (422, "too_many_schedules".into()));
}
