"""The language in which operators are written: kinds, schemas, scalar expressions, evaluation."""
