package process

import (
	"errors"
	"io"
	"os"

	"github.com/bourse-dev/bourse"
)

// stdin returns an open file that contains a task's stdin, so that the program receives its input
// even if the daemon and the supervisor die. The file has no name, so it disappears when the
// program has ended. If text is empty, stdin returns the null device.
func (s *supervisor) stdin(text []byte) (*os.File, error) {
	if len(text) == 0 {
		return s.devNull, nil
	}
	f, err := os.CreateTemp(s.layout.run(), "stdin-")
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeUnavailable, "create stdin: %w", err)
	}
	_, err = f.Write(text)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err = errors.Join(err, os.Remove(f.Name())); err != nil {
		return nil, bourse.Errorf(bourse.CodeUnavailable, "create stdin: %w", errors.Join(err, f.Close()))
	}
	return f, nil
}
