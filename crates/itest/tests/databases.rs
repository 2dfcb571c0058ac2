//! Databases on a mount, which trust `fsync` with everything: SQLite and PostgreSQL pass their own checks, also after
//! the daemon was killed under load, and lose no transaction that they acknowledged. `make test-databases`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use platter_itest::{Lab, judge, zdb};

/// Three processes insert and change rows in one database, and print each row's number once it is committed.
///
/// In journal mode "delete" a transaction is committed by removing its journal, and SQLite makes that stable only with
/// `synchronous=extra` (https://sqlite.org/pragma.html#pragma_synchronous): with "full" the last one may be undone.
const SQLITE_LOAD: &str = r#"
import sqlite3, sys, random
path, journal, who = sys.argv[1], sys.argv[2], int(sys.argv[3])
db = sqlite3.connect(path, timeout=60, isolation_level=None)
db.execute(f"pragma journal_mode={journal}")
db.execute("pragma synchronous=extra")
number = (db.execute("select max(id) from t where who=?", (who,)).fetchone()[0] or 0)
while True:
    number += 1
    db.execute("begin immediate")
    db.execute("insert into t values (?, ?, ?)", (who, number, random.randbytes(random.randrange(4000))))
    if number % 5 == 0:
        other = random.randrange(1, number)
        db.execute("update t set data=? where who=? and id=?", (random.randbytes(2000), who, other))
    if number % 50 == 0:
        db.execute("delete from t where who=? and id<? and id%7=0", (who, number - 100))
    db.execute("commit")
    print(number, flush=True)
"#;

/// Makes the database.
const SQLITE_MAKE: &str = r#"
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute(f"pragma journal_mode={sys.argv[2]}")
db.execute("pragma synchronous=extra")
db.execute("create table t (who int, id int, data blob, unique (who, id))")
"#;

/// Checks a database and prints the last row of each writer.
const SQLITE_CHECK: &str = r#"
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], timeout=60)
print(db.execute("pragma integrity_check").fetchone()[0])
for who in range(3):
    print(db.execute("select max(id) from t where who=?", (who,)).fetchone()[0] or 0)
"#;

fn run(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().expect("the program starts");
    let shown = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {shown}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Lines of a process that prints what was committed.
fn last_line(child: &mut Child) -> u64 {
    let lines = BufReader::new(child.stdout.take().expect("its output is read")).lines();
    lines.map_while(Result::ok).filter_map(|line| line.trim().parse().ok()).last().unwrap_or(0)
}

fn sqlite(lab: &Lab, mount: &Path, journal: &str, kills: u32) {
    let database = mount.join(format!("{journal}.db"));
    run(Command::new("python3").args(["-c", SQLITE_MAKE]).arg(&database).arg(journal));
    let mut total = 0;
    let start = Instant::now();
    let mut busy = Duration::ZERO;
    let mut known = [0; 3];
    for round in 0..=kills {
        let began = Instant::now();
        let mut writers: Vec<Child> = (0..3)
            .map(|who| {
                let mut command = Command::new("python3");
                command.args(["-c", SQLITE_LOAD]).arg(&database).args([journal, &who.to_string()]);
                command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
                command.spawn().expect("python3 starts")
            })
            .collect();
        std::thread::sleep(Duration::from_millis(3000 + u64::from(round) * 371 % 1000));
        if round < kills {
            lab.kill_daemon(false);
        }
        for (writer, known) in writers.iter_mut().zip(&mut known) {
            let _ = writer.kill();
            let last = last_line(writer);
            let _ = writer.wait();
            total += last.saturating_sub(*known);
            *known = last.max(*known);
        }
        busy += began.elapsed();
        if round < kills {
            zdb::assert_clean(&lab.dev(), "tank");
            lab.revive("tank");
        }
        let checked = run(Command::new("python3").args(["-c", SQLITE_CHECK]).arg(&database));
        let mut lines = checked.lines();
        assert_eq!(lines.next(), Some("ok"), "{journal}, round {round}: {checked}");
        for (known, found) in known.iter_mut().zip(lines) {
            let found: u64 = found.parse().expect("a number");
            assert!(found >= *known, "{journal}, round {round}: row {known} was committed, the last one is {found}");
            *known = found;
        }
    }
    println!(
        "SQLite, journal_mode={journal}, 3 writers: {total} commits in {busy:?} ({:.0} a second), {kills} kills, \
         integrity_check ok each time, none lost; {:?} in all",
        total as f64 / busy.as_secs_f64(),
        start.elapsed()
    );
}

#[test]
#[ignore = "takes minutes: make test-databases"]
fn sqlite_loses_no_commit() {
    if judge::need("python3").is_none() {
        return;
    }
    let Some(lab) = Lab::open_big(Duration::from_secs(3600)) else { return };
    lab.disks(3, 1024);
    let mount = lab.create("-o ashift=12", "tank", "raidz d0 d1 d2");
    for journal in ["wal", "delete", "truncate", "persist"] {
        sqlite(&lab, &mount, journal, 5);
    }
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}

/// A PostgreSQL server on a mount, run as its own user.
struct Postgres {
    tools: PathBuf,
    data: PathBuf,
    scratch: PathBuf,
}

impl Postgres {
    fn find() -> Option<PathBuf> {
        let mut found: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path().join("bin"))
            .filter(|bin| bin.join("pgbench").is_file())
            .collect();
        found.sort();
        if found.is_empty() {
            judge::skip("PostgreSQL", "install postgresql and postgresql-contrib");
        }
        found.pop()
    }

    fn command(&self, tool: &str) -> Command {
        let mut command = Command::new("runuser");
        command.args(["-u", "postgres", "--"]).arg(self.tools.join(tool)).current_dir(&self.scratch);
        command.env("PGHOST", &self.scratch).env("PGDATABASE", "postgres").env("LC_ALL", "C.UTF-8");
        command
    }

    fn start(&self) {
        let options = format!("-k {} -c listen_addresses= -c checkpoint_timeout=30s", self.scratch.display());
        let log = self.scratch.join("server.log");
        // The server keeps the descriptors it gets: none may be a pipe that somebody reads to its end.
        let status = self
            .command("pg_ctl")
            .arg("-D")
            .arg(&self.data)
            .args(["-w", "-t", "120", "-o", &options, "-l"])
            .arg(&log)
            .arg("start")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .expect("pg_ctl runs");
        assert!(status.success(), "{}", fs::read_to_string(&log).unwrap_or_default());
    }

    /// Ends the server by force, as the machine's end would.
    fn kill(&self) {
        let lock = self.scratch.join(".s.PGSQL.5432.lock");
        let Ok(text) = fs::read_to_string(&lock) else { return };
        let server = text.lines().next().unwrap_or_default().to_owned();
        // Each connection has a process of its own, which waits for the others if it is left alone.
        let children = Command::new("ps").args(["-o", "pid=", "--ppid", &server]).output().expect("ps runs").stdout;
        let children = String::from_utf8_lossy(&children).into_owned();
        for pid in std::iter::once(&server[..]).chain(children.split_whitespace()) {
            let _ = Command::new("kill").args(["-KILL", pid]).stderr(Stdio::null()).status();
        }
        std::thread::sleep(Duration::from_secs(1));
        let _ = fs::remove_file(lock);
    }

    fn query(&self, text: &str) -> String {
        run(self.command("psql").args(["-AtXc", text])).trim().to_owned()
    }

    fn bench(&self, seconds: u32) -> Child {
        let mut bench = self.command("pgbench");
        bench.args(["-n", "-c", "4", "-j", "2", "-l", "-T", &seconds.to_string()]);
        bench.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        bench.spawn().expect("pgbench starts")
    }

    /// Transactions that pgbench saw committed, from its logs, which are outside of the mount.
    fn take_logged(&self) -> u64 {
        let mut count = 0;
        for entry in fs::read_dir(&self.scratch).expect("the folder can be read").flatten() {
            if entry.file_name().to_string_lossy().starts_with("pgbench_log.") {
                count += fs::read_to_string(entry.path()).expect("a log").lines().count() as u64;
                fs::remove_file(entry.path()).expect("it can be removed");
            }
        }
        count
    }

    /// The sums of pgbench's tables agree, and the indexes and tables are sound.
    fn check(&self, committed: u64) {
        let sums = self.query(
            "select (select sum(abalance) from pgbench_accounts), (select sum(tbalance) from pgbench_tellers), \
             (select sum(bbalance) from pgbench_branches), (select coalesce(sum(delta), 0) from pgbench_history)",
        );
        let sums: Vec<&str> = sums.split('|').collect();
        assert!(sums.iter().all(|sum| *sum == sums[0]), "pgbench's tables disagree: {sums:?}");
        let found: u64 = self.query("select count(*) from pgbench_history").parse().expect("a number");
        assert!(found >= committed, "{committed} transactions were committed, {found} are there");
        run(self.command("pg_amcheck").args(["--heapallindexed", "--install-missing"]));
    }
}

#[test]
#[ignore = "takes minutes: make test-databases"]
fn postgresql_loses_no_transaction() {
    let Some(tools) = Postgres::find() else { return };
    let Some(lab) = Lab::open_big(Duration::from_secs(3600)) else { return };
    lab.disks(3, 2048);
    lab.create("-o ashift=12", "tank", "raidz d0 d1 d2");
    let mount = lab.create_fs("-o recordsize=16K -o compression=lz4", "tank/pg");
    // The server's user has to get there.
    for path in [lab.root(), &lab.root().join("mnt"), &lab.mnt("tank"), &mount] {
        run(Command::new("chmod").arg("755").arg(path));
    }
    let scratch = lab.root().join("scratch");
    fs::create_dir(&scratch).expect("a folder");
    run(Command::new("chown").arg("postgres:postgres").arg(&mount).arg(&scratch));
    let server = Postgres { tools, data: mount.join("data"), scratch };
    run(server.command("initdb").args(["-k", "-A", "trust", "-E", "UTF8", "-D"]).arg(&server.data));
    server.start();
    run(server.command("pgbench").args(["-i", "-q", "-s", "5"]));
    let mut committed = 0;
    let kills = 5;
    for round in 0..=kills {
        let began = Instant::now();
        let mut bench = server.bench(if round < kills { 60 } else { 15 });
        if round < kills {
            std::thread::sleep(Duration::from_millis(4000 + round * 777));
            lab.kill_daemon(false);
            server.kill();
            let _ = bench.wait();
            zdb::assert_clean(&lab.dev(), "tank");
            lab.revive("tank");
            lab.wait_mounted(&mount);
            server.start();
        } else {
            bench.wait().expect("pgbench ends");
        }
        let logged = server.take_logged();
        committed += logged;
        server.check(committed);
        println!("PostgreSQL, round {round}: {logged} transactions in {:?} (with the check)", began.elapsed());
        if round == kills {
            println!("PostgreSQL: pgbench -c 4, no kill: {:.0} transactions a second", logged as f64 / 15.0);
        }
    }
    println!("PostgreSQL: {committed} transactions, {kills} kills, none lost; pg_amcheck and the sums agree each time");
    run(server.command("pg_ctl").arg("-D").arg(&server.data).args(["-m", "fast", "-w", "stop"]));
    run(server.command("pg_checksums").arg("--check").arg("-D").arg(&server.data));
    lab.export("tank");
    zdb::assert_clean(&lab.dev(), "tank");
}
