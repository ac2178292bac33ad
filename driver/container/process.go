package container

import (
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// Maximum sizes of a command line and environment, from execve(2). They are far below the maximum
// size of a message to containerd.
const (
	maxString = 128<<10 - 1
	maxTotal  = 2 << 20
)

// defaultPath is the PATH for images that do not set PATH.
const defaultPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// commandOf returns a container's command line: the order's Command if it is set, and otherwise
// the entrypoint followed by the arguments. The order's entrypoint replaces the image's
// entrypoint and arguments; the order's arguments replace the image's arguments.
func commandOf(task driver.Task, image ocispec.ImageConfig) ([]string, error) {
	command := task.Command
	if len(command) == 0 {
		entrypoint, args := image.Entrypoint, image.Cmd
		if len(task.Entrypoint) > 0 {
			entrypoint, args = task.Entrypoint, nil
		}
		if len(task.Args) > 0 {
			args = task.Args
		}
		command = slices.Concat(entrypoint, args)
	}
	if len(command) == 0 || command[0] == "" {
		return nil, bourse.Errorf(bourse.CodeInvalid, "no command: neither the order nor the image has one")
	}
	return command, nil
}

// envOf returns a container's environment: the image's variables, overridden by the order's. It
// drops entries of the image that do not have the form NAME=value.
func envOf(image, task []string) []string {
	var out []string
	at := map[string]int{}
	for _, entry := range slices.Concat([]string{defaultPath}, image, task) {
		name, _, ok := strings.Cut(entry, "=")
		if !ok || name == "" || !validCString(entry) {
			continue
		}
		if i, ok := at[name]; ok {
			out[i] = entry
			continue
		}
		at[name] = len(out)
		out = append(out, entry)
	}
	return out
}

// validCString reports whether s remains unchanged when it is encoded as JSON and passed to a C
// program.
func validCString(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

// checkTask returns an error if a task is invalid regardless of its image.
func checkTask(task driver.Task) error {
	if err := checkID(task.ID); err != nil {
		return err
	}
	for _, entry := range task.Env {
		if name, _, ok := strings.Cut(entry, "="); !ok || name == "" {
			return bourse.Errorf(bourse.CodeInvalid, "invalid environment entry %s: use NAME=value", bourse.Quoted(entry))
		}
	}
	if err := checkSecrets(task); err != nil {
		return err
	}
	switch {
	case len(task.Stdin) > driver.MaxStdin:
		return bourse.Errorf(bourse.CodeInvalid, "stdin is %d bytes long; the maximum is %d", len(task.Stdin), driver.MaxStdin)
	case len(task.Stdin) > 0 && task.TTY:
		return bourse.Errorf(bourse.CodeInvalid, "stdin is not supported with a terminal")
	}
	if task.Dir != "" && !path.IsAbs(task.Dir) {
		return bourse.Errorf(bourse.CodeInvalid, "directory %s must be absolute", bourse.Quoted(task.Dir))
	}
	for _, m := range task.Mounts {
		if !path.IsAbs(m.Source) || !path.IsAbs(m.Target) || path.Clean(m.Target) == "/" || !validCString(m.Target) {
			return bourse.Errorf(bourse.CodeInvalid, "invalid mount at %s: source and target must be absolute paths other than the root", bourse.Quoted(m.Target))
		}
	}
	for _, f := range task.Root.Files {
		if !path.IsAbs(f.Path) || path.Clean(f.Path) == "/" || !validCString(f.Path) {
			return bourse.Errorf(bourse.CodeInvalid, "invalid file %s: its path must be absolute and not the root", bourse.Quoted(f.Path))
		}
	}
	return checkSize(slices.Concat(task.Command, task.Entrypoint, task.Args, task.Env))
}

func checkID(id driver.TaskID) error {
	if err := id.Machine.Validate(); err != nil {
		return err
	}
	if id.Boot < 1 {
		return bourse.Errorf(bourse.CodeInvalid, "boot %d: boot numbers start at 1", id.Boot)
	}
	return nil
}

// checkSecrets is like checkSize, but its errors do not contain the secrets' values.
func checkSecrets(task driver.Task) error {
	total := 0
	for _, entry := range task.Env {
		total += len(entry) + 1
	}
	for _, entry := range task.Secrets {
		name, _, ok := strings.Cut(entry, "=")
		total += len(entry) + 1
		if !ok || name == "" || len(entry) > maxString || total > maxTotal || !validCString(entry) {
			return bourse.Errorf(bourse.CodeInvalid, "secret %s cannot be a variable: use at most %d bytes of UTF-8 without NUL, and %d in total", bourse.Quoted(name), maxString, maxTotal)
		}
	}
	return nil
}

// checkSize returns an error if the strings in list cannot be passed to a program, for example
// because they are too long.
func checkSize(list []string) error {
	total := 0
	for _, s := range list {
		total += len(s) + 1
		if len(s) > maxString || !validCString(s) {
			return bourse.Errorf(bourse.CodeInvalid, "invalid argument or variable (%d bytes, %s): use at most %d bytes of UTF-8 without NUL", len(s), bourse.Quoted(s), maxString)
		}
	}
	if total > maxTotal {
		return bourse.Errorf(bourse.CodeInvalid, "command and environment are %d bytes long; the maximum is %d", total, maxTotal)
	}
	return nil
}
