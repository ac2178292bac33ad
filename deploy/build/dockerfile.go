package build

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
)

// file is the Dockerfile as the request names it.
func (j job) file() string { return cmp.Or(j.Dockerfile, "Dockerfile") }

// dockerfile returns the path of a Dockerfile whose ignore file is the one asked for: BuildKit
// prefers a file beside it, of its name and ".dockerignore". Where another is asked for, both are
// copied.
func (j job) dockerfile() (string, error) {
	file := under(j.Dir, j.file())
	if j.Ignorefile == "" {
		return file, nil
	}
	dir := filepath.Join(j.temp, "dockerfile")
	copied := filepath.Join(dir, "Dockerfile")
	return copied, errors.Join(os.Mkdir(dir, 0o700), copyFile(copied, file), copyFile(copied+".dockerignore", under(j.Dir, j.Ignorefile)))
}

func copyFile(to, from string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o600)
}
