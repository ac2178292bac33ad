package container

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/internal/wholefile"
)

// wrapper is the name of the script that containerd's shim runs instead of runc.
const wrapper = "runc-with-secrets"

// script is the script that runs runc. For "create" and "exec", it runs a program that calls ExecRunc,
// which then executes runc. For all other commands, it executes runc directly, so that containers can
// be killed and deleted even if the program that calls ExecRunc no longer exists.
const script = `#!/bin/sh
for a in "$@"; do
	case $a in create|exec) exec %s "$@" ;; esac
done
exec runc "$@"
`

// Wrapper writes the script to dir, unless dir already contains it, and returns its path. command is
// the command line of a program that calls [ExecRunc] with the arguments that the script appends.
func Wrapper(dir string, command []string) (string, error) {
	base, err := tmpfs()
	if err != nil {
		return "", err
	}
	var quoted []string
	for _, word := range slices.Concat(command, []string{base}) {
		quoted = append(quoted, "'"+strings.ReplaceAll(word, "'", `'\''`)+"'")
	}
	path, text := filepath.Join(dir, wrapper), fmt.Appendf(nil, script, strings.Join(quoted, " "))
	if have, err := os.ReadFile(path); err == nil && string(have) == string(text) {
		return path, nil
	}
	if err := wholefile.Write(path, text, 0o700); err != nil { // a shim may be reading the old file
		return "", fmt.Errorf("write %s: %w", path, err)
	}
	return path, nil
}

// storeSecrets writes a container's secret variables and files to memory, replacing earlier ones.
// It returns the files' paths, in the order of the parameter files.
func storeSecrets(container string, env []string, files []driver.File) ([]string, error) {
	base, err := tmpfs()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(base, container)
	if err := makePrivate(base, dir); err != nil {
		return nil, err
	}
	var paths []string
	for i, f := range files {
		path := filepath.Join(dir, "file-"+strconv.Itoa(i))
		if err := errors.Join(writeNew(path, f.Data), os.Chmod(path, os.FileMode(f.Mode&0o777))); err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	text, err := json.Marshal(env)
	if err != nil {
		return nil, err
	}
	return paths, writeNew(filepath.Join(dir, variables), text)
}

const variables = "env"

// removeSecrets removes the secrets of a container.
func removeSecrets(container string) error {
	base, err := tmpfs()
	if err != nil {
		return nil //nolint:nilerr // nothing was written
	}
	err = os.RemoveAll(filepath.Join(base, container))
	_ = os.Remove(base) // fails unless the directory is empty
	return err
}

// containersWithSecrets returns the ids of all containers that have secrets.
func containersWithSecrets() []string {
	base, err := tmpfs()
	if err != nil {
		return nil
	}
	entries, _ := os.ReadDir(base)
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// writeNew writes a file that only the current user can read, replacing an existing file.
func writeNew(path string, data []byte) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.WriteFile(path, data, 0o600)
}

// makePrivate creates a container's directory dir, and its parent base if necessary, on the tmpfs.
// Because other users may also create directories in /dev/shm, it returns an error if base belongs to
// another user.
func makePrivate(base, dir string) error {
	var err error
	for range 3 { // another driver may remove the parent while it is empty
		if err = os.Mkdir(base, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		if err = checkPrivate(base); err == nil {
			err = os.Mkdir(dir, 0o700)
		}
		if !errors.Is(err, os.ErrNotExist) {
			break
		}
	}
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	return err
}
