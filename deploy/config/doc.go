// Package config reads what people write about an app, fly.toml or bourse.toml
// (also as JSON and as YAML), and makes of it the [deploy.App] that plans are made
// of. Every value keeps its position, so that an error points at a line and a column
// and says what is allowed there.
//
// One table ([Fields]) says of every field what it does here, or why nothing: a field
// that is not acted on is named in a [Warning], never dropped silently. The files
// docs/config.md is written from the same table.
//
// [Parse] and [Config.App] are functions of their arguments; only [Load] and
// [Find] touch the disk.
package config
