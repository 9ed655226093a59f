//! Fields of a JSON object, taken one by one; what nobody took is unknown and refused by name.

use mortise_http::{Problem, kind_of, nearest};
use serde_json::{Map, Value};

/// The fields of an object that nobody has taken yet. Null counts as absent.
pub(crate) struct Object {
    fields: Map<String, Value>,
    /// Path of the object with a dot at its end, or nothing.
    prefix: String,
}

impl Object {
    /// The top level of a request.
    pub(crate) fn new(fields: Map<String, Value>) -> Self {
        Self {
            fields,
            prefix: String::new(),
        }
    }

    /// Path of a field.
    pub(crate) fn path(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    fn take(&mut self, name: &str) -> Option<Value> {
        let value = self.fields.swap_remove(name);
        value.filter(|value| !value.is_null())
    }

    fn wrong(&self, name: &str, expected: &str, found: &Value) -> Problem {
        let path = self.path(name);
        let message = format!("`{path}` must be {expected}; it is {}", kind_of(found));
        let mut problem = Problem::invalid(path, message);
        problem.code = "invalid_type".to_owned();
        problem
    }

    /// An object inside this one.
    pub(crate) fn object(&mut self, name: &str) -> Result<Option<Self>, Problem> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Object(fields)) => Ok(Some(Self {
                fields,
                prefix: format!("{}.", self.path(name)),
            })),
            Some(other) => Err(self.wrong(name, "an object", &other)),
        }
    }

    pub(crate) fn string(&mut self, name: &str) -> Result<Option<String>, Problem> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.wrong(name, "a string", &other)),
        }
    }

    pub(crate) fn required_string(&mut self, name: &str) -> Result<String, Problem> {
        let path = self.path(name);
        let found = self.string(name)?.filter(|text| !text.is_empty());
        found.ok_or_else(|| {
            let mut problem = Problem::invalid(path.as_str(), format!("`{path}` is required"));
            problem.code = "missing_required_parameter".to_owned();
            problem
        })
    }

    pub(crate) fn boolean(&mut self, name: &str) -> Result<Option<bool>, Problem> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(value)),
            Some(other) => Err(self.wrong(name, "a boolean", &other)),
        }
    }

    pub(crate) fn number(&mut self, name: &str) -> Result<Option<f64>, Problem> {
        match self.take(name) {
            None => Ok(None),
            Some(value) => match value.as_f64() {
                Some(number) => Ok(Some(number)),
                None => Err(self.wrong(name, "a number", &value)),
            },
        }
    }

    pub(crate) fn integer(&mut self, name: &str) -> Result<Option<i64>, Problem> {
        match self.take(name) {
            None => Ok(None),
            Some(value) => match value.as_i64() {
                Some(number) => Ok(Some(number)),
                None => Err(self.wrong(name, "a 64-bit integer", &value)),
            },
        }
    }

    /// A string, or an array of strings.
    pub(crate) fn strings(&mut self, name: &str) -> Result<Vec<String>, Problem> {
        let items = match self.take(name) {
            None => return Ok(Vec::new()),
            Some(Value::String(text)) => return Ok(vec![text]),
            Some(Value::Array(items)) => items,
            Some(other) => {
                return Err(self.wrong(name, "a string or an array of strings", &other));
            }
        };
        let texts = items
            .into_iter()
            .enumerate()
            .map(|(index, item)| match item {
                Value::String(text) => Ok(text),
                other => Err(self.wrong(&format!("{name}[{index}]"), "a string", &other)),
            });
        texts.collect()
    }

    /// Refuse a field that Ollama has and that cannot be honoured here.
    pub(crate) fn refuse(&mut self, name: &str, why: &str) -> Result<(), Problem> {
        match self.take(name) {
            None => Ok(()),
            Some(_) => {
                let path = self.path(name);
                let message = format!("`{path}` is not supported: {why}");
                Err(Problem::unsupported(path, message))
            }
        }
    }

    /// Refuse what nobody took. `known` are the names that could have stood here.
    pub(crate) fn finish(self, known: &[&str]) -> Result<(), Problem> {
        let mut left = self.fields.iter().filter(|(_, value)| !value.is_null());
        let Some((name, _)) = left.next() else {
            return Ok(());
        };
        let path = self.path(name);
        let hint = match nearest(name, known.iter().copied()) {
            Some(candidate) => format!("; did you mean `{}`?", self.path(candidate)),
            None => String::new(),
        };
        let mut problem = Problem::invalid(path.as_str(), format!("unknown field `{path}`{hint}"));
        problem.code = "unknown_parameter".to_owned();
        Err(problem)
    }
}
