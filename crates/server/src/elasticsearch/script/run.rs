//! Runs scripts. Every value that is copied counts, so that a script cannot make much out of little.

use super::{
    Context, Failure, Script,
    parse::{Assign, Expression, Gives, Member, Operator, Place, Statement},
};
use lockwood_model::Scalar;
use serde_json::{Map, Number, Value};
use std::cmp::Ordering;

/// Bytes and members of all values a script looks at, for what they hold inside.
const COPIED_MAX: usize = 8 * 1024 * 1024;

pub(super) fn run(
    script: &Script,
    context: &mut Context,
    params: &Map<String, Value>,
) -> Result<(), Failure> {
    Run { text: &script.text, context, params, copied: 0 }.all(&script.statements)
}

struct Run<'a> {
    text: &'a str,
    context: &'a mut Context,
    params: &'a Map<String, Value>,
    copied: usize,
}

/// Where a place is.
enum Spot<'a> {
    Op,
    Source(&'a [Member]),
}

impl Run<'_> {
    fn all(&mut self, statements: &[Statement]) -> Result<(), Failure> {
        statements.iter().try_for_each(|statement| self.one(statement))
    }

    fn one(&mut self, statement: &Statement) -> Result<(), Failure> {
        match statement {
            Statement::If { condition, then, otherwise } => {
                let chosen = if truth(&self.value(condition)?) { then } else { otherwise };
                self.all(chosen)
            }
            Statement::Assert { condition, written, message } => {
                if truth(&self.value(condition)?) {
                    return Ok(());
                }
                let written = self.text.get(written.clone()).unwrap_or_default().trim_end();
                let reason = match message {
                    None => format!("assert {written}\n"),
                    Some(message) => format!("{}. Expression: {written}", plain(&self.value(message)?)),
                };
                Err(Failure::new("power_assertion_error", reason))
            }
            Statement::Throw { kind, message } => {
                let reason = message.as_ref().map(|message| self.value(message)).transpose()?;
                Err(Failure::new(kind, reason.as_ref().map(plain).unwrap_or_default()))
            }
            Statement::Assign { place, operator, value } => {
                let value = self.value(value)?;
                let value = match operator {
                    Assign::Set => value,
                    Assign::Add => {
                        let before = self.read(place)?;
                        self.sum(&before, &value)?
                    }
                    Assign::Subtract => difference(&self.read(place)?, &value)?,
                };
                self.write(place, value)
            }
            Statement::Evaluate(expression) => self.value(expression).map(drop),
        }
    }

    fn value(&mut self, expression: &Expression) -> Result<Value, Failure> {
        match expression {
            Expression::Literal(value) => Ok(value.clone()),
            Expression::Read(place) => self.read(place),
            Expression::Not(inner) => Ok(Value::Bool(!truth(&self.value(inner)?))),
            Expression::Negative(inner) => difference(&Value::from(0), &self.value(inner)?),
            Expression::Step { place, by, gives } => {
                let before = self.read(place)?;
                let after =
                    calculate(&before, &Value::from(*by), i64::checked_add, |left, right| left + right)?;
                let given = if *gives == Gives::Before { before } else { after.clone() };
                self.write(place, after)?;
                Ok(given)
            }
            Expression::Two(left, operator, right) => self.two(left, *operator, right),
        }
    }

    fn two(&mut self, left: &Expression, operator: Operator, right: &Expression) -> Result<Value, Failure> {
        let left = self.value(left)?;
        match operator {
            Operator::Or if truth(&left) => return Ok(Value::Bool(true)),
            Operator::And if !truth(&left) => return Ok(Value::Bool(false)),
            _ => {}
        }
        let right = self.value(right)?;
        let ordered = |wanted: &[Ordering]| Ok(Value::Bool(wanted.contains(&order(&left, &right)?)));
        match operator {
            Operator::Or | Operator::And => Ok(Value::Bool(truth(&right))),
            Operator::Equal => Ok(Value::Bool(equal(&left, &right))),
            Operator::Different => Ok(Value::Bool(!equal(&left, &right))),
            Operator::Less => ordered(&[Ordering::Less]),
            Operator::LessOrEqual => ordered(&[Ordering::Less, Ordering::Equal]),
            Operator::Greater => ordered(&[Ordering::Greater]),
            Operator::GreaterOrEqual => ordered(&[Ordering::Greater, Ordering::Equal]),
            Operator::Add => self.sum(&left, &right),
            Operator::Subtract => difference(&left, &right),
        }
    }

    fn read(&mut self, place: &Place) -> Result<Value, Failure> {
        let found = self.look_up(place)?;
        self.copy(&found)?;
        Ok(found)
    }

    fn copy(&mut self, value: &Value) -> Result<(), Failure> {
        self.copied += weight(value);
        if self.copied > COPIED_MAX {
            return Err(Failure::new("circuit_breaking_exception", "the script handles too much data"));
        }
        Ok(())
    }

    /// The sum of numbers; with text on either side, both written one after the other.
    fn sum(&mut self, left: &Value, right: &Value) -> Result<Value, Failure> {
        if !left.is_string() && !right.is_string() {
            return calculate(left, right, i64::checked_add, |left, right| left + right);
        }
        let joined = Value::String(spelled(left)? + &spelled(right)?);
        self.copy(&joined)?;
        Ok(joined)
    }

    fn look_up(&self, place: &Place) -> Result<Value, Failure> {
        let (found, members) = match (&*place.root, &place.members[..]) {
            ("ctx", [first, rest @ ..]) => match &*first.name {
                "op" if rest.is_empty() => return Ok(Value::from(self.context.op.as_str())),
                "_source" if rest.is_empty() => return Ok(Value::Object(self.context.source.clone())),
                "_source" => (self.context.source.get(&*rest[0].name), &rest[1..]),
                name => (self.context.about.get(name), rest),
            },
            ("params", [first, rest @ ..]) => (self.params.get(&*first.name), rest),
            (root, members) => match self.params.get(root) {
                Some(found) => (Some(found), members),
                None => return Err(no_such(root)),
            },
        };
        let mut found = found.unwrap_or(&Value::Null);
        for member in members {
            found = match found {
                Value::Object(object) => object.get(&*member.name).unwrap_or(&Value::Null),
                Value::Null if member.of_null => &Value::Null,
                Value::Null => return Err(of_null(&member.name)),
                _ => return Err(no_such(&member.name)),
            };
        }
        Ok(found.clone())
    }

    fn write(&mut self, place: &Place, value: Value) -> Result<(), Failure> {
        match spot(place)? {
            Spot::Op => {
                let Value::String(op) = value else {
                    return Err(Failure::new("class_cast_exception", "ctx.op takes a string"));
                };
                self.context.op = op;
                Ok(())
            }
            Spot::Source(members) => {
                let Some((last, inner)) = members.split_last() else { return Err(read_only(place)) };
                let mut object = &mut self.context.source;
                for member in inner {
                    object = match object.get_mut(&*member.name) {
                        Some(Value::Object(object)) => object,
                        None | Some(Value::Null) => return Err(of_null(&member.name)),
                        Some(_) => return Err(no_such(&member.name)),
                    };
                }
                object.insert(last.name.to_string(), value);
                Ok(())
            }
        }
    }
}

fn spot(place: &Place) -> Result<Spot<'_>, Failure> {
    match (&*place.root, &place.members[..]) {
        ("ctx", [first]) if &*first.name == "op" => Ok(Spot::Op),
        ("ctx", [first, rest @ ..]) if &*first.name == "_source" && !rest.is_empty() => {
            Ok(Spot::Source(rest))
        }
        _ => Err(read_only(place)),
    }
}

fn read_only(place: &Place) -> Failure {
    let reason = format!("[{}] cannot be assigned; ctx.op and members of ctx._source can", place.root);
    Failure::new("illegal_argument_exception", reason)
}

fn no_such(name: &str) -> Failure {
    Failure::new("missing_property_exception", format!("No such property: {name}"))
}

fn of_null(name: &str) -> Failure {
    Failure::new("null_pointer_exception", format!("Cannot get property '{name}' on null object"))
}

/// Absent, zero and empty count as false.
fn truth(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(bool) => *bool,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Object(object) => !object.is_empty(),
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn equal(left: &Value, right: &Value) -> bool {
    let (left, right) = (left.to_string(), right.to_string());
    left == right || Scalar::read(&left).equals(&Scalar::read(&right))
}

fn order(left: &Value, right: &Value) -> Result<Ordering, Failure> {
    let (left, right) = (left.to_string(), right.to_string());
    Scalar::read(&left).compare(&Scalar::read(&right)).ok_or_else(|| {
        Failure::new("class_cast_exception", "only numbers with numbers and text with text have an order")
    })
}

/// A value as it stands in text. Groovy and Painless write lists and objects in ways of their own.
fn spelled(value: &Value) -> Result<String, Failure> {
    match value {
        Value::Array(_) | Value::Object(_) => Err(Failure::new(
            "class_cast_exception",
            "only text, numbers, booleans and null can be added to text",
        )),
        value => Ok(plain(value)),
    }
}

fn difference(left: &Value, right: &Value) -> Result<Value, Failure> {
    calculate(left, right, i64::checked_sub, |left, right| left - right)
}

fn calculate(
    left: &Value,
    right: &Value,
    whole: fn(i64, i64) -> Option<i64>,
    float: fn(f64, f64) -> f64,
) -> Result<Value, Failure> {
    let (Value::Number(left), Value::Number(right)) = (left, right) else {
        let is_null = left.is_null() || right.is_null();
        let kind = if is_null { "null_pointer_exception" } else { "class_cast_exception" };
        return Err(Failure::new(kind, "only numbers can be added and subtracted"));
    };
    let overflow = || Failure::new("arithmetic_exception", "the number is too large");
    if let (Some(left), Some(right)) = (left.as_i64(), right.as_i64()) {
        return whole(left, right).map(Value::from).ok_or_else(overflow);
    }
    let result = float(left.as_f64().unwrap_or(f64::NAN), right.as_f64().unwrap_or(f64::NAN));
    Number::from_f64(result).map(Value::Number).ok_or_else(overflow)
}

/// How much there is inside a value. Values come from JSON that is not nested deeply.
fn weight(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(list) => 1 + list.iter().map(weight).sum::<usize>(),
        Value::Object(object) => {
            1 + object.iter().map(|(name, value)| name.len() + weight(value)).sum::<usize>()
        }
        _ => 1,
    }
}
