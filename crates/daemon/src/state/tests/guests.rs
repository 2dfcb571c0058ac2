//! Other users than the owner: what they may do is what data sets say, and how it is done for them.

use super::*;
use platter_api::ask::{Ask, Operation};
use platter_dsl::permissions::Asker as Guest;

fn joe() -> Guest {
    Guest { uid: 1000, gid: 1000, groups: Vec::new() }
}

/// Asks as Joe; what it comes to when he may.
async fn ask(bench: &Bench, operation: Operation) -> Answer<&'static str> {
    bench.daemon.permit_at_first(&joe(), &operation).await?;
    let work = async {
        let _lock = bench.daemon.locks.of("tank").await;
        Ok("done")
    };
    bench.daemon.on_behalf(&joe(), &operation, work).await
}

fn create(name: &str) -> Operation {
    CreateDataset { name: name.into(), mount: true, ..CreateDataset::default() }.operation()
}

#[tokio::test]
async fn a_guest_does_what_is_allowed_and_is_told_of_the_rest() {
    let bench = Bench::new().with_pool().await;
    bench.make("tank/joe", &[("allow:ul$1000", "create,mount,userprop"), ("allow:ud$1000", "create,mount")]).await;
    bench.make("tank/ann", &[]).await;
    assert_eq!(ask(&bench, create("tank/joe/a")).await.unwrap(), "done");
    for name in ["tank/a", "tank/ann/a"] {
        let refused = ask(&bench, create(name)).await.unwrap_err();
        assert_eq!(refused.message, format!("cannot create '{name}': permission denied"));
        assert_eq!(refused.kind, ErrorKind::Denied);
    }
    let set = |name: &str, property: &str| {
        let properties = BTreeMap::from([(property.to_owned(), Some("x".to_owned()))]);
        SetDatasetProperties { name: name.into(), properties, ..SetDatasetProperties::default() }.operation()
    };
    ask(&bench, set("tank/joe", "my:note")).await.unwrap();
    for (name, property) in [("tank/joe", "quota"), ("tank/joe", "platter:snap"), ("tank/ann", "my:note")] {
        ask(&bench, set(name, property)).await.unwrap_err();
    }
    // What names nothing is about nothing.
    let nothing = SetDatasetProperties { name: "tank/joe".into(), ..SetDatasetProperties::default() };
    ask(&bench, nothing.operation()).await.unwrap_err();
    // What is not there is told as such.
    let refused = ask(&bench, set("none/joe", "my:note")).await.unwrap_err();
    assert!(refused.message.contains("dataset does not exist"), "{refused}");
}

#[tokio::test]
async fn nothing_is_mounted_or_unmounted_for_a_guest() {
    let bench = Bench::new().with_pool().await;
    let all = "create,mount,destroy,rename,mountpoint";
    bench.make("tank/joe", &[("allow:ul$1000", all), ("allow:ud$1000", all)]).await;
    bench.make("tank/joe/in", &[]).await;
    bench.order();
    let asker = Asker::Guest(joe());
    let call = CreateDataset { name: "tank/joe/a/b".into(), mount: true, parents: true, ..CreateDataset::default() };
    let made = bench.daemon.create_dataset(&call, &asker).await.unwrap();
    assert_eq!(made.created, ["tank/joe/a", "tank/joe/a/b"]);
    let said = "filesystem successfully created, but it may only be mounted by root";
    assert_eq!(made.outcome.problems, [said]);
    let destroy = DestroyDataset { name: "tank/joe/in".into(), ..DestroyDataset::default() }.operation();
    let rename = RenameDataset { from: "tank/joe/in".into(), to: "tank/joe/out".into(), ..RenameDataset::default() };
    let moved = BTreeMap::from([("mountpoint".to_owned(), Some("/x".to_owned()))]);
    let moved = SetDatasetProperties { name: "tank/joe".into(), properties: moved, ..SetDatasetProperties::default() };
    for operation in [destroy, rename.clone().operation(), moved.clone().operation()] {
        let refused = ask(&bench, operation).await.unwrap_err();
        assert!(refused.message.starts_with("cannot unmount '") && refused.message.contains("/tank/joe"), "{refused}");
    }
    // Where mounts are left alone it is his to say.
    ask(&bench, RenameDataset { no_mount: true, ..rename }.operation()).await.unwrap();
    ask(&bench, SetDatasetProperties { no_mount: true, ..moved }.operation()).await.unwrap();
    assert_eq!(bench.order(), [""; 0]);
}
