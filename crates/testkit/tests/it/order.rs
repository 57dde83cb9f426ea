//! The show of steps, `cargo run -p windlass --example order --features kill-points`, with nothing amiss.

use std::path::Path;
use std::process::Command;
use windlass_testkit::proof::programs::Build;

#[test]
fn an_order_is_taken_once_wherever_its_worker_dies() {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().to_owned();
    let build = Build { target, ..Build::like_this_program().unwrap() }.with_points();
    let folder = build.build(&["--example=order"]).unwrap();
    let ran = Command::new(folder.join("examples/order")).output().unwrap();
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    assert!(ran.status.success() && said.contains(" 0 problems"), "{said}");
    // What the show is for did happen.
    let runs: u32 = said.lines().find_map(|line| line.split(" runs").next()?.parse().ok()).unwrap();
    assert!(runs > 100 && !said.contains("ran again 0 times"), "{said}");
}
