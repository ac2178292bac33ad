// Package inventory converts workers, machines, volumes, images, apps and other objects to rows of the view, and
// reads them back. The functions that read return queries, which view.Query runs.
//
// Rows from other members may be wrong or malicious. A value that cannot be decoded is treated as
// empty. If two workers publish the same ID, the worker whose tag is part of the ID takes
// precedence.
package inventory
