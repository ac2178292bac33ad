package container

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/bourse-dev/bourse/driver"
)

// stdin returns the path of a task's stdin.
func (l layout) stdin(id driver.TaskID) string { return filepath.Join(l.task(id), "stdin") }

// makeStdin writes a task's stdin to a file in the task's directory before the task is started. The shim accepts the
// path of a FIFO and opens it like any file: it copies its contents to the program's pipe, and closes the pipe at the
// end of the file. So nobody has to feed it, whatever happens to the daemon. The file is not synced, because the
// program ends with the host.
func (l layout) makeStdin(id driver.TaskID, text []byte) error {
	if len(text) == 0 {
		return nil
	}
	if err := os.WriteFile(l.stdin(id), text, 0o600); err != nil {
		return fmt.Errorf("create stdin: %w", err)
	}
	return nil
}
