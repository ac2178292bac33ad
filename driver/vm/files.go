package vm

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver/vm/session"
)

// A machine's directory belongs to the user of the machine's container. A program that has broken out of the guest
// could therefore replace the files in the directory, for example with links to files on the host. The functions in
// this file do not follow links.

// ExecCommand returns the command line to execute in a machine's container to run another program in the guest. The
// program must have been written with [WriteExec] under the same name.
func ExecCommand(name string) []string { return []string{agentFile, "exec", name} }

// SuspendCommand returns the command line to execute in a machine's container to suspend the machine or, if suspend
// is false, to resume it. Both operations are idempotent. A machine that cannot be suspended keeps running. A machine
// that cannot be resumed is terminated.
func SuspendCommand(suspend bool) []string {
	if suspend {
		return []string{agentFile, session.Suspend}
	}
	return []string{agentFile, session.Resume}
}

// WriteExec writes an exec's program to the machine's directory, for the command that [ExecCommand] returns.
func WriteExec(dir, container, name string, program session.Program) error {
	data, err := json.Marshal(program)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(within(dir, session.ExecFile(name)), os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o400)
	if err != nil {
		return err
	}
	user := User(container)
	_, err = f.Write(data)
	return errors.Join(err, f.Chown(user, user), f.Close())
}

// ExecError returns the guest's error if the guest could not start an exec's program. Otherwise, it returns nil.
func ExecError(dir, name string) error {
	r, err := readReport(within(dir, session.ExecErrorFile(name)))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return startError(r)
}

// RemoveExec removes an exec's files. If it cannot remove a file, the file is removed together with the machine.
func RemoveExec(dir, name string) {
	_ = os.Remove(within(dir, session.ExecErrorFile(name)))
	_ = os.Remove(within(dir, session.ExecFile(name)))
}

// Started reports whether a machine's program has started. If the program could not be started, Started returns the
// error.
func Started(dir string) (bool, error) {
	r, err := readReport(filepath.Join(dir, session.Status))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return r.Started, startError(r)
}

// OutOfMemory reports whether an ended machine's guest killed processes because it was out of memory.
func OutOfMemory(dir string) bool {
	var exit session.Exit
	return readFile(filepath.Join(dir, session.Ended), &exit) == nil && exit.OutOfMemory
}

// within converts a path in the container to the path of the same file in the machine's directory dir.
func within(dir, path string) string { return filepath.Join(dir, filepath.Base(path)) }

func readReport(path string) (r session.Report, err error) {
	err = readFile(path, &r)
	return r, err
}

// readFile decodes a JSON file that an agent has written.
func readFile(path string, into any) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0) // opening a FIFO must not block
	if err != nil {
		return err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", path)
	}
	return json.NewDecoder(io.LimitReader(f, session.MaxShort)).Decode(into)
}

// Printable makes text from a possibly hostile guest safe to print. It returns the first KiB, with unprintable
// characters replaced with spaces.
func Printable(text string) string {
	const maxText = 1 << 10
	return strings.TrimSpace(strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(text[:min(len(text), maxText)], "")))
}

// startError converts a report to an error. It returns nil if the program was started.
func startError(r session.Report) error {
	text := Printable(r.Error)
	switch {
	case r.Started:
		return nil
	case r.Invalid:
		return bourse.Errorf(bourse.CodeInvalid, "%s", text)
	}
	return bourse.Errorf(bourse.CodeInternal, "virtual machine: %s", text)
}
