package container

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/bourse-dev/bourse/driver"
)

// stdin returns the path of the file that contains a task's stdin.
func (l layout) stdin(id driver.TaskID) string { return filepath.Join(l.task(id), "stdin") }

// makeStdin writes a task's stdin to a file in the task's directory before the task is started. The
// shim expects the path of a FIFO but opens any file: it copies the contents to the program's pipe,
// and closes the pipe at the end of the file. The program therefore receives its input even if the
// daemon dies. The file is not synced, because the program would not survive a host crash either.
func (l layout) makeStdin(id driver.TaskID, text []byte) error {
	if len(text) == 0 {
		return nil
	}
	if err := os.WriteFile(l.stdin(id), text, 0o600); err != nil {
		return fmt.Errorf("create stdin: %w", err)
	}
	return nil
}
