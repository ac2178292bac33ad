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

// Config is a configuration that was read: its fields, and where each is.
type Config struct {
	Definition
	file     string
	at       map[string]Position
	warnings []Warning
}

// Names are the files that a directory is searched for, in this order.
func Names() []string { return []string{"bourse.toml", "fly.toml", "fly.json", "fly.yaml", "fly.yml"} }

// Find returns the configuration of a directory: the first of [Names] that is
// there. A symbolic link that leads out of the directory is an error: nobody has
// named that file. Error: not_found.
func Find(dir string) (string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", err
	}
	defer root.Close()
	for _, name := range Names() {
		if _, err := root.Stat(name); err == nil {
			return filepath.Join(dir, name), nil
		} else if !errors.Is(err, os.ErrNotExist) {
			return "", bourse.Errorf(bourse.CodeInvalid, "configuration in %s: %w", dir, err)
		}
	}
	return "", bourse.Errorf(bourse.CodeNotFound, "there is no configuration in %s: no %s", dir, oneOf(Names()))
}

// Load reads a file. Errors: not_found, and those of [Parse].
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

// Parse reads text, in the syntax that the name ends with: .json, .yaml or .yml,
// otherwise TOML. What is Bourse's own is refused in a file whose name begins with
// "fly.". CodeInvalid, wrapping all [Problems], for what cannot be.
func Parse(name string, text []byte) (*Config, error) {
	root, err := read(name, text)
	if problem, ok := errors.AsType[Problem](err); ok {
		return nil, Problems{problem}.err()
	}
	if err != nil {
		return nil, err
	}
	d := decoder{ours: !strings.HasPrefix(filepath.Base(name), "fly."), at: map[string]Position{}, unacted: map[string]bool{}, file: name}
	c := &Config{file: name, at: d.at}
	d.fields(root, where{}, reflect.ValueOf(&c.Definition).Elem())
	if len(d.problems) == 0 {
		d.problems = c.check()
	}
	c.warnings = d.warnings
	return c, d.problems.err()
}

// Warnings returns what of the file is not acted on; [Config.App] says more, since it
// knows the image.
func (c *Config) Warnings() []Warning { return slices.Clone(c.warnings) }

// JSON is the configuration in the form of fly.json: what a release keeps as its
// definition. Reading it again gives the same.
func (c *Config) JSON() (json.RawMessage, error) { return json.Marshal(&c.Definition) }

// File is the name that the configuration was read under.
func (c *Config) File() string { return c.file }

// where returns the position of a field, or that of what it would be in.
func (c *Config) where(path string) Position {
	for path != "" {
		if at, ok := c.at[path]; ok {
			return at
		}
		path = path[:max(strings.LastIndexByte(path, '.'), strings.LastIndexByte(path, '['), 0)]
	}
	return Position{File: c.file}
}

// Ours reports whether the configuration has what only bourse.toml may have.
func (c *Config) Ours() bool {
	return len(c.Requirements) > 0 || len(c.Groups) > 0 || c.Deploy != nil && c.Deploy.Reserve
}
