//! A join over all shards, made by the node that was asked: it goes through both sides as one shard would, with
//! documents that come from all of them. Knows nothing of how rows are found.

use super::{
    super::Message,
    Answer,
    ask::{Asker, Reply, Stop, wait_for},
    custody::NOWHERE,
    cut::{Cut, Manner},
    is_everywhere, target,
};
use crate::native::{
    JoinPlan, answer_join, check_access, collection_resource, isolation_in_force, key_cursor,
};
use futures_util::future::try_join_all;
use lockwood_model::{
    Budget, Document, DocumentKey, Field, Json, Key, META_DELETED, META_POSITION, Position,
};
use lockwood_node::{
    shard::{Find, Found, JoinSide, PageError, Source, join as make},
    trouble::Trouble,
};
use lockwood_router::ShardNo;
use lockwood_storage::DocumentRef;
use lockwood_wire::documents::{
    DocumentInfo, DocumentPage, Documents, FilterRequest, GetRequest, Isolation, JoinRequest, Wanted, WireKey,
};
use std::{collections::BTreeMap, sync::Arc, vec};

/// So many documents are asked for at once.
const PAGE_LEN: u64 = 1000;
/// So many partners are asked for by name at once, whatever the limit for clients is.
const PARTNERS_PER_GET_MAX: u64 = 10_000;

/// Two collections put together where a field of the one equals a field of the other.
pub(super) async fn join(ask: &Asker<'_>, namespace: &str, request: JoinRequest) -> Answer {
    let plan = Arc::new(JoinPlan::new(ask.shared, request)?);
    let request = &plan.request;
    let collections = [&*request.left.collection, &*request.right.collection];
    let manner = (request.isolation, request.at);
    let isolation = isolation_in_force(ask.shared, namespace, collections, manner)?;
    check_access(ask.shared, isolation, (&request.tokens, request.wait_ms), request.at)?;
    let isolation = match isolation {
        Isolation::Snapshot => Isolation::Snapshot,
        // Which documents will be rows is not known before all are looked at.
        Isolation::Locked | Isolation::Document => Isolation::Locked,
    };
    let manner = Manner { isolation, tokens: request.tokens.clone(), wait_ms: request.wait_ms };
    let both = |_| {
        let sides = [&request.left, &request.right];
        sides.map(|side| collection_resource(&side.collection)).to_vec()
    };
    let shards: Vec<ShardNo> = ask.current.map.shard_numbers().collect();
    let limit = ask.shared.config.limits.documents_per_page_max;
    let cut = Cut::begin(ask, namespace, &shards, request.at, (&manner, both)).await?.fixed();
    let sides = Sides { ask, namespace, request, cut: &cut, manner: &manner, page_len: PAGE_LEN.min(limit) };
    let join = plan.join_in(ask.shared, NOWHERE, None, &Budget::new(ask.shared.config.limits.work_max));
    let made = tokio::task::block_in_place(|| make(&sides, &join, &None));
    let rows = made.map_err(Trouble::from)?;
    let position = Position(cut.told(std::iter::empty()));
    cut.end()?;
    Ok(answer_join(Arc::clone(ask.shared), plan, (position, rows)).await?)
}

/// Both sides of a join, wherever their documents are.
struct Sides<'a> {
    ask: &'a Asker<'a>,
    namespace: &'a str,
    request: &'a JoinRequest,
    cut: &'a Cut<'a>,
    manner: &'a Manner,
    page_len: u64,
}

impl Sides<'_> {
    fn shards(&self, collection: &str) -> Vec<ShardNo> {
        match is_everywhere(collection) {
            true => vec![Asker::first()],
            false => self.ask.current.map.shard_numbers().collect(),
        }
    }

    /// What is needed of the documents of a collection, which may be on both sides.
    fn fields(&self, collection: &str) -> Option<Vec<String>> {
        let mut fields = Vec::new();
        for side in [&self.request.left, &self.request.right] {
            if side.collection == collection {
                fields.extend_from_slice(side.fields.as_ref()?);
                fields.push(side.field.clone());
            }
        }
        fields.retain(|name| !is_reserved(name));
        fields.sort_unstable();
        fields.dedup();
        Some(fields)
    }

    async fn page(&self, shard: ShardNo, find: &Find, after: Option<&Key>) -> Result<DocumentPage, Stop> {
        let Manner { isolation, tokens, wait_ms } = self.manner.part();
        let request = FilterRequest {
            collection: find.collection.to_string(),
            filter: find.filter.as_ref().map(Into::into),
            fields: self.fields(&find.collection),
            limit: Some(self.page_len),
            cursor: after.map(|key| key_cursor(&find.collection, key)),
            at: self.cut.at,
            isolation: Some(isolation),
            tokens,
            wait_ms,
            ..FilterRequest::default()
        };
        let message = Message::json(&target(self.namespace, "filter"), &request);
        self.ask.one(shard, &self.cut.message(message)).await?.read()
    }

    async fn get(&self, find: &Find, keys: Vec<DocumentKey>) -> Result<Vec<DocumentInfo>, Stop> {
        // Whether they match is looked at here.
        let mut fields = self.fields(&find.collection);
        if let (Some(fields), Some(filter)) = (&mut fields, &find.filter) {
            let seen = filter.fields().into_iter().filter(|field| !is_reserved(field.root()));
            fields.extend(seen.map(ToString::to_string));
            fields.sort_unstable();
            fields.dedup();
        }
        let mut places: BTreeMap<ShardNo, Vec<Wanted>> = BTreeMap::new();
        for DocumentKey { collection, key } in keys {
            let at = DocumentKey { collection, key };
            let owner = match is_everywhere(&at.collection) {
                true => Asker::first(),
                false => self.ask.current.owner(&at)?,
            };
            let wanted = Wanted { collection: at.collection.to_string(), key: WireKey(at.key), fields: None };
            places.entry(owner).or_default().push(wanted);
        }
        let target = target(self.namespace, "get");
        let len_max = self.ask.shared.config.limits.documents_per_get_max.min(PARTNERS_PER_GET_MAX) as usize;
        let mut found = Vec::new();
        for (shard, documents) in places {
            for documents in documents.chunks(len_max) {
                let Manner { isolation, tokens, wait_ms } = self.manner.part();
                let request = GetRequest {
                    documents: documents.to_vec(),
                    fields: fields.clone(),
                    at: self.cut.at,
                    isolation: Some(isolation),
                    tokens,
                    wait_ms,
                    ..GetRequest::default()
                };
                let message = self.cut.message(Message::json(&target, &request));
                let Documents { documents, .. } = self.ask.one(shard, &message).await?.read()?;
                found.extend(documents.into_iter().flatten());
            }
        }
        Ok(found)
    }
}

impl Source for Sides<'_> {
    fn each(
        &self,
        find: &Find,
        after: Option<&Key>,
        see: &mut dyn FnMut(&mut dyn FnMut() -> Found, &DocumentRef<'_>) -> bool,
    ) -> Result<(), PageError> {
        let first = try_join_all(self.shards(&find.collection).into_iter().map(|shard| async move {
            let page = self.page(shard, find, after).await?;
            Ok::<_, Stop>(Stream::new(shard, page))
        }));
        let mut streams = wait_for(first)?;
        loop {
            let next = streams
                .iter()
                .enumerate()
                .filter_map(|(place, stream)| stream.next.as_ref().map(|found| (&found.at.key, place)));
            let Some((_, place)) = next.min() else { return Ok(()) };
            let stream = &mut streams[place];
            let Some(found) = stream.take() else { return Ok(()) };
            if !see(&mut || found.clone(), &found.document()?) {
                return Ok(());
            }
            if stream.next.is_none() && stream.more {
                let page = wait_for(self.page(stream.shard, find, Some(&found.at.key)))?;
                *stream = Stream::new(stream.shard, page);
            }
        }
    }

    fn get_all(&self, find: &Find, keys: Vec<DocumentKey>) -> Result<Vec<Option<Found>>, PageError> {
        let found = wait_for(self.get(find, keys.clone()))?;
        let mut found: BTreeMap<DocumentKey, Found> =
            found.into_iter().filter_map(read).map(|found| (found.at.clone(), found)).collect();
        Ok(keys.iter().map(|at| found.remove(at)).collect())
    }

    fn has_index(&self, _: &JoinSide) -> Result<bool, PageError> {
        Ok(false)
    }
}

/// The documents of one shard, in the order of their keys.
struct Stream {
    shard: ShardNo,
    next: Option<Found>,
    page: vec::IntoIter<DocumentInfo>,
    /// There is another page.
    more: bool,
}

impl Stream {
    fn new(shard: ShardNo, page: DocumentPage) -> Stream {
        let mut stream =
            Stream { shard, next: None, more: page.next.is_some(), page: page.documents.into_iter() };
        stream.take();
        stream
    }

    /// The next document, in whose place comes the one after it.
    fn take(&mut self) -> Option<Found> {
        let next = self.page.next().and_then(read);
        std::mem::replace(&mut self.next, next)
    }
}

/// What every answer tells of a document.
fn is_reserved(field: &str) -> bool {
    field == META_DELETED || field == META_POSITION
}

/// A document as a shard shows it.
fn read(info: DocumentInfo) -> Option<Found> {
    let position = Position(info.position);
    let field = |(name, value): (Box<str>, lockwood_wire::documents::WireValue)| Field {
        name,
        position,
        value: Some(Json::trusted(value.as_str())),
    };
    let mut fields: Vec<Field> = info.value.0.into_iter().map(field).collect();
    fields.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    let document = Document {
        created: Position(info.created),
        position,
        deleted: info.deleted,
        fields,
        ..Document::unborn()
    };
    Some(Found::past(DocumentKey::new(&info.collection, info.key.parse().ok()?), document))
}

impl From<Stop> for PageError {
    fn from(stop: Stop) -> PageError {
        match stop {
            Stop::Trouble(trouble) => PageError::Elsewhere(trouble),
            Stop::Reply(reply) => PageError::Elsewhere(Box::new(Reply::into_trouble(reply))),
        }
    }
}
