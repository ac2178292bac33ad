// Package config parses an app's configuration and converts it to a [deploy.App], which is used to make plans. The
// file is fly.toml or bourse.toml, or the equivalent in JSON or YAML. Each value's position is recorded, so that
// errors can include the line and column. Errors about invalid values also describe which values are valid.
//
// The table returned by [Fields] describes every field, and explains why some fields have no effect. Using such a field
// causes a [Warning]. docs/config.md is generated from the same table.
//
// The results of [Parse] and [Config.App] depend only on their arguments. Only [Load] and [Find] access the file system
// themselves.
package config

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse"
)

// Config is a parsed configuration, with the fields' positions.
type Config struct {
	Definition
	file     string
	at       map[string]Position
	warnings []Warning
}

// names returns the names of configuration files, in order of preference.
func names() []string { return []string{"bourse.toml", "fly.toml", "fly.json", "fly.yaml", "fly.yml"} }

// Find returns the path of the configuration file in a directory, which is the first of [names] that exists. Errors:
// not_found; invalid if the file cannot be used, for example because it is a symbolic link that leads outside the
// directory.
func Find(dir string) (string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", err
	}
	defer root.Close()
	for _, name := range names() {
		if _, err := root.Stat(name); err == nil {
			return filepath.Join(dir, name), nil
		} else if !errors.Is(err, os.ErrNotExist) {
			return "", bourse.Errorf(bourse.CodeInvalid, "configuration in %s: %w", dir, err)
		}
	}
	return "", bourse.Errorf(bourse.CodeNotFound, "no configuration in %s: expected %s", dir, oneOf(names()))
}

// Load reads and parses a configuration file. Errors: not_found, and those of [Parse].
func Load(file string) (*Config, error) {
	f, err := os.Open(file)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil, bourse.Errorf(bourse.CodeNotFound, "%w", err)
		}
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, MaxBytes+1))
	if err != nil {
		return nil, err
	}
	return Parse(file, text)
}

// Parse parses a configuration. The syntax depends on the extension of name: .json, .yaml or .yml, and otherwise TOML.
// Fields that only Bourse supports are refused if the name begins with "fly.". Errors: invalid, which wraps the
// [Problems].
func Parse(name string, text []byte) (*Config, error) {
	root, err := read(name, text)
	if problem, ok := errors.AsType[Problem](err); ok {
		return nil, Problems{problem}.err()
	}
	if err != nil {
		return nil, err
	}
	d := decoder{ours: !strings.HasPrefix(filepath.Base(name), "fly."), at: map[string]Position{}, warned: map[string]bool{}, file: name}
	c := &Config{file: name, at: d.at}
	d.fields(root, where{}, reflect.ValueOf(&c.Definition).Elem())
	if len(d.problems) == 0 {
		d.problems = c.check()
	}
	c.warnings = d.warnings
	return c, d.problems.err()
}

// Warnings returns warnings about fields that have no effect. [Config.App] returns these and the warnings about the
// resulting machine configs.
func (c *Config) Warnings() []Warning { return slices.Clone(c.warnings) }

// JSON returns the configuration in the format of fly.json. Releases store this JSON as their definition. Parsing it
// yields an equal configuration.
func (c *Config) JSON() (json.RawMessage, error) { return json.Marshal(&c.Definition) }

// File returns the name of the file that the configuration was parsed from.
func (c *Config) File() string { return c.file }

// where returns the position of a field or, if the field is missing, of the nearest enclosing table.
func (c *Config) where(path string) Position {
	for path != "" {
		if at, ok := c.at[path]; ok {
			return at
		}
		path = path[:max(strings.LastIndexByte(path, '.'), strings.LastIndexByte(path, '['), 0)]
	}
	return Position{File: c.file}
}

// HasBourseFields reports whether the configuration contains fields that only bourse.toml may contain.
func (c *Config) HasBourseFields() bool {
	return len(c.Requirements) > 0 || len(c.Groups) > 0 || c.Deploy != nil && c.Deploy.Reserve
}
