//! Tables of passages. They are there only where searches are answered by the database, since a column of them has a type of the
//! extension `vector`. What is in them can be made again of the records.

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error, Transaction};

use super::failure::{open_failure, told};
use super::schema::MIGRATION_LOCK;
use crate::error::OpenError;

/// The tables, of vectors of any dimensions, which stand in the rows themselves as far as pages have room. Triggers take back what is no longer so, whichever host changes a record.
fn tables(extension: &str) -> String {
    format!(
        r#"
CREATE TABLE mortise.search_documents (
    record bigint PRIMARY KEY,
    space bigint NOT NULL,
    owner text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    dimensions integer NOT NULL,
    items bigint NOT NULL,
    words bigint NOT NULL,
    attributes jsonb NOT NULL
);
CREATE INDEX search_documents_of_space ON mortise.search_documents (space);

CREATE TABLE mortise.search_passages (
    record bigint NOT NULL,
    number integer NOT NULL,
    space bigint NOT NULL,
    words integer NOT NULL,
    dimensions integer NOT NULL,
    embedding {extension}.vector NOT NULL,
    PRIMARY KEY (record, number)
) WITH (toast_tuple_target = 8160);
CREATE INDEX search_passages_of_space ON mortise.search_passages (space);

CREATE TABLE mortise.search_words (
    record bigint NOT NULL,
    space bigint NOT NULL,
    word text COLLATE "C" NOT NULL,
    items integer NOT NULL,
    postings bytea NOT NULL,
    PRIMARY KEY (space, word, record)
);
CREATE INDEX search_words_of_record ON mortise.search_words (record);

CREATE FUNCTION mortise.forget_search() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM mortise.search_documents WHERE record = old.seq;
    IF TG_OP = 'DELETE' THEN
        DELETE FROM mortise.search_passages WHERE record = old.seq;
        DELETE FROM mortise.search_words WHERE record = old.seq;
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER search_changed AFTER UPDATE OF body ON mortise.records FOR EACH ROW
    WHEN (old.kind = 'vector_store_file') EXECUTE FUNCTION mortise.forget_search();
CREATE TRIGGER search_removed AFTER DELETE ON mortise.records FOR EACH ROW
    WHEN (old.kind = 'vector_store_file') EXECUTE FUNCTION mortise.forget_search();
"#
    )
}

/// Make the tables, if they are not there. Returns the quoted name of the schema in which the extension is.
///
/// # Errors
/// When the extension is not there and cannot be made, or the tables cannot be made.
pub(super) async fn make(client: &mut Client, place: &str) -> Result<String, OpenError> {
    let failed = |error| open_failure(place, &error);
    let transaction = client.transaction().await.map_err(failed)?;
    transaction
        .execute("SELECT pg_advisory_xact_lock($1)", &[&MIGRATION_LOCK])
        .await
        .map_err(failed)?;
    let extension = match extension(&transaction, place).await? {
        Some(found) => found,
        None => {
            // As extensions are where nobody says otherwise, and not in the schema of the server's own tables.
            let made = transaction.batch_execute("CREATE EXTENSION IF NOT EXISTS vector");
            made.await.map_err(|error| refused(place, &error))?;
            let found = extension(&transaction, place).await?;
            found.ok_or_else(|| OpenError::NoVectors {
                place: place.to_owned(),
                problem: "it was made and is not there".to_owned(),
            })?
        }
    };
    let there = transaction
        .query_one(
            "SELECT to_regclass('mortise.search_documents') IS NOT NULL",
            &[],
        )
        .await
        .map_err(failed)?;
    if !there.get::<_, bool>(0) {
        let tables = tables(&extension);
        let made = transaction.batch_execute(&tables);
        made.await.map_err(failed)?;
    }
    transaction.commit().await.map_err(failed)?;
    Ok(extension)
}

/// The quoted name of the schema of the extension; `None` where it is not there.
async fn extension(
    transaction: &Transaction<'_>,
    place: &str,
) -> Result<Option<String>, OpenError> {
    let sql = "SELECT quote_ident(nspname) FROM pg_extension
               JOIN pg_namespace ON pg_namespace.oid = extnamespace WHERE extname = 'vector'";
    let found = transaction.query_opt(sql, &[]).await;
    let found = found.map_err(|error| open_failure(place, &error))?;
    Ok(found.map(|row| row.get(0)))
}

/// Error with the remedy where the extension could not be made.
fn refused(place: &str, error: &Error) -> OpenError {
    let problem = match error.code() {
        Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
            "this server's user may not make it; run `CREATE EXTENSION vector` in this database as a superuser"
                .to_owned()
        }
        Some(&SqlState::UNDEFINED_FILE | &SqlState::FEATURE_NOT_SUPPORTED) => format!(
            "it is not installed on the database's machine ({}); install pgvector there, then run `CREATE EXTENSION vector` in this database as a superuser",
            told(error)
        ),
        _ => told(error),
    };
    OpenError::NoVectors {
        place: place.to_owned(),
        problem,
    }
}
