//! Models that processes answer for which the server starts and ends itself.
