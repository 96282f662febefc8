//! Which schema each `$ref` of a document stands for: a place, an anchor, or a schema inside with an address (`$id`).
//! Knows nothing of other documents: nothing is fetched.
//!
//! References are replaced by places (`#/…`) once, when the schema is read, and the addresses and anchors inside are
//! taken out. From then on the validator and the comparison read the same plain references, so they cannot disagree
//! about what one means. A document that only has plain references is left as it is.

use crate::{
    draft::Draft,
    node::{Node, Source, is_schema, percent_decoded},
    schema::Invalid,
    survey::NODES_LEN_MAX,
};
use fluent_uri::{Uri, UriRef};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::LazyLock,
};

/// An address has at most this many bytes: every schema inside is found by its whole address.
const ADDRESS_BYTES_MAX: usize = 2048;

/// The address of a document that does not say its own.
static NOWHERE: LazyLock<Uri<String>> =
    LazyLock::new(|| Uri::parse("json-schema:///".to_owned()).expect("a constant URI"));

/// The document with plain references only.
pub(crate) fn localized(root: Value, draft: Draft) -> Result<Value, Invalid> {
    if has_plain_references(&root, id_keyword(draft)) {
        return Ok(root);
    }
    let source = Source { root, draft, patterns: BTreeMap::new() };
    let changes = {
        let mut survey = Addresses::new(&source);
        survey.walk(source.root(), 0)?;
        survey.resolve_all()?
    };
    let mut root = source.root;
    changes.iter().for_each(|change| change.apply(&mut root));
    Ok(root)
}

fn id_keyword(draft: Draft) -> &'static str {
    if draft == Draft::Draft4 { "id" } else { "$id" }
}

/// Whether every reference is a place, seen from the top. Also looks where no schemas stand, which may only mean more
/// work than needed.
fn has_plain_references(root: &Value, id: &str) -> bool {
    fn is_plain(value: &Value, id: &str) -> bool {
        let Value::Object(object) = value else { return all_plain(value, id) };
        let addressed = object.get(id).and_then(Value::as_str).is_some_and(|id| !id.starts_with('#'));
        !addressed && all_plain(value, id)
    }
    fn all_plain(value: &Value, id: &str) -> bool {
        match value {
            Value::Array(list) => list.iter().all(|value| is_plain(value, id)),
            Value::Object(object) => {
                let reference = object.get("$ref").and_then(Value::as_str);
                reference.is_none_or(|text| text == "#" || text.starts_with("#/"))
                    && object.values().all(|value| is_plain(value, id))
            }
            _ => true,
        }
    }
    all_plain(root, id)
}

/// The schemas of a document by their addresses and anchors.
struct Addresses<'a> {
    source: &'a Source,
    /// The schemas with an address; the first is the document itself.
    resources: Vec<Resource>,
    by_address: BTreeMap<String, usize>,
    /// By resource and name.
    anchors: BTreeMap<(usize, String), String>,
    /// The resource each place belongs to.
    places: BTreeMap<String, usize>,
    seen: BTreeSet<usize>,
    references: Vec<(Node<'a>, &'a str, usize)>,
    changes: Vec<Change>,
    /// Whether only places are left that a reference leads to and where the draft has no schemas.
    is_beyond: bool,
}

struct Resource {
    address: Uri<String>,
    /// `#/$defs/x`
    at: String,
}

/// What is done to one schema of the document.
struct Change {
    at: String,
    /// Keywords that are taken out.
    without: Vec<&'static str>,
    reference: Option<String>,
}

impl<'a> Addresses<'a> {
    fn new(source: &'a Source) -> Addresses<'a> {
        let root = source.root();
        let own = root.string(id_keyword(source.draft)).and_then(|id| absolute(id, &NOWHERE));
        let address = own.map_or_else(|| NOWHERE.clone(), |(address, _)| address);
        Addresses {
            source,
            by_address: BTreeMap::from([(address.as_str().to_owned(), 0)]),
            resources: vec![Resource { address, at: root.at }],
            anchors: BTreeMap::new(),
            places: BTreeMap::new(),
            seen: BTreeSet::new(),
            references: Vec::new(),
            changes: Vec::new(),
            is_beyond: false,
        }
    }

    /// Looks at a schema and at all that stand in it.
    fn walk(&mut self, top: Node<'a>, resource: usize) -> Result<(), Invalid> {
        let mut open = vec![(top, resource)];
        while let Some((node, resource)) = open.pop() {
            if !self.seen.insert(node.id()) {
                continue;
            }
            if self.seen.len() > NODES_LEN_MAX {
                let reason = format!("there are more than {NODES_LEN_MAX} schemas in it");
                return Err(Invalid::new(&node.at, reason));
            }
            let resource = self.look_at(&node, resource)?;
            open.extend(node.subschemas().into_iter().map(|inner| (inner, resource)));
        }
        Ok(())
    }

    /// Takes in the address, the anchors and the reference of a schema; gives the resource it belongs to.
    fn look_at(&mut self, node: &Node<'a>, resource: usize) -> Result<usize, Invalid> {
        let mut change = Change { at: node.at.clone(), without: Vec::new(), reference: None };
        let resource = self.identify(node, resource, &mut change)?;
        for keyword in ["$anchor", "$dynamicAnchor"] {
            if let Some(name) = node.string(keyword).filter(|name| is_anchor(name))
                && self.source.draft >= Draft::Draft201909
            {
                self.name(node, keyword, resource, name)?;
                change.without.push(keyword);
            }
        }
        if let Some(reference) = node.string("$ref") {
            self.references.push((node.clone(), reference, resource));
        }
        self.places.insert(node.at.clone(), resource);
        self.changes.push(change);
        Ok(resource)
    }

    /// A schema inside with an address is a resource of its own.
    fn identify(&mut self, node: &Node<'a>, resource: usize, change: &mut Change) -> Result<usize, Invalid> {
        let keyword = id_keyword(self.source.draft);
        let Some(id) = node.string(keyword).filter(|_| node.at != "#") else { return Ok(resource) };
        let refuse = |reason: String| Err(Invalid::new(&node.place(&[keyword]), reason));
        if let Some(name) = id.strip_prefix('#') {
            // Up to draft-07 this is how an anchor is written; later ones refuse it by themselves.
            if self.source.draft <= Draft::Draft7 {
                self.name(node, keyword, resource, name)?;
                change.without.push(keyword);
            }
            return Ok(resource);
        }
        if id.len() > ADDRESS_BYTES_MAX {
            return refuse(format!("an address has at most {ADDRESS_BYTES_MAX} bytes"));
        }
        if self.is_beyond {
            return refuse(format!(
                "{keyword} {id:?} stands where the draft has no schemas; put it into $defs"
            ));
        }
        match absolute(id, &self.resources[resource].address) {
            Some((address, "")) if address.as_str().len() <= ADDRESS_BYTES_MAX => {
                let number = self.resources.len();
                if self.by_address.insert(address.as_str().to_owned(), number).is_some() {
                    return refuse(format!("two schemas have the address {:?}", address.as_str()));
                }
                self.resources.push(Resource { address, at: node.at.clone() });
                change.without.push(keyword);
                Ok(number)
            }
            Some((_, "")) => refuse(format!("an address has at most {ADDRESS_BYTES_MAX} bytes")),
            Some(_) => refuse(format!("{keyword} {id:?} has a fragment; write an anchor beside it")),
            None => {
                refuse(format!("{keyword} {id:?} is no URI that leads on from {:?}", self.base(resource)))
            }
        }
    }

    fn name(&mut self, node: &Node<'a>, keyword: &str, resource: usize, name: &str) -> Result<(), Invalid> {
        match self.anchors.insert((resource, name.to_owned()), node.at.clone()) {
            Some(_) => {
                let reason = format!("two schemas have the anchor {name:?}");
                Err(Invalid::new(&node.place(&[keyword]), reason))
            }
            None => Ok(()),
        }
    }

    fn base(&self, resource: usize) -> &str {
        self.resources[resource].address.as_str()
    }

    /// Finds what each reference stands for, also those in schemas that only references lead to.
    fn resolve_all(mut self) -> Result<Vec<Change>, Invalid> {
        self.is_beyond = true;
        while let Some((node, reference, resource)) = self.references.pop() {
            let pointer = self.target(&node, reference, resource)?;
            let target = Node {
                source: self.source,
                value: self.source.root.pointer(&pointer).expect("it was looked up"),
                at: format!("#{pointer}"),
            };
            let (at, reference) = (node.at.clone(), Some(format!("#{}", percent_encoded(&pointer))));
            self.changes.push(Change { at, without: Vec::new(), reference });
            let around = self.around(&target.at);
            self.walk(target, around)?;
        }
        Ok(self.changes)
    }

    /// The place that a reference stands for, as a JSON pointer.
    fn target(&self, node: &Node<'_>, reference: &str, resource: usize) -> Result<String, Invalid> {
        let refuse = |reason: &str| {
            Err(Invalid::new(&node.place(&["$ref"]), format!("the $ref {reference:?} {reason}")))
        };
        let (address, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let resource = match address {
            "" => Some(resource),
            address => absolute(address, &self.resources[resource].address)
                .and_then(|(address, _)| self.by_address.get(address.as_str()).copied()),
        };
        let Some(resource) = resource else {
            return refuse(
                "leads out of this schema; only references to a place, an anchor or an $id in it are followed",
            );
        };
        let Some(fragment) = percent_decoded(fragment) else { return refuse("has broken % escapes") };
        let top = &self.resources[resource].at[1..];
        if !fragment.is_empty() && !fragment.starts_with('/') {
            return match self.anchors.get(&(resource, fragment)) {
                Some(at) => Ok(at[1..].to_owned()),
                None => refuse("leads to an anchor that this schema does not have"),
            };
        }
        let pointer = format!("{top}{fragment}");
        match self.source.root.pointer(&pointer) {
            Some(target) if is_schema(target) => Ok(pointer),
            Some(_) => refuse("leads to something that is not a schema"),
            None => refuse("leads to nothing"),
        }
    }

    /// The resource that a place is in.
    fn around(&self, at: &str) -> usize {
        let mut at = at;
        loop {
            if let Some(resource) = self.places.get(at) {
                return *resource;
            }
            match at.rsplit_once('/') {
                Some((above, _)) => at = above,
                None => return 0,
            }
        }
    }
}

impl Change {
    fn apply(&self, root: &mut Value) {
        let Some(Value::Object(object)) = root.pointer_mut(&self.at[1..]) else { return };
        self.without.iter().for_each(|keyword| drop(object.remove(*keyword)));
        if let Some(reference) = &self.reference {
            object.insert("$ref".to_owned(), Value::String(reference.clone()));
        }
    }
}

/// An address that leads on from another one, without its fragment, and the fragment; none if it is no URI.
fn absolute<'t>(text: &'t str, base: &Uri<String>) -> Option<(Uri<String>, &'t str)> {
    let (address, fragment) = text.split_once('#').unwrap_or((text, ""));
    if address.len() > ADDRESS_BYTES_MAX {
        return None;
    }
    let resolved = UriRef::parse(address).ok()?.resolve_against(base).ok()?;
    Some((resolved.normalize(), fragment))
}

fn is_anchor(name: &str) -> bool {
    let starts = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    starts && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

/// As a URI may have it.
fn percent_encoded(pointer: &str) -> String {
    let mut text = String::with_capacity(pointer.len());
    for byte in pointer.bytes() {
        match byte {
            b'/' | b'-' | b'.' | b'_' | b'~' | b'$' => text.push(char::from(byte)),
            byte if byte.is_ascii_alphanumeric() => text.push(char::from(byte)),
            byte => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use crate::{FieldKnown, Level, Policy, Schema, check};
    use lockwood_model::Budget;
    use serde_json::{Value, json};

    fn parse(schema: &Value) -> Schema {
        Schema::parse(&schema.to_string()).unwrap_or_else(|invalid| panic!("{schema}: {invalid}"))
    }

    #[track_caller]
    fn refused(schema: &Value, pointer: &str, part: &str) {
        let invalid = Schema::parse(&schema.to_string()).expect_err(&schema.to_string());
        assert!(invalid.reason.contains(part), "{schema}: {invalid}");
        assert_eq!(invalid.pointer, pointer, "{invalid}");
    }

    /// The same schema with a plain reference, and with each other way to write it.
    #[track_caller]
    fn means_the_same(plain: &Value, others: &[Value]) {
        let plain = parse(plain);
        for value in others {
            let other = parse(value);
            for document in
                [json!({"a": 1}), json!({"a": "x"}), json!({"a": {"b": 1}}), json!({"a": {"b": ""}})]
            {
                let (expected, found) = (plain.judge(&document), other.judge(&document));
                assert_eq!(expected.is_ok(), found.is_ok(), "{value} {document}");
            }
            for (new, old) in [(&plain, &other), (&other, &plain)] {
                assert_eq!(check(Level::Full, Policy::Strict, new, &[old]), [], "{value}");
            }
            for path in [&["a"][..], &["a", "b"], &["a", "c"]] {
                let known = |schema: &Schema| {
                    matches!(schema.field(path, &Budget::unlimited()), Ok(FieldKnown::Known))
                };
                assert_eq!(known(&plain), known(&other), "{value} {path:?}");
            }
        }
    }

    #[test]
    fn anchors_and_addresses_mean_what_a_plain_reference_means() {
        let inner = json!({"type": "object", "properties": {"b": {"type": "integer"}}, "required": ["b"]});
        let with = |reference: &str, marks: Value| {
            let mut target = inner.clone();
            target.as_object_mut().unwrap().extend(marks.as_object().unwrap().clone());
            json!({"type": "object", "properties": {"a": {"$ref": reference}}, "$defs": {"x": target}})
        };
        let at_home = |reference: &str, marks: Value| {
            let mut schema = with(reference, marks);
            schema["$id"] = json!("https://example.org/user/v1.json");
            schema
        };
        means_the_same(
            &with("#/$defs/x", json!({})),
            &[
                with("#x", json!({"$anchor": "x"})),
                with("#x", json!({"$dynamicAnchor": "x"})),
                with("x.json", json!({"$id": "x.json"})),
                with("x.json#", json!({"$id": "./x.json#"})),
                with("x.json#y", json!({"$id": "x.json", "$anchor": "y"})),
                with("https://example.org/x", json!({"$id": "HTTPS://EXAMPLE.org/x"})),
                with("urn:x:y", json!({"$id": "urn:x:y"})),
                at_home("https://example.org/user/v1.json#/$defs/x", json!({})),
                at_home("v1.json#x", json!({"$anchor": "x"})),
                at_home("../other", json!({"$id": "/other"})),
                at_home("#/$defs/x", json!({"$id": "/other"})),
            ],
        );
    }

    #[test]
    fn older_drafts_write_anchors_as_ids() {
        for (draft, id) in [("draft-04", "id"), ("draft-06", "$id"), ("draft-07", "$id")] {
            let schema = json!({"$schema": format!("http://json-schema.org/{draft}/schema#"),
                "properties": {"a": {"$ref": "#x"}}, "definitions": {"y": {id: "#x", "type": "integer"}}});
            let schema = parse(&schema);
            assert!(schema.judge(&json!({"a": 1})).is_ok() && schema.judge(&json!({"a": ""})).is_err());
        }
        // Beside a $ref nothing counts there, so the address is not one.
        let hidden = json!({"$schema": "http://json-schema.org/draft-07/schema#", "items": {"$ref": "other"},
            "definitions": {"y": {"$id": "other", "$ref": "#"}}});
        refused(&hidden, "#/items/$ref", "leads out of this schema");
    }

    #[test]
    fn references_inside_an_addressed_schema_start_from_it() {
        let schema = parse(&json!({"$defs": {
            "inner": {"$id": "inner", "properties": {"b": {"$ref": "#/$defs/n"}, "c": {"$ref": "#n"}, "d": {"$ref": "/"}},
                "$defs": {"n": {"$anchor": "n", "type": "integer"}}},
            "n": {"$anchor": "n", "type": "string"}},
            "properties": {"a": {"$ref": "inner"}, "n": {"$ref": "#n"}}}));
        assert!(schema.judge(&json!({"a": {"b": 1, "c": 1, "d": {"n": ""}}, "n": ""})).is_ok());
        for wrong in
            [json!({"a": {"b": ""}}), json!({"a": {"c": ""}}), json!({"a": {"d": {"n": 1}}}), json!({"n": 1})]
        {
            assert!(schema.judge(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_with_odd_characters_are_found() {
        let schema = parse(
            &json!({"properties": {"a": {"$ref": "#x"}}, "$defs": {"100% \"ä\"/~": {"$anchor": "x", "type": "null"}}}),
        );
        assert!(schema.judge(&json!({"a": null})).is_ok() && schema.judge(&json!({"a": 1})).is_err());
    }

    #[test]
    fn what_is_not_in_the_document_is_refused() {
        let with = |reference: &str| json!({"items": {"$ref": reference}, "$defs": {"x": {"$id": "x", "$anchor": "y"}}, "no": 3});
        refused(&with("#y"), "#/items/$ref", "anchor that this schema does not have");
        refused(&with("x#z"), "#/items/$ref", "anchor that this schema does not have");
        refused(&with("z"), "#/items/$ref", "leads out of this schema");
        refused(&with("x#/z"), "#/items/$ref", "leads to nothing");
        refused(&with("#/no"), "#/items/$ref", "not a schema");
        refused(&with("#%zz"), "#/items/$ref", "broken % escapes");
        let twice = json!({"items": {"$ref": "x"}, "$defs": {"a": {"$id": "x"}, "b": {"$id": "./x"}}});
        refused(&twice, "#/$defs/a/$id", "two schemas have the address");
        let anchors =
            json!({"items": {"$ref": "#x"}, "$defs": {"a": {"$anchor": "x"}, "b": {"$anchor": "x"}}});
        refused(&anchors, "#/$defs/a/$anchor", "two schemas have the anchor");
        let beyond =
            json!({"items": {"$ref": "#/odd/x"}, "odd": {"x": {"$id": "y"}}, "$defs": {"z": {"$id": "z"}}});
        refused(&beyond, "#/odd/x/$id", "where the draft has no schemas");
        refused(&json!({"$defs": {"a": {"$id": "a b"}}}), "#/$defs/a/$id", "no URI");
        refused(
            &json!({"$defs": {"a": {"$id": format!("/{}", "x".repeat(5000))}}}),
            "#/$defs/a/$id",
            "at most 2048",
        );
    }

    #[test]
    fn circles_of_anchors_and_addresses_are_refused_and_recursion_is_not() {
        let circle = json!({"$ref": "#x", "$defs": {"x": {"$anchor": "x", "allOf": [{"$ref": "y"}]}, "y": {"$id": "y", "$ref": "/"}}});
        let invalid = Schema::parse(&circle.to_string()).unwrap_err();
        assert!(invalid.reason.contains("refers to itself"), "{invalid}");
        let tree = parse(
            &json!({"$anchor": "t", "properties": {"n": {"$ref": "#t"}}, "additionalProperties": false}),
        );
        assert!(tree.judge(&json!({"n": {"n": {}}})).is_ok() && tree.judge(&json!({"n": {"m": 1}})).is_err());
        assert_eq!(check(Level::Full, Policy::Strict, &tree, &[&tree]), []);
    }

    /// Each definition refers twice to the next by its anchor: plain references have the same limit.
    #[test]
    fn anchors_that_double_are_refused() {
        let mut definitions: serde_json::Map<String, Value> = (0..25)
            .map(|n| (format!("d{n}"), json!({"$anchor": format!("d{n}"), "allOf": [{"$ref": format!("#d{}", n + 1)}, {"$ref": format!("#d{}", n + 1)}]})))
            .collect();
        definitions.insert("d25".to_owned(), json!({"$anchor": "d25"}));
        let schema = json!({"$ref": "#d0", "$defs": definitions});
        let invalid = Schema::parse(&schema.to_string()).unwrap_err();
        assert!(invalid.reason.contains("looked at more than"), "{invalid}");
    }

    /// Many addresses below a long one, and many references to them, take neither long nor much room.
    #[test]
    fn many_addresses_are_resolved() {
        let base = format!("https://example.org/{}/", "x".repeat(1500));
        let definitions: serde_json::Map<String, Value> =
            (0..4000).map(|n| (format!("d{n}"), json!({"$id": format!("d{n}")}))).collect();
        let properties: serde_json::Map<String, Value> =
            (0..4000).map(|n| (format!("p{n}"), json!({"$ref": format!("d{n}")}))).collect();
        let schema = json!({"$id": base, "properties": properties, "$defs": definitions});
        assert_eq!(parse(&schema).judge(&json!({"p3999": 1})), Ok(()));
    }
}
