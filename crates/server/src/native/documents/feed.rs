//! The change feed: every commit once, in order, as a page, as server-sent events or over a WebSocket.
//!
//! A follower reads the log at its own pace from durable snapshots, so it sees nothing that could still be
//! lost, misses nothing however slow it is, and nobody who writes ever waits for it.

use super::{
    answer::json_of,
    decode::Decoder,
    read::{Moment, aside, check_limit, page_len},
    stream::{Gone, Pieces, stream},
};
use crate::{
    cluster::dispatch::spread::feed::{self as spread_feed, Shards},
    frame::Encoder,
    listener::Counted,
    memory::Turn,
    native::{
        HttpError,
        http::{App, InPath, check_namespace},
        query::InQuery,
    },
    shared::Shared,
    socket::{Goodbye, Socket, Source},
};
use axum::{
    body::Body,
    extract::{Request, State},
    response::{IntoResponse, Response},
};
use hyper::{HeaderMap, header};
use lockwood_model::{Commit, Event, FieldPath, Position, Purged};
use lockwood_node::{
    clock::rfc3339, feeds::Follower, refusals::too_old, schemas::check_fields, trouble::Trouble, work::Job,
};
use lockwood_router::ShardNo;
use lockwood_storage::NamespaceId;
use lockwood_wire::{
    Code, Problem,
    documents::{Changes, CommitEvent, PositionAnswer, PurgedInfo, WireCommit, WireValue},
};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::{sync::Arc, time::Duration};
use tokio::sync::watch;

/// A page unless `limit` says otherwise, and one step of a feed, end at this many bytes.
const PIECE_BYTES: usize = 256 * 1024;
/// One step of a feed has at most so many commits.
const PIECE_LEN: usize = 1000;
/// One step looks at most at so many commits, whether they are wanted or not.
const LOOKS_MAX: usize = 10_000;
/// A feed that has been silent this long says that it is still there.
const STILL_HERE: Duration = Duration::from_secs(15);
const CLOSE_GOING_AWAY: u16 = 1001;
/// The last message says what is wrong.
const CLOSE_PROBLEM: u16 = 4002;

#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(in crate::native) struct ChangesQuery {
    /// Only commits after this position. Without it a page starts with the oldest commit that is kept, and a
    /// stream with the next one to come.
    after: Option<u64>,
    /// Only events in these collections, with commas between them.
    collection: Option<String>,
    /// Only events that touch one of these fields, with commas between them; for `address.zip` those that touch
    /// `address`.
    field: Option<String>,
    /// At most so many commits on a page.
    limit: Option<u64>,
}

/// The commits in order: a page, or with `Accept: text/event-stream` or a WebSocket all that are to come.
#[utoipa::path(get, path = "/v1/{namespace}/changes", params(("namespace" = String, Path), ChangesQuery),
    responses((status = 200, body = Changes), (status = 101, description = "One JSON text message a commit."),
    (status = 400, body = Problem), (status = 410, body = Problem), (status = 503, body = Problem)))]
pub(in crate::native) async fn changes(
    State(shared): App,
    InPath(namespace): InPath<String>,
    InQuery(query): InQuery<ChangesQuery>,
    request: Request,
) -> Result<Response, HttpError> {
    check_namespace(&shared, &namespace)?;
    check_limit(query.limit)?;
    let wanted = Wanted::new(Decoder(&shared.config.limits), &query)?;
    wanted.check_names(&Job::new(&shared), &namespace).await?;
    // Other nodes ask for what happened here.
    let is_part = shared.cluster.peer_epoch(request.headers()).is_some();
    let feed = Feed { shared, namespace: namespace.into(), wanted: Arc::new(wanted), is_part };
    match kind(request.headers()) {
        Kind::Page => Ok(feed.page(query.after, query.limit).await?),
        Kind::Events => {
            let after = resume(request.headers())?.or(query.after);
            Ok(feed.events(after).await?)
        }
        Kind::Socket => Ok(feed.socket(query.after, request).await?),
    }
}

enum Kind {
    Page,
    Events,
    Socket,
}

fn kind(headers: &HeaderMap) -> Kind {
    let accepts = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut accepts = accepts.flat_map(|value| value.split(','));
    match () {
        () if headers.contains_key(header::UPGRADE) => Kind::Socket,
        () if accepts.any(|kind| kind.trim().to_ascii_lowercase().starts_with("text/event-stream")) => {
            Kind::Events
        }
        () => Kind::Page,
    }
}

/// Where a reader of events was when it lost its connection.
fn resume(headers: &HeaderMap) -> Result<Option<u64>, Trouble> {
    let Some(given) = headers.get("last-event-id") else { return Ok(None) };
    let position = given.to_str().ok().and_then(|text| text.trim().parse().ok());
    let position = position.ok_or_else(|| Trouble::new(Code::BadQuery, "Last-Event-ID is a position"))?;
    Ok(Some(position))
}

/// Which events a follower wants; all where there is no list.
struct Wanted {
    collections: Option<Vec<String>>,
    fields: Option<Vec<FieldPath>>,
}

impl Wanted {
    fn new(decoder: Decoder<'_>, query: &ChangesQuery) -> Result<Wanted, Trouble> {
        let names = |text: &String| text.split(',').map(str::to_owned).collect();
        let collections: Option<Vec<String>> = query.collection.as_ref().map(names);
        collections.iter().flatten().try_for_each(|name| decoder.collection(name))?;
        let fields = query.field.as_deref().map(|text| decoder.path_list(text)).transpose()?;
        Ok(Wanted { collections, fields })
    }

    /// A field that the schema of no wanted collection knows would never be heard of.
    async fn check_names(&self, job: &Job<'_>, namespace: &str) -> Result<(), Trouble> {
        let Some(collections) = &self.collections else { return Ok(()) };
        for field in self.fields.iter().flatten() {
            let mut known = Ok(());
            for collection in collections {
                known = check_fields(job, namespace, vec![(collection, field)]).await;
                if known.is_ok() {
                    break;
                }
            }
            known?;
        }
        Ok(())
    }

    /// The same question to another shard.
    fn question(&self, after: Position, len_max: usize) -> String {
        let mut question = form_urlencoded::Serializer::new(String::new());
        question.append_pair("after", &after.to_string()).append_pair("limit", &len_max.to_string());
        if let Some(collections) = &self.collections {
            question.append_pair("collection", &collections.join(","));
        }
        if let Some(fields) = &self.fields {
            let fields: Vec<String> = fields.iter().map(ToString::to_string).collect();
            question.append_pair("field", &fields.join(","));
        }
        format!("changes?{}", question.finish())
    }

    fn takes(&self, event: &Event) -> bool {
        let collections = self.collections.as_ref();
        let is_in_one =
            || collections.is_none_or(|names| names.iter().any(|name| **name == *event.at.collection));
        // An event tells which fields it touches, not what inside them.
        let touches_one = || {
            let Some(fields) = &self.fields else { return true };
            event.change.touches().iter().any(|name| fields.iter().any(|field| field.root() == *name))
        };
        is_in_one() && touches_one()
    }

    /// What of a commit is wanted; nothing if no event is.
    fn part(&self, commit: &Commit) -> Option<WireCommit> {
        let events: Vec<CommitEvent> =
            commit.events.iter().filter(|event| self.takes(event)).map(CommitEvent::from).collect();
        let purged = commit.purged.as_ref().filter(|purged| self.takes_purge(purged)).map(PurgedInfo::from);
        (!events.is_empty() || purged.is_some()).then(|| WireCommit {
            position: commit.position.0,
            at: rfc3339(commit.at),
            user: commit.user.as_ref().map(WireValue::from),
            note: commit.note.as_ref().map(WireValue::from),
            events,
            purged,
        })
    }

    /// Which fields the documents had is not known any more.
    fn takes_purge(&self, purged: &Purged) -> bool {
        let is_named =
            |name: &str| self.collections.as_ref().is_none_or(|all| all.iter().any(|one| one == name));
        purged.collection().is_none_or(is_named)
    }
}

/// What somebody wants to follow.
#[derive(Clone)]
struct Feed {
    shared: Arc<Shared>,
    namespace: Arc<str>,
    wanted: Arc<Wanted>,
    /// Only what happened on this node.
    is_part: bool,
}

/// Some commits of a feed, in order.
struct Piece {
    /// Where the namespace was.
    position: Position,
    /// Each as JSON.
    commits: Vec<(Position, String)>,
    /// Up to here everything was looked at.
    next: Position,
    /// There is more already.
    more: bool,
    /// Kept until what is made of it is counted.
    turn: Option<Turn>,
}

/// What another shard says happened there.
#[derive(Deserialize)]
struct Part {
    position: u64,
    commits: Vec<Box<RawValue>>,
    next: u64,
}

impl Part {
    fn piece(self) -> Option<Piece> {
        #[derive(Deserialize)]
        struct Placed {
            position: u64,
        }
        let commit = |text: &RawValue| {
            let Placed { position } = serde_json::from_str(text.get()).ok()?;
            Some((Position(position), text.get().to_owned()))
        };
        Some(Piece {
            position: Position(self.position),
            commits: self.commits.iter().map(|text| commit(text)).collect::<Option<_>>()?,
            next: Position(self.next),
            more: self.next < self.position,
            turn: None,
        })
    }
}

impl Feed {
    /// All shards, if this node does not answer for all there is.
    fn shards(&self) -> Result<Option<Shards>, Trouble> {
        if self.is_part { Ok(None) } else { Shards::of(&self.shared, &self.namespace) }
    }

    /// The commits after a position, as many as are durable and fit.
    async fn piece(
        &self,
        after: Option<Position>,
        len_max: usize,
        bytes_max: usize,
    ) -> Result<Piece, Trouble> {
        match self.shards()? {
            Some(shards) => self.piece_of_all(&shards, after, len_max, bytes_max).await,
            None => {
                let feed = self.clone();
                aside(move || feed.read(after, len_max, bytes_max)).await
            }
        }
    }

    async fn piece_of_all(
        &self,
        shards: &Shards,
        after: Option<Position>,
        len_max: usize,
        bytes_max: usize,
    ) -> Result<Piece, Trouble> {
        shards.check()?;
        let PositionAnswer { position, horizon } = self.all_at(shards).await?;
        let after = after.unwrap_or(Position(horizon));
        let parts: Vec<(ShardNo, Part)> =
            shards.ask(&self.namespace, &self.wanted.question(after, len_max), position).await?;
        let mut pieces = Vec::with_capacity(parts.len() + 1);
        if let Some(own) = shards.own() {
            let feed = self.clone();
            pieces.push((own, aside(move || feed.read(Some(after), len_max, bytes_max)).await?));
        }
        for (shard, part) in parts {
            let message = "a shard told of a commit that cannot be read";
            let piece = part.piece().ok_or_else(|| Trouble::new(Code::ShardUnreachable, message))?;
            pieces.push((shard, piece));
        }
        shards.check()?;
        Ok(merge(pieces, len_max))
    }

    /// Where all shards together are; this node has it behind it.
    async fn all_at(&self, shards: &Shards) -> Result<PositionAnswer, Trouble> {
        let own = Moment::uncounted(&self.shared, &self.namespace)?;
        let own = PositionAnswer { position: own.position.0, horizon: own.horizon(&self.namespace)?.0 };
        shards.position(&self.namespace, own).await
    }

    /// The same on this node alone.
    fn read(&self, after: Option<Position>, len_max: usize, bytes_max: usize) -> Result<Piece, Trouble> {
        let moment = Moment::uncounted(&self.shared, &self.namespace)?;
        let after = after.map_or_else(|| moment.horizon(&self.namespace), Ok)?;
        moment.check_kept(&self.namespace, after)?;
        moment.check_reached(&self.shared, &self.namespace, after)?;
        let mut piece = Piece {
            position: moment.position,
            commits: Vec::new(),
            next: after.max(moment.position),
            more: false,
            turn: None,
        };
        let Some(id) = moment.namespace else { return Ok(piece) };
        let (mut looked_to, mut bytes) = (after, 0);
        for (looks, found) in moment.reading.state().commits(id, after.next(), None).enumerate() {
            let commit = found?.commit;
            let part = self.wanted.part(&commit);
            let text = part.map(|part| serde_json::to_string(&part).expect("commits can be written"));
            bytes += text.as_ref().map_or(0, String::len);
            // A commit larger than everything must get through too.
            let full = bytes > bytes_max && !piece.commits.is_empty() || piece.commits.len() == len_max;
            if full && text.is_some() || looks == LOOKS_MAX {
                piece.next = looked_to;
                piece.more = true;
                break;
            }
            looked_to = commit.position;
            piece.commits.extend(text.map(|text| (commit.position, text)));
        }
        Ok(piece)
    }

    async fn page(self, after: Option<u64>, limit: Option<u64>) -> Result<Response, Trouble> {
        let len_max = page_len(&self.shared, limit)?;
        let bytes_max = self.shared.config.limits.answer_bytes_max as usize;
        let piece = self.piece(after.map(Position), len_max, bytes_max).await?;
        let parts = piece.commits.into_iter().map(|(_, text)| WireValue::from_text(text));
        let commits: Vec<WireValue> = parts.collect::<Result<_, _>>()?;
        /// The same as [`Changes`], with commits that are written already.
        #[derive(serde::Serialize)]
        struct Written {
            position: u64,
            commits: Vec<WireValue>,
            next: u64,
        }
        Ok(json_of(&Written { position: piece.position.0, commits, next: piece.next.0 }))
    }

    /// Checks that it can be followed from there, which is now if nothing else is said.
    async fn follow(&self, after: Option<u64>) -> Result<Following, Trouble> {
        let follower = Follower::enter(&self.shared)?;
        let applied = self.shared.shard.subscribe();
        if let Some(shards) = self.shards()? {
            let after = self.start(&shards, after).await?;
            let others = Some(Others::listen(self));
            return Ok(Following { feed: self.clone(), namespace: None, after, applied, others, follower });
        }
        let moment = Moment::now(&self.shared, &self.namespace)?;
        let after = after.map_or(moment.position, Position);
        moment.check_kept(&self.namespace, after)?;
        moment.check_reached(&self.shared, &self.namespace, after)?;
        let (feed, others) = (self.clone(), None);
        Ok(Following { feed, namespace: moment.namespace, after, applied, others, follower })
    }

    /// Where to begin on all shards.
    async fn start(&self, shards: &Shards, after: Option<u64>) -> Result<Position, Trouble> {
        shards.check()?;
        let PositionAnswer { position, horizon } = self.all_at(shards).await?;
        match after {
            Some(after) if after < horizon => return Err(too_old(Position(after), Position(horizon))),
            Some(after) => return Ok(Position(after)),
            None => {}
        }
        // Whatever is written from now on is after it.
        let _: Vec<(ShardNo, PositionAnswer)> = shards.ask(&self.namespace, "position", position).await?;
        shards.check()?;
        Ok(Position(position))
    }

    async fn events(self, after: Option<u64>) -> Result<Response, Trouble> {
        let following = self.follow(after).await?;
        let (pieces, body) = stream(&self.shared)?;
        tokio::spawn(async move {
            // Whoever is gone needs no more events.
            if following.write_events(&pieces).await.is_ok() {
                pieces.complete();
            }
        });
        let headers = [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-store")];
        Ok((headers, body).into_response())
    }

    async fn socket(self, after: Option<u64>, mut request: Request) -> Result<Response, Trouble> {
        let counted: Option<Arc<Counted>> = request.extensions_mut().remove();
        let (response, upgrade) =
            crate::handshake::accept::<_, Body>(&mut request).map_err(|refusal| match refusal {
                crate::handshake::NotHandshake::Method => {
                    Trouble::new(Code::MethodNotAllowed, "a WebSocket starts with GET")
                }
                crate::handshake::NotHandshake::Header(message) => Trouble::new(Code::NotWebsocket, message),
            })?;
        let mut following = self.follow(after).await?;
        tokio::spawn(async move {
            if let Some((stream, received)) = upgrade.complete().await {
                let mut socket = Socket::new(stream, &received, &self.shared);
                let ending = socket.broadcast(&mut following).await;
                drop(following);
                if let Ok(goodbye) = ending {
                    let _ = socket.close(goodbye).await;
                }
            }
            drop(counted);
        });
        Ok(response)
    }
}

/// What happened on several shards, in one order, as far as all of them are.
fn merge(pieces: Vec<(ShardNo, Piece)>, len_max: usize) -> Piece {
    let position = pieces.iter().map(|(_, piece)| piece.position).min().unwrap_or_default();
    let mut next = pieces.iter().map(|(_, piece)| piece.next).min().unwrap_or_default();
    let mut more = pieces.iter().any(|(_, piece)| piece.more);
    let mut commits: Vec<(Position, ShardNo, String)> = Vec::new();
    for (shard, piece) in pieces {
        let known = piece.commits.into_iter().filter(|(position, _)| *position <= next);
        commits.extend(known.map(|(position, text)| (position, shard, text)));
    }
    commits.sort_unstable_by_key(|(position, shard, _)| (*position, *shard));
    // Those at one position stay together, as whoever goes on from there gets none of them again.
    if let Some((last, _, _)) = commits.get(len_max.saturating_sub(1))
        && commits.len() > len_max
    {
        next = *last;
        more = true;
        commits.retain(|(position, _, _)| *position <= next);
    }
    let commits = commits.into_iter().map(|(position, _, text)| (position, text)).collect();
    Piece { position, commits, next, more, turn: None }
}

/// Word from other shards. It stops when nobody wants to hear it any more.
struct Others {
    told: watch::Receiver<u64>,
    listening: tokio::task::AbortHandle,
}

impl Others {
    fn listen(feed: &Feed) -> Others {
        let (sender, told) = watch::channel(0);
        let listening = spread_feed::watch(Arc::clone(&feed.shared), feed.namespace.to_string(), sender);
        Others { told, listening: tokio::spawn(listening).abort_handle() }
    }
}

impl Drop for Others {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

/// Somebody who follows a feed, and how far they are.
struct Following {
    feed: Feed,
    /// The namespace as it was first seen; none if it was not there.
    namespace: Option<NamespaceId>,
    after: Position,
    applied: watch::Receiver<u64>,
    others: Option<Others>,
    follower: Follower,
}

impl Following {
    /// What is there already; nothing if nothing came since.
    async fn next(&mut self) -> Result<Piece, Trouble> {
        // Marked as seen before it is looked at: what comes in between wakes the follower once more.
        self.applied.borrow_and_update();
        if let Some(others) = &mut self.others {
            others.told.borrow_and_update();
            return self.next_of_all().await;
        }
        let moment = Moment::uncounted(&self.feed.shared, &self.feed.namespace)?;
        if self.namespace.is_some() && moment.namespace != self.namespace {
            // A purge goes on where it was, and is heard of like any commit by those who are as far.
            moment.check_kept(&self.feed.namespace, self.after)?;
            if moment.reading.state().past(&self.feed.namespace)? == Position::START {
                // Its positions begin anew, so going on from here would leave some out.
                return Err(Trouble::new(Code::PositionTooOld, "the namespace was emptied; follow it anew"));
            }
        }
        self.namespace = moment.namespace;
        if moment.position <= self.after {
            let (commits, position) = (Vec::new(), moment.position);
            return Ok(Piece { position, commits, next: self.after, more: false, turn: None });
        }
        let (feed, after) = (self.feed.clone(), self.after);
        let turn = self.feed.shared.memory.turn().await;
        let mut piece = aside(move || feed.read(Some(after), PIECE_LEN, PIECE_BYTES)).await?;
        // One that has nothing to say waits without it: others need it meanwhile.
        piece.turn = Some(turn).filter(|_| !piece.commits.is_empty());
        self.after = piece.next;
        Ok(piece)
    }

    /// A shard that cannot be asked is asked again when there is word of it.
    async fn next_of_all(&mut self) -> Result<Piece, Trouble> {
        match self.feed.piece(Some(self.after), PIECE_LEN, PIECE_BYTES).await {
            Ok(piece) => {
                self.after = piece.next;
                Ok(piece)
            }
            Err(trouble) if matches!(trouble.code, Code::WrongEpoch | Code::ShardUnreachable) => {
                let (position, next) = (self.after, self.after);
                Ok(Piece { position, commits: Vec::new(), next, more: false, turn: None })
            }
            Err(trouble) => Err(trouble),
        }
    }

    fn is_closing(&self) -> bool {
        *self.follower.closing.borrow()
    }

    /// Waits until something is durable that was not, or the server stops. What is made next needs room.
    async fn more(&mut self) {
        let memory = Arc::clone(&self.feed.shared.memory);
        if !memory.has_room() {
            return tokio::select! {
                () = memory.room() => {}
                _ = self.follower.closing.changed() => {}
            };
        }
        let told = async {
            match &mut self.others {
                Some(others) => drop(others.told.changed().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.applied.changed() => {}
            () = told => {}
            _ = self.follower.closing.changed() => {}
        }
    }

    async fn write_events(mut self, pieces: &Pieces) -> Result<(), Gone> {
        // An id without an event: a reader that loses its connection before the first one resumes from here.
        pieces.send_made(format!("id: {}\n\n", self.after), None).await?;
        let mut told = self.after;
        let mut silent = tokio::time::interval(STILL_HERE);
        silent.reset();
        while !self.is_closing() {
            if !self.feed.shared.memory.has_room() {
                tokio::select! {
                    () = self.more() => {}
                    () = pieces.gone() => return Err(Gone),
                }
                continue;
            }
            let piece = match self.next().await {
                Ok(piece) => piece,
                Err(trouble) => {
                    let problem = serde_json::to_string(&trouble.into_problem()).expect("it can be written");
                    return pieces.send_made(format!("event: problem\ndata: {problem}\n\n"), None).await;
                }
            };
            let Piece { commits, more, turn, .. } = piece;
            if let Some((last, _)) = commits.last() {
                told = *last;
                let text = events(&commits);
                drop(commits);
                pieces.send_made(text, turn).await?;
                silent.reset();
            }
            if more {
                continue;
            }
            tokio::select! {
                () = self.more() => {}
                () = pieces.gone() => return Err(Gone),
                _ = silent.tick() => {
                    let id = if told < self.after { format!("id: {}\n", self.after) } else { String::new() };
                    told = self.after;
                    pieces.send_made(format!(": still here\n{id}\n"), None).await?;
                }
            }
        }
        Ok(())
    }
}

/// Commits as events. Of those at one position, which are of different shards, the last one says it: whoever has not
/// got it yet has to begin with the first again.
fn events(commits: &[(Position, String)]) -> String {
    let mut text = String::new();
    for (index, (position, commit)) in commits.iter().enumerate() {
        if commits.get(index + 1).is_none_or(|(next, _)| next != position) {
            text += &format!("id: {position}\n");
        }
        text += &format!("event: commit\ndata: {commit}\n\n");
    }
    text
}

impl Source for Following {
    async fn say(&mut self, out: &mut Encoder) -> Result<bool, Goodbye> {
        if self.is_closing() {
            return Err(Goodbye::new(CLOSE_GOING_AWAY, "the server stops"));
        }
        if !self.feed.shared.memory.has_room() {
            return Ok(false);
        }
        match self.next().await {
            Ok(piece) => {
                piece.commits.iter().for_each(|(_, text)| out.text(text));
                Ok(piece.more)
            }
            Err(trouble) => {
                let problem = trouble.into_problem();
                out.text(&serde_json::to_string(&problem).expect("it can be written"));
                Err(Goodbye::new(CLOSE_PROBLEM, "the last message says why"))
            }
        }
    }

    async fn wait(&mut self) {
        self.more().await;
    }
}
