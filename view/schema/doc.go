// Package schema is the tables of the view's file: schema.sql, which rows fit
// it, and reading and writing them. Columns and tables that only a newer release
// knows are kept, for the day on which this server is upgraded.
package schema
