package process

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver/logs"
)

// layout describes the driver's directory:
//
//	run/             accessible only to this user, like logs/
//	  supervisor.lock  locked (flock) by the running supervisor
//	  supervisor.log   the supervisor's own log
//	  socket           the supervisor's socket
//	machines/<id>/   a machine's default working directory
//	logs/            the machines' output; see package logs
type layout struct{ dir string }

func newLayout(dir string) (layout, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return layout{}, fmt.Errorf("directory %s: %w", dir, err)
	}
	// The mode is 0711, because tasks' users must be able to reach their working directories.
	if err := os.MkdirAll(filepath.Join(abs, "machines"), 0o711); err != nil {
		return layout{}, err
	}
	for _, private := range []string{"run", "logs"} {
		if err := os.MkdirAll(filepath.Join(abs, private), 0o700); err != nil {
			return layout{}, err
		}
	}
	if abs, err = filepath.EvalSymlinks(abs); err != nil {
		return layout{}, err
	}
	return layout{abs}, nil
}

func (l layout) run() string  { return filepath.Join(l.dir, "run") }
func (l layout) lock() string { return filepath.Join(l.dir, "run", "supervisor.lock") }
func (l layout) log() string  { return filepath.Join(l.dir, "run", "supervisor.log") }

// home returns the path of a machine's own directory. id must be valid or empty.
func (l layout) home(id bourse.MachineID) string {
	return filepath.Join(l.dir, "machines", string(id))
}

// logs provides access to the machines' logs.
func (l layout) logs() logs.Files { return logs.Files{Dir: filepath.Join(l.dir, "logs")} }

// mark returns the string that marks processes and cgroups as belonging to this directory. It is a
// hash of the directory's path.
func (l layout) mark() string {
	sum := sha256.Sum256([]byte(l.dir))
	return hex.EncodeToString(sum[:6])
}
