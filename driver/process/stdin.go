package process

import (
	"errors"
	"io"
	"os"

	"github.com/bourse-dev/bourse"
)

// stdin returns what a task's program reads on stdin: a file without a name, so
// that no one has to feed it, whatever becomes of daemon and supervisor, and
// nothing is left of it when the program has ended. Without text it is null.
func (s *supervisor) stdin(text []byte) (*os.File, error) {
	if len(text) == 0 {
		return s.null, nil
	}
	f, err := os.CreateTemp(s.layout.run(), "stdin-")
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeUnavailable, "make stdin: %w", err)
	}
	_, err = f.Write(text)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err = errors.Join(err, os.Remove(f.Name())); err != nil {
		return nil, bourse.Errorf(bourse.CodeUnavailable, "make stdin: %w", errors.Join(err, f.Close()))
	}
	return f, nil
}
