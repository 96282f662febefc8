//! Makes up histories: what writers ask for, and what else befalls a namespace.

use crate::{
    Action, Intent, Limits, ListChange, PositionLock, PutIf, Request, Target,
    reference::Reference,
    scene::{NO_LIMITS, json},
};
use lockwood_model::{
    Condition, DocumentKey, FieldPath, FieldValue, Filter, Json, Key, META_DELETED, META_POSITION, Operator,
    Path, Position,
};
use std::collections::BTreeMap;

pub(crate) const COLLECTIONS: [&str; 2] = ["c", "c_long"];
const KEYS: i64 = 3;
const FIELDS: [&str; 3] = ["a", "b", "f"];
/// Those that documents have themselves included.
pub(crate) const NAMES: [&str; 5] = ["a", "b", "f", META_DELETED, META_POSITION];

/// Several ways to write the same values, so that it matters that they are equal.
const VALUES: [&str; 20] = [
    "1",
    "1",
    "1.0",
    "2",
    "\"x\"",
    "\"x\"",
    "\"\\u0078\"",
    "\"X\"",
    "true",
    "[]",
    "[1,\"x\"]",
    "[2,1,\"\\u0078\",1]",
    "[[1]]",
    "{\"k\":1}",
    "{\"k\":1.0,\"m\":null}",
    "{\"k\":{\"k\":\"x\"}}",
    "{\"k\":[1,{\"k\":2}],\"m\":\"\\u0078\"}",
    "[{\"k\":{}},[1]]",
    "1.0000000000000000000000000000000000000000000000000000000000000000000000",
    "\"\\u0078\\u0079\\u0078\\u0079\\u0078\\u0079\\u0078\\u0079\\u0078\\u0079\\u0078\\u0079\"",
];
/// The last is the last of the values, written shorter.
const WANTED: [&str; 7] = ["1", "1", "2", "\"x\"", "true", "[1,\"x\"]", "\"xyxyxyxyxyxy\""];
const ELEMENTS: [&str; 5] = ["1", "2", "\"x\"", "\"\\u0078\"", "\"1\""];

/// Positions are counted back from [`AHEAD`] after the last request, so that a step still means something
/// when others before it are left out.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Call(Vec<Request>),
    /// Only judges locks.
    Probe(Vec<PositionLock>),
    Horizon(Position),
    /// The memory of values starts anew.
    Restart,
    Limit(Limits),
}

pub(crate) const AHEAD: u64 = 2;

pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn chance(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }

    fn pick<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize].clone()
    }
}

/// Knows what documents there are, so that most of what it asks for can be done.
pub(crate) struct Writer {
    random: Random,
    /// Whether they are deleted.
    deleted: BTreeMap<DocumentKey, bool>,
}

impl Writer {
    pub(crate) fn new(seed: u64) -> Writer {
        Writer { random: Random(seed), deleted: BTreeMap::new() }
    }

    pub(crate) fn step(&mut self, reference: &Reference) -> Step {
        self.deleted = reference.versions().into_iter().map(|(at, version)| (at, version.deleted)).collect();
        match self.random.below(40) {
            0 => Step::Horizon(Position(AHEAD + self.random.below(8))),
            1 => Step::Restart,
            2 => Step::Limit(self.random.pick(&[
                NO_LIMITS,
                NO_LIMITS,
                Limits { document_bytes_max: 12, ..NO_LIMITS },
                Limits { fields_per_document_max: 1, ..NO_LIMITS },
            ])),
            3..=12 => Step::Probe((0..8).map(|_| self.lock(3)).collect()),
            _ => {
                let len = self.random.pick(&[1, 1, 1, 2, 3]);
                Step::Call((0..len).map(|_| self.request()).collect())
            }
        }
    }

    fn request(&mut self) -> Request {
        let locks_len = self.random.pick(&[0, 0, 0, 1, 1, 2, 3]);
        let locks = (0..locks_len).map(|_| self.lock(1)).collect();
        let intents_len = self.random.pick(&[1, 1, 2, 3]);
        let intents = (0..intents_len).map(|_| self.intent()).collect();
        let user = self.random.chance(2).then(|| json(&self.random.below(3).to_string()));
        let note = self.random.chance(2).then(|| json("\"why\""));
        Request { intents, locks, user, note, ..Request::default() }
    }

    fn intent(&mut self) -> Intent {
        let at = self.key();
        let any = self.random.below(7);
        let action = match (self.deleted.get(&at), self.random.below(20)) {
            (None, 0..=9) => Action::Create { fields: self.fields() },
            (None, 10..=18) => Action::Put { fields: self.fields(), when: self.when(PutIf::Absent) },
            (Some(false), 0..=9) => self.update(),
            (Some(false), 10..=13) => self.set(),
            (Some(false), 14..=15) => Action::Put { fields: self.fields(), when: self.when(PutIf::Present) },
            (Some(false), 16..=18) => Action::Delete,
            (Some(true), 0..=9) => Action::Restore,
            (Some(true), 10..=18) => Action::Put { fields: self.fields(), when: self.when(PutIf::Absent) },
            _ => match any {
                0 => Action::Create { fields: self.fields() },
                1 => Action::Put { fields: self.fields(), when: self.when(PutIf::Absent) },
                2 => Action::Put { fields: self.fields(), when: self.when(PutIf::Present) },
                3 => Action::Delete,
                4 => Action::Restore,
                5 => self.set(),
                _ => self.update(),
            },
        };
        match action {
            Action::Create { .. } | Action::Put { .. } | Action::Restore => {
                self.deleted.insert(at.clone(), false);
            }
            Action::Delete => drop(self.deleted.insert(at.clone(), true)),
            Action::Update { .. } | Action::Set { .. } => {}
        }
        Intent { at, action }
    }

    fn when(&mut self, fitting: PutIf) -> PutIf {
        self.random.pick(&[PutIf::Always, fitting])
    }

    fn key(&mut self) -> DocumentKey {
        let number = self.random.below(KEYS as u64) as i64;
        DocumentKey::new(self.collection(), Key::number(number))
    }

    fn collection(&mut self) -> &'static str {
        self.random.pick(&[COLLECTIONS[0], COLLECTIONS[0], COLLECTIONS[0], COLLECTIONS[1]])
    }

    fn value(&mut self) -> Json {
        json(self.random.pick(&VALUES))
    }

    fn fields(&mut self) -> Vec<FieldValue> {
        let mut fields = Vec::new();
        // Against the order of names.
        for name in FIELDS.into_iter().rev() {
            match self.random.below(8) {
                0..=4 => fields.push((name.into(), self.value())),
                5 => fields.push((name.into(), Json::null())),
                _ => {}
            }
        }
        fields
    }

    fn update(&mut self) -> Action {
        let (mut set, mut lists) = (Vec::new(), Vec::new());
        for name in FIELDS {
            match self.random.below(12) {
                0..=3 => set.push((name.into(), self.value())),
                4 => set.push((name.into(), Json::null())),
                5 => lists.push(self.list_change(name)),
                _ => {}
            }
        }
        Action::Update { set, lists }
    }

    /// One node, most of the time one that can be there.
    fn set(&mut self) -> Action {
        let mut path = Path::from_segments([self.pick_field()]);
        for _ in 0..self.random.pick(&[0, 0, 1, 1, 2, 3]) {
            path.push(self.random.pick(&["k", "k", "m", "0", "0", "1", "2", "00"]));
        }
        let value = match self.random.below(6) {
            0..=1 => None,
            2 => Some(Json::null()),
            _ => Some(self.value()),
        };
        Action::Set { path, value }
    }

    fn list_change(&mut self, field: &str) -> ListChange {
        let (add, remove) = self.random.pick(&[(true, false), (false, true), (true, true)]);
        let mut elements = || (0..self.random.below(4)).map(|_| json(self.random.pick(&ELEMENTS))).collect();
        ListChange { field: field.into(), add: add.then(&mut elements), remove: remove.then(&mut elements) }
    }

    /// The larger `age` is, the older.
    fn lock(&mut self, age: u64) -> PositionLock {
        let back = if self.random.chance(age + 1) {
            self.random.below(AHEAD + 1)
        } else {
            self.random.below(4 * age + 1)
        };
        PositionLock { target: self.target(), position: Position(back) }
    }

    fn target(&mut self) -> Target {
        let field = self.path();
        match self.random.below(8) {
            0 => Target::Document(self.key()),
            1..=2 => Target::Field(self.key(), field),
            3 => Target::CollectionField { collection: self.collection().into(), field, filter: None },
            _ => {
                let filter = Some(self.filter(2));
                Target::CollectionField { collection: self.collection().into(), field, filter }
            }
        }
    }

    /// A field, or something that may be in it.
    fn path(&mut self) -> FieldPath {
        let field = self.field();
        self.inside(field)
    }

    fn inside(&mut self, field: &'static str) -> FieldPath {
        let below = self.random.pick(&[&[][..], &[], &[], &["k"], &["k"], &["m"], &["k", "k"], &["0"]]);
        FieldPath::from_names([field].iter().chain(below)).unwrap()
    }

    fn field(&mut self) -> &'static str {
        self.random.pick(&["a", "a", "b", "b", "f", "f", META_DELETED, META_POSITION])
    }

    fn filter(&mut self, depth: u64) -> Filter {
        match self.random.below(if depth == 0 { 3 } else { 8 }) {
            3 => Filter::Not(Box::new(self.filter(depth - 1))),
            4..=6 => {
                Filter::All((0..self.random.pick(&[0, 1, 2, 2, 3])).map(|_| self.filter(depth - 1)).collect())
            }
            7 => {
                Filter::Any((0..self.random.pick(&[0, 1, 1, 2, 2])).map(|_| self.filter(depth - 1)).collect())
            }
            _ => Filter::Is(self.condition()),
        }
    }

    fn condition(&mut self) -> Condition {
        use Operator::{Different, Equal, EqualFolded, Greater, GreaterOrEqual, Less, LessOrEqual, Like};
        let condition = match self.random.below(12) {
            0..=4 => (self.pick_field(), Equal, json(self.random.pick(&WANTED))),
            5 => (self.pick_field(), Different, json(self.random.pick(&WANTED))),
            6 => {
                let operator = self.random.pick(&[Less, LessOrEqual, Greater, GreaterOrEqual]);
                (self.pick_field(), operator, json(self.random.pick(&["1", "2", "\"x\"", "true"])))
            }
            7 => (self.pick_field(), self.random.pick(&[Equal, Different]), Json::null()),
            8 => (self.pick_field(), EqualFolded, json(self.random.pick(&["\"X\"", "1"]))),
            9 => (self.pick_field(), Like, json(self.random.pick(&["\"x%\"", "\"%Y_Y%\"", "\"_\""]))),
            10 => (META_DELETED, Equal, json(self.random.pick(&["true", "false", "false"]))),
            _ => {
                let operator = self.random.pick(&[Equal, Equal, Less, GreaterOrEqual]);
                (META_POSITION, operator, json(&self.random.below(20).to_string()))
            }
        };
        let (field, operator, value) = condition;
        Condition::new(self.inside(field), operator, value).unwrap()
    }

    fn pick_field(&mut self) -> &'static str {
        self.random.pick(&FIELDS)
    }
}
