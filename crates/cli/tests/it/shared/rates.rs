//! The rate of a token over several workers.

use super::Fleet;
use serde_json::{Value, json};
use std::time::Duration;

/// As many as a worker would let in at once by itself.
const RATE: u32 = 1_200;

#[test]
fn what_one_worker_lets_in_counts_at_the_others() {
    let Some(fleet) = Fleet::new(2) else { return };
    let wanted = json!({"principal": "ada", "scopes": ["read"], "requests_per_minute": RATE});
    let made = fleet.workers[0].post(&fleet.token, "/v1/tokens", &wanted);
    let token = made["token"].as_str().expect("a token");
    let let_in = |worker: usize| {
        let (status, told) =
            fleet.workers[worker].ask(token, "GET", "/v1/tools", &Value::Null).expect("it answers");
        assert!(status == 200 || (status == 429 && told["code"] == "too_many_requests"), "{status} {told}");
        status == 200
    };
    let first = (0..10 * RATE).take_while(|_| let_in(0)).count();
    assert!(first >= RATE as usize, "{first}");
    // The other one lets some in until it hears of that.
    let second = (0..RATE)
        .take_while(|_| {
            std::thread::sleep(Duration::from_millis(5)); // tidy: the pause between two looks at other processes
            let_in(1)
        })
        .count();
    assert!(second < RATE as usize / 2, "{second} more");
}
