//! What the writing half promises besides what requests say: founding calls, documents without positions, room
//! for namespaces, ids up to a limit.

use super::{Call, Find, Keep, Selection, Shard, ShardError, ShardLimits};
use lockwood_engine::{Action, Intent, Limits, PositionLock, Refused, Request, Target};
use lockwood_model::{
    Budget, Change, Commit, Condition, DocumentKey, Event, FieldPath, FieldValue, Fields, Filter, Json, Key,
    META_POSITION, Operator, Position, Timestamp,
};
use lockwood_storage::{Entry, Memory, Store, verify};
use std::sync::Arc;

const LIMITS: Limits = Limits { document_bytes_max: 100, fields_per_document_max: 3 };

fn open(memory: &Memory) -> Shard {
    let limits = ShardLimits { pending_bytes_max: u64::MAX, namespaces_max: 2 };
    Shard::open(Arc::new(memory.clone()), limits).unwrap()
}

fn at(id: i64) -> DocumentKey {
    DocumentKey::new("a", Key::number(id))
}

fn fields(given: &[(&str, &str)]) -> Vec<FieldValue> {
    given.iter().map(|(name, value)| ((*name).into(), Json::read(value, 9).unwrap())).collect()
}

fn create(id: i64) -> Request {
    let action = Action::Create { fields: Vec::new() };
    Request { intents: vec![Intent { at: at(id), action }], ..Request::default() }
}

async fn write(shard: &Shard, namespace: &str, requests: Vec<Request>, founding: &[usize]) -> String {
    let version = founding.first().map(|_| 7);
    let call = Call { requests, founding: founding.to_vec(), version, ..Call::default() };
    match shard.write(namespace, &call, Timestamp(1)).await {
        Ok(written) => {
            format!("{:?}", written.positions.iter().map(|position| position.0).collect::<Vec<_>>())
        }
        Err(ShardError::NotEmpty(position)) => format!("not empty at {position}"),
        Err(ShardError::Refused(refused)) => refused.to_string(),
        Err(other) => format!("{other:?}"),
    }
}

fn version(shard: &Shard, namespace: &str) -> Option<i64> {
    let reading = shard.read();
    let (namespace, _) = reading.namespace(namespace).unwrap()?;
    reading.state().version(namespace).unwrap()
}

#[tokio::test]
async fn a_founding_request_comes_first_or_not_at_all() {
    let shard = open(&Memory::default());
    assert_eq!(write(&shard, "n", vec![create(1), create(2)], &[0, 1]).await, "not empty at 1");
    assert_eq!(
        write(&shard, "n", vec![create(1), create(1), create(3)], &[2]).await,
        "there is a document a/1 already"
    );
    assert_eq!(version(&shard, "n"), None);
    assert_eq!(write(&shard, "n", vec![create(1), create(2)], &[0]).await, "[1, 2]");
    assert_eq!(version(&shard, "n"), Some(7));
    assert_eq!(write(&shard, "n", vec![create(1)], &[0]).await, "not empty at 2", "before everything else");
    shard.record(Entry::Emptied { namespace: "n".into() }).await.unwrap();
    assert_eq!(version(&shard, "n"), None);
    assert_eq!(write(&shard, "n", vec![create(1)], &[]).await, "[1]");
    assert_eq!(version(&shard, "n"), None);
}

/// The lock of the last request is broken by the one before it, which is in no record of the log yet.
#[tokio::test]
async fn a_request_sees_what_the_ones_before_it_in_its_call_did() {
    let shard = open(&Memory::default());
    assert_eq!(write(&shard, "n", vec![create(1)], &[]).await, "[1]");
    let set = fields(&[("f", "1")]);
    let update = Intent { at: at(1), action: Action::Update { set, lists: Vec::new() } };
    let (collection, field): (Box<str>, FieldPath) = ("a".into(), FieldPath::name("f"));
    let is_one =
        Condition::new(FieldPath::name("f"), Operator::Equal, Json::trusted("1")).map(Filter::Is).unwrap();
    let targets = [
        (Target::Document(at(1)), true),
        (Target::Field(at(1), field.clone()), true),
        (Target::Field(at(1), FieldPath::name("g")), false),
        (
            Target::CollectionField { collection: collection.clone(), field: field.clone(), filter: None },
            true,
        ),
        (
            Target::CollectionField {
                collection: collection.clone(),
                field: field.clone(),
                filter: Some(is_one.clone()),
            },
            true,
        ),
        (Target::CollectionField { collection, field, filter: Some(Filter::Not(Box::new(is_one))) }, false),
    ];
    let mut position = 1;
    for (target, broken) in targets {
        let first = Request { intents: vec![update.clone()], ..Request::default() };
        let second = Request {
            locks: vec![PositionLock { target: target.clone(), position: Position(position) }],
            ..first.clone()
        };
        let outcome = write(&shard, "n", vec![first.clone(), first, second], &[]).await;
        if broken {
            assert_eq!(outcome, "1 of the position locks are broken", "{target:?}");
        } else {
            assert_eq!(outcome, format!("[{}, {}, {}]", position + 1, position + 2, position + 3));
            position += 3;
        }
    }
}

#[tokio::test]
async fn a_namespace_can_be_emptied_as_often_as_one_likes() {
    let shard = open(&Memory::default());
    for _ in 0..5 {
        assert_eq!(write(&shard, "n", vec![create(1)], &[]).await, "[1]");
        shard.record(Entry::Emptied { namespace: "n".into() }).await.unwrap();
    }
    assert_eq!(write(&shard, "n", vec![create(1)], &[]).await, "[1]");
    assert_eq!(write(&shard, "m", vec![create(1)], &[]).await, "[1]");
    assert_eq!(write(&shard, "o", vec![create(1)], &[]).await, "TooManyNamespaces(2)");
}

/// The document as text, if it is there.
fn shown(shard: &Shard, id: i64) -> Option<String> {
    let reading = shard.read();
    let (namespace, position) = reading.namespace("n").unwrap()?;
    assert_eq!(position, Position::START, "nothing of this takes a position");
    let found = reading.get(namespace, at(id), Selection::With, None).unwrap()?;
    let document = found.document().unwrap();
    assert_eq!(document.value(META_POSITION), None);
    let fields: Vec<String> = document.fields().map(|(name, value)| format!("{name}={value}")).collect();
    Some(fields.join(" "))
}

#[tokio::test]
async fn documents_without_positions_are_merged_and_removed() {
    let memory = Memory::default();
    let shard = open(&memory);
    let first = fields(&[("b", "1"), ("a", "2"), ("x", "null")]);
    shard.keep("n", Keep::Merge(at(1), first), LIMITS).await.unwrap();
    assert_eq!(shown(&shard, 1).unwrap(), "a=2 b=1");
    let change = fields(&[("a", "null"), ("c", "[1]"), ("y", "null")]);
    shard.keep("n", Keep::Merge(at(1), change), LIMITS).await.unwrap();
    assert_eq!(shown(&shard, 1).unwrap(), "b=1 c=[1]");
    shard.keep("n", Keep::Merge(at(2), fields(&[("a", "1")])), LIMITS).await.unwrap();
    assert_eq!(shown(&shard, 2).unwrap(), "a=1");
    shard.keep("n", Keep::Remove(vec![at(1), at(9)]), LIMITS).await.unwrap();
    assert_eq!((shown(&shard, 1), shown(&shard, 2).is_some()), (None, true));
    let scratch = Memory::default();
    assert_eq!(verify(&*memory.snapshot(), &scratch, &mut |_, _| {}).unwrap(), []);
}

#[tokio::test]
async fn documents_without_positions_have_limits_and_stay_apart_from_the_others() {
    let shard = open(&Memory::default());
    let three = fields(&[("a", "1"), ("b", "1"), ("c", "1")]);
    shard.keep("n", Keep::Merge(at(1), three), LIMITS).await.unwrap();
    for change in [fields(&[("d", "1")]), fields(&[("a", &format!("\"{}\"", "x".repeat(100)))])] {
        let refused = shard.keep("n", Keep::Merge(at(1), change), LIMITS).await;
        assert!(
            matches!(&refused, Err(ShardError::Refused(refused)) if matches!(**refused, Refused::OverLimit { .. })),
            "{refused:?}"
        );
    }
    assert_eq!(write(&shard, "n", vec![create(2)], &[]).await, "[1]");
    for keep in [Keep::Merge(at(2), Vec::new()), Keep::Remove(vec![at(1), at(2)])] {
        let refused = shard.keep("n", keep, LIMITS).await;
        assert!(matches!(&refused, Err(ShardError::HasPositions(found)) if *found == at(2)), "{refused:?}");
    }
    let reading = shard.read();
    let (namespace, _) = reading.namespace("n").unwrap().unwrap();
    let find = Find {
        namespace,
        collection: "a".into(),
        filter: None,
        deleted: Selection::With,
        at: None,
        looks_max: 10,
        budget: Budget::unlimited(),
        custody: None,
    };
    assert_eq!(reading.count(&find).unwrap(), 2);
}

#[tokio::test]
async fn ids_end_where_the_caller_says() {
    let shard = open(&Memory::default());
    assert_eq!(shard.reserve_up_to("n", "a", 3, 5).await.unwrap(), 1);
    assert!(matches!(shard.reserve_up_to("n", "a", 3, 5).await, Err(ShardError::NoIdsLeft)));
    assert_eq!(shard.reserve_up_to("n", "a", 2, 5).await.unwrap(), 4);
    assert_eq!(shard.reserve("n", "a", 1).await.unwrap(), 6);
    assert!(matches!(shard.reserve("n", "a", u64::MAX).await, Err(ShardError::NoIdsLeft)));
}

/// The number of a namespace that was emptied is not used again, so numbers become larger than the limit.
#[tokio::test]
async fn there_is_room_however_many_namespaces_were_emptied() {
    let shard = open(&Memory::default());
    for _ in 0..5 {
        assert_eq!(write(&shard, "n", vec![create(1)], &[0]).await, "[1]");
        assert_eq!(version(&shard, "n"), Some(7));
        assert_eq!(shard.reserve("n", "a", 1).await.unwrap(), 2);
        shard.record(Entry::Emptied { namespace: "n".into() }).await.unwrap();
    }
    shard.reserve("n", "a", 1).await.unwrap();
    shard.reserve("m", "a", 1).await.unwrap();
    assert!(matches!(shard.reserve("o", "a", 1).await, Err(ShardError::TooManyNamespaces(2))));
}

/// A refused call gives its number to a namespace that does not come to be, and the next one to come has it.
#[tokio::test]
async fn a_refused_call_makes_no_later_load_look_quiet() {
    let shard = Arc::new(open(&Memory::default()));
    assert_eq!(
        write(&shard, "ghost", vec![create(1), create(1)], &[]).await,
        "there is a document a/1 already"
    );
    let loading = shard.begin_load("n").await.unwrap();
    let color = fields(&[("color", "\"red\"")]);
    let event = |change| vec![Event { at: at(1), change }];
    let commit = |position, change| Commit {
        position: Position(position),
        at: Timestamp(1),
        user: None,
        note: None,
        events: event(change),
        purged: None,
    };
    let commits = vec![
        commit(1, Change::Created { fields: color.clone() }),
        commit(2, Change::Updated { set: fields(&[("x", "1")]), removed: Vec::new() }),
    ];
    let (namespace, answer) = ("n".into(), None);
    loading.put(&Entry::Committed { namespace, commits, answer }).await.unwrap();
    loading.finish().await.unwrap();
    let (_, red) = color[0].clone();
    let filter = Some(Filter::Is(Condition::new(FieldPath::name("color"), Operator::Equal, red).unwrap()));
    let target = Target::CollectionField { collection: "a".into(), field: FieldPath::name("x"), filter };
    let locks = vec![PositionLock { target, position: Position(1) }];
    let locked = Request { locks, ..create(2) };
    assert_eq!(write(&shard, "n", vec![locked], &[]).await, "1 of the position locks are broken");
}

/// The server may end before an index is built; the next start goes on with it.
#[tokio::test]
async fn an_index_that_is_being_built_is_no_damage() {
    let memory = Memory::default();
    let shard = open(&memory);
    let action = Action::Create { fields: fields(&[("f", "1")]) };
    let request = Request { intents: vec![Intent { at: at(1), action }], ..Request::default() };
    write(&shard, "n", vec![request], &[]).await;
    assert!(shard.declare_index("n", ("a", &FieldPath::name("f")), true, 9).await.unwrap());
    assert_eq!(verify(&*memory.snapshot(), &Memory::default(), &mut |_, _| {}).unwrap(), []);
    shard.fill_indexes().await.unwrap();
    assert_eq!(verify(&*memory.snapshot(), &Memory::default(), &mut |_, _| {}).unwrap(), []);
}
