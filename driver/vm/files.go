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

// The user of a machine's container owns the machine's directory. A program that has broken out of its guest could
// therefore replace the files in it, for example with links to the host's files. The functions in this file do not
// follow links.

// ExecCommand returns the command line of an agent that runs another program in the guest.
func ExecCommand(name string) []string { return []string{agentFile, "exec", name} }

// SuspendCommand returns the command line of an agent that suspends its machine, or resumes it. Both operations are
// idempotent. If a machine cannot be suspended, it keeps running. If it cannot be resumed, it is terminated.
func SuspendCommand(suspend bool) []string {
	if suspend {
		return []string{agentFile, session.Suspend}
	}
	return []string{agentFile, session.Resume}
}

// WriteExec writes the program of an exec to a machine's directory.
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

// ExecError returns the error of an exec whose program the guest could not start, or nil.
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

// RemoveExec removes the files of an exec. What it cannot remove is removed with the machine.
func RemoveExec(dir, name string) {
	_ = os.Remove(within(dir, session.ExecErrorFile(name)))
	_ = os.Remove(within(dir, session.ExecFile(name)))
}

// Started reports whether a machine's program has started. Once it cannot start any more, Started returns the reason.
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

// OutOfMemory reports whether an ended machine's guest has killed processes because it was out of memory.
func OutOfMemory(dir string) bool {
	var exit session.Exit
	return readFile(filepath.Join(dir, session.Ended), &exit) == nil && exit.OutOfMemory
}

// within returns the path of a file in a machine's directory, given the file's path in the container.
func within(dir, path string) string { return filepath.Join(dir, filepath.Base(path)) }

func readReport(path string) (r session.Report, err error) {
	err = readFile(path, &r)
	return r, err
}

// readFile decodes a file that an agent has written.
func readFile(path string, into any) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0) // not waiting for a writer of a FIFO
	if err != nil {
		return err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", path)
	}
	return json.NewDecoder(io.LimitReader(f, session.MaxShort)).Decode(into)
}

// Printable returns the beginning of a text from a guest or its agent, without characters that are not printable. The guest may
// be hostile.
func Printable(text string) string {
	const maxText = 1 << 10
	return strings.TrimSpace(strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(text[:min(len(text), maxText)], "")))
}

// startError returns the error in a report, or nil if the program was started.
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
