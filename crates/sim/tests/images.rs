//! Some tens of tampered pools; `make fuzz-images` has as many as there is time for.

use std::process::Command;

/// What must never be, as the command says it. It also tells of imports that wrote before they were refused and of
/// operations that wait for ever in virtual time: of both there still are some, which the next ones are to repair, and
/// then this list is every line.
const NEVER: [&str; 4] = ["panic at", "it died", "no answer for", "it took"];

#[test]
fn tampered_pools_neither_panic_nor_hang_nor_take_all_memory() {
    let output = Command::new(env!("CARGO_BIN_EXE_platter-sim"))
        .args(["images", "--seeds", "0..100000", "--seconds", "30"])
        .output()
        .expect("the simulator runs");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains(" images: ") && !text.starts_with("0 images"), "{text}");
    let wrong: Vec<&str> = text.lines().filter(|line| NEVER.iter().any(|never| line.contains(never))).collect();
    assert!(wrong.is_empty() && !text.contains("did not begin"), "{wrong:#?}");
}
