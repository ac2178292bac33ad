// Package inventory converts workers, machines, volumes, images, apps and canceled orders to rows of the view, and
// reads them back. Its read functions return queries, which view.Query runs.
//
// Rows from other members may be wrong or hostile. A value that cannot be decoded is treated as
// empty. If two workers claim the same ID, the worker whose tag the ID contains wins.
package inventory
