//! Joins of two collections, and which locks they wait for.

use super::{
    answer::{json, open, write_found, write_text},
    body::JsonBody,
    cursor,
    decode::Decoder,
    isolation::{self, Access, Scope, Sought, look, looked_at},
    read::{Moment, aside, page_len, projection, sought},
};
use crate::{
    native::{
        HttpError,
        http::{App, InPath, check_namespace},
    },
    shared::Shared,
};
use axum::{extract::State, response::Response};
use lockwood_model::{Budget, Depth, DocumentKey, FieldPath, Key, Position, Projection, Resource};
use lockwood_node::{
    shard::{self, Join, JoinPlace, JoinRows, JoinSide, Only, Reading},
    trouble::Trouble,
    work::Job,
};
use lockwood_storage::{NamespaceId, Order};
use lockwood_wire::{
    Code, Problem,
    documents::{self as wire, Deleted, Isolation, JoinKind, JoinPage, JoinRequest},
};
use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

/// How often a join goes by single documents before it asks for both collections as a whole.
const ATTEMPTS: usize = 3;

/// Two collections put together where a field of the one equals a field of the other.
#[utoipa::path(post, path = "/v1/{namespace}/join", params(("namespace" = String, Path)),
    request_body = JoinRequest, responses((status = 200, body = JoinPage), (status = 400, body = Problem),
    (status = 410, body = Problem), (status = 422, body = Problem), (status = 423, body = Problem)))]
pub(in crate::native) async fn join(
    State(shared): App,
    InPath(namespace): InPath<String>,
    body: JsonBody,
) -> Result<Response, HttpError> {
    check_namespace(&shared, &namespace)?;
    let plan = Arc::new(JoinPlan::new(&shared, body.read()?)?);
    let request = &plan.request;
    let job = Job::new(&shared);
    for side in [&plan.left, &plan.right] {
        side.sought.check_names(&job, &namespace, Some(&side.field)).await?;
    }
    let collections = [&*request.left.collection, &*request.right.collection];
    let manner = (request.isolation, request.at);
    let isolation = isolation::in_force(&shared, &namespace, collections, manner)?;
    let access = Access::new(&shared, isolation, (&request.tokens, request.wait_ms), request.at)?;
    let both = [&plan.left, &plan.right].map(|side| isolation::collection(&side.sought.collection));
    let done = match isolation {
        Isolation::Snapshot | Isolation::Locked => {
            let moment = access.moment(&shared, &namespace, || both.to_vec()).await?;
            plan.join(&shared, &job, (&namespace, moment), None).await?
        }
        Isolation::Document => {
            shared.metrics.reads.add(1);
            let candidates =
                Candidates { shared: &shared, job: &job, namespace: &namespace, access: &access };
            candidates.join_or(&plan, &both).await?
        }
    };
    Ok(answer_join(Arc::clone(&shared), Arc::clone(&plan), done).await?)
}

/// A join as it was asked for.
pub(crate) struct JoinPlan {
    pub(crate) request: JoinRequest,
    left: Side,
    right: Side,
    after: Option<JoinPlace>,
    len_max: usize,
}

struct Side {
    sought: Sought,
    field: FieldPath,
    shown: Option<Projection>,
}

type Done = (Position, JoinRows);

impl JoinPlan {
    pub(crate) fn new(shared: &Shared, request: JoinRequest) -> Result<JoinPlan, Trouble> {
        let decoder = Decoder(&shared.config.limits);
        let side = |side: &wire::JoinSide| {
            let field = decoder.path(&side.field)?;
            let fields = projection(decoder, side.fields.as_deref())?;
            let scope = Scope::of(fields.as_deref());
            let filter = side.filter.as_ref();
            let when = (Deleted::Without, request.at);
            let sought = sought(decoder, &side.collection, filter, when, scope)?;
            Ok::<_, Trouble>(Side { sought, field, shown: fields.as_ref().map(Projection::new) })
        };
        let (left, right) = (side(&request.left)?, side(&request.right)?);
        let len_max = page_len(shared, request.limit)?;
        let after = request.cursor.as_deref().map(|text| {
            cursor::read_join(&request, text).ok_or_else(|| {
                let message = "the cursor is not one for this join; pass `next` of the page before, with the \
                               same collections, fields and kind";
                Trouble::new(Code::BadCursor, message)
            })
        });
        Ok(JoinPlan { after: after.transpose()?, request, left, right, len_max })
    }

    async fn join(
        self: &Arc<JoinPlan>,
        shared: &Arc<Shared>,
        job: &Job<'_>,
        (name, moment): (&str, Moment),
        only: Only,
    ) -> Result<Done, Trouble> {
        let (plan, own) = (Arc::clone(self), Arc::clone(shared));
        let as_of = moment.as_of(name, plan.request.at)?;
        let work = move |budget: &Budget| {
            let position = moment.told(plan.request.at);
            let Some(namespace) = moment.namespace else { return Ok((position, JoinRows::default())) };
            let join = plan.join_in(&own, namespace, as_of, budget);
            Ok((position, shard::join(&moment.reading, &join, &only)?))
        };
        job.run(work).await?
    }

    /// The join to be made. On several shards it is made by whoever asks them all.
    pub(crate) fn join_in(
        &self,
        shared: &Shared,
        namespace: NamespaceId,
        as_of: Option<Position>,
        budget: &Budget,
    ) -> Join {
        let side = |side: &Side| JoinSide {
            find: side.sought.find(shared, (namespace, None), as_of, budget),
            field: side.field.clone(),
        };
        Join {
            left: side(&self.left),
            right: side(&self.right),
            keeps_left: self.request.kind == JoinKind::Left,
            after: self.after.clone(),
            len_max: self.len_max,
            rows_max: shared.config.limits.join_rows_max,
        }
    }
}

/// A join of documents that are there at its start, each of which is read when nobody else's lock is in its way.
struct Candidates<'a> {
    shared: &'a Arc<Shared>,
    job: &'a Job<'a>,
    namespace: &'a str,
    access: &'a Access,
}

impl Candidates<'_> {
    /// By single documents if anybody has something in the collections, and if that leads to an end.
    async fn join_or(&self, plan: &Arc<JoinPlan>, both: &[Resource]) -> Result<Done, Trouble> {
        let reading = match self.access.read_now(self.shared, self.namespace, both).await? {
            Some(reading) => reading,
            None => {
                if let Some(done) = self.join(plan).await? {
                    return Ok(done);
                }
                self.access.read(self.shared, self.namespace, both).await?
            }
        };
        let moment = Moment::of(reading, self.namespace)?;
        plan.join(self.shared, self.job, (self.namespace, moment), None).await
    }

    /// None if there are too many documents, or if they change too much; then both collections have to be read
    /// as a whole.
    async fn join(&self, plan: &Arc<JoinPlan>) -> Result<Option<Done>, Trouble> {
        let start = Moment::of(self.shared.shard.read(), self.namespace)?;
        let Some(namespace) = start.namespace else { return Ok(None) };
        let Some(left) = self.keys(&start.reading, namespace, &plan.left).await? else { return Ok(None) };
        let Some(right) = self.keys(&start.reading, namespace, &plan.right).await? else { return Ok(None) };
        let mut resources = self.compared(&plan.left, &left);
        resources.extend(self.compared(&plan.right, &right));
        if resources.len() as u64 > self.shared.config.limits.resources_per_lock_max {
            return Ok(None);
        }
        let only = Some((left, right));
        // What is read of the rows is known when they are; that they are still the same is checked once nobody
        // is in the way of that either.
        let mut locked: HashSet<DocumentKey> = HashSet::new();
        for _ in 0..ATTEMPTS {
            let mut wanted = resources.clone();
            for side in [&plan.left, &plan.right] {
                let collection = &side.sought.collection;
                let mine = locked.iter().filter(|at| at.collection == *collection);
                mine.for_each(|at| side.sought.scope.resources(at, &mut wanted));
            }
            let reading = self.access.read(self.shared, self.namespace, &wanted).await?;
            let moment = Moment::of(reading, self.namespace)?;
            let (_, rows) = plan.join(self.shared, self.job, (self.namespace, moment), only.clone()).await?;
            let members = rows.rows.iter().flat_map(|(left, right)| [Some(left), right.as_ref()]).flatten();
            let needed: HashSet<DocumentKey> = members.map(|found| found.at.clone()).collect();
            if needed.is_subset(&locked) {
                return Ok(Some((start.position, rows)));
            }
            locked.extend(needed);
        }
        Ok(None)
    }

    /// The documents of a side; none if there are too many.
    async fn keys(
        &self,
        reading: &Reading,
        namespace: NamespaceId,
        side: &Side,
    ) -> Result<Option<BTreeSet<Key>>, Trouble> {
        let (reading, limits) = (reading.clone(), &self.shared.config.limits);
        let len_max = limits.join_rows_max.min(limits.resources_per_lock_max) as usize;
        let collection = side.sought.collection.clone();
        aside(move || {
            let state = reading.state();
            let documents = state.documents(namespace, &collection, None, Order::Forward);
            let keys = documents.take(len_max.saturating_add(1)).map(|pair| pair.map(|(at, _)| at.key));
            let keys: BTreeSet<Key> = keys.collect::<Result<_, _>>()?;
            Ok(Some(keys).filter(|keys| keys.len() <= len_max))
        })
        .await
    }

    /// What decides which documents are rows: the field that is compared, and what the filter looks at.
    fn compared(&self, side: &Side, keys: &BTreeSet<Key>) -> Vec<Resource> {
        let mut fields = looked_at(side.sought.filter.as_ref());
        fields.push((side.field.clone(), Depth::SUBTREE));
        let mut resources = Vec::with_capacity(keys.len() * fields.len());
        for key in keys {
            let at = DocumentKey { collection: side.sought.collection.clone(), key: key.clone() };
            look(&at, &fields, &mut resources);
        }
        resources
    }
}

/// A page of rows as the interface shows it.
pub(crate) async fn answer_join(
    shared: Arc<Shared>,
    plan: Arc<JoinPlan>,
    (position, found): (Position, JoinRows),
) -> Result<Response, Trouble> {
    aside(move || {
        let (left_shown, right_shown) = (plan.left.shown.as_ref(), plan.right.shown.as_ref());
        let bytes_max = shared.config.limits.answer_bytes_max;
        let mut out = open(position);
        out.extend_from_slice(b"\"rows\":[");
        for (index, (left, right)) in found.rows.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            out.extend_from_slice(b"{\"left\":");
            write_found(&mut out, left, left_shown)?;
            out.extend_from_slice(b",\"right\":");
            match right {
                Some(right) => write_found(&mut out, right, right_shown)?,
                None => out.extend_from_slice(b"null"),
            }
            out.push(b'}');
            if out.len() as u64 > bytes_max {
                let what = "the answer is too large; ask for fewer rows or fields at once";
                return Err(Trouble::over("answer_bytes_max", bytes_max, what));
            }
        }
        out.push(b']');
        if let Some(place) = &found.next {
            out.extend_from_slice(b",\"next\":");
            write_text(&mut out, &cursor::write_join(&plan.request, place));
        }
        out.push(b'}');
        Ok(json(out))
    })
    .await
}
