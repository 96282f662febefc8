//! From the words of a script to its statements. Knows nothing of values.

use super::{
    DEPTH_MAX, Misread,
    lex::{Token, Word, words},
};
use serde_json::Value;
use std::ops::Range;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Statement {
    If {
        condition: Expression,
        then: Vec<Statement>,
        otherwise: Vec<Statement>,
    },
    /// With where the condition is in the text.
    Assert {
        condition: Expression,
        written: Range<usize>,
        message: Option<Expression>,
    },
    Throw {
        kind: String,
        message: Option<Expression>,
    },
    Assign {
        place: Place,
        operator: Assign,
        value: Expression,
    },
    /// For what it does on the way.
    Evaluate(Expression),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Assign {
    Set,
    Add,
    Subtract,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Expression {
    Literal(Value),
    Read(Place),
    Not(Box<Expression>),
    Negative(Box<Expression>),
    Step { place: Place, by: i64, gives: Gives },
    Two(Box<Expression>, Operator, Box<Expression>),
}

/// Which value a step gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gives {
    Before,
    After,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    Or,
    And,
    Equal,
    Different,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Add,
    Subtract,
}

/// A name and what is looked up in it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Place {
    pub(super) root: Box<str>,
    pub(super) members: Vec<Member>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Member {
    pub(super) name: Box<str>,
    /// `?.`: what is looked up in null is null.
    pub(super) of_null: bool,
}

/// Words that begin what this language has not.
const RESERVED: [&str; 13] = [
    "for", "while", "do", "return", "def", "new", "else", "switch", "try", "catch", "import", "class",
    "function",
];

pub(super) fn parse(text: &str) -> Result<Vec<Statement>, Misread> {
    let tokens = words(text)?;
    let mut parser = Parser { tokens: &tokens, at: 0, depth: 0 };
    let statements = parser.statements()?;
    match parser.peek() {
        Word::End => Ok(statements),
        _ => parser.unexpected(),
    }
}

struct Parser<'a> {
    tokens: &'a [Token],
    at: usize,
    depth: usize,
}

type Parsed<T> = Result<T, Misread>;

impl Parser<'_> {
    fn token(&self) -> &Token {
        // The last one says that nothing follows, and is never passed.
        &self.tokens[self.at]
    }

    fn peek(&self) -> &Word {
        &self.token().word
    }

    fn next(&mut self) {
        if self.at + 1 < self.tokens.len() {
            self.at += 1;
        }
    }

    fn takes(&mut self, sign: &'static str) -> bool {
        let found = *self.peek() == Word::Sign(sign);
        if found {
            self.next();
        }
        found
    }

    fn expect(&mut self, sign: &'static str) -> Parsed<()> {
        if self.takes(sign) { Ok(()) } else { self.wrong(format!("[{sign}] is missing")) }
    }

    fn wrong<T>(&self, reason: impl Into<String>) -> Parsed<T> {
        Err(Misread { reason: reason.into(), at: self.token().start })
    }

    fn unexpected<T>(&self) -> Parsed<T> {
        match self.peek() {
            Word::End => self.wrong("the script ends too early"),
            Word::Name(name) => self.wrong(format!("unexpected [{name}]")),
            Word::Literal(value) => self.wrong(format!("unexpected [{value}]")),
            Word::Sign(sign) => self.wrong(format!("unexpected [{sign}]")),
        }
    }

    /// Goes one level down, unless it is too deep.
    fn within<T>(&mut self, parse: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth == DEPTH_MAX {
            return self.wrong(format!("more than {DEPTH_MAX} levels inside each other"));
        }
        self.depth += 1;
        let parsed = parse(self);
        self.depth -= 1;
        parsed
    }

    fn is_name(&self, wanted: &str) -> bool {
        matches!(self.peek(), Word::Name(name) if **name == *wanted)
    }

    /// Statements up to a closing brace or the end.
    fn statements(&mut self) -> Parsed<Vec<Statement>> {
        let mut statements = Vec::new();
        loop {
            while self.takes(";") {}
            if matches!(self.peek(), Word::End | Word::Sign("}")) {
                return Ok(statements);
            }
            statements.push(self.statement()?);
            let closed = self.tokens[self.at.saturating_sub(1)].word == Word::Sign("}");
            let ends = matches!(self.peek(), Word::End | Word::Sign("}" | ";")) || self.token().begins_line;
            if !closed && !ends {
                return self.unexpected();
            }
        }
    }

    fn statement(&mut self) -> Parsed<Statement> {
        let Word::Name(name) = self.peek().clone() else { return self.simple() };
        match &*name {
            "if" => self.within(Self::choice),
            "assert" => self.assertion(),
            "throw" => self.throw(),
            _ => self.simple(),
        }
    }

    fn choice(&mut self) -> Parsed<Statement> {
        self.next();
        self.expect("(")?;
        let condition = self.expression()?;
        self.expect(")")?;
        let then = self.block()?;
        // A semicolon may stand between a lone statement and its else.
        let before = self.at;
        while self.takes(";") {}
        if !self.is_name("else") {
            self.at = before;
            return Ok(Statement::If { condition, then, otherwise: Vec::new() });
        }
        self.next();
        let otherwise = self.block()?;
        Ok(Statement::If { condition, then, otherwise })
    }

    /// Statements in braces, or a single one.
    fn block(&mut self) -> Parsed<Vec<Statement>> {
        if !self.takes("{") {
            return Ok(vec![self.within(Self::statement)?]);
        }
        let statements = self.within(Self::statements)?;
        self.expect("}")?;
        Ok(statements)
    }

    fn assertion(&mut self) -> Parsed<Statement> {
        self.next();
        let start = self.token().start;
        let condition = self.expression()?;
        let written = start..self.tokens[self.at.saturating_sub(1)].end;
        let message = if self.takes(":") { Some(self.expression()?) } else { None };
        Ok(Statement::Assert { condition, written, message })
    }

    fn throw(&mut self) -> Parsed<Statement> {
        self.next();
        if self.is_name("new") {
            self.next();
        }
        let Word::Name(class) = self.peek().clone() else { return self.unexpected() };
        self.next();
        self.expect("(")?;
        let message = if *self.peek() == Word::Sign(")") { None } else { Some(self.expression()?) };
        self.expect(")")?;
        Ok(Statement::Throw { kind: snake_case(&class), message })
    }

    fn simple(&mut self) -> Parsed<Statement> {
        let expression = self.expression()?;
        let operator = match self.peek() {
            Word::Sign("=") => Assign::Set,
            Word::Sign("+=") => Assign::Add,
            Word::Sign("-=") => Assign::Subtract,
            _ => return Ok(Statement::Evaluate(expression)),
        };
        let Expression::Read(place) = expression else {
            return self.wrong("only names and their members can be assigned to");
        };
        self.next();
        Ok(Statement::Assign { place, operator, value: self.expression()? })
    }

    fn expression(&mut self) -> Parsed<Expression> {
        self.within(|parser| parser.binary(0))
    }

    /// Operators of this level and of those that bind more closely.
    fn binary(&mut self, level: usize) -> Parsed<Expression> {
        let Some(operators) = LEVELS.get(level) else { return self.unary() };
        let mut left = self.binary(level + 1)?;
        let mut len = 0;
        while let Some((_, operator)) = operators.iter().find(|(sign, _)| *self.peek() == Word::Sign(sign)) {
            // A sign at the beginning of a line that could begin a statement does.
            if self.token().begins_line && *operator == Operator::Subtract {
                break;
            }
            len += 1;
            if len > DEPTH_MAX {
                return self.wrong(format!("more than {DEPTH_MAX} operators in a row"));
            }
            self.next();
            left = Expression::Two(Box::new(left), *operator, Box::new(self.binary(level + 1)?));
        }
        Ok(left)
    }

    fn unary(&mut self) -> Parsed<Expression> {
        if self.takes("!") {
            return Ok(Expression::Not(Box::new(self.within(Self::unary)?)));
        }
        if self.takes("-") {
            return Ok(Expression::Negative(Box::new(self.within(Self::unary)?)));
        }
        for (sign, by) in [("++", 1), ("--", -1)] {
            if self.takes(sign) {
                let place = self.place()?;
                return Ok(Expression::Step { place, by, gives: Gives::After });
            }
        }
        self.primary()
    }

    fn primary(&mut self) -> Parsed<Expression> {
        match self.peek().clone() {
            Word::Literal(value) => {
                self.next();
                Ok(Expression::Literal(value))
            }
            Word::Sign("(") => {
                self.next();
                let inner = self.expression()?;
                self.expect(")")?;
                Ok(inner)
            }
            Word::Name(_) => {
                let place = self.place()?;
                for (sign, by) in [("++", 1), ("--", -1)] {
                    if !self.token().begins_line && self.takes(sign) {
                        return Ok(Expression::Step { place, by, gives: Gives::Before });
                    }
                }
                Ok(Expression::Read(place))
            }
            _ => self.unexpected(),
        }
    }

    fn place(&mut self) -> Parsed<Place> {
        let root = self.name()?;
        if RESERVED.contains(&&*root) {
            return self.wrong(format!("[{root}] is not supported in scripts here"));
        }
        let mut members = Vec::new();
        loop {
            let of_null = *self.peek() == Word::Sign("?.");
            if of_null || *self.peek() == Word::Sign(".") {
                self.next();
                members.push(Member { name: self.name()?, of_null });
            } else if *self.peek() == Word::Sign("[") && !self.token().begins_line {
                self.next();
                members.push(Member { name: self.index()?, of_null: false });
            } else if *self.peek() == Word::Sign("(") && !self.token().begins_line {
                return self.wrong("calls are not supported in scripts here");
            } else {
                break;
            }
            if members.len() > DEPTH_MAX {
                return self.wrong(format!("more than {DEPTH_MAX} members of each other"));
            }
        }
        Ok(Place { root, members })
    }

    fn index(&mut self) -> Parsed<Box<str>> {
        let Word::Literal(Value::String(name)) = self.peek().clone() else {
            return self.wrong("only a string can be looked up in brackets");
        };
        self.next();
        self.expect("]")?;
        Ok(name.into())
    }

    fn name(&mut self) -> Parsed<Box<str>> {
        let Word::Name(name) = self.peek().clone() else { return self.unexpected() };
        self.next();
        Ok(name)
    }
}

/// From the loosest to the closest.
const LEVELS: [&[(&str, Operator)]; 5] = [
    &[("||", Operator::Or)],
    &[("&&", Operator::And)],
    &[("==", Operator::Equal), ("!=", Operator::Different)],
    &[
        ("<=", Operator::LessOrEqual),
        (">=", Operator::GreaterOrEqual),
        ("<", Operator::Less),
        (">", Operator::Greater),
    ],
    &[("+", Operator::Add), ("-", Operator::Subtract)],
];

/// `IllegalStateException` is told as `illegal_state_exception`.
fn snake_case(class: &str) -> String {
    let mut name = String::with_capacity(class.len() + 4);
    for char in class.chars() {
        if char.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.extend(char.to_lowercase());
    }
    name
}
