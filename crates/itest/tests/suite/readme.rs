//! What README.md shows is what happens: its commands run as they stand there, and their output is compared with the
//! output printed beside them, amounts within a tolerance.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use platter_itest::{Lab, binary, data, judge};

const README: &str = include_str!("../../../../README.md");

/// One `$ ...` line and the output that README.md shows below it.
#[derive(Debug)]
struct Step {
    command: String,
    shown: Vec<String>,
}

/// The steps in the fenced blocks of the section `title`.
fn steps(title: &str) -> Vec<Step> {
    let section = README.split("\n## ").find(|section| section.starts_with(title)).expect("the section exists");
    let mut steps: Vec<Step> = Vec::new();
    let mut fenced = false;
    for line in section.lines() {
        if line.starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            continue;
        } else if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step { command: command.to_owned(), shown: Vec::new() });
        } else if let Some(step) = steps.last_mut() {
            step.shown.push(line.to_owned());
        }
    }
    steps
}

/// A line without what differs from run to run: numbers with their units, dates, the folder, the widths of columns.
fn stable(line: &str, folder: &Path) -> String {
    let line = line.replace(folder.to_str().expect("temporary paths are UTF-8"), "/pool");
    // Dates stand at the end of a line.
    let line = line.split(" on ").next().unwrap_or_default().to_owned();
    line.split_whitespace()
        .map(|word| {
            let number = word.starts_with(|first: char| first.is_ascii_digit())
                && word.chars().all(|each| each.is_ascii_digit() || ".:KMGTBx)".contains(each));
            if number { "#" } else { word }
        })
        .collect::<Vec<_>>()
        .join(" ")
}

/// The amount that a word tells, and by what factor it may differ from run to run. None for times, names, process ids
/// and guids.
fn amount(word: &str) -> Option<(f64, f64)> {
    const BYTES: f64 = 1.6;
    const COUNT: f64 = 4.0;
    let digits = word.trim_end_matches(|last: char| "BKMGTx".contains(last));
    let number: f64 = digits.parse().ok().filter(|number: &f64| *number < 1e12)?;
    let unit = &word[digits.len()..];
    let factor = |power: i32| Some((number * 1024f64.powi(power), BYTES));
    match unit {
        "" => Some((number, COUNT)),
        "x" => Some((number, 1.2)),
        "B" => factor(0),
        "K" => factor(1),
        "M" => factor(2),
        "G" => factor(3),
        "T" => factor(4),
        _ => None,
    }
}

/// Whether the amounts of two lines, which are alike otherwise, are about the same.
fn amounts_agree(said: &str, shown: &str) -> bool {
    let words = said.split_whitespace().zip(shown.split_whitespace());
    words.filter_map(|(said, shown)| Some((amount(said)?, amount(shown)?))).all(|((said, _), (shown, factor))| {
        if said == 0.0 || shown == 0.0 { said == shown } else { (said / shown).max(shown / said) <= factor }
    })
}

#[track_caller]
fn compare(step: &Step, said: &str, folder: &Path) {
    let whole = said;
    for (said, shown) in whole.lines().zip(&step.shown) {
        let without_date = |line: &str| line.split(" on ").next().unwrap_or_default().to_owned();
        assert!(
            amounts_agree(&without_date(said), &without_date(shown)),
            "$ {}\n{said}\nREADME.md shows another amount:\n{shown}\nof\n{whole}",
            step.command
        );
    }
    let said: Vec<String> = whole.lines().map(|line| stable(line, folder)).collect();
    let mut shown: Vec<String> = step.shown.iter().map(|line| stable(line, folder)).collect();
    // A line of its own with an ellipsis: the rest is left out. Blank lines part a step from the next one.
    let open = shown.last().is_some_and(|line| line == "…");
    while shown.last().is_some_and(|line| line.is_empty() || line == "…") {
        shown.pop();
    }
    let compared = if open { shown.len().min(said.len()) } else { said.len() };
    assert_eq!(&said[..compared], &shown[..], "$ {}\nREADME.md (right) shows something else", step.command);
}

/// A daemon started by the first command, pools under their own names: nothing is set up that a reader would not have.
#[test]
fn the_tour_shows_what_happens() {
    if !judge::need_fuse() {
        return;
    }
    // The tour mounts where its reader would: at /tank.
    if Path::new("/tank").exists() || !rustix::process::geteuid().is_root() {
        judge::skip("the tour of README.md", "it mounts at /tank, which exists here or needs root");
        return;
    }
    let Some(lab) = Lab::open() else { return };
    let home = lab.tmp().join("reader");
    fs::create_dir_all(home.join("photos")).expect("a folder");
    // As much as the reader whose output README.md shows has, and as compressible.
    for (index, name) in ["best"].into_iter().map(str::to_owned).chain((1..13).map(|n| format!("p{n}"))).enumerate() {
        let mut photo = data::random(index as u64, 440 << 10);
        photo.resize(1 << 20, 0);
        fs::write(home.join("photos").join(name), photo).expect("a file");
    }
    let names = lab.tmp().join("names");
    fs::create_dir_all(&names).expect("a folder");
    for name in ["platter", "zpool", "zfs"] {
        symlink(binary::platter(), names.join(name)).expect("a link");
    }

    // Building and naming happened above, with the binary under test.
    let of_the_build = ["cargo build", "ln -s platter", "export PATH"];
    let mut steps = steps("A tour");
    steps.retain(|step| !of_the_build.iter().any(|start| step.command.starts_with(start)));
    assert!(steps.len() > 8, "the tour is there: {steps:?}");
    let words: BTreeSet<&str> = steps.iter().flat_map(|step| step.command.split_whitespace().take(2)).collect();
    for wanted in ["create", "scrub", "export", "import"] {
        assert!(words.contains(wanted), "the tour tells of {wanted}");
    }

    let mut script = String::from("set -e\ntrap 'zpool destroy tank 2>/dev/null || true' EXIT\n");
    for (index, step) in steps.iter().enumerate() {
        let out = lab.tmp().join(format!("out.{index}"));
        // Not in a subshell: `cd` and `export` hold for what follows.
        writeln!(script, "{{ {}\n}} > '{}' 2>&1", step.command, out.display()).expect("strings grow");
    }
    let path = format!("{}:{}", names.display(), std::env::var("PATH").unwrap_or_default());
    let home_variable = format!("HOME={}", home.display());
    lab.run("env", [&home_variable, &format!("PATH={path}"), "TERM=dumb", "bash", "-c", &script]).ok();
    let folder = lab.dev();
    for (index, step) in steps.iter().enumerate() {
        let said = fs::read_to_string(lab.tmp().join(format!("out.{index}"))).expect("the step ran");
        compare(step, &said, &folder);
    }
    assert!(!Path::new("/tank").exists(), "the mount point went with its pool");
}

/// A line that is only like the shown one is a difference: the comparison can fail.
#[test]
fn the_comparison_tells_a_difference() {
    let folder = Path::new("/somewhere");
    assert_eq!(stable("tank  5.68M  2.64G  35.8K  2.36x", folder), stable("tank 1M 2G 3K 1.00x", folder));
    assert_eq!(stable("  /somewhere/d0  ONLINE  0", folder), stable(" /pool/d0 ONLINE 12", folder));
    assert_ne!(stable("tank ONLINE 0", folder), stable("tank DEGRADED 0", folder));
    // What was copied was not on disk yet: 35.8K were used where README.md showed 5.52M, and nothing saw it.
    assert!(amounts_agree("tank/media  5.21M  2.64G  5.21M  2.40x", "tank/media  5.52M  2.64G  5.52M  2.37x"));
    assert!(!amounts_agree("tank/media  35.8K  2.64G  35.8K  1.00x", "tank/media  5.52M  2.64G  5.52M  2.37x"));
    assert!(!amounts_agree("d3 ONLINE 0 0 0", "d3 ONLINE 0 0 19"));
    assert!(amounts_agree("started the daemon (pid 1)", "started the daemon (pid 23447)"));
}
