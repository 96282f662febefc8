//! What a procedure reads and writes through: it sees its own writes, and everything is counted. Knows nothing
//! of how documents are kept, or of when the writes are done.

use crate::{
    convert::{self, Misfit, Writer},
    error::ScriptError,
    vm::{Meter, Vm},
};
use lockwood_model::{DocumentKey, FieldValue, Json, Key};
use mlua::{Error, Value};
use std::collections::{BTreeMap, HashMap};

/// Reading or writing a document costs so many steps, and one more for every so many bytes read.
const STEPS_PER_DOCUMENT: u64 = 100;
const BYTES_PER_STEP: u64 = 64;

/// The documents a procedure works on, as they were before it.
///
/// Writes come in the order in which the procedure makes them. They are to be collected, and done all together
/// if the run succeeds. Each is checked against what the ones before it left: an insert comes only where there
/// is no document, updates and deletes only where there is one. An error ends the run; it is what the caller of
/// the procedure is told.
pub trait Documents {
    /// The fields of a document, without the run's own writes; none if there is none.
    fn get(&mut self, collection: &str, key: &Key) -> Result<Option<Vec<FieldValue>>, String>;
    /// Creates a document, or replaces all of it. No field is null.
    fn put(&mut self, collection: &str, key: &Key, fields: Vec<FieldValue>) -> Result<(), String>;
    /// Creates a document. No field is null.
    fn insert(&mut self, collection: &str, key: &Key, fields: Vec<FieldValue>) -> Result<(), String>;
    /// Sets fields of a document; null removes one.
    fn update(&mut self, collection: &str, key: &Key, fields: Vec<FieldValue>) -> Result<(), String>;
    /// Deletes a document.
    fn delete(&mut self, collection: &str, key: &Key) -> Result<(), String>;
}

/// The documents of one run.
pub(crate) struct Desk<'a> {
    documents: &'a mut dyn Documents,
    /// What the run has written, as it is now; none is deleted.
    written: HashMap<DocumentKey, Option<Fields>>,
    pub(crate) writer: Writer,
    /// What ended the run, however the procedure takes it.
    pub(crate) over: Option<ScriptError>,
}

type Fields = BTreeMap<Box<str>, Json>;

impl Desk<'_> {
    pub(crate) fn new(documents: &mut dyn Documents, writer: Writer) -> Desk<'_> {
        Desk { documents, written: HashMap::new(), writer, over: None }
    }

    /// Does what a procedure asks: what is wrong with it, in words, or what it answers.
    pub(crate) fn serve(&mut self, vm: &Vm, asked: &[Value; 4]) -> mlua::Result<(Option<String>, Value)> {
        if let Some(over) = &self.over {
            return Err(Error::external(over.clone()));
        }
        match self.answer(vm, asked) {
            Ok(answer) => Ok((None, answer)),
            Err(Misfit::Said(problem)) => Ok((Some(problem), Value::Nil)),
            Err(Misfit::Lua(error)) => Err(error),
            Err(Misfit::Over(over)) => {
                self.over = Some(over.clone());
                Err(Error::external(over))
            }
        }
    }

    fn answer(&mut self, vm: &Vm, [operation, first, second, third]: &[Value; 4]) -> Result<Value, Misfit> {
        let operation = operation.to_string()?;
        if operation == "fail" {
            return Err(refused(first, second)?);
        }
        vm.meter.take(STEPS_PER_DOCUMENT).map_err(Misfit::Over)?;
        let at = document_key(first, second)?;
        match &*operation {
            "get" => self.get(vm, &at),
            "put" => self.put(vm, at, third),
            "insert" => self.insert(vm, at, third),
            "update" => self.update(vm, at, third),
            _ => self.delete(vm, at),
        }
    }

    fn get(&mut self, vm: &Vm, at: &DocumentKey) -> Result<Value, Misfit> {
        let Some(fields) = self.current(&vm.meter, at)? else {
            return Ok(Value::Nil);
        };
        let table = vm.lua.create_table_with_capacity(0, fields.len())?;
        for (name, value) in fields {
            let place = format!("the field {name} of {at}");
            table.raw_set(&*name, convert::to_lua(&vm.lua, &vm.list, &place, &value)?)?;
        }
        Ok(Value::Table(table))
    }

    fn put(&mut self, vm: &Vm, at: DocumentKey, document: &Value) -> Result<Value, Misfit> {
        let fields = without_nulls(self.writer.fields(&vm.list, document)?);
        let done = self.documents.put(&at.collection, &at.key, fields.clone());
        self.keep(done, at, Some(fields.into_iter().collect()))
    }

    fn insert(&mut self, vm: &Vm, at: DocumentKey, document: &Value) -> Result<Value, Misfit> {
        if self.current(&vm.meter, &at)?.is_some() {
            return Err(Misfit::Said(format!("there is a document {at} already")));
        }
        let fields = without_nulls(self.writer.fields(&vm.list, document)?);
        let done = self.documents.insert(&at.collection, &at.key, fields.clone());
        self.keep(done, at, Some(fields.into_iter().collect()))
    }

    fn update(&mut self, vm: &Vm, at: DocumentKey, fields: &Value) -> Result<Value, Misfit> {
        let Some(mut document) = self.current(&vm.meter, &at)? else {
            return Err(Misfit::Said(format!("there is no document {at}")));
        };
        let fields = self.writer.fields(&vm.list, fields)?;
        for (name, value) in &fields {
            if value.is_null() {
                document.remove(name);
            } else {
                document.insert(name.clone(), value.clone());
            }
        }
        let done = self.documents.update(&at.collection, &at.key, fields);
        self.keep(done, at, Some(document))
    }

    fn delete(&mut self, vm: &Vm, at: DocumentKey) -> Result<Value, Misfit> {
        if self.current(&vm.meter, &at)?.is_none() {
            return Ok(Value::Boolean(false));
        }
        let done = self.documents.delete(&at.collection, &at.key);
        self.keep(done, at, None)?;
        Ok(Value::Boolean(true))
    }

    /// The document with what the run has written.
    fn current(&mut self, meter: &Meter, at: &DocumentKey) -> Result<Option<Fields>, Misfit> {
        let fields = match self.written.get(at) {
            Some(fields) => fields.clone(),
            None => {
                let found = self.documents.get(&at.collection, &at.key).map_err(failed)?;
                found.map(|fields| fields.into_iter().collect())
            }
        };
        let bytes: usize =
            fields.iter().flatten().map(|(name, value)| name.len() + value.as_str().len()).sum();
        meter.take(bytes as u64 / BYTES_PER_STEP).map_err(Misfit::Over)?;
        Ok(fields)
    }

    fn keep(
        &mut self,
        done: Result<(), String>,
        at: DocumentKey,
        fields: Option<Fields>,
    ) -> Result<Value, Misfit> {
        done.map_err(failed)?;
        self.written.insert(at, fields);
        Ok(Value::Nil)
    }
}

fn failed(message: String) -> Misfit {
    Misfit::Over(ScriptError::Documents { message })
}

fn without_nulls(mut fields: Vec<FieldValue>) -> Vec<FieldValue> {
    fields.retain(|(_, value)| !value.is_null());
    fields
}

fn document_key(collection: &Value, key: &Value) -> Result<DocumentKey, Misfit> {
    let Value::String(collection) = collection else {
        let found = convert::kind(collection);
        return Err(Misfit::Said(format!("the name of a collection is text, not {found}")));
    };
    Ok(DocumentKey::new(&convert::text_from_lua(collection)?, convert::key_from_lua(key)?))
}

/// `db.fail(code, message)`; the message may be left out.
fn refused(code: &Value, message: &Value) -> Result<Misfit, Misfit> {
    let Value::String(code) = code else {
        return Err(Misfit::Said("db.fail takes a code and a message, both text".to_owned()));
    };
    let code = convert::text_from_lua(code)?;
    let message = match message {
        Value::String(message) => convert::text_from_lua(message)?,
        Value::Nil => code.clone(),
        _ => return Err(Misfit::Said("db.fail takes a code and a message, both text".to_owned())),
    };
    Ok(Misfit::Over(ScriptError::Refused { code, message }))
}
