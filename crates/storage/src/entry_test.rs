//! Records of every kind, written and read, and damaged byte by byte.

use super::*;
use crate::moved::{MovedAnswer, MovedStep};
use lockwood_model::{Depth, LeaseVia, Mode, Path, Resource, Token};

fn at(key: &str) -> DocumentKey {
    DocumentKey::new("user", key.parse().unwrap())
}

fn field(name: &str, value: &str) -> FieldValue {
    (name.into(), Json::read(value, 9).unwrap())
}

fn lease() -> Lease {
    let path = Path::from_segments(["user", "42", ""]);
    Lease {
        lock: LockId(9),
        token: Token(12),
        owner: "p1".into(),
        via: LeaseVia::Elasticsearch,
        resources: vec![
            Resource::new(path.clone(), Mode::Write, Depth::SUBTREE),
            Resource::new(path, Mode::Read, Depth::NODE),
        ],
        granted_at: Timestamp(7),
        expires_at: None,
        ttl_ms: None,
        note: Some(Json::trusted("{}")),
        version: 3,
    }
}

fn moved() -> Moved {
    let mut document = Document::unborn();
    document.apply(&Change::Created { fields: vec![field("a", "1")] }, Position(3));
    let step = MovedStep {
        position: Position(3),
        undo: Some(vec![1, 2]),
        at: Timestamp(5),
        user: Some(Json::trusted("1")),
        note: None,
    };
    let answer = MovedAnswer { key: "k".into(), fingerprint: [3; 16], first: Position(3), last: Position(4) };
    Moved { at: at("m"), document: Some(document), kept: false, steps: vec![step], answers: vec![answer] }
}

fn entries() -> Vec<Entry> {
    let namespace: Box<str> = "n".into();
    let changes = [
        Change::Created { fields: vec![field("a", "1.50"), field("b", "[1,\"x\"]")] },
        Change::Updated { set: vec![field("a", "\"é\"")], removed: vec!["b".into()] },
        Change::Deleted { fields: vec!["a".into()] },
        Change::Restored { fields: vec![field("a", "{}")] },
        Change::Recreated { fields: vec![field("a", "{}")], removed: vec!["b".into()] },
    ];
    let events = changes.into_iter().map(|change| Event { at: at("order:-7"), change }).collect();
    let commit = Commit {
        position: Position(3),
        at: Timestamp(9),
        user: Some(Json::trusted("7")),
        note: None,
        events,
        purged: None,
    };
    let purge = Commit {
        events: Vec::new(),
        purged: Some(Purged::Documents { collection: "user".into(), count: 2 }),
        ..commit.clone()
    };
    let mut document = Document::unborn();
    document.apply(&commit.events[0].change, Position(1));
    document.apply(&commit.events[1].change, Position(2));
    vec![
        Entry::Committed {
            namespace: namespace.clone(),
            commits: vec![commit],
            answer: Some(Answer { key: "k".into(), fingerprint: [7; 16] }),
        },
        Entry::Reserved { namespace: namespace.clone(), collection: "c".into(), next: 9 },
        Entry::Indexed {
            namespace: namespace.clone(),
            collection: "c".into(),
            field: FieldPath::name("f.g"),
            wanted: true,
        },
        Entry::Indexed {
            namespace: namespace.clone(),
            collection: "c".into(),
            field: "f.\"g.h\"".parse().unwrap(),
            wanted: false,
        },
        Entry::Kept {
            namespace: namespace.clone(),
            put: vec![(at("1"), vec![field("a", "1")])],
            removed: vec![at("2")],
        },
        Entry::NotesErased { namespace: namespace.clone() },
        Entry::Emptied { namespace: namespace.clone() },
        Entry::Merged {
            namespace: namespace.clone(),
            at: at("1"),
            set: vec![field("a", "2")],
            removed: vec!["b".into()],
        },
        Entry::Versioned { namespace: namespace.clone(), version: -7 },
        Entry::Loaded {
            namespace: namespace.clone(),
            horizon: Position(4),
            documents: vec![(at("x"), document)],
        },
        Entry::Trimmed { to: 77 },
        Entry::Loading { namespace: namespace.clone(), done: true },
        Entry::Leased { namespace: namespace.clone(), lease: lease() },
        Entry::LeaseRenewed {
            namespace: namespace.clone(),
            lock: LockId(9),
            expires_at: Some(Timestamp(8)),
            ttl_ms: None,
        },
        Entry::LeaseRenewed {
            namespace: namespace.clone(),
            lock: LockId(9),
            expires_at: Some(Timestamp(8)),
            ttl_ms: Some(60_000),
        },
        Entry::Leased { namespace: namespace.clone(), lease: Lease { ttl_ms: Some(60_000), ..lease() } },
        Entry::LeasesEnded { namespace: namespace.clone(), locks: vec![LockId(9), LockId(u64::MAX)] },
        Entry::Installed {
            namespace: namespace.clone(),
            transition: 7,
            horizon: Position(2),
            documents: vec![moved()],
        },
        Entry::Forgotten { namespace: namespace.clone(), documents: vec![at("1"), at("a:2")] },
        Entry::Unmarked { namespace: namespace.clone(), documents: vec![at("1")] },
        Entry::Raised { floor: Position(77) },
        Entry::Purged {
            namespace: namespace.clone(),
            commit: purge.clone(),
            documents: vec![at("1"), at("a:2")],
            next: 7,
            pending: true,
        },
        Entry::Purged {
            namespace: namespace.clone(),
            commit: Commit { purged: Some(Purged::Namespace), ..purge },
            documents: vec![],
            next: 0,
            pending: false,
        },
        Entry::Unanswered { namespace: namespace.clone(), keys: vec!["k".into(), "é".into()], purge: 8 },
        Entry::Dropped {
            namespace: namespace.clone(),
            purged: Purged::Collection { collection: "user".into() },
            purge: 8,
        },
        Entry::Cleared { namespace: namespace.clone(), len: 2_000 },
        Entry::Dropped { namespace: namespace.clone(), purged: Purged::Namespace, purge: 8 },
        Entry::PurgeEnded { purge: 8 },
        Entry::Erased { namespace: Some(namespace) },
        Entry::Erased { namespace: None },
    ]
}

/// As they were written up to format 4, when leases had no duration on record.
#[test]
fn records_of_leases_of_format_4_are_read() {
    let namespace: Box<str> = "n".into();
    let renewed = Entry::LeaseRenewed {
        namespace: namespace.clone(),
        lock: LockId(9),
        expires_at: Some(Timestamp(8)),
        ttl_ms: None,
    };
    let native = Lease { via: LeaseVia::Native, ..lease() };
    let leased = |lease| Entry::Leased { namespace: namespace.clone(), lease };
    let golden = [
        ("b2513fcd010c016e090108", renewed),
        (
            "491b4df8010b016e090c027031000203047573657202343200057772697465ff03047573657202343200047265616401070001027b7d03",
            leased(native),
        ),
        (
            "e822c916010b016e090c027031010203047573657202343200057772697465ff03047573657202343200047265616401070001027b7d03",
            leased(lease()),
        ),
    ];
    for (written, entry) in golden {
        let hex = |at: usize| u8::from_str_radix(&written[at..at + 2], 16).unwrap();
        let bytes: Vec<u8> = (0..written.len() / 2).map(|at| hex(2 * at)).collect();
        assert_eq!(Entry::decode(1, &bytes).unwrap(), entry, "{written}");
        // One that has no duration is written so still.
        assert_eq!(entry.encode(), bytes);
    }
}

#[test]
fn what_is_written_is_read() {
    for entry in entries() {
        assert_eq!(Entry::decode(1, &entry.encode()).unwrap(), entry);
    }
}

#[test]
fn every_damaged_byte_is_noticed() {
    for entry in entries() {
        let record = entry.encode();
        for index in 0..record.len() {
            let mut damaged = record.clone();
            damaged[index] ^= 0x10;
            let error = Entry::decode(5, &damaged).unwrap_err();
            assert!(matches!(error, StoreError::Damaged { .. }), "byte {index}");
            assert!(error.to_string().contains("record 5"), "{error}");
        }
        assert!(Entry::decode(5, &record[..record.len() - 1]).is_err());
        assert!(Entry::decode(5, &[]).is_err());
    }
}
