//! From what a client wrote to what the engine takes, within the limits. Knows nothing of the state.

use lockwood_engine::{Action, Intent, ListChange, PositionLock, PutIf, Request, Target};
use lockwood_model::{
    DocumentKey, FieldPath, FieldValue, Filter, Json, Key, META_DELETED, META_POSITION, Path, Position,
    Scalar,
};
use lockwood_node::{limits::Limits, shard::Call, trouble::Trouble};
use lockwood_storage::Answer;
use lockwood_wire::{
    Code,
    documents::{
        Fields, FilterLimits, LockTarget, Named, WireEvent, WireFilter, WireKey, WireLock, WireValue,
        WriteCall, WriteRequest, read_field,
    },
};
use sha2::{Digest, Sha256};
use std::collections::{HashMap, HashSet};

/// Decodes within a server's limits.
#[derive(Clone, Copy)]
pub(crate) struct Decoder<'a>(pub(crate) &'a Limits);

impl Decoder<'_> {
    pub(crate) fn call(self, call: &WriteCall) -> Result<Call, Trouble> {
        self.check_counts(call)?;
        let requests = call.requests.iter().map(|request| self.request(request));
        Ok(Call {
            requests: requests.collect::<Result<_, _>>()?,
            answer: call.idempotency_key.as_deref().map(|key| self.answer(key, call)).transpose()?,
            limits: Some(self.engine_limits()),
            ..Call::default()
        })
    }

    pub(crate) fn engine_limits(self) -> lockwood_engine::Limits {
        lockwood_engine::Limits {
            document_bytes_max: self.0.document_bytes_max,
            fields_per_document_max: self.0.fields_per_document_max,
        }
    }

    fn check_counts(self, call: &WriteCall) -> Result<(), Trouble> {
        let events: usize = call.requests.iter().map(|request| request.events.len()).sum();
        let locks: usize = call.requests.iter().map(|request| request.locks.len()).sum();
        let counts = [
            ("requests_per_call_max", self.0.requests_per_call_max, call.requests.len(), "requests"),
            ("events_per_call_max", self.0.events_per_call_max, events, "events"),
            ("position_locks_per_call_max", self.0.position_locks_per_call_max, locks, "position locks"),
        ];
        for (name, limit, len, what) in counts {
            if len as u64 > limit {
                return Err(Trouble::over(name, limit, &format!("the call has {len} {what}")));
            }
        }
        Ok(())
    }

    /// The call is known again by what it asks for, not by how it is written.
    fn answer(self, key: &str, call: &WriteCall) -> Result<Answer, Trouble> {
        self.check_len(
            "idempotency_key_bytes_max",
            self.0.idempotency_key_bytes_max,
            key,
            "the idempotency key",
        )?;
        // On which terms it is asked again does not matter.
        let text = serde_json::to_vec(&call.requests).expect("a call can be written");
        let digest = Sha256::digest(&text);
        let fingerprint = digest[..16].try_into().expect("a digest is longer than that");
        Ok(Answer { key: key.into(), fingerprint })
    }

    fn request(self, request: &WriteRequest) -> Result<Request, Trouble> {
        if request.events.is_empty() {
            return Err(Trouble::new(Code::BadEvents, "a write request needs at least one event"));
        }
        Ok(Request {
            intents: request.events.iter().map(|event| self.intent(event)).collect::<Result<_, _>>()?,
            locks: request.locks.iter().map(|lock| self.position_lock(lock)).collect::<Result<_, _>>()?,
            user: self.note(request.user.as_ref(), "user")?,
            note: self.note(request.note.as_ref(), "note")?,
            ..Request::default()
        })
    }

    /// The user or the note of a request.
    pub(crate) fn note(self, value: Option<&WireValue>, what: &str) -> Result<Option<Json>, Trouble> {
        let Some(value) = value.filter(|value| !value.is_null()) else { return Ok(None) };
        self.check_len("note_bytes_max", self.0.note_bytes_max, value.as_str(), &format!("the {what}"))?;
        Ok(Some(value.read(self.json_depth())?))
    }

    fn json_depth(self) -> usize {
        self.0.json_depth_max as usize
    }

    fn intent(self, event: &WireEvent) -> Result<Intent, Trouble> {
        let (collection, key) = event.at();
        let at = self.document(collection, key)?;
        let action = match event {
            WireEvent::Create { fields, .. } => {
                Action::Put { fields: self.fields(fields)?, when: PutIf::Absent }
            }
            WireEvent::Update { fields, add, remove, .. } => self.update(fields, add, remove)?,
            WireEvent::Put { fields, .. } => {
                Action::Put { fields: self.fields(fields)?, when: PutIf::Always }
            }
            WireEvent::Set { path, value, .. } => self.set(&path.0, Some(value))?,
            WireEvent::Unset { path, .. } => self.set(&path.0, None)?,
            WireEvent::Delete { .. } => Action::Delete,
            WireEvent::Restore { .. } => Action::Restore,
        };
        Ok(Intent { at, action })
    }

    pub(crate) fn fields(self, fields: &Fields) -> Result<Vec<FieldValue>, Trouble> {
        fields.0.iter().try_for_each(|(name, _)| self.written_field(name))?;
        Ok(fields.read(self.json_depth())?)
    }

    fn update(
        self,
        fields: &Fields,
        add: &Named<Vec<WireValue>>,
        remove: &Named<Vec<WireValue>>,
    ) -> Result<Action, Trouble> {
        if fields.is_empty() && add.is_empty() && remove.is_empty() {
            return Err(Trouble::new(Code::BadEvents, "an update needs fields, add or remove"));
        }
        let set = self.fields(fields)?;
        let named: HashSet<&str> = fields.0.iter().map(|(name, _)| &**name).collect();
        let mut lists: Vec<ListChange> = Vec::with_capacity(add.0.len());
        let mut places: HashMap<&str, usize> = HashMap::with_capacity(add.0.len());
        for (name, elements) in &add.0 {
            self.list_field(name, &named)?;
            places.insert(name, lists.len());
            let add = Some(elements.iter().map(|element| self.element(element)).collect::<Result<_, _>>()?);
            lists.push(ListChange { field: name.clone(), add, remove: None });
        }
        for (name, elements) in &remove.0 {
            self.list_field(name, &named)?;
            let remove =
                Some(elements.iter().map(|element| self.element(element)).collect::<Result<_, _>>()?);
            match places.get(&**name) {
                Some(place) => lists[*place].remove = remove,
                None => lists.push(ListChange { field: name.clone(), add: None, remove }),
            }
        }
        Ok(Action::Update { set, lists })
    }

    /// One node is to become something else, or to go.
    pub(crate) fn set(self, path: &Path, value: Option<&WireValue>) -> Result<Action, Trouble> {
        self.node(path)?;
        match path.segments().next() {
            Some(field) => self.written_field(field)?,
            None => {
                let message = "the path is empty, which is the whole document; put and delete are for that";
                return Err(Trouble::new(Code::BadPath, message));
            }
        }
        // What is further down has less left of the depth.
        let depth = self.json_depth().saturating_sub(path.len() - 1);
        let value = value.map(|value| value.read(depth)).transpose()?;
        Ok(Action::Set { path: path.clone(), value })
    }

    /// A path from a document down to a node of it.
    pub(crate) fn node(self, path: &Path) -> Result<(), Trouble> {
        // Collection and key are above it.
        let (len, limit) = (path.len() as u64 + 2, self.0.path_segments_max);
        if len > limit {
            let what = format!("with collection and key the path has {len} segments");
            return Err(Trouble::over("path_segments_max", limit, &what));
        }
        path.segments().try_for_each(|segment| {
            self.check_len("segment_bytes_max", self.0.segment_bytes_max, segment, "a segment of the path")
        })
    }

    fn list_field(self, name: &str, fields: &HashSet<&str>) -> Result<(), Trouble> {
        self.written_field(name)?;
        if fields.contains(name) {
            let message =
                format!("the field {name:?} is in fields and in add or remove; it can be in one of them");
            return Err(Trouble::new(Code::BadEvents, message));
        }
        Ok(())
    }

    fn element(self, element: &WireValue) -> Result<Json, Trouble> {
        let element = element.read(self.json_depth())?;
        match Scalar::read(element.as_str()) {
            Scalar::Number(lockwood_model::Number::Whole(_)) | Scalar::Text(_) => Ok(element),
            _ => Err(Trouble::new(
                Code::NotAList,
                format!("{element} cannot be an element to add or remove; whole numbers and strings can"),
            )),
        }
    }

    pub(crate) fn position_lock(self, lock: &WireLock) -> Result<PositionLock, Trouble> {
        self.collection(&lock.collection)?;
        lock.key.as_ref().map_or(Ok(()), |key| self.key(&key.0))?;
        let target = match lock.target(self.filter_limits())? {
            LockTarget::Document(at) => Target::Document(at),
            LockTarget::Field(at, field) => {
                self.check_path(&field)?;
                Target::Field(at, field)
            }
            LockTarget::CollectionField { collection, field, filter } => {
                self.check_path(&field)?;
                if let Some(filter) = &filter {
                    self.filter_fields(filter)?;
                }
                Target::CollectionField { collection, field, filter }
            }
        };
        Ok(PositionLock { target, position: Position(lock.position) })
    }

    pub(crate) fn filter_limits(self) -> FilterLimits {
        FilterLimits {
            filter_depth_max: self.0.filter_depth_max as usize,
            filter_conditions_max: self.0.filter_conditions_max as usize,
            json_depth_max: self.json_depth(),
        }
    }

    pub(crate) fn filter(self, filter: &WireFilter) -> Result<Filter, Trouble> {
        let filter = filter.read(self.filter_limits())?;
        self.filter_fields(&filter)?;
        Ok(filter)
    }

    fn filter_fields(self, filter: &Filter) -> Result<(), Trouble> {
        filter.fields().into_iter().try_for_each(|field| self.check_path(field))
    }

    pub(crate) fn document(self, collection: &str, key: &WireKey) -> Result<DocumentKey, Trouble> {
        let at = DocumentKey::new(collection, key.0.clone());
        self.document_key(&at)?;
        Ok(at)
    }

    /// Whether there can be such a document.
    pub(crate) fn document_key(self, at: &DocumentKey) -> Result<(), Trouble> {
        self.collection(&at.collection)?;
        self.key(&at.key)
    }

    /// A document as the address names it.
    pub(crate) fn document_at(self, collection: &str, key: &str) -> Result<DocumentKey, Trouble> {
        let key: Key = key
            .parse()
            .map_err(|error: lockwood_model::KeyError| Trouble::new(Code::BadKey, error.to_string()))?;
        self.document(collection, &WireKey(key))
    }

    pub(crate) fn collection(self, name: &str) -> Result<(), Trouble> {
        self.check_len(
            "collection_bytes_max",
            self.0.collection_bytes_max,
            name,
            "the name of the collection",
        )?;
        check_name(name, "collection", Code::BadCollection)
    }

    fn key(self, key: &Key) -> Result<(), Trouble> {
        let bytes = key.parts().iter().map(|part| match part {
            lockwood_model::KeyPart::Number(_) => 8,
            lockwood_model::KeyPart::Text(text) => text.len() as u64 + 1,
        });
        let len: u64 = bytes.sum();
        if len > self.0.key_bytes_max {
            let what = format!("the key has {len} bytes");
            return Err(Trouble::over("key_bytes_max", self.0.key_bytes_max, &what));
        }
        Ok(())
    }

    /// A field that is asked for, or something inside one.
    pub(crate) fn path(self, text: &str) -> Result<FieldPath, Trouble> {
        let path = read_field(text)?;
        self.check_path(&path)?;
        Ok(path)
    }

    /// Several of them, with commas between them.
    pub(crate) fn path_list(self, text: &str) -> Result<Vec<FieldPath>, Trouble> {
        let paths = FieldPath::read_list(text);
        let paths = paths.map_err(|error| Trouble::new(Code::BadField, error.to_string()))?;
        paths.iter().try_for_each(|path| self.check_path(path))?;
        Ok(paths)
    }

    pub(crate) fn check_path(self, path: &FieldPath) -> Result<(), Trouble> {
        self.field(path.root())?;
        if path.is_top_level() { Ok(()) } else { self.node(&Path::from_segments(path.names())) }
    }

    /// The name of a field.
    pub(crate) fn field(self, name: &str) -> Result<(), Trouble> {
        self.check_len("field_bytes_max", self.0.field_bytes_max, name, "the name of the field")?;
        check_name(name, "field", Code::BadField)
    }

    pub(crate) fn written_field(self, name: &str) -> Result<(), Trouble> {
        if name == META_DELETED || name == META_POSITION {
            let message =
                format!("the field {name:?} is kept by the server; it can be read and locked, not written");
            return Err(Trouble::new(Code::ReservedField, message));
        }
        self.field(name)
    }

    fn check_len(self, limit_name: &str, limit: u64, text: &str, what: &str) -> Result<(), Trouble> {
        if text.len() as u64 > limit {
            return Err(Trouble::over(limit_name, limit, &format!("{what} has {} bytes", text.len())));
        }
        Ok(())
    }
}

fn check_name(name: &str, what: &str, code: Code) -> Result<(), Trouble> {
    if name.is_empty() {
        return Err(Trouble::new(code, format!("the name of a {what} cannot be empty")));
    }
    if name.chars().any(char::is_control) {
        let message = format!("the name of the {what} {name:?} has a control character in it");
        return Err(Trouble::new(code, message));
    }
    Ok(())
}
