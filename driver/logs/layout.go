package logs

import (
	"os"
	"path/filepath"
)

// layout describes a keeper's directory:
//
//	run/            accessible only to this user, like logs
//	  keeper.lock   locked (flock) by the running keeper
//	  keeper.log    the process's own log
//	  socket        the process's socket
//	logs/           see Files
type layout struct{ dir string }

// newLayout creates the directories.
func newLayout(dir string) (layout, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return layout{}, err
	}
	for _, name := range []string{"run", "logs"} {
		if err := os.MkdirAll(filepath.Join(abs, name), 0o700); err != nil {
			return layout{}, err
		}
	}
	return layout{abs}, nil
}

func (l layout) run() string  { return filepath.Join(l.dir, "run") }
func (l layout) lock() string { return filepath.Join(l.dir, "run", "keeper.lock") }
func (l layout) log() string  { return filepath.Join(l.dir, "run", "keeper.log") }
func (l layout) files() Files { return Files{Dir: filepath.Join(l.dir, "logs")} }
